//! SHELL. Where settings are, and the check that no command writes them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::own_dir::OwnDir;
use crate::audit::hash;
use crate::plan::never::NeverList;
use crate::probe::is_home;
use crate::sys::path::resolve_owned;
use crate::wrap::error::WrapRefusal;
use crate::wrap::person::{Environment, Person};
use crate::wrap::planted;

/// A project's file, at the top of the workspace.
pub const PROJECT_FILE: &str = ".agentbox.toml";
/// Most bytes of a settings file.
pub const LONGEST: usize = 64 << 10;

/// The user's home. If sudo or the like ran in between, HOME and the XDG variables may be root's, so passwd(5) decides.
pub fn home(person: &Person) -> Option<PathBuf> {
    own_variable(person, "HOME").or_else(|| person.home())
}

/// The homes of the user, without links: HOME's, and that of passwd(5) if it is another.
pub fn homes(person: &Person) -> impl Iterator<Item = PathBuf> {
    let (own, account) = (home(person), person.home());
    let account = account.filter(|account| own.as_ref() != Some(account));
    let homes = own.into_iter().chain(account);
    homes.filter_map(|home| home.canonicalize().ok())
}

/// An absolute path in one of the user's own variables.
pub fn own_variable(person: &Person, name: &str) -> Option<PathBuf> {
    let value: Option<OsString> = match person.environment {
        Environment::Own => std::env::var_os(name),
        Environment::Changed => None,
    };
    value.map(PathBuf::from).filter(|path| path.is_absolute())
}

