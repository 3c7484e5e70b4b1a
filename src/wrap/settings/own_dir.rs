//! SHELL. A directory of the user's, in which files appear atomically.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::policy::typed_path;
use crate::sys::path;
use crate::wrap::error::WrapRefusal;
use crate::wrap::person::Person;
use crate::wrap::planted;

/// A directory that decides what commands may do.
pub struct OwnDir(PathBuf);

impl OwnDir {
    /// At this path, which need not exist. What is in it counts after [`OwnDir::check`].
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// This one, made where it is missing, and judged. No other user can put another one in its place, and links count where no
    /// sandbox makes them: what is in it is shown to sandboxes.
    pub fn made(path: &Path, person: &Person) -> Result<Self> {
        let refused = |why: String| WrapRefusal::File {
            path: path.to_owned(),
            why,
        };
        let real = planted::named(path, person);
        let real = real.map_err(|error| refused(format!("is not used: {error}")))?;
        if let Err(error) = path::resolve_owned(&real, person.uid) {
            bail!(refused(match path::weakest(&error) {
                Some(weak) => format!(
                    "is not used: {weak}: `chmod go-w {}`",
                    typed_path(&weak.path)
                ),
                None => format!("cannot be used: {error}"),
            }));
        }
        open_made(&real).with_context(|| format!("make {path:?}"))?;
        let own = Self(real);
        own.check(person)?;
        Ok(own)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// No link leads to the directory where a sandbox could have made one.
    fn check_links(&self, person: &Person) -> Result<PathBuf> {
        let real = planted::named(&self.0, person);
        Ok(real.map_err(|error| WrapRefusal::File {
            path: self.0.clone(),
            why: format!("is not used: {error}"),
        })?)
    }

    /// Only the user may write the directory, since its files decide what is trusted.
    pub fn check(&self, person: &Person) -> Result<()> {
        let dir = &self.check_links(person)?;
        let found = dir.metadata().with_context(|| format!("look at {dir:?}"))?;
        if !found.is_dir() || !person.owns(&found) || found.mode() & 0o022 != 0 {
            bail!(WrapRefusal::File {
                path: dir.clone(),
                why: "decides about later runs: it must be your own, and not writable by others (chmod go-w)".to_owned(),
            });
        }
        Ok(())
    }

    /// Writes a file in it, readable by its owner alone.
    pub fn put(&self, person: &Person, place: &Path, content: &[u8]) -> Result<()> {
        let dir = &self.0;
        self.check_links(person)?;
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir);
        made.with_context(|| format!("make {dir:?}"))?;
        self.check(person)?;
        // Written and then renamed: a killed process leaves only a file that nothing reads.
        let half = dir.join(format!(".{}", std::process::id()));
        let step = || format!("write {half:?}");
        if let Err(error) = fs::remove_file(&half)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error).with_context(step);
        }
        let mut options = File::options();
        let file = options.write(true).create_new(true).mode(0o600).open(&half);
        let mut file = file.with_context(step)?;
        file.write_all(content).with_context(step)?;
        fs::rename(&half, place).with_context(|| format!("write {place:?}"))
    }
}

/// Opens a directory by no link, and makes what is missing of it.
fn open_made(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = rustix::fs::open("/", flags, Mode::empty())?;
    for part in path.components().skip(1) {
        at = match rustix::fs::openat(&at, part.as_os_str(), flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                match rustix::fs::mkdirat(&at, part.as_os_str(), Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
                rustix::fs::openat(&at, part.as_os_str(), flags, Mode::empty())?
            }
            opened => opened?,
        };
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::wrap::person::Environment;

    #[test]
    fn a_directory_is_made_where_no_other_user_and_no_sandbox_can_lead_elsewhere() {
        // Not below /tmp, in which everybody makes entries.
        let base =
            nix::unistd::mkdtemp(&std::env::current_dir().unwrap().join("target/own-XXXXXX"))
                .unwrap();
        let base = base.canonicalize().unwrap();
        let person = Person {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: Vec::new(),
            account: None,
            environment: Environment::Changed,
        };
        let made = |path: &str| OwnDir::made(&base.join(path), &person);
        let own = made("state/agents/claude").unwrap();
        assert_eq!(own.path(), base.join("state/agents/claude"));
        assert_eq!(fs::metadata(own.path()).unwrap().mode() & 0o777, 0o700);
        let refused = |path: &str, word: &str| {
            let why = format!("{:#}", made(path).map(|_| ()).unwrap_err());
            assert!(why.contains(word), "{path}: {why}");
        };
        fs::create_dir(base.join("victim")).unwrap();
        symlink(base.join("victim"), base.join("state/agents/codex")).unwrap();
        refused("state/agents/codex", "a command could have made");
        // Nor are files read or written there.
        let linked = OwnDir::at(base.join("state/agents/codex/trusted"));
        fs::create_dir(base.join("victim/trusted")).unwrap();
        let why = format!("{:#}", linked.check(&person).unwrap_err());
        assert!(why.contains("a command could have made"), "{why}");
        fs::remove_dir(base.join("victim/trusted")).unwrap();
        let place = linked.path().join("entry");
        linked.put(&person, &place, b"").unwrap_err();
        assert!(!base.join("victim/trusted").exists());
        let own_dir = OwnDir::at(base.join("state/trusted"));
        own_dir
            .put(&person, &base.join("state/trusted/entry"), b"")
            .unwrap();
        own_dir.check(&person).unwrap();
        fs::create_dir_all(base.join("open/agents")).unwrap();
        fs::set_permissions(base.join("open"), fs::Permissions::from_mode(0o777)).unwrap();
        refused("open/agents/claude", "chmod go-w");
        fs::set_permissions(own.path(), fs::Permissions::from_mode(0o770)).unwrap();
        refused("state/agents/claude", "chmod go-w");
        fs::write(base.join("state/file"), "").unwrap();
        refused("state/file", "make");
        assert!(!base.join("victim/claude").exists());
        fs::remove_dir_all(base).unwrap();
    }
}
