//! The namespaces of another process, by a descriptor of it (setns(2) with a pidfd): one call for all of them, and no
//! path that another process could have by then.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use rustix::thread::move_into_thread_name_spaces as enter;

use super::process::{Birth, Child, fork_at};

pub use rustix::thread::ThreadNameSpaceType as Namespaces;

/// Moves the calling thread, which must be the only one, to these namespaces of a process; PROCESS_ID is not among
/// them. The working directory is then the root of the mount namespace.
pub fn join(process: BorrowedFd<'_>, namespaces: Namespaces) -> io::Result<()> {
    match namespaces.is_empty() {
        // The kernel refuses that.
        true => Ok(()),
        false => Ok(enter(process, namespaces)?),
    }
}

/// As [`fork_at`]; the child is in the pid namespace of another process, in which this process's later children are not.
pub fn fork_beside(
    other: BorrowedFd<'_>,
    birth: Birth<'_>,
    work: impl FnOnce() -> i32,
) -> io::Result<Child> {
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    enter(other, Namespaces::PROCESS_ID)?;
    let child = fork_at(birth, work);
    if let Err(error) = enter(own.as_fd(), Namespaces::PROCESS_ID) {
        // Nobody would know of it.
        if let Ok(child) = &child {
            pidfd_send_signal(&child.pidfd, Signal::KILL)?;
        }
        return Err(error.into());
    }
    child
}
