//! SHELL. The command's program: its names, and whether a sandbox may have written a file of it.

use std::path::{Path, PathBuf};

use super::list::AgentData;
use crate::plan::never::NeverList;
use crate::sys::path;
use crate::wrap::list::SystemList;
use crate::wrap::person::Person;
use crate::wrap::settings::places;
use crate::wrap::toolchain::prefix_of;

/// File names under which a program is called: as it was typed, of the links to it, and its own.
pub fn names(typed: &str, found: Option<&Path>) -> Vec<String> {
    let mut names = Vec::new();
    let mut add = |path: &Path| {
        names.extend(
            path.file_name()
                .and_then(|name| name.to_str())
                .map(str::to_owned),
        );
    };
    add(Path::new(typed));
    if let Some(found) = found {
        let end = path::resolve(found, |step| {
            if step.found.is_symlink() && step.path != found {
                add(step.path);
            }
            Ok(())
        });
        end.iter().for_each(|real| add(real));
    }
    names
}

/// Where no sandbox of the user's writes: what root alone writes, and directories of the home in which installers keep programs. The
/// latter are only read in sandboxes, unless they were named to be written.
pub struct ProgramPlaces<'a> {
    /// Whose programs they are.
    pub person: &'a Person,
    /// The built-in list.
    pub list: &'a SystemList,
    /// What this run's command writes, without links.
    pub written: Vec<PathBuf>,
}

impl ProgramPlaces<'_> {
    /// The first of these files, or of the links to one, that a sandbox may have written.
    pub fn written_by_a_sandbox(&self, files: &[PathBuf]) -> Option<PathBuf> {
        files.iter().find_map(|file| self.judge(file).err())
    }

    fn judge(&self, file: &Path) -> Result<(), PathBuf> {
        let mut links = Vec::new();
        let real = path::resolve(file, |step| {
            if step.found.is_symlink() {
                links.push(step.path.to_owned());
            }
            Ok(())
        });
        let real = real.map_err(|_| file.to_owned())?;
        for path in links.into_iter().chain([real.clone()]) {
            let directory = path.parent().unwrap_or(&path);
            if self.written.iter().any(|place| path.starts_with(place))
                || !self.is_closed(directory)
            {
                return Err(path);
            }
        }
        // Nor another user of the node.
        path::resolve_owned(file, self.person.uid)
            .map(|_| ())
            .map_err(|_| real)
    }

    fn is_closed(&self, directory: &Path) -> bool {
        NeverList::builtin().is_closed(directory)
            || places::no_sandbox_writes(self.person, directory)
            || self.is_installers(directory)
    }

    fn is_installers(&self, directory: &Path) -> bool {
        let homes = places::home(self.person)
            .into_iter()
            .chain(self.person.home());
        let homes = homes.filter_map(|home| home.canonicalize().ok());
        let mut all = self.list.program_places();
        all.extend(AgentData::program_places());
        let (absolute, below): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|place| place.is_absolute());
        homes
            .map(|home| prefix_of(&home, &below, directory))
            .any(|found| found.is_some())
            || absolute.iter().any(|place| directory.starts_with(place))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::wrap::accounts::Account;
    use crate::wrap::person::Environment;

    /// A user with this home, who has the rights of the test.
    fn person(home: &Path) -> Person {
        let (uid, gid) = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let account = Account {
            name: "me".to_owned(),
            uid,
            gid,
            home: home.to_owned(),
            shell: String::new(),
        };
        Person {
            uid,
            gid,
            groups: Vec::new(),
            account: Some(account),
            environment: Environment::Changed,
        }
    }

    #[test]
    fn a_program_counts_where_installers_put_it_and_never_in_what_is_written() {
        // Not below /tmp, in which everybody makes entries.
        let base =
            nix::unistd::mkdtemp(&std::env::current_dir().unwrap().join("target/home-XXXXXX"))
                .unwrap();
        let home = base.canonicalize().unwrap();
        let person = person(&home);
        let list = SystemList::builtin();
        let make = |path: &str| {
            let path = home.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        };
        let link = |to: &str, path: &str| {
            let path = home.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(to, &path).unwrap();
            path
        };
        let native = make(".local/share/claude/versions/2.1.197");
        let typed = link("../share/claude/versions/2.1.197", ".local/bin/claude");
        let nvm = make(".nvm/versions/node/v22.1.0/bin/node");
        let planted = make("src/project/node_modules/.bin/claude");
        let alias = link(
            "../../src/project/node_modules/.bin/claude",
            ".local/bin/cc",
        );
        let elsewhere = make("tools/claude");
        let by = |written: &[&str], file: &Path| {
            let written = written.iter().map(|path| home.join(path)).collect();
            let places = ProgramPlaces {
                person: &person,
                list: &list,
                written,
            };
            places.written_by_a_sandbox(&[file.to_owned()])
        };
        for good in [&native, &typed, &nvm] {
            assert_eq!(by(&["src/project"], good), None, "{good:?}");
        }
        assert_eq!(by(&[], Path::new("/usr/bin/env")), None);
        for bad in [&planted, &alias] {
            assert_eq!(by(&[], bad).as_ref(), Some(&planted), "{bad:?}");
        }
        assert_eq!(by(&[], &elsewhere), Some(elsewhere.clone()));
        // What is written this time is none of an installer's.
        assert_eq!(by(&[".local/share"], &typed), Some(native.clone()));
        assert_eq!(by(&[".local/bin"], &typed), Some(typed.clone()));
        assert_eq!(
            by(&[], &home.join("missing/claude")),
            Some(home.join("missing/claude"))
        );
        assert_eq!(names("claude", Some(&typed)), ["claude", "2.1.197"]);
        assert_eq!(names("./cc", Some(&alias)), ["cc", "claude"]);
        assert_eq!(names("sh", None), ["sh"]);
        fs::remove_dir_all(base).unwrap();
    }
}
