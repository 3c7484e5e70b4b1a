//! The pipe on which a container's process reports the execution of its program, or the reason of its failure.
//!
//! It is a FIFO in the container's directory. The process inherits a close-on-exec descriptor. End of file means that
//! execve succeeded (or the process has ended); text is the error.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{CWD, FileType, Mode, OFlags};

use crate::enforce::report::FailureReport;
use crate::runtime::RuntimeError;
use crate::runtime::state::half_made::WITHIN;

/// The longest text that is read.
const LONGEST: usize = 16384;

/// Makes the pipe and opens the end that the container's process inherits.
pub fn make(path: &Path) -> Result<OwnedFd, RuntimeError> {
    let step = || format!("make the pipe {path:?}");
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
        .map_err(RuntimeError::io(step()))?;
    // Read-write: opening a FIFO only for writing would wait for a reader (fifo(7)).
    rustix::fs::open(
        path,
        OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
    )
    .map_err(RuntimeError::io(step()))
}

/// Opens the end that `create` and `start` read.
pub fn reader(path: &Path) -> Result<OwnedFd, RuntimeError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::empty())
        .map_err(RuntimeError::io(format!("open the pipe {path:?}")))
}

/// Opens the end for writing, for a process that reports in place of the container's process.
pub fn writer(path: &Path) -> Result<OwnedFd, RuntimeError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::empty())
        .map_err(RuntimeError::io(format!("open the pipe {path:?}")))
}

/// The report so far, without waiting.
pub fn pending(reader: &OwnedFd) -> Option<FailureReport> {
    let mut text = vec![0; LONGEST];
    match rustix::io::read(reader, &mut text) {
        Ok(0) | Err(_) => None,
        Ok(n) => Some(FailureReport::from_bytes(&text[..n])),
    }
}

/// How often [`wait`] asks for the time.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};

/// Waits until the process has executed its program; an error with its report if it could not, or if the time is over.
/// It may also have ended without a report. Where another process holds the pipe too, `process` tells that (a pidfd).
pub fn wait(
    reader: &OwnedFd,
    process: Option<BorrowedFd<'_>>,
    is_over: impl Fn() -> bool,
) -> Result<(), RuntimeError> {
    loop {
        let watched = [Some(reader.as_fd()), process];
        let polled = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds: Vec<PollFd<'_>> = watched.into_iter().flatten().map(polled).collect();
        match rustix::event::poll(&mut fds, Some(&TICK)) {
            Ok(0) | Err(rustix::io::Errno::INTR) if is_over() => {
                let seconds = WITHIN.as_secs();
                return Err(FailureReport::step(format!(
                    "the container's process did not execute its program within {seconds} s"
                ))
                .into());
            }
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(e) => return Err(RuntimeError::io("wait for the container's process")(e)),
        }
        if let Some(report) = pending(reader) {
            return Err(report.into());
        }
        let closed = fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        if closed || fds[1..].iter().any(|fd| !fd.revents().is_empty()) {
            return Ok(());
        }
    }
}
