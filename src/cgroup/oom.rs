//! The kernel's word that a container ran out of memory (cgroup-v1/memory.rst section 9, cgroup-v2.rst memory.events).

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::EventfdFlags;
use rustix::fs::inotify::{CreateFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};

use crate::cgroup::CgroupError;
use crate::cgroup::controllers::Controllers;

/// A descriptor that becomes readable when something happened.
pub enum OomWatch {
    /// An eventfd that the memory controller counts up; the other descriptor keeps it registered.
    V1 {
        /// Counts.
        events: OwnedFd,
        /// memory.oom_control
        control: OwnedFd,
        /// The cgroup's directory: removing it counts, too.
        dir: PathBuf,
    },
    /// inotify on memory.events.
    V2 {
        /// Tells of changes.
        changes: OwnedFd,
        /// memory.events
        file: PathBuf,
        /// Kills that were told of.
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
            control,
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

    /// Reads what is there. True if memory ran out.
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
    count(file, "oom_kill ")
}

/// The number in the line of a file that begins with this word.
fn count(file: &std::path::Path, word: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(word));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

/// How many processes the kernel killed because memory ran out; 0 where it does not say.
pub fn killed(controllers: &Controllers) -> u64 {
    match (controllers.unified(), controllers.v1("memory")) {
        (_, Some(dir)) => kills(&dir.join("memory.oom_control")),
        (Some(dir), None) => kills(&dir.join("memory.events")),
        (None, None) => 0,
    }
}

/// How often the kernel refused a new process because there were too many; 0 where it does not say.
pub fn forks_refused(controllers: &Controllers) -> u64 {
    let dir = controllers.v1("pids").or_else(|| controllers.unified());
    dir.map_or(0, |dir| count(&dir.join("pids.events"), "max "))
}
