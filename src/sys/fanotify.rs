//! fanotify(7): whether a file of one mount is written.
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A descriptor that becomes readable when a file is written by way of the mount in which `place` is, and of no other mount of the same
/// files. It needs no more than poll(2): nobody has to read what was written.
///
/// Making, renaming and removing files, and truncating them by name, are not seen: the kernel tells no mount of them.
///
/// CAP_SYS_ADMIN in the first user namespace, EPERM without; EMFILE beyond /proc/sys/fs/fanotify/max_user_groups.
pub fn writes_by(place: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
    let opened = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_LARGEFILE;
    // SAFETY: the call takes two integers.
    let rc = unsafe { libc::fanotify_init(flags, opened.unsigned_abs()) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nobody else has it.
    let group = unsafe { OwnedFd::from_raw_fd(rc) };
    // By its name in /proc: the call takes no descriptor of O_PATH.
    let path = CString::new(format!("/proc/self/fd/{}", place.as_raw_fd()))?;
    let (flags, events) = (
        libc::FAN_MARK_ADD | libc::FAN_MARK_MOUNT,
        libc::FAN_MODIFY | libc::FAN_CLOSE_WRITE,
    );
    // SAFETY: the path is NUL-terminated and lives until the call returns; the kernel only reads it.
    let rc = unsafe {
        libc::fanotify_mark(
            group.as_raw_fd(),
            flags,
            events,
            libc::AT_FDCWD,
            path.as_ptr(),
        )
    };
    match rc {
        0 => Ok(group),
        _ => Err(io::Error::last_os_error()),
    }
}
