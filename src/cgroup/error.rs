//! Why an operation on a cgroup failed.

use std::io;
use std::path::PathBuf;

use crate::cgroup::controllers::Controllers;
use crate::cgroup::limits::refusal::LimitRefusal;

/// Why an operation on a cgroup failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// The sidecar's parent or name is not a plain path.
    #[error("the cgroup path {path:?} is refused: {reason}")]
    BadPath {
        /// The path as given.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An operation on a file or directory of a cgroup failed.
    #[error("cannot {step} {path:?}")]
    File {
        /// The operation.
        step: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// No cgroup file system is mounted.
    #[error("no cgroup hierarchy is mounted")]
    NoHierarchy,
    /// A cgroup v1 hierarchy without the controller that keeps devices closed.
    #[error(
        "no cgroup decides about devices here: mount the hierarchy of the devices controller, or use cgroup v2 alone"
    )]
    NoDevices,
    /// A system call failed.
    #[error("{step}")]
    Io {
        /// The step that failed, with the object's name.
        step: String,
        /// The errno.
        source: io::Error,
    },
    /// systemd would make a cgroup of another name. The words are runc's.
    #[error(
        "expected cgroupsPath to be of format \"slice:prefix:name\" for systemd cgroups, got {0:?} instead"
    )]
    NotAUnit(PathBuf),
    /// The spec names a cgroup that cannot be the container's own.
    #[error("linux.cgroupsPath {path:?}: {why}")]
    NotItsOwn {
        /// The path as the spec has it.
        path: PathBuf,
        /// The reason.
        why: PathRefusal,
    },
    /// Files of cgroup v2 on a node with cgroup v1. The words are runc's.
    #[error(
        "invalid configuration: cannot use unified on cgroup v1: linux.resources.unified needs cgroup v2"
    )]
    UnifiedOnV1,
    /// Killed processes have not ended.
    #[error("the cgroup {0:?} still has processes")]
    StillBusy(PathBuf),
    /// The rules for devices cannot be compiled.
    #[error(transparent)]
    DeviceRules(#[from] crate::devices::DeviceError),
    /// Device rules need a cgroup.
    #[error("the container has no cgroup of its own: {0:?}")]
    NoneOfItsOwn(Controllers),
    /// A limit that `create` cannot set.
    #[error("linux.resources: {0}")]
    NotSet(String),
    /// A limit that `update` cannot set.
    #[error("update: {0}")]
    Limit(LimitRefusal),
}

/// Why a path cannot be a container's own cgroup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathRefusal {
    /// It is the root of the hierarchy, or outside of it.
    #[error("it must be a path below the root of the hierarchy, without `..`")]
    NotBelow,
    /// It has another program's processes.
    #[error("{0:?} already has processes: another program uses it")]
    Busy(PathBuf),
    /// It is frozen.
    #[error(
        "container's cgroup unexpectedly frozen: nothing that is put into it would run until {0:?} is thawed"
    )]
    Frozen(PathBuf),
}

/// Not as its source: its words are this error's already.
impl From<LimitRefusal> for CgroupError {
    fn from(refusal: LimitRefusal) -> Self {
        Self::Limit(refusal)
    }
}

impl CgroupError {
    /// For `map_err`: adds the step to an errno.
    pub fn io<E: Into<io::Error>>(step: impl Into<String>) -> impl FnOnce(E) -> Self {
        let step = step.into();
        move |source| Self::Io {
            step,
            source: source.into(),
        }
    }
}
