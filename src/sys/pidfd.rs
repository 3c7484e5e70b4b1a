#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]
//! Reads the exit status of an ended process from its pidfd (ioctl_pidfd(2)).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::kernel;

/// `PIDFD_GET_INFO`, with the first form of its structure.
pub const GET_INFO: u32 = 0xc040_ff0b;
/// Since 6.15: requests the exit status in the call, and marks it in the result.
const INFO_EXIT: u64 = 1 << 3;

/// `struct pidfd_info` of `linux/pidfd.h`, as of Linux 6.13.
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    /// The ids of the process, its group and its parent, and eight ids of users and groups.
    ids: [u32; 11],
    /// In wait(2)'s form.
    exit_code: i32,
}

const _: () = assert!(std::mem::size_of::<Info>() == 64);

/// Whether a kernel keeps a process's exit status for its pidfds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatusSupport {
    /// Yes, once the process is reaped: since Linux 6.15 ("pidfs: allow to retrieve exit information").
    Kept,
    /// No.
    Forgotten,
}

impl ExitStatusSupport {
    /// The running kernel's.
    pub fn of_kernel() -> Self {
        match kernel::version() >= (6, 15) {
            true => Self::Kept,
            false => Self::Forgotten,
        }
    }
}

/// Waits, at most `within`, until the process is reaped. Returns its status as a shell shows it: 128 + n for signal n.
/// `None` if it was not reaped. The process must be visible in the caller's pid namespace.
pub fn exit_status(pidfd: BorrowedFd<'_>, within: Duration) -> io::Result<Option<i32>> {
    let mut fds = [PollFd::from_borrowed_fd(pidfd, PollFlags::empty())];
    // Callers wait at most a minute.
    let limit = Timespec::try_from(within).map_err(io::Error::other)?;
    rustix::io::retry_on_intr(|| poll(&mut fds, Some(&limit)))?;
    if !fds[0].revents().contains(PollFlags::HUP) {
        return Ok(None);
    }
    let mut info = Info {
        mask: INFO_EXIT,
        ..Info::default()
    };
    // SAFETY: the request names a structure of exactly this size (checked above), which the kernel reads and fills.
    let rc = unsafe {
        libc::ioctl(
            std::os::fd::AsRawFd::as_raw_fd(&pidfd),
            GET_INFO as _,
            &raw mut info,
        )
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((info.mask & INFO_EXIT != 0).then(|| status(info.exit_code)))
}

/// A wait(2) status as a shell shows it.
fn status(wait: i32) -> i32 {
    match libc::WIFSIGNALED(wait) {
        true => 128 + libc::WTERMSIG(wait),
        false => libc::WEXITSTATUS(wait),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use std::os::fd::AsFd;
    use std::process::Command;

    #[test]
    fn the_status_of_a_process_that_was_reaped_is_known() {
        if ExitStatusSupport::of_kernel() == ExitStatusSupport::Forgotten {
            return;
        }
        for (script, expected) in [("exit 7", 7), ("kill -KILL $$", 137)] {
            let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
            let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
            let soon = Duration::from_millis(20);
            assert_eq!(exit_status(pidfd.as_fd(), soon).unwrap(), None);
            child.wait().unwrap();
            assert_eq!(exit_status(pidfd.as_fd(), soon).unwrap(), Some(expected));
        }
    }
}
