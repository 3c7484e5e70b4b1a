//! Whether a mount's source is a named volume in an engine's own storage.
//!
//! A path proves nothing alone. A bind mount or a link at `volumes/NAME/_data` (`docker volume create -o o=bind`) shows
//! another directory of the node, which has other names or lies on another mount. Only root can make a directory beside
//! an engine's volumes. No other user of the node may enter them, since a container's root may leave files of any kind
//! there, as in its own layer.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;

use super::hosts::open_above;
use super::stat::FileStat;
use crate::engines::layout::is_named_volume;
use crate::plan::{FileKind, SourceFacts};
use crate::sys::user_namespace::owner;

/// The most directories above one: no path has more components (PATH_MAX).
const HIGHEST: usize = 2048;

/// Whether a directory is such a volume. `stat` and `facts` are its own.
pub(super) fn is_engines(fd: &OwnedFd, stat: &FileStat, facts: &SourceFacts) -> bool {
    facts.kind == FileKind::Directory
        && has_names_of_one(facts)
        && is_kept(fd, stat).unwrap_or(false)
}

/// Whether it has the names of one volume alone: the usual one, and its path if the engine's data is elsewhere.
fn has_names_of_one(facts: &SourceFacts) -> bool {
    let moved = |path: &Path, usual: &Path| {
        let mut parts = path.iter().rev().zip(usual.iter().rev()).take(3);
        parts.all(|(one, other)| one == other)
    };
    let known = facts.nameless.is_none() && facts.same_as.is_none();
    let mut names = facts.names.iter();
    known
        && match (names.next(), names.next()) {
            (None, _) => is_named_volume(&facts.path),
            (Some(usual), None) => is_named_volume(usual) && moved(&facts.path, usual),
            (Some(_), Some(_)) => false,
        }
}

/// Whether it lies on the mount of the directory above, all directories on the way are root's alone, and one of them
/// keeps other users out.
fn is_kept(fd: &OwnedFd, stat: &FileStat) -> rustix::io::Result<bool> {
    let mut above = open_above(fd)?;
    let mut found = FileStat::of(&above)?;
    if found.file.mount.is_none() || found.file.mount != stat.file.mount {
        return Ok(false);
    }
    let mut closed = false;
    for _ in 0..HIGHEST {
        if owner(found.uid) != 0 || found.mode & 0o022 != 0 {
            return Ok(false);
        }
        closed |= keeps_others_out(&above, &found);
        let next = open_above(&above)?;
        let higher = FileStat::of(&next)?;
        // The root is above itself.
        if higher.file == found.file {
            return Ok(closed);
        }
        (above, found) = (next, higher);
    }
    Ok(false)
}

/// Whether a directory of root's lets no other user enter. An access list (acl(5)) may let some: it is not read.
fn keeps_others_out(directory: &OwnedFd, stat: &FileStat) -> bool {
    let of_group = stat.mode & 0o010 != 0 && stat.gid != 0;
    stat.mode & 0o001 == 0 && !of_group && has_no_access_list(directory)
}

/// Whether a file has no access list (acl(5)). With one, the mode's bits of the group are the most that the list gives.
pub fn has_no_access_list(file: &impl AsRawFd) -> bool {
    // O_PATH: fgetxattr(2) fails.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let size = rustix::fs::getxattr(path, c"system.posix_acl_access", &mut [0_u8; 0]);
    matches!(size, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use rustix::fs::{ResolveFlags, XattrFlags, setxattr};

    use super::*;
    use crate::probe::{TestDir, open_path};

    #[test]
    fn a_directory_with_an_access_list_keeps_nobody_out() {
        let dir = TestDir::new("closed");
        let keeps = |mode| {
            fs::set_permissions(&dir.0, fs::Permissions::from_mode(mode)).unwrap();
            let fd = open_path(&dir.0, ResolveFlags::empty()).unwrap();
            // As root's, and of root's group.
            let stat = FileStat {
                gid: 0,
                ..FileStat::of(&fd).unwrap()
            };
            keeps_others_out(&fd, &stat)
        };
        assert!(keeps(0o710) && !keeps(0o711));
        assert!(keeps(0o700));
        // setfacl -m u:1234:x: tag, permissions, id of each entry (linux/posix_acl_xattr.h).
        let none = u32::MAX;
        let entries = [
            (1, 7, none),
            (2, 1, 1234),
            (4, 0, none),
            (16, 1, none),
            (32, 0, none),
        ];
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, may, id) in entries {
            list.extend([u16::to_le_bytes(tag), u16::to_le_bytes(may)].concat());
            list.extend(u32::to_le_bytes(id));
        }
        setxattr(
            &dir.0,
            c"system.posix_acl_access",
            &list,
            XattrFlags::empty(),
        )
        .unwrap();
        assert!(!keeps(0o710));
    }
}
