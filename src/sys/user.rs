//! Joining a user namespace as one of its users.
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

use std::io;
use std::os::fd::BorrowedFd;

/// Joins a user namespace and takes ids of it, for the calling thread, which must be the only one.
///
/// Keeps the permitted capabilities over the change of user: the caller drops them by a plan.
pub fn join(namespace: BorrowedFd<'_>, uid: u32, gid: u32) -> io::Result<()> {
    super::netns::enter_user(namespace)?;
    rustix::thread::set_keep_capabilities(true)?;
    // SAFETY: three integers; setresgid(2) touches no memory. The raw call, since the C library's would signal threads.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })
}

fn check(rc: libc::c_long) -> io::Result<()> {
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
