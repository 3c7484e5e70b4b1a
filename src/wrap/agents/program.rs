//! SHELL. The command's program: its names, and whether a sandbox may have written a file of it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::list::AgentData;
use super::outside;
use crate::sys::path;
use crate::wrap::error::WrapRefusal;
use crate::wrap::list::SystemList;
use crate::wrap::person::Person;
use crate::wrap::settings::places;
use crate::wrap::toolchain::prefix_of;

/// File names under which a program is called: as it was typed, of the links to it, and its own. Names of directories are none.
pub fn names(typed: &str, found: Option<&Path>) -> Vec<String> {
    /// The kernel's MAXSYMLINKS.
    const MOST_LINKS: usize = 40;
    let mut paths = vec![PathBuf::from(typed)];
    let mut next = found.map(Path::to_owned);
    while let (Some(path), true) = (next.take(), paths.len() <= MOST_LINKS) {
        let target = fs::read_link(&path).ok();
        next = target.map(|target| path.parent().unwrap_or(&path).join(target));
        paths.push(path);
    }
    let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.dedup();
    names
}

/// Where no sandbox of the user's writes: what root alone writes, and directories of the home in which installers keep programs. The
/// latter are only read in sandboxes, unless they were named to be written.
pub struct ProgramPlaces<'a> {
    /// Whose programs they are.
    person: &'a Person,
    /// The list of what `wrap` shows.
    list: &'a SystemList,
    /// What this run's command writes, without links.
    written: Vec<PathBuf>,
    /// The user's homes, without links.
    homes: Vec<PathBuf>,
    /// Directories in which installers keep programs: absolute ones, and those below a home.
    installers: (Vec<PathBuf>, Vec<PathBuf>),
}

impl<'a> ProgramPlaces<'a> {
    /// Those of a user, for a command that writes these places, without links. To be called with the user's rights over files.
    pub fn of(person: &'a Person, list: &'a SystemList, written: Vec<PathBuf>) -> Self {
        let mut all = list.program_places();
        all.extend(AgentData::program_places());
        Self {
            person,
            list,
            written,
            homes: places::homes(person).collect(),
            installers: all.into_iter().partition(|place| place.is_absolute()),
        }
    }

    /// The first of these files, or of the links to one, that a sandbox may have written. A file that is not there is one that a
    /// sandbox could make.
    pub fn written_by_a_sandbox<'f>(
        &self,
        mut files: impl Iterator<Item = &'f PathBuf>,
    ) -> Option<PathBuf> {
        files.find_map(|file| self.judge(file).err())
    }

    /// The first of these files that is a shim, by its own name or that of a link to it.
    pub fn shim<'f>(&self, mut files: impl Iterator<Item = &'f PathBuf>) -> Option<PathBuf> {
        let is_shim = |path: &PathBuf| self.list.is_shim(path);
        files.find_map(|file| {
            path::ways(file)
                .ok()?
                .into_iter()
                .chain([file.clone()])
                .find(is_shim)
        })
    }

    fn judge(&self, file: &Path) -> Result<(), PathBuf> {
        let all = path::ways(file).map_err(|_| file.to_owned())?;
        let real = all.last().cloned().unwrap_or_else(|| file.to_owned());
        for path in all {
            // A directory that is not there is made in the one above it.
            let mut above = path.ancestors().skip(1);
            let directory = above.find(|above| above.symlink_metadata().is_ok());
            let directory = directory.unwrap_or(&path);
            let is_closed =
                self.is_closed(directory) || self.is_closed(path.parent().unwrap_or(directory));
            if self.written.iter().any(|place| path.starts_with(place)) || !is_closed {
                return Err(path);
            }
        }
        // Nor another user of the node.
        path::resolve_owned(file, self.person.uid)
            .map(|_| ())
            .map_err(|_| real)
    }

    /// Refuses to write where programs count, or an agent's own directory outside: a later run would take them for the user's.
    pub fn refuse_written(&self) -> Result<()> {
        let (absolute, below) = &self.installers;
        let root = [PathBuf::from("/")];
        let absolute: Vec<PathBuf> = absolute
            .iter()
            .filter_map(|path| path.strip_prefix("/").ok().map(Path::to_owned))
            .collect();
        let bases = self.homes.iter().map(|home| (home, below));
        let bases: Vec<_> = bases
            .chain(root.iter().map(|root| (root, &absolute)))
            .collect();
        for place in &self.written {
            let mut patterns = bases
                .iter()
                .flat_map(|(base, all)| all.iter().map(move |pattern| (*base, pattern)));
            let overlaps = patterns.find(|(base, pattern)| {
                prefix_of(base, std::slice::from_ref(pattern), place).is_some()
                    || is_above(base, pattern, place)
            });
            if let Some((base, pattern)) = overlaps {
                bail!(WrapRefusal::HoldsPrograms {
                    path: place.clone(),
                    own: base.join(pattern),
                });
            }
            outside::refuse_written(self.person, place)?;
        }
        Ok(())
    }

    fn is_closed(&self, directory: &Path) -> bool {
        places::no_sandbox_writes(self.person, directory) || self.is_installers(directory)
    }

    fn is_installers(&self, directory: &Path) -> bool {
        let (absolute, below) = &self.installers;
        let mut found = self
            .homes
            .iter()
            .map(|home| prefix_of(home, below, directory));
        found.any(|found| found.is_some())
            || absolute.iter().any(|place| directory.starts_with(place))
    }
}

