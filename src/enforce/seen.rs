//! The visible part of a directory of credentials: the files that git has, in a directory of our own over it.
//!
//! The directory is covered as a whole, so that later files are not visible either, and nothing is written there.
//! Each file is the very one that was judged, read-only.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, open_tree};

use super::EnforceError;
use super::rootfs::{CLONE_OF_DESCRIPTOR, attach_at, empty_directory, open_plain};
use crate::kernel::mount_options::Reach;
use crate::plan::{Seen, SeenAs};
use crate::sys::mount::make_read_only;

/// Makes a directory empty but for these files, which lie in it now.
pub(super) fn mask_but(path: &Path, files: &[Seen]) -> Result<(), EnforceError> {
    let step = || format!("mask {path:?} but for what git has (if it has changed, start it again)");
    let hidden = open_plain(path).map_err(EnforceError::step(step()))?;
    let parts = files.iter().map(|f| f.path.components().count());
    let cover = empty_directory(1 + parts.sum::<usize>(), MountAttrFlags::empty())
        .map_err(EnforceError::step(step()))?;
    // The kernel mounts in nothing that is not mounted itself.
    attach_at(&cover, &hidden).map_err(EnforceError::step(step()))?;
    for file in files {
        place(&hidden, &cover, file).map_err(EnforceError::step(format!(
            "show {:?} in {path:?}, which git has (if it has changed, start it again)",
            file.path
        )))?;
    }
    make_read_only(cover.as_fd(), Reach::One).map_err(EnforceError::step(step()))
}

fn place(hidden: &OwnedFd, cover: &OwnedFd, file: &Seen) -> rustix::io::Result<()> {
    // Whoever the container runs as, and whatever the caller's umask is.
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
        SeenAs::Link { to } => return rustix::fs::symlinkat(to, cover, &file.path),
        SeenAs::File { dev, ino } => (*dev, *ino),
    };
    let found = beneath(hidden, &file.path)?;
    let stat = rustix::fs::fstat(&found)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_file || (stat.st_dev, stat.st_ino) != (dev, ino) {
        return Err(Errno::STALE);
    }
    let tree = open_tree(&found, "", CLONE_OF_DESCRIPTOR)?;
    make_read_only(tree.as_fd(), Reach::One)
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(cover, &file.path, new, Mode::from_raw_mode(0o444))?;
    attach_at(&tree, &beneath(cover, &file.path)?)
}

/// Opens what lies beneath a directory, by way of no link and no other mount.
fn beneath(at: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(at, path, flags, Mode::empty(), resolve)
}
