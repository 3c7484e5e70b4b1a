//! SHELL. By which a directory is known again under another name: its file handle (name_to_handle_at(2)).

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use crate::sys::handle::{self, Handle};

/// Whether the file system has handles of its directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Handles {
    #[default]
    Asked,
    None,
}

impl Handles {
    /// The handle of a directory's entry. A file system that has none for one (overlay without an index, say) is not asked for
    /// the next: the search takes a directory that it misses for moved then, never for removed.
    pub(super) fn of(&mut self, directory: BorrowedFd<'_>, name: &CStr) -> Option<Handle> {
        if *self == Self::None {
            return None;
        }
        match handle::of(directory, name) {
            Ok(handle) => Some(handle),
            Err(error) => {
                if error.raw_os_error() == Some(libc::EOPNOTSUPP) {
                    *self = Self::None;
                }
                None
            }
        }
    }
}

/// Whether a directory is known to be gone, and has not merely another name: a build removes directories at any time.
pub(super) fn is_removed(root: &OwnedFd, handle: &Handle) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(on) = rustix::fs::openat(root, ".", flags, Mode::empty()) else {
        return false;
    };
    match handle::open(on.as_fd(), handle) {
        // Removed, and somebody still has it open.
        Ok(fd) => rustix::fs::fstat(&fd).is_ok_and(|s| s.st_nlink == 0),
        Err(e) => e.raw_os_error() == Some(libc::ESTALE),
    }
}
