//! A file that may be a credential. Its content is read only when needed, and counted.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::cost::Cost;
use crate::plan::VisibleKind;
use crate::sys::procfs;

/// The largest file whose content is compared.
pub(super) const MOST: u64 = 1 << 20;

/// The cost of an empty file, bytes.
pub(super) const OPENED: usize = 4096;

/// A file inside a mount's source.
pub(super) struct Content<'a> {
    root: &'a OwnedFd,
    path: &'a Path,
    kind: FileType,
    found: Option<Option<FileContent>>,
}

/// A file's text or a link's target, and what the file is.
pub(super) struct FileContent {
    pub(super) bytes: Vec<u8>,
    pub(super) what: VisibleKind,
}

impl<'a> Content<'a> {
    pub(super) fn new(root: &'a OwnedFd, path: &'a Path, kind: FileType) -> Self {
        Self {
            root,
            path,
            kind,
            found: None,
        }
    }

    /// `None` if it is too large, cannot be read, or is not a file any more.
    pub(super) fn get(&mut self, cost: &mut Cost) -> Option<&FileContent> {
        if self.found.is_none() {
            self.found = Some(match self.kind {
                FileType::Symlink => self.link(cost),
                _ => self.file(cost),
            });
        }
        self.found.as_ref()?.as_ref()
    }

    fn file(&self, cost: &mut Cost) -> Option<FileContent> {
        let (file, size) = regular(self.root.as_fd(), self.path).ok()??;
        if size > MOST {
            return None;
        }
        cost.read(OPENED + usize::try_from(size).ok()?).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        Some(FileContent {
            bytes: all(file, MOST).ok()??,
            what: VisibleKind::File {
                dev: stat.st_dev,
                ino: stat.st_ino,
            },
        })
    }

    fn link(&self, cost: &mut Cost) -> Option<FileContent> {
        cost.read(OPENED).ok()?;
        let bytes = target(self.root.as_fd(), self.path)?;
        let to = PathBuf::from(std::ffi::OsString::from_vec(bytes.clone()));
        Some(FileContent {
            bytes,
            what: VisibleKind::Link { to },
        })
    }
}

/// Opens a path beneath a root. Follows no links and enters no other file system.
pub(super) fn open(
    root: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)
}

/// Opens a regular file and returns its size.
pub(super) fn regular(
    root: BorrowedFd<'_>,
    path: &Path,
) -> rustix::io::Result<Option<(File, u64)>> {
    // Do not block on a pipe without a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open(root, path, flags)?;
    let stat = rustix::fs::fstat(&file)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    Ok(is_file.then(|| (File::from(file), size)))
}

/// Reads a whole file, if it has at most `most` bytes.
pub(super) fn all(file: File, most: u64) -> rustix::io::Result<Option<Vec<u8>>> {
    let bytes = procfs::at_most(file, most.saturating_add(1)).map_err(|_| Errno::IO)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= most))
}

/// The first bytes of a file.
pub(super) fn beginning(file: File, most: usize) -> rustix::io::Result<Vec<u8>> {
    procfs::at_most(file, most as u64).map_err(|_| Errno::IO)
}

/// The target of a symbolic link.
pub(super) fn target(root: BorrowedFd<'_>, path: &Path) -> Option<Vec<u8>> {
    let opened = open(root, path, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
    let target = rustix::fs::readlinkat(&opened, "", Vec::new()).ok()?;
    Some(target.into_bytes())
}
