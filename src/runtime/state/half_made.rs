//! Processes of `create` and `exec` before their program runs.
//!
//! They are in the container's namespaces and cgroup. So the container's programs may stop them, take a lease on the
//! file that they execute, or leave them no CPU time. libcontainer waits for them without a limit. Here they get one,
//! and meanwhile only the lock of a container in creation is held.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use crate::cgroup::controllers::Controllers;
use crate::runtime::RuntimeError;
use crate::runtime::signal;
use crate::runtime::state::record::ProcessId;
use crate::sys::deadline::{Deadline, Halt};

/// How long a process may take to be ready, or to execute its program. It normally takes a few milliseconds.
pub const WITHIN: Duration = Duration::from_secs(30);

/// How long killed processes may take to end.
const END_WITHIN: Duration = Duration::from_secs(10);

/// Runs a step that begins a process. After the time limit, kills every process of it that holds the report pipe.
pub fn limited<T>(
    what: &'static str,
    within: Duration,
    report: &Path,
    halt: Option<Halt<'_>>,
    begin: impl FnOnce(&Deadline<'_>) -> Result<T, RuntimeError>,
) -> Result<T, RuntimeError> {
    let deadline = Deadline::begin(within, halt).map_err(RuntimeError::io("set a deadline"))?;
    let result = begin(&deadline);
    let passed = deadline.has_passed();
    drop(deadline);
    match result {
        Err(error) if passed => {
            log::debug!("{}", crate::log::chain(&error));
            if let Err(error) = kill(report) {
                log::warn!("{}", crate::log::chain(&error));
            }
            Err(RuntimeError::HeldUp {
                what,
                seconds: within.as_secs(),
            })
        }
        other => other,
    }
}

/// A file that shows whether a container is frozen, and the byte that means so. A frozen container makes no progress,
/// so timeouts are suspended.
pub struct FreezerFile {
    file: OwnedFd,
    byte: u8,
}

impl FreezerFile {
    /// The file of a container's freezer; `None` if it has none.
    pub fn of(controllers: &Controllers) -> Option<Self> {
        let (path, byte) = match (controllers.v1("freezer"), controllers.unified()) {
            // THAWED, FREEZING, FROZEN
            (Some(dir), _) => (dir.join("freezer.state"), b'F'),
            (None, Some(dir)) => (dir.join("cgroup.freeze"), b'1'),
            (None, None) => return None,
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        Some(Self { file, byte })
    }

    /// For a deadline.
    pub fn halt(&self) -> Halt<'_> {
        Halt {
            file: self.file.as_fd(),
            offset: 0,
            byte: self.byte,
        }
    }
}

/// Kills the processes of an unfinished `create` or `exec`: libcontainer's children, whose pids are not recorded. They
/// are known by the pipe that they inherited. Repeats until none is found, because one of them may be about to fork.
pub fn kill(report: &Path) -> Result<(), RuntimeError> {
    let Ok(pipe) = fs::metadata(report) else {
        return Ok(());
    };
    let end = Instant::now() + END_WITHIN;
    let mut pause = Duration::from_micros(200);
    loop {
        let holders = holders(&pipe);
        if holders.is_empty() {
            return Ok(());
        }
        holders.into_iter().try_for_each(signal::kill_process)?;
        if Instant::now() >= end {
            // In a frozen cgroup v1 they end when it is thawed.
            return Err(RuntimeError::NotEnded(report.to_owned()));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Other processes with this file open.
fn holders(file: &fs::Metadata) -> Vec<ProcessId> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    let holds = |pid: &i32| {
        let fds = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        fds.filter_map(|fd| fs::metadata(fd.path()).ok())
            .any(|m| (m.dev(), m.ino()) == (file.dev(), file.ino()))
    };
    numbers
        .filter(|pid| *pid != own)
        .filter(holds)
        .filter_map(ProcessId::of)
        .collect()
}
