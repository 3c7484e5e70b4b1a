//! Attributes of an open file by one call: statx(2) also has the number of the mount (Linux 5.8). Also finds files
//! without links in their paths.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, ResolveFlags, Stat, Statx, StatxFlags, makedev, statx};

use super::{open_path, real_path};

use crate::plan::FileKind;

/// An inode on a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileOnMount {
    pub(super) dev: u64,
    pub(super) ino: u64,
    /// The number of the mount, if the kernel tells it.
    pub(super) mount: Option<u64>,
}

/// A file's attributes.
pub(super) struct FileStat {
    pub(super) file: FileOnMount,
    pub(super) mode: u32,
    pub(super) links: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl FileStat {
    /// Of an open file.
    pub(super) fn of(fd: &OwnedFd) -> rustix::io::Result<Self> {
        let flags = AtFlags::EMPTY_PATH;
        statx(fd.as_fd(), "", flags, wanted()).map(|found| Self::from(&found))
    }

    /// Of a path, without following a link or mounting anything.
    pub(super) fn at(path: &Path) -> rustix::io::Result<Self> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        statx(CWD, path, flags, wanted()).map(|found| Self::from(&found))
    }

    pub(super) fn kind(&self) -> FileKind {
        FileKind::of(self.mode)
    }
}

impl From<&Statx> for FileStat {
    fn from(found: &Statx) -> Self {
        let mask = StatxFlags::from_bits_retain(found.stx_mask);
        let mount = mask
            .contains(StatxFlags::MNT_ID)
            .then_some(found.stx_mnt_id);
        Self {
            file: FileOnMount {
                dev: makedev(found.stx_dev_major, found.stx_dev_minor),
                ino: found.stx_ino,
                mount,
            },
            mode: u32::from(found.stx_mode),
            links: found.stx_nlink,
            uid: found.stx_uid,
            gid: found.stx_gid,
        }
    }
}

fn wanted() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::MNT_ID
}

/// The number of the mount that a descriptor is on.
pub(super) fn mount_id(fd: &OwnedFd) -> Option<u64> {
    FileStat::of(fd).ok()?.file.mount
}

/// Directories whose paths have no symbolic links. Nearly all entries of the list share a few, so that one call answers
/// for each directory.
#[derive(Default)]
pub(super) struct RealDirs(HashMap<PathBuf, bool>);

/// A file whose path has no symbolic links.
pub(super) struct RealFile {
    pub(super) dev: u64,
    pub(super) ino: u64,
    pub(super) path: PathBuf,
}

impl RealDirs {
    /// The file behind a name.
    pub(super) fn resolve(&mut self, name: &Path) -> Option<RealFile> {
        let stat = stat(name)?;
        let link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        if !link && name.parent().is_none_or(|above| self.is_plain(above)) {
            return Some(RealFile {
                dev: stat.st_dev,
                ino: stat.st_ino,
                path: name.to_owned(),
            });
        }
        let fd = open_path(name, ResolveFlags::empty()).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        Some(RealFile {
            dev: stat.st_dev,
            ino: stat.st_ino,
            path: real_path(fd.as_fd()).ok()?,
        })
    }

    fn is_plain(&mut self, dir: &Path) -> bool {
        let Some(above) = dir.parent() else {
            return dir == Path::new("/");
        };
        if let Some(known) = self.0.get(dir) {
            return *known;
        }
        let is_dir = || {
            let stat = stat(dir)?;
            Some(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
        };
        let plain = is_dir() == Some(true) && self.is_plain(above);
        self.0.insert(dir.to_owned(), plain);
        plain
    }
}

/// The file at a path, without following a link or mounting anything.
pub(super) fn stat(path: &Path) -> Option<Stat> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    rustix::fs::statat(CWD, path, flags).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn it_agrees_with_stat_and_distinguishes_mounts() {
        for path in [
            "/",
            "/etc/passwd",
            "/proc",
            "/proc/self/mountinfo",
            "/dev/null",
        ] {
            let fd = crate::probe::open_path(Path::new(path), rustix::fs::ResolveFlags::empty());
            let (found, meta) = (FileStat::of(&fd.unwrap()).unwrap(), std::fs::metadata(path));
            let meta = meta.unwrap();
            assert_eq!(
                (found.file.dev, found.file.ino),
                (meta.dev(), meta.ino()),
                "{path}"
            );
            assert_eq!(
                (found.mode, u64::from(found.links)),
                (meta.mode(), meta.nlink())
            );
            assert_eq!((found.uid, found.gid), (meta.uid(), meta.gid()));
        }
        let mount = |path: &str| FileStat::at(Path::new(path)).unwrap().file.mount;
        assert!(mount("/").is_some());
        assert_eq!(mount("/proc/self/status"), mount("/proc"));
        assert_ne!(mount("/"), mount("/proc"));
    }
}
