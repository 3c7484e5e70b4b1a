//! Files of the node that are safe only if every directory and link on the way is: a user who can write one of those
//! can put another of root's files there.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use crate::policy::typed_path;
use crate::runtime::RuntimeError;
use crate::sys::path::{resolve_owned, weakest};

/// The error for the node's file, with what to do if it is root's alone.
pub fn closed(path: &Path, error: RuntimeError) -> RuntimeError {
    match error {
        RuntimeError::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            let why = "it is root's alone, and limits every user's wrap: chmod 644 it; keys belong in files of their own";
            RuntimeError::Input {
                path: path.to_owned(),
                why: why.to_owned(),
            }
        }
        other => other,
    }
}

/// Opens a regular file. It is an error if users other than root can write a directory or link on the way.
pub fn open(path: &Path) -> Result<File, RuntimeError> {
    let real = match resolve_owned(path, 0) {
        Ok(real) => real,
        Err(error) => match weakest(&error) {
            // The reader checks the file itself, with better errors.
            Some(step) if step.path.is_file() && !step.path.is_symlink() => step.path.clone(),
            Some(step) => {
                return Err(RuntimeError::Input {
                    path: path.to_owned(),
                    why: format!(
                        "{step}: others than root may write it: chown root {} and chmod go-w it",
                        typed_path(&step.path)
                    ),
                });
            }
            None => return Err(RuntimeError::io(format!("open {path:?}"))(error)),
        },
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    // Only root can change the path, so it still leads to what was resolved.
    let opened = rustix::fs::openat2(CWD, &real, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    let file = File::from(opened.map_err(RuntimeError::io(format!("open {path:?}")))?);
    match file.metadata() {
        Ok(found) if found.is_file() => Ok(file),
        _ => Err(RuntimeError::Input {
            path: path.to_owned(),
            why: "it is not a regular file".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::path::PathBuf;

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
            assert!(error.contains("on the way there"), "{path:?}: {error}");
        }
        // A user can change their own entries in a sticky directory.
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
