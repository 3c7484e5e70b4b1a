//! Why something about a cgroup failed.

use std::io;
use std::path::PathBuf;

use crate::cgroup::controllers::Controllers;
use crate::cgroup::limits::LimitRefusal;

/// Why something about a cgroup failed.
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
    /// A file or directory of the sidecar's cgroup was refused.
    #[error("cannot {step} {path:?}")]
    File {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// No cgroup file system is mounted.
    #[error("no cgroup hierarchy is mounted")]
    NoHierarchy,
    /// A system call failed.
    #[error("{step}")]
    Io {
        /// What was being done, with the object's name.
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
        /// Why not.
        why: PathRefusal,
    },
    /// Files of cgroup v2 on a node with cgroup v1. The words are runc's.
    #[error(
        "invalid configuration: cannot use unified on cgroup v1: linux.resources.unified needs cgroup v2"
    )]
    UnifiedOnV1,
    /// Killed processes do not go.
    #[error("the cgroup {0:?} still has processes")]
    StillBusy(PathBuf),
    /// The rules for devices cannot be compiled.
    #[error(transparent)]
    DeviceRules(#[from] crate::devices::DeviceError),
    /// Device rules need a cgroup to hold them.
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
    /// The root of the hierarchy, or out of it.
    #[error("it must be a path below the root of the hierarchy, without `..`")]
    NotBelow,
    /// Processes that are somebody else's.
    #[error("{0:?} already has processes: another program uses it")]
    Busy(PathBuf),
    /// Nothing in it would run.
    #[error(
        "container's cgroup unexpectedly frozen: nothing that is put into it would run until {0:?} is thawed"
    )]
    Frozen(PathBuf),
}

/// Not as its source: the words are the error's own already.
impl From<LimitRefusal> for CgroupError {
    fn from(refusal: LimitRefusal) -> Self {
        Self::Limit(refusal)
    }
}

impl CgroupError {
    /// For `map_err`: an errno with what was being done.
    pub fn io<E: Into<io::Error>>(step: impl Into<String>) -> impl FnOnce(E) -> Self {
        let step = step.into();
        move |source| Self::Io {
            step,
            source: source.into(),
        }
    }
}
