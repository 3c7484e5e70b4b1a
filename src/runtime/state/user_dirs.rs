//! Directories of records and logs: no other user may write them, or a directory above them, and no sandbox can get
//! them.
//!
//! Root's is `/run/agentbox`. Others have `$XDG_RUNTIME_DIR/agentbox`, else `/run/user/UID/agentbox`, else
//! `/dev/shm/agentbox-UID`. The first two are removed at logout, the last at the next boot. The never-list keeps all of
//! them out of every sandbox, because verbs trust records. In /dev/shm any user can make a directory or link of that
//! name first: it is used only if it is a directory of this user that no other user may enter.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::policy::typed_path;
use crate::runtime::unprivileged;
use crate::sys::path::{UnsafePath, resolve_owned, weakest};

/// Why the user has no directory for agentbox's files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserDirError {
    /// It is another user's, a link, or open to others.
    #[error("{dir:?} is not used for {used_for} ({why}): {}", remedy(*.used_for, dir))]
    Unsafe {
        /// The directory.
        dir: PathBuf,
        /// What it would hold.
        used_for: DirUse,
        /// What is wrong with it.
        why: String,
    },
    /// Other users may put another directory in its place.
    #[error("{dir:?} is not used for {used_for} ({weak}): `chown root {} && chmod go-w {}`", typed_path(&weak.path), typed_path(&weak.path))]
    UnsafeWay {
        /// The directory.
        dir: PathBuf,
        /// What it would hold.
        used_for: DirUse,
        /// Which step on the way there.
        weak: UnsafePath,
    },
    /// It cannot be made.
    #[error("make {dir:?} for {used_for}: {}", remedy(*.used_for, dir))]
    NotMade {
        /// The directory.
        dir: PathBuf,
        /// What it would hold.
        used_for: DirUse,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
}

/// What a directory holds; an error's remedy depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirUse {
    /// State that lives as long as its containers.
    Containers,
    /// Logs, which stay.
    Logs,
    /// The files of their scratch disks.
    Disks,
}

impl fmt::Display for DirUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Containers => "containers",
            Self::Logs => "the logs of containers",
            Self::Disks => "scratch disks",
        })
    }
}

fn remedy(used_for: DirUse, dir: &Path) -> String {
    match used_for {
        DirUse::Containers => {
            if unprivileged::uid() == 0 {
                return format!("let root own it alone, with mode 0700, or remove {dir:?}");
            }
            "remove it, or set XDG_RUNTIME_DIR to a directory of yours below /run with mode 0700"
                .to_owned()
        }
        // Root's has one place.
        DirUse::Logs | DirUse::Disks if rustix::process::geteuid().is_root() => {
            let dir = typed_path(dir);
            format!("`chown root {dir} && chmod 0700 {dir}`, or remove it")
        }
        DirUse::Logs | DirUse::Disks => {
            "give it mode 0700, remove it, or set XDG_STATE_HOME to a directory of yours".to_owned()
        }
    }
}

/// Directories that no policy shows (policies/never.toml).
const OUT_OF_SIGHT: [&str; 2] = ["/run", "/dev/shm"];

/// The directory of this user. XDG_RUNTIME_DIR counts only below /run or /dev/shm: a sandbox may get other directories
/// of its user, and must not find records there.
pub fn choose(uid: u32) -> PathBuf {
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let logged_in = PathBuf::from(format!("/run/user/{uid}"));
    let mut usual = named.into_iter().chain([logged_in]);
    let is_hidden = |dir: &Path| {
        let real = dir.canonicalize().unwrap_or_default();
        real == dir && OUT_OF_SIGHT.iter().any(|top| real.starts_with(top))
    };
    match usual.find(|dir| is_hidden(dir) && wrong(dir, 0o077).is_ok_and(|why| why.is_none())) {
        Some(dir) => dir.join("agentbox"),
        None => PathBuf::from(format!("/dev/shm/agentbox-{uid}")),
    }
}

