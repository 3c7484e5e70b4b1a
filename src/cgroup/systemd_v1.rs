//! The hierarchy `name=systemd` of cgroup v1. It has no controller, so libcontainer ignores it. runc makes a cgroup
//! there too, which a systemd in the container needs.
//!
//! The container's processes are born in it: the runtime moves there while libcontainer makes them. A thread that
//! writes "0" into `tasks` moves itself, for which the kernel takes no lock that waits for RCU
//! (cgroup_procs_write_start, kernel/cgroup/cgroup.c).

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::error::CgroupError;
use crate::cgroup::hierarchies::Hierarchies;

/// Its name in /proc/PID/cgroup.
pub const NAME: &str = "name=systemd";

/// This process's own cgroup, while it is in a container's.
pub struct Visit {
    home: Option<OwnedFd>,
}

impl Visit {
    /// Makes the cgroup of this path (linux.cgroupsPath), and moves this process there. Does nothing on a node without
    /// the hierarchy. This process must have one thread.
    pub fn begin(cgroup: &Path) -> Result<Self, CgroupError> {
        let Some((mount, own)) = places()? else {
            return Ok(Self { home: None });
        };
        let home = open_tasks(&own)?;
        // Below the root in either spelling, as libcontainer takes it and `delete` removes it.
        let dir = mount.join(cgroup.strip_prefix("/").unwrap_or(cgroup));
        fs::create_dir_all(&dir).map_err(CgroupError::io(format!("make the cgroup {dir:?}")))?;
        let tasks = open_tasks(&dir)?;
        rustix::io::write(&tasks, b"0")
            .map_err(CgroupError::io(format!("move to the cgroup {dir:?}")))?;
        Ok(Self { home: Some(home) })
    }

    /// Moves this process back.
    pub fn end(mut self) -> Result<(), CgroupError> {
        self.leave()
    }

    fn leave(&mut self) -> Result<(), CgroupError> {
        let Some(home) = self.home.take() else {
            return Ok(());
        };
        let moved = rustix::io::write(&home, b"0").map(|_| ());
        moved.map_err(CgroupError::io("leave the container's cgroup"))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Err(error) = self.leave() {
            log::warn!("{}", crate::log::chain(&error));
        }
    }
}

/// The `tasks` file of this process's own cgroup, for a child that must not stay in the container's.
pub fn home() -> Result<Option<PathBuf>, CgroupError> {
    Ok(places()?.map(|(_, own)| own.join("tasks")))
}

/// The hierarchy's mount point, and this process's cgroup in it.
fn places() -> Result<Option<(PathBuf, PathBuf)>, CgroupError> {
    let hierarchies = Hierarchies::of_node()?;
    let Some(mount) = hierarchies.v1(NAME) else {
        return Ok(None);
    };
    let own = hierarchies.of("self")?.v1.remove(NAME);
    Ok(own.map(|own| (mount.to_owned(), own)))
}

/// The `tasks` file of a cgroup, for the process that moves there.
pub fn open_tasks(dir: &Path) -> Result<OwnedFd, CgroupError> {
    let file = dir.join("tasks");
    rustix::fs::open(&file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(CgroupError::io(format!("open {file:?}")))
}
