//! SHELL. What a container around this program keeps from `wrap`: a /proc of its own, cgroups, pivot_root(2). Each is tried, and
//! nothing is left. The doctor asks before a run, `wrap` after one that failed.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::process::WaitOptions;
use serde::{Deserialize, Serialize};

use crate::cgroup::hierarchies::Hierarchies;
use crate::kernel::mountinfo::MountTable;
use crate::sys::{process, procfs};

/// The options of `docker run` with which an ordinary user's `wrap` works in a container.
pub const OPEN_CONTAINER: &str =
    "--security-opt seccomp=unconfined --security-opt systempaths=unconfined";

/// The controllers of the sidecar's cgroup.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// What is in the way of `wrap`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Obstacle {
    /// In a user namespace the kernel mounts a procfs only if another one is visible that nothing covers
    /// (mount_too_revealing in fs/namespace.c).
    #[error("this container masks files of /proc, and so the kernel mounts no other /proc")]
    MaskedProc,
    /// The limits of the sidecar and the command need cgroups.
    #[error("this container has {0:?} read-only")]
    Cgroups(PathBuf),
    /// Docker's filter has no rule for it, whatever the capabilities.
    #[error("this container's seccomp filter denies pivot_root")]
    PivotRoot,
}

impl Obstacle {
    /// What to do, tried with Docker.
    pub fn remedy(&self) -> String {
        let options = match self {
            Self::MaskedProc => format!("{OPEN_CONTAINER}, or --privileged"),
            Self::Cgroups(_) | Self::PivotRoot => "--privileged".to_owned(),
        };
        format!("use `wrap --walls landlock`, or start the container with {options}")
    }
}

/// What is in the way of a user, in their own user namespace. To be called by a process with one thread.
pub fn of_user() -> io::Result<Option<Obstacle>> {
    Ok((!mounts_proc()?).then_some(Obstacle::MaskedProc))
}

/// What is in the way of root.
pub fn of_root() -> Option<Obstacle> {
    if let Some(dir) = closed_cgroup() {
        return Some(Obstacle::Cgroups(dir));
    }
    // Of a path that does not exist: the kernel looks for it after the filter and the capability.
    let tried = rustix::process::pivot_root("", "");
    (tried == Err(Errno::PERM)).then_some(Obstacle::PivotRoot)
}

/// Whether files of /proc are covered here. A guess for words: only the kernel knows which of them count.
pub fn covers_proc() -> bool {
    // An automount on an empty directory, as the kernel permits it.
    let harmless = Path::new("/proc/sys/fs/binfmt_misc");
    procfs::bytes("/proc/self/mountinfo").is_ok_and(|text| {
        let table = MountTable::parse(&text);
        let mut points = table.mounts().iter().map(|line| line.point.as_path());
        points.any(|point| {
            let inside = point.strip_prefix("/proc");
            inside.is_ok_and(|rest| rest != Path::new("")) && point != harmless
        })
    })
}

/// The first cgroup hierarchy of the sidecar's that is mounted read-only.
fn closed_cgroup() -> Option<PathBuf> {
    let found = Hierarchies::read().ok()?;
    let v1 = CONTROLLERS.iter().filter_map(|name| found.v1(name));
    let mut points = v1.chain(found.v2());
    let is_closed =
        |point: &&Path| rustix::fs::access(*point, Access::WRITE_OK) == Err(Errno::ROFS);
    points.find(is_closed).map(Path::to_owned)
}

/// Whether a procfs of a new pid namespace can be mounted. Children do both, and end; the mount has no place. What has another
/// cause, such as a limit of processes or namespaces, is no obstacle of the container's.
fn mounts_proc() -> io::Result<bool> {
    const MASKED: i32 = 1;
    let ends = |child| -> io::Result<i32> {
        let status = rustix::process::waitpid(Some(child), WaitOptions::empty())?;
        Ok(status
            .and_then(|(_, status)| status.exit_status())
            .unwrap_or(0))
    };
    let status = ends(process::fork_into(|| {
        let tried = process::unshare_pids()
            .and_then(|()| {
                process::fork_into(|| i32::from(detached_proc() == Err(Errno::PERM)) * MASKED)
            })
            .and_then(ends);
        tried.unwrap_or(0)
    })?)?;
    Ok(status != MASKED)
}

fn detached_proc() -> rustix::io::Result<()> {
    let system = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&system)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map(drop)
}
