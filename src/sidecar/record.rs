//! The saved identity of a sidecar. With it, `delete` ends the sidecar, even long after the runtime exited, and
//! repeatedly.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use serde::{Deserialize, Serialize};

use crate::cgroup::sidecar;
use crate::sidecar::error::SidecarError;
use crate::sys::process_id::ProcessId;
use crate::sys::socket;

const END_WITHIN: Duration = Duration::from_secs(5);

/// A sidecar, for the saved state: all that is needed to end it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SidecarRecord {
    /// Its number in the runtime's pid namespace.
    pub pid: i32,
    /// When it started, in clock ticks since boot. With `pid` it identifies one process for ever.
    pub start_time: u64,
    /// Its own cgroups.
    pub cgroups: Vec<PathBuf>,
    /// The cgroup limits that this node cannot enforce, with reasons.
    pub unlimited: Vec<String>,
    /// The Landlock ABI that confines it; 0 without Landlock, or before it is attached.
    pub landlock_abi: u32,
    /// Its parent, if the container must end with the sidecar. Until it is attached, [`Self::pid`] is the parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warden: Option<WardenRecord>,
}

/// A sidecar's warden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WardenRecord {
    /// Its number in the runtime's pid namespace.
    pub pid: i32,
    /// When it started, in clock ticks since boot.
    pub start_time: u64,
}

impl From<&SidecarRecord> for ProcessId {
    fn from(sidecar: &SidecarRecord) -> Self {
        Self {
            pid: sidecar.pid,
            start_time: sidecar.start_time,
        }
    }
}

/// How long a sidecar may take to log its counts after its container has ended. It takes a millisecond.
const SETTLED_WITHIN: Duration = Duration::from_millis(250);

/// Waits until the sidecar of an ended container and its warden have exited, so that their logs are complete. [`kill`]
/// comes next, so each one that hangs costs only a quarter of a second.
pub fn await_end(record: &SidecarRecord) {
    let sidecar = Some((record.pid, record.start_time));
    // After the sidecar's exit, the warden asks how init ended.
    let warden = record.warden.map(|warden| (warden.pid, warden.start_time));
    for (pid, started) in sidecar.into_iter().chain(warden) {
        let waited = open(pid, started)
            .map(|pidfd| pidfd.map(|pidfd| socket::wait_readable(pidfd.as_fd(), SETTLED_WITHIN)));
        if let Err(error) = waited {
            log::debug!("wait for the sidecar's log: {error}");
        }
    }
}

/// Kills the sidecar and waits at most five seconds for its end. Fine if it is gone already. Another process that got
/// its number is left alone.
///
/// The warden goes first, so that it does not end the container.
pub fn kill(record: &SidecarRecord) -> Result<(), SidecarError> {
    let warden = record.warden.map_or(Ok(()), |w| end(w.pid, w.start_time));
    end(record.pid, record.start_time).and(warden)
}

pub(super) fn end(pid: i32, started: u64) -> Result<(), SidecarError> {
    let Some(pidfd) = open(pid, started)? else {
        return Ok(());
    };
    match rustix::process::pidfd_send_signal(&pidfd, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => return Err(SidecarError::step("kill")(error)),
    }
    wait_for_end(&pidfd)
}

/// Removes the sidecar's cgroups; fine if they are gone. The sidecar must have ended.
pub fn remove(record: &SidecarRecord) -> Result<(), SidecarError> {
    sidecar::remove(&record.cgroups).map_err(SidecarError::Cgroup)
}

/// Waits until the process of `pidfd` has ended, and reaps it if it is our child.
pub(super) fn wait_for_end(pidfd: &OwnedFd) -> Result<(), SidecarError> {
    let ended = socket::wait_readable(pidfd.as_fd(), END_WITHIN);
    if !ended.map_err(SidecarError::step("wait for the end"))? {
        return Err(SidecarError::TimedOut {
            what: "end",
            seconds: END_WITHIN.as_secs(),
        });
    }
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    match rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), options) {
        // CHILD: it was reaped, or is a subreaper's child.
        Ok(_) | Err(rustix::io::Errno::CHILD) => Ok(()),
        Err(error) => Err(SidecarError::step("reap")(error)),
    }
}

/// A handle on exactly the recorded process, if it still exists.
fn open(pid: i32, started: u64) -> Result<Option<OwnedFd>, SidecarError> {
    // The record is a file, so the number may be negative, which rustix would assert against.
    let pid = Some(pid).filter(|pid| *pid > 0);
    let Some(pid) = pid.and_then(Pid::from_raw) else {
        return Ok(None);
    };
    let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(None),
        Err(error) => return Err(SidecarError::step("open the pidfd")(error)),
    };
    // Read after opening the pidfd: if the start times agree now, the pidfd is that process. A later process would have
    // a later start time.
    match ProcessId::read(pid.as_raw_pid()) {
        Ok(found) if found.start_time == started => Ok(Some(pidfd)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // ESRCH: it exited between the open and the read.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(SidecarError::step("read the start time")(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(pid: i32, start_time: u64) -> SidecarRecord {
        SidecarRecord {
            pid,
            start_time,
            cgroups: Vec::new(),
            unlimited: Vec::new(),
            landlock_abi: 0,
            warden: None,
        }
    }

    #[test]
    fn never_kills_another_process_with_the_same_number() {
        let own = ProcessId::read(std::process::id() as i32).unwrap();
        let other = record(own.pid, own.start_time + 1);
        kill(&other).unwrap();
        assert!(open(other.pid, other.start_time).unwrap().is_none());
    }

    #[test]
    fn killing_no_process_and_removing_no_cgroup_is_fine() {
        for pid in [0, -1, i32::MAX] {
            kill(&record(pid, 1)).unwrap();
        }
        let mut gone = record(0, 0);
        gone.cgroups = vec!["/nonexistent/cgroup".into()];
        remove(&gone).unwrap();
    }
}
