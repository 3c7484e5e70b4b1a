//! The pipe on which a container's process reports the execution of its program, or the reason of its failure.
//!
//! It is a FIFO in the container's directory. The process inherits a close-on-exec descriptor. End of file means that
//! execve succeeded (or the process has ended); text is the error.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{CWD, FileType, Mode, OFlags};

use crate::enforce::report::FailureReport;
use crate::runtime::RuntimeError;

/// How long a process may take from `start` to execve. It normally takes a few milliseconds.
const LIMIT: Duration = Duration::from_secs(30);

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

/// Waits until the process has executed its program; an error with its report if it could not.
pub fn wait(reader: &OwnedFd) -> Result<(), RuntimeError> {
    let end = Instant::now() + LIMIT;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [PollFd::from_borrowed_fd(reader.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(0) => {
                return Err(FailureReport::step(format!(
                    "the container's process did not execute its program within {} s",
                    LIMIT.as_secs()
                ))
                .into());
            }
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(RuntimeError::io("wait for the container's process")(e)),
        }
        let events = fds[0].revents();
        if events.contains(PollFlags::IN)
            && let Some(report) = pending(reader)
        {
            return Err(report.into());
        }
        if events.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Ok(());
        }
    }
}
