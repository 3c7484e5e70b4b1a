//! The kernel's reports that a container ran out of memory (cgroup-v1/memory.rst section 9, cgroup-v2.rst
//! memory.events).

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::EventfdFlags;
use rustix::fs::inotify::{CreateFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};

use super::error::CgroupError;
use crate::cgroup::controllers::Controllers;

/// A descriptor that becomes readable at an event.
pub enum OomWatch {
    /// An eventfd that the memory controller counts up; the other descriptor keeps it registered.
    V1 {
        /// The counter.
        events: OwnedFd,
        /// memory.oom_control, held.
        _control: OwnedFd,
        /// The cgroup's directory: its removal counts, too.
        dir: PathBuf,
    },
    /// inotify on memory.events.
    V2 {
        /// Reports changes.
        changes: OwnedFd,
        /// memory.events
        file: PathBuf,
        /// Kills already reported.
        seen: u64,
    },
}

impl OomWatch {
    /// Begins to watch; `None` on a node without a memory controller.
    pub fn begin(controllers: &Controllers) -> Result<Option<Self>, CgroupError> {
        let step = "watch for out-of-memory events";
        if let Some(dir) = controllers.unified() {
            let file = dir.join("memory.events");
            if !file.exists() {
                return Ok(None);
            }
            let changes = rustix::fs::inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
                .map_err(CgroupError::io(step))?;
            rustix::fs::inotify::add_watch(&changes, &file, WatchFlags::MODIFY)
                .map_err(CgroupError::io(step))?;
            let seen = kills(&file);
            return Ok(Some(Self::V2 {
                changes,
                file,
                seen,
            }));
        }
        let Some(dir) = controllers.v1("memory") else {
            return Ok(None);
        };
        let control = rustix::fs::open(
            dir.join("memory.oom_control"),
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(CgroupError::io(step))?;
        let events = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(CgroupError::io(step))?;
        let text = format!("{} {}", events.as_raw_fd(), control.as_raw_fd());
        fs::write(dir.join("cgroup.event_control"), text).map_err(CgroupError::io(step))?;
        let dir = dir.to_owned();
        Ok(Some(Self::V1 {
            events,
            _control: control,
            dir,
        }))
    }

    /// What to poll.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::V1 { events, .. } => events.as_fd(),
            Self::V2 { changes, .. } => changes.as_fd(),
        }
    }

    /// Reads the events; true if memory ran out.
    pub fn happened(&mut self) -> bool {
        let mut buffer = [0; 4096];
        match self {
            Self::V1 { events, dir, .. } => {
                let counted = rustix::io::read(&*events, &mut buffer).is_ok_and(|n| n > 0);
                counted && dir.join("cgroup.event_control").exists()
            }
            Self::V2 {
                changes,
                file,
                seen,
            } => {
                let told = rustix::io::read(&*changes, &mut buffer).is_ok_and(|n| n > 0);
                let before = std::mem::replace(seen, kills(file));
                told && *seen > before
            }
        }
    }
}

fn kills(file: &std::path::Path) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    counted(&text, KILLED).unwrap_or(0)
}

/// The key of the line that counts killed processes.
const KILLED: &str = "oom_kill ";
/// The key of the line that counts refused processes.
const NOT_MADE: &str = "max ";

/// The number in the line of a file that begins with this key.
fn counted(text: &str, word: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(word));
    line.and_then(|n| n.trim().parse().ok())
}

/// The files of a limit: its count of events, and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitFiles {
    /// The kernel's count.
    pub events: PathBuf,
    /// The limit.
    pub limit: PathBuf,
}

/// How often memory ran out, from the text of its file.
pub fn killed(events: &str) -> Option<u64> {
    counted(events, KILLED)
}

/// How often the kernel refused a new process because of the limit, from the text of its file.
pub fn forks_refused(events: &str) -> Option<u64> {
    counted(events, NOT_MADE)
}

/// The value in a limit's file; `None` means no limit. cgroup v1 shows that as a number larger than any memory.
pub fn limit(text: &str) -> Option<u64> {
    const UNLIMITED: u64 = 1 << 62;
    let value: u64 = text.trim().parse().ok()?;
    (value < UNLIMITED).then_some(value)
}

/// The files of the limit of memory.
pub fn memory_files(controllers: &Controllers) -> Option<LimitFiles> {
    let (dir, [events, limit]) = match (controllers.v1("memory"), controllers.unified()) {
        (Some(dir), _) => (dir, ["memory.oom_control", "memory.limit_in_bytes"]),
        (None, Some(dir)) => (dir, ["memory.events", "memory.max"]),
        (None, None) => return None,
    };
    Some(LimitFiles {
        events: dir.join(events),
        limit: dir.join(limit),
    })
}

/// The files of the limit of processes.
pub fn pids_files(controllers: &Controllers) -> Option<LimitFiles> {
    let dir = controllers.v1("pids").or_else(|| controllers.unified())?;
    Some(LimitFiles {
        events: dir.join("pids.events"),
        limit: dir.join("pids.max"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_files() {
        let v1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        let v2 = "low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\noom_group_kill 0\n";
        assert_eq!(
            (killed(v1), killed(v2), killed("")),
            (Some(3), Some(2), None)
        );
        assert_eq!(forks_refused("max 7\n"), Some(7));
        assert_eq!(limit("33554432\n"), Some(32 << 20));
        assert_eq!(
            (limit("max\n"), limit("9223372036854771712\n")),
            (None, None)
        );
    }
}
