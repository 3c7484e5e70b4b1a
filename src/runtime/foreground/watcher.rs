//! A command of `wrap` does not outlive it. PR_SET_PDEATHSIG ties it to its parent, but a program can undo that. So a
//! process outside of its namespaces waits for the end of either and kills the rest.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::runtime::RuntimeError;
use crate::runtime::state::record::ProcessId;
use crate::sys::process;

/// Starts it; the calling process must be single-threaded. Its end is that of this process or of `first`, the first of a
/// pid namespace, with which all others end.
pub fn begin(first: ProcessId) -> Result<(), RuntimeError> {
    fn step<E: Into<std::io::Error>>(error: E) -> RuntimeError {
        RuntimeError::io("watch over the command")(error)
    }
    let open = |pid: i32| {
        let pid = Pid::from_raw(pid).ok_or(rustix::io::Errno::SRCH)?;
        pidfd_open(pid, PidfdFlags::empty())
    };
    let own = open(rustix::process::getpid().as_raw_pid()).map_err(step)?;
    let command = open(first.pid).map_err(step)?;
    process::fork_into(|| {
        // Of nobody's session, terminal or pipeline.
        let alone = rustix::process::setsid().is_ok()
            && process::block_signals().is_ok()
            && process::set_name(c"agentbox-watch").is_ok()
            && process::keep_only([own.as_fd(), command.as_fd()]).is_ok();
        let [own, command] = [0, 1].map(process::borrow_inherited);
        match (alone, own, command) {
            (true, Some(own), Some(command)) => watch(own, command),
            _ => 1,
        }
    })
    .map(drop)
    .map_err(step)
}

fn watch(own: std::os::fd::BorrowedFd<'_>, command: std::os::fd::BorrowedFd<'_>) -> i32 {
    loop {
        let mut fds = [own, command].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match rustix::event::poll(&mut fds, None) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
    // It may have ended by itself.
    i32::from(pidfd_send_signal(command, Signal::KILL).is_err())
}