/// Whether a directory that a pattern below `base` names lies in `path`, and is not all of it.
fn is_above(base: &Path, pattern: &Path, path: &Path) -> bool {
    let Ok(rest) = path.strip_prefix(base) else {
        return base.starts_with(path);
    };
    let mut parts = pattern.components();
    let mut same = rest.components().map(|have| (have, parts.next()));
    let leads =
        same.all(|(have, want)| want.is_some_and(|want| want.as_os_str() == "*" || want == have));
    drop(same);
    leads && parts.next().is_some()
}

#[cfg(test)]
mod tests {
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
            let places = ProgramPlaces::of(&person, &list, written);
            places.written_by_a_sandbox([file.to_owned()].iter())
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
        // What is not there counts where a sandbox could make it: not in a home itself.
        let missing = |path: &str| by(&["src/project"], &home.join(path)).is_some();
        for (path, counts) in [
            (".local/bin/missing", false),
            (".none/bin/claude", false),
            ("src/none/claude", true),
            ("src/project/none/claude", true),
            ("src/project/node_modules/.bin/none", true),
            (".local/share/chezmoi/claude", true),
        ] {
            assert_eq!(missing(path), counts, "{path}");
        }
        assert_eq!(names("claude", Some(&typed)), ["claude", "2.1.197"]);
        assert_eq!(names("./cc", Some(&alias)), ["cc", "claude"]);
        // The name of a linked directory is no name of the program.
        let helper = make("tool/bin/helper");
        let linked = link("tool", "codex").join("bin/helper");
        assert_eq!(names("helper", Some(&linked)), ["helper"]);
        assert_eq!(names("helper", Some(&helper)), ["helper"]);
        assert_eq!(names("sh", None), ["sh"]);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn what_counts_as_the_users_is_never_written() {
        let base =
            nix::unistd::mkdtemp(&std::env::current_dir().unwrap().join("target/home-XXXXXX"))
                .unwrap();
        let home = base.canonicalize().unwrap();
        let (person, list) = (person(&home), SystemList::builtin());
        let refused = |path: &str| {
            let places = ProgramPlaces::of(&person, &list, vec![home.join(path)]);
            places.refuse_written().is_err()
        };
        for path in [
            ".local/bin",
            ".local/share",
            ".local/share/claude/versions",
            "go",
            "go/bin",
            "bin",
            ".nvm/versions/node/v22.1.0/lib",
            ".claude",
            ".claude/skills/mine",
            ".codex",
            ".config/opencode",
        ] {
            assert!(refused(path), "{path}");
        }
        for path in [
            "src/project",
            "go/src/mine",
            ".local/share/chezmoi",
            "lib",
            ".config/nvim",
        ] {
            assert!(!refused(path), "{path}");
        }
        fs::remove_dir_all(base).unwrap();
    }
}