/// The user's file.
pub fn config(person: &Person, home: &Path) -> PathBuf {
    let base = own_variable(person, "XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
    base.join("agentbox/config.toml")
}

/// Where the user's trusted contents are recorded.
pub fn trusted(person: &Person, home: &Path) -> PathBuf {
    let base = own_variable(person, "XDG_STATE_HOME").unwrap_or_else(|| home.join(".local/state"));
    base.join("agentbox/trusted")
}

/// Where the user's answers at the prompt are recorded.
pub fn allowed(person: &Person, home: &Path) -> PathBuf {
    trusted(person, home).with_file_name("allowed")
}

/// Which notices the user has seen, a file for each.
pub fn notices(person: &Person, home: &Path) -> PathBuf {
    trusted(person, home).with_file_name("notices")
}

/// Whether the user has not seen this notice; from now on they have. If that cannot be kept, it stays new. What keeps it is the
/// user's own, also behind sudo.
pub fn is_first_time(person: &Person, notice: &str) -> bool {
    let look = || is_new(person, notice);
    person.looking(look).unwrap_or(true)
}

/// The same for a notice in one workspace.
pub fn is_first_time_in(person: &Person, workspace: &Path, notice: &str) -> bool {
    is_first_time(person, &in_workspace(workspace, notice))
}

/// Whether the user has seen a notice in one workspace. It changes nothing.
pub fn has_seen_in(person: &Person, workspace: &Path, notice: &str) -> bool {
    let look = || has_seen(person, &in_workspace(workspace, notice));
    person.looking(look).unwrap_or(false)
}

fn in_workspace(workspace: &Path, notice: &str) -> String {
    let hash = hash(workspace.as_os_str().as_encoded_bytes());
    format!("{notice}-{}", &hash[..16])
}

fn has_seen(person: &Person, notice: &str) -> bool {
    home(person).is_some_and(|home| {
        let dir = notices(person, &home);
        let path = dir.join(notice);
        OwnDir::at(dir).check(person).is_ok() && path.symlink_metadata().is_ok()
    })
}

fn is_new(person: &Person, notice: &str) -> bool {
    if has_seen(person, notice) {
        return false;
    }
    if let Some(home) = home(person) {
        let dir = notices(person, &home);
        let path = dir.join(notice);
        if let Err(error) = OwnDir::at(dir).put(person, &path, b"") {
            log::debug!("keep that the notice {notice:?} was seen: {error:#}");
        }
    }
    true
}

/// Where writes to package caches are kept.
pub fn caches_dir(person: &Person, home: &Path) -> PathBuf {
    trusted(person, home).with_file_name("caches")
}

/// The directory of agents' homes, wherever variables lead.
const AGENTS: &str = ".agentbox-agents";

/// The homes that agents have in sandboxes. The name is on the never-list, so that no mount shows it wherever the variables or links
/// of another run lead.
pub fn agents(person: &Person, home: &Path) -> PathBuf {
    trusted(person, home).with_file_name(AGENTS)
}

/// The directory of [`agents`], without links, if there is one.
pub fn agents_homes(person: &Person) -> Option<PathBuf> {
    agents(person, &home(person)?).canonicalize().ok()
}

/// The directories of settings and state, unless variables name others. They are on the never-list too, so no mount
/// shows them.
const OWN: [&str; 2] = [".config/agentbox", ".local/state/agentbox"];

/// The user's settings directory, without links, if the never-list keeps it out of every mount.
pub fn closed_settings(person: &Person) -> Option<PathBuf> {
    let config = config(person, &home(person)?);
    let real = config.parent()?.canonicalize().ok()?;
    real.ends_with(OWN[0]).then_some(real)
}

/// The user's home where settings with secrets count: that of passwd(5), whatever variables say. A project may have set those.
fn account_home(person: &Person) -> Option<PathBuf> {
    person.home().or_else(|| home(person))
}

/// The settings in that home, if variables lead elsewhere.
pub fn settings_passed_over(person: &Person, path: &Path) -> Option<PathBuf> {
    let account = account_home(person)?;
    let own = account.join(OWN[0]).join(path.file_name()?);
    // The usual paths are looked at no further.
    let same = |one: &Path, other: &Path| {
        one == other || one.canonicalize().ok() == other.canonicalize().ok()
    };
    let leads_there = same(path, &own) && same(&home(person)?, &account);
    (!leads_there && own.symlink_metadata().is_ok()).then_some(own)
}

/// The place where settings with secrets count, without links; an error if these do not lie there.
pub fn at_home(person: &Person, path: &Path) -> Result<PathBuf, String> {
    let account = account_home(person).ok_or("you have no home")?;
    let name = path.file_name().unwrap_or_default();
    let place = account.canonicalize();
    let place = place.map(|home| home.join(OWN[0]).join(name));
    let place = place
        .ok()
        .filter(|place| path.canonicalize().ok().as_ref() == Some(place));
    let Some(place) = place else {
        let own = account.join(OWN[0]).join(name);
        return Err(format!("secrets count only in {own:?}, not behind a link"));
    };
    match resolve_owned(path, person.uid) {
        Ok(_) => Ok(place),
        Err(error) => Err(format!("{error}: others must not change it (chmod go-w)")),
    }
}

/// Whether no sandbox writes a directory, so that its links are the user's or the node's own.
pub fn no_sandbox_writes(person: &Person, directory: &Path) -> bool {
    let is_closed = NeverList::builtin().is_closed(directory)
        || is_home(directory)
        || closed_settings(person).is_some_and(|own| directory.starts_with(own))
        || homes(person).any(|home| home == directory);
    is_closed && !sandboxes_write(person, directory)
}

/// Whether sandboxes write a directory that no request shows: homes of agents, and caches that are kept. The never-list
/// closes them too, for root by `/root`.
fn sandboxes_write(person: &Person, directory: &Path) -> bool {
    let caches = || caches_dir(person, &home(person)?).canonicalize().ok();
    directory.iter().any(|part| part == AGENTS)
        || caches().is_some_and(|caches| directory.starts_with(caches))
}

/// The text of a project's file, or what is wrong with it. It follows no link and never blocks.
pub fn read_project(path: &Path) -> Result<String, String> {
    let flags =
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let file = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP) => return Err("is a link".to_owned()),
        Err(Errno::NOENT) => return Err("is not there".to_owned()),
        Err(error) => return Err(format!("cannot be read ({error})")),
    };
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err("is no file".to_owned());
    }
    let mut bytes = Vec::new();
    let most = LONGEST as u64;
    let read = file.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot be read ({error})"))?;
    if bytes.len() > LONGEST {
        return Err(format!("is longer than {} KiB", LONGEST >> 10));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned())
}

