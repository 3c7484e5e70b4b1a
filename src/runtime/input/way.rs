//! Files of the node that are only as good as every directory and link on the way to them: who can write one of those can put
//! another of root's files there.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::runtime::RuntimeError;
use crate::sys::user_namespace::owner;

/// As many links as the kernel follows (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Opens a regular file. An error where others than root can write a directory on the way to it, those of the links that lead there
/// included.
pub fn open(path: &Path) -> Result<File, RuntimeError> {
    let step = |error: Errno| RuntimeError::io(format!("open {path:?}"))(error);
    let whole = std::path::absolute(path).map_err(RuntimeError::io(format!("open {path:?}")))?;
    let mut left = components(&whole);
    let mut at = Step::root().map_err(step)?;
    let mut links = 0;
    while let Some(name) = left.pop_front() {
        let found = at.look(&name).map_err(step)?;
        at.judge(path, &found)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Symlink if links == MOST_LINKS => return Err(step(Errno::LOOP)),
            FileType::Symlink => {
                links += 1;
                let target = at.link(&name).map_err(step)?;
                if target.is_absolute() {
                    at = Step::root().map_err(step)?;
                }
                for component in components(&target).into_iter().rev() {
                    left.push_front(component);
                }
            }
            FileType::Directory if !left.is_empty() => at.enter(&name).map_err(step)?,
            FileType::RegularFile if left.is_empty() => return at.file(&name).map_err(step),
            _ => {
                return Err(RuntimeError::Input {
                    path: path.to_owned(),
                    why: "it is not a regular file".to_owned(),
                });
            }
        }
    }
    Err(step(Errno::ISDIR))
}

/// The names of a path, in which `..` is one.
fn components(path: &Path) -> VecDeque<OsString> {
    let all = path.components();
    let names = all.filter(|one| matches!(one, Component::Normal(_) | Component::ParentDir));
    names.map(|one| one.as_os_str().to_owned()).collect()
}

/// A directory on the way.
struct Step {
    fd: OwnedFd,
    /// For messages.
    path: PathBuf,
}

impl Step {
    fn root() -> Result<Self, Errno> {
        Ok(Self {
            fd: rustix::fs::open("/", directory(), Mode::empty())?,
            path: "/".into(),
        })
    }

    fn look(&self, name: &OsStr) -> Result<Stat, Errno> {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn link(&self, name: &OsStr) -> Result<PathBuf, Errno> {
        let target = rustix::fs::readlinkat(&self.fd, name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }

    fn enter(&mut self, name: &OsStr) -> Result<(), Errno> {
        self.fd = rustix::fs::openat(&self.fd, name, directory(), Mode::empty())?;
        self.path.push(name);
        Ok(())
    }

    fn file(&self, name: &OsStr) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = flags | OFlags::NOFOLLOW;
        rustix::fs::openat(&self.fd, name, flags, Mode::empty()).map(File::from)
    }

    /// Whether root alone decides which file this entry is. In a sticky directory others can put entries, and only those of their
    /// own away.
    fn judge(&self, path: &Path, entry: &Stat) -> Result<(), RuntimeError> {
        let step = RuntimeError::io(format!("look at {:?}", self.path));
        let own = rustix::fs::fstat(&self.fd).map_err(step)?;
        let sticky = own.st_mode & 0o1000 != 0 && owner(entry.st_uid) == 0;
        if owner(own.st_uid) == 0 && (own.st_mode & 0o022 == 0 || sticky) {
            return Ok(());
        }
        Err(RuntimeError::Input {
            path: path.to_owned(),
            why: format!(
                "others than root may write {:?} (owner {}, mode {:o}), which leads to it: chown root it and chmod go-w it",
                self.path,
                owner(own.st_uid),
                own.st_mode & 0o7777
            ),
        })
    }
}

fn directory() -> OFlags {
    OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn each_directory_and_each_link_on_the_way_is_roots() {
        if !rustix::process::getuid().is_root() {
            return;
        }
        let base = std::env::temp_dir().join(format!("agentbox-way-{}", std::process::id()));
        let dir = |name: &str, mode: u32| {
            let path = base.join(name);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            path
        };
        let (good, open, sticky) = (
            dir("good", 0o755),
            dir("open", 0o777),
            dir("sticky", 0o1777),
        );
        for place in [&good, &open, &sticky] {
            std::fs::write(place.join("key"), "x").unwrap();
        }
        symlink("../good/key", sticky.join("link")).unwrap();
        symlink(open.join("key"), good.join("to-open")).unwrap();
        symlink("loop", good.join("loop")).unwrap();
        let opens = |path: PathBuf| super::open(&path).map(drop);
        for path in [
            good.join("key"),
            sticky.join("key"),
            sticky.join("link"),
            good.join("../good/./key"),
        ] {
            opens(path).unwrap();
        }
        for path in [
            open.join("key"),
            good.join("to-open"),
            open.join("../good/key"),
        ] {
            let error = opens(path.clone()).unwrap_err().to_string();
            assert!(error.contains("which leads to it"), "{path:?}: {error}");
        }
        // What another user has in a sticky directory is that user's to change.
        std::os::unix::fs::lchown(sticky.join("link"), Some(65534), None).unwrap();
        assert!(opens(sticky.join("link")).is_err());
        chown(&good, Some(65534), None).unwrap();
        assert!(opens(good.join("key")).is_err());
        chown(&good, Some(0), None).unwrap();
        for path in [good.join("loop"), good.join("none"), good.clone()] {
            assert!(opens(path).is_err());
        }
        std::fs::remove_dir_all(base).unwrap();
    }
}