/// Refuses an existing directory that is not only this user's, or whose path others can change.
pub fn check(dir: &Path, used_for: DirUse) -> Result<(), UserDirError> {
    // Secret files in root's directory have their own modes: a node may make it readable for every user
    // (tmpfiles.d(5)).
    let denied = match used_for {
        DirUse::Containers if unprivileged::uid() == 0 => 0o022,
        DirUse::Containers | DirUse::Logs | DirUse::Disks => 0o077,
    };
    match wrong(dir, denied) {
        Ok(None) => check_way(dir, used_for),
        Ok(Some(why)) => Err(UserDirError::Unsafe {
            dir: dir.to_owned(),
            used_for,
            why: why.to_owned(),
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => check_way(dir, used_for),
        Err(source) => Err(UserDirError::NotMade {
            dir: dir.to_owned(),
            used_for,
            source,
        }),
    }
}

/// Refuses a directory, there or not, that other users may write, or put another one in the place of. They may read it.
pub fn check_way(dir: &Path, used_for: DirUse) -> Result<(), UserDirError> {
    let own = unprivileged::uid();
    // A user's logs, which no verb obeys, lie in a home that its owner may have opened to a group.
    if used_for == DirUse::Logs && own != 0 {
        return Ok(());
    }
    let unsafe_way = |weak| UserDirError::UnsafeWay {
        dir: dir.to_owned(),
        used_for,
        weak,
    };
    let Err(error) = resolve_owned(dir, own) else {
        return match used_for {
            // `make` looks again at what it made.
            DirUse::Containers => Ok(()),
            DirUse::Logs | DirUse::Disks => {
                open_above(dir).map_or(Ok(()), |weak| Err(unsafe_way(weak)))
            }
        };
    };
    match weakest(&error) {
        Some(weak) => Err(unsafe_way(weak.clone())),
        None if error.kind() == ErrorKind::NotFound => Ok(()),
        None => Err(UserDirError::NotMade {
            dir: dir.to_owned(),
            used_for,
            source: error,
        }),
    }
}

/// Makes it if it is missing, and looks at what is there then.
pub fn make(dir: &Path, used_for: DirUse) -> Result<(), UserDirError> {
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(source) if source.kind() != ErrorKind::AlreadyExists => Err(UserDirError::NotMade {
            dir: dir.to_owned(),
            used_for,
            source,
        }),
        _ => check(dir, used_for),
    }
}

/// The nearest directory that is there, if others can make entries in it: also in one with the sticky bit, which only keeps what is there.
fn open_above(dir: &Path) -> Option<UnsafePath> {
    let there = dir
        .ancestors()
        .find_map(|above| Some((above, fs::metadata(above).ok()?)));
    let (path, found) = there?;
    (path != dir && found.mode() & 0o022 != 0).then(|| UnsafePath {
        path: path.to_owned(),
        owner: found.uid(),
        mode: found.mode() & 0o7777,
    })
}

/// What is wrong with a directory, as far as others are concerned, who have none of the `denied` rights.
fn wrong(dir: &Path, denied: u32) -> std::io::Result<Option<&'static str>> {
    let found = fs::symlink_metadata(dir)?;
    Ok(if !found.is_dir() {
        Some("it is not a directory, or a link to one")
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        Some("it belongs to another user")
    } else if found.mode() & denied != 0 {
        Some("others than its owner have rights in it")
    } else {
        None
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn only_a_private_directory_of_the_user_is_used() {
        let base = std::env::temp_dir().join(format!("agentbox-persons-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        let own = base.join("own");
        assert!(check(&own, DirUse::Containers).is_ok(), "not there yet");
        make(&own, DirUse::Containers).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        let link = base.join("link");
        symlink(&own, &link).unwrap();
        let open = base.join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o770)).unwrap();
        for (bad, word) in [(&link, "link"), (&open, "rights in it")] {
            let refused = make(bad, DirUse::Containers).unwrap_err().to_string();
            assert!(refused.contains(word), "{refused}");
            let cure = match rustix::process::geteuid().is_root() {
                true => "let root own it alone",
                false => "XDG_RUNTIME_DIR",
            };
            assert!(refused.contains(cure), "{refused}");
            let logs = check(bad, DirUse::Logs).unwrap_err().to_string();
            assert!(logs.contains("for the logs of containers"), "{logs}");
            assert!(!logs.contains("XDG_RUNTIME_DIR"), "{logs}");
            assert!(check(bad, DirUse::Containers).is_err());
        }
        let opened = base.join("opened");
        let below = opened.join("below");
        make(&own, DirUse::Containers).unwrap();
        fs::create_dir(&opened).unwrap();
        make(&below, DirUse::Containers).unwrap();
        fs::set_permissions(&opened, fs::Permissions::from_mode(0o777)).unwrap();
        let led = check(&below, DirUse::Containers).unwrap_err().to_string();
        assert!(led.contains("on the way there"), "{led}");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&own, Some(1), None).unwrap();
            assert!(
                check(&own, DirUse::Containers)
                    .unwrap_err()
                    .to_string()
                    .contains("another user")
            );
        }
        fs::remove_dir_all(base).unwrap();
    }
}