/// Refuses writable directories that hold, or could hold, files that the next run trusts without asking.
pub fn refuse_written<'a>(
    person: &Person,
    written: impl Iterator<Item = &'a PathBuf>,
) -> Result<()> {
    let Some(home) = home(person) else {
        return Ok(());
    };
    let directory_of = |file: PathBuf| file.parent().map(Path::to_owned).unwrap_or(file);
    let mut places = vec![
        config(person, &home),
        trusted(person, &home),
        allowed(person, &home),
        caches_dir(person, &home),
        agents(person, &home),
        // With the policies and logs beside them.
        directory_of(config(person, &home)),
        directory_of(trusted(person, &home)),
    ];
    // Also the directories that other variables would select.
    for home in [Some(home), person.home()].into_iter().flatten() {
        places.extend(OWN.map(|own| home.join(own)));
    }
    // Most appear several times.
    let mut seen = BTreeSet::new();
    places.retain(|place| seen.insert(place.clone()));
    let written: Vec<PathBuf> = written.cloned().collect();
    let mut own = places.clone();
    for path in &places {
        match planted::real(path, &written) {
            Ok(real) => own.push(real),
            // A link on the way there that the command could replace.
            Err(error) if error.kind() == ErrorKind::Other => bail!(WrapRefusal::HoldsSettings {
                path: written.first().cloned().unwrap_or_default(),
                own: path.clone(),
            }),
            // The path cannot be reached, by this program neither.
            Err(_) => {}
        }
    }
    for place in &written {
        if let Some(own) = own
            .iter()
            .find(|own| own.starts_with(place) || place.starts_with(own))
        {
            bail!(WrapRefusal::HoldsSettings {
                path: place.clone(),
                own: own.clone(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For root they lie in what no mount shows, and a sandbox of an agent writes them all the same.
    #[test]
    fn a_home_that_sandboxes_have_is_not_closed() {
        let person = Person::of_caller(Path::new("/")).unwrap();
        let own = Path::new("/root/.local/state/agentbox");
        assert!(no_sandbox_writes(&person, own), "the control");
        for below in ["claude", "claude/.claude", "claude/.claude/x"] {
            let home = own.join(AGENTS).join(below);
            assert!(!no_sandbox_writes(&person, &home), "{home:?}");
        }
        let elsewhere = Path::new("/run/user/1000/state/agentbox");
        assert!(!no_sandbox_writes(&person, &elsewhere.join(AGENTS)));
    }

    #[test]
    fn what_is_no_text_of_the_project_is_told() {
        let base =
            nix::unistd::mkdtemp(&std::env::temp_dir().join("agentbox-test-XXXXXX")).unwrap();
        let path = base.join(PROJECT_FILE);
        let told = |make: &dyn Fn(&Path), word: &str| {
            make(&path);
            let why = read_project(&path).unwrap_err();
            assert!(why.contains(word), "{word}: {why}");
            let gone = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir(&path));
            gone.unwrap();
        };
        told(
            &|p| std::fs::write(p, [b'#'; LONGEST + 1]).unwrap(),
            "longer",
        );
        told(&|p| std::fs::write(p, [0xff]).unwrap(), "UTF-8");
        told(
            &|p| std::os::unix::fs::symlink("/etc/hostname", p).unwrap(),
            "link",
        );
        told(&|p| std::fs::create_dir(p).unwrap(), "no file");
        told(
            &|p| nix::unistd::mkfifo(p, nix::sys::stat::Mode::S_IRWXU).unwrap(),
            "no file",
        );
        std::fs::write(&path, [b'#'; LONGEST]).unwrap();
        assert!(read_project(&path).is_ok());
        std::fs::remove_dir_all(base).unwrap();
    }
}
