//! fanotify(7): watches for writes to the files of one mount.
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A descriptor that becomes readable when a file is written through the mount of `place`; writes through other mounts
/// of the same files do not count. poll(2) is enough: the events need not be read.
///
/// Making, renaming, removing and truncating files by name are not noticed: the kernel does not report these per mount.
///
/// Needs CAP_SYS_ADMIN in the initial user namespace, else EPERM; EMFILE beyond /proc/sys/fs/fanotify/max_user_groups.
pub fn writes_by(place: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
    let opened = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_LARGEFILE;
    // SAFETY: the call takes two integers.
    let rc = unsafe { libc::fanotify_init(flags, opened.unsigned_abs()) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nothing else has it.
    let group = unsafe { OwnedFd::from_raw_fd(rc) };
    // By its name in /proc: the call accepts no O_PATH descriptor.
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
