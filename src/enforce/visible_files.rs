//! The visible part of a directory of credentials: git's files, in a directory of our own that covers it.
//!
//! The whole directory is covered, so that later files are hidden too, and no process can write there. Each visible
//! file is the one that was checked, read-only.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::cover::{FollowLinks, attach};
use super::error::EnforceError;
use super::file_system::NewFileSystem;
use crate::kernel::mount_options::{Bits, MountReach};
use crate::plan::{VisibleFile, VisibleKind};
use crate::sys::mount::{change, copy};

/// Makes a directory empty except for these files, which exist in it now.
pub(super) fn mask_but(path: &Path, files: &[VisibleFile]) -> Result<(), EnforceError> {
    let step = || format!("mask {path:?} except git's files (if it changed, start again)");
    let hidden = FollowLinks::Never
        .open(path)
        .map_err(EnforceError::step(step()))?;
    let parts = files.iter().map(|f| f.path.components().count());
    let cover = room_for(1 + parts.sum::<usize>()).map_err(EnforceError::step(step()))?;
    // The kernel can mount only on a mounted directory.
    attach(&cover, &hidden).map_err(EnforceError::step(step()))?;
    for file in files {
        place(&hidden, &cover, file).map_err(EnforceError::step(format!(
            "show {:?} in {path:?}, which git has (if it has changed, start it again)",
            file.path
        )))?;
    }
    change(cover.as_fd(), Bits::READ_ONLY, None, MountReach::One)
        .map_err(EnforceError::step(step()))
}

/// A file system in memory for this many files, including its root.
fn room_for(files: usize) -> rustix::io::Result<OwnedFd> {
    let fs = NewFileSystem::begin("tmpfs", Path::new("tmpfs"))?;
    fs.set("nr_inodes", files.to_string().as_str())?;
    fs.mount(Bits::default())
}

fn place(hidden: &OwnedFd, cover: &OwnedFd, file: &VisibleFile) -> rustix::io::Result<()> {
    // For every user of the container, whatever the caller's umask.
    const DIRECTORY: Mode = Mode::from_raw_mode(0o755);
    let above: Vec<&Path> = file.path.ancestors().skip(1).collect();
    for directory in above.into_iter().rev() {
        if directory.as_os_str().is_empty() {
            continue;
        }
        match rustix::fs::mkdirat(cover, directory, DIRECTORY) {
            Ok(()) => rustix::fs::chmodat(cover, directory, DIRECTORY, AtFlags::empty())?,
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
    }
    let (dev, ino) = match &file.what {
        VisibleKind::Link { to } => return rustix::fs::symlinkat(to, cover, &file.path),
        VisibleKind::File { dev, ino } => (*dev, *ino),
    };
    let found = beneath(hidden, &file.path)?;
    let stat = rustix::fs::fstat(&found)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_file || (stat.st_dev, stat.st_ino) != (dev, ino) {
        return Err(Errno::STALE);
    }
    let tree = copy(&found, MountReach::One)?;
    change(tree.as_fd(), Bits::READ_ONLY, None, MountReach::One)
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(cover, &file.path, new, Mode::from_raw_mode(0o444))?;
    attach(&tree, &beneath(cover, &file.path)?)
}

/// Opens a path beneath a directory, through no link and no other mount.
fn beneath(at: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(at, path, flags, Mode::empty(), resolve)
}
