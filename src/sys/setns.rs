//! The namespaces of another process, by a descriptor of it (setns(2) with a pidfd): one call for all of them, and no
//! path that another process could have by then.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::thread::move_into_thread_name_spaces as enter;

pub use rustix::thread::ThreadNameSpaceType as Namespaces;

/// Moves the calling thread, which must be the only one, to these namespaces of a process; into the pid namespace only
/// its later children. The working directory is then the root of the mount namespace.
pub fn join(process: BorrowedFd<'_>, namespaces: Namespaces) -> io::Result<()> {
    match namespaces.is_empty() {
        // The kernel refuses that.
        true => Ok(()),
        false => Ok(enter(process, namespaces)?),
    }
}
