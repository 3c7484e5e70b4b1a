//! A forked child that must not outlive its parent's interest.

use std::io;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::process::fork_into;

/// A forked child. Dropping this kills and reaps it.
#[derive(Debug)]
pub struct OwnedChild {
    /// Until it is reaped.
    pid: Option<Pid>,
    /// For the log.
    name: &'static str,
}

impl OwnedChild {
    /// As [`fork_into`].
    pub fn fork(name: &'static str, work: impl FnOnce() -> i32) -> io::Result<Self> {
        let pid = Some(fork_into(work)?);
        Ok(Self { pid, name })
    }

    /// Waits until it has ended.
    pub fn reap(&mut self) -> io::Result<()> {
        let Some(pid) = self.pid.take() else {
            return Ok(());
        };
        match rustix::io::retry_on_intr(|| waitpid(Some(pid), WaitOptions::empty())) {
            // If SIGCHLD is ignored the kernel has reaped it already.
            Ok(_) | Err(rustix::io::Errno::CHILD) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        let (Some(pid), name) = (self.pid, self.name) else {
            return;
        };
        // Not reaped yet, so the pid is still this child's. This is only cleanup after an error that is being reported.
        if let Err(error) = kill_process(pid, Signal::KILL) {
            log::debug!("{name} could not be killed: {error}");
        }
        if let Err(error) = self.reap() {
            log::debug!("{name} could not be reaped: {error}");
        }
    }
}
