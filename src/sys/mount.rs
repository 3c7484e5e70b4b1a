//! mount_setattr(2), which the libraries that we use do not wrap.
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Whether a change covers the mounts below as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The mount alone.
    One,
    /// The mount and every mount below it.
    Recursive,
}

/// Makes the mount that `root` is the root of read-only (and those below it), and keeps its other attributes.
///
/// Since Linux 5.12; ENOSYS before.
pub fn make_read_only(root: BorrowedFd<'_>, depth: Depth) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let recursive = match depth {
        Depth::One => 0,
        Depth::Recursive => libc::AT_RECURSIVE,
    };
    // SAFETY: the path is a NUL-terminated literal, `attr` lives until the call returns and its size is passed; the
    // kernel only reads both.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            root.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
