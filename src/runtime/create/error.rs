//! Why `create` refuses a container, or fails.

use std::path::PathBuf;

/// Why a container is not created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// `--no-new-keyring`
    #[error("--no-new-keyring is refused under a policy: the engine's keys would be in reach")]
    Keyring,
    /// sd_notify(3)
    #[error(
        "NOTIFY_SOCKET is set, and under a policy no socket of the node is handed in: unset it, and let the caller report \
         that the service is ready"
    )]
    NotifySocket,
    /// `process.terminal` without a console socket: the terminal would go nowhere.
    #[error("process.terminal needs --console-socket")]
    NoConsoleSocket,
    /// A source of the plan that was not opened and checked.
    #[error("copy the mount of {0:?}: it was not judged")]
    NotJudged(PathBuf),
    /// The hard limit of descriptors is too low for the mounts.
    #[error(
        "too many open files: {mounts} mounts need {needed} descriptors, the hard limit is {limit}; raise ulimit -n to {needed} as \
         root, or shorten PATH (`wrap`)"
    )]
    ManyMounts {
        /// How many.
        mounts: u64,
        /// The descriptors for them.
        needed: u64,
        /// The hard limit.
        limit: u64,
    },
    /// A path leads to another namespace than the one that was checked.
    #[error("the {kind} namespace at {path:?} became another one while the container was created")]
    NamespaceChanged {
        /// Its kind, as in /proc/PID/ns.
        kind: String,
        /// Its path in the spec.
        path: PathBuf,
    },
    /// No log can be kept, and the node requires one.
    #[error(
        "no log of this container can be kept ({0}), and log.required of the node's file refuses it for that: see to the directory, or set required = false"
    )]
    NoLog(String),
    /// The node lacks a count that `time.idle` needs.
    #[error("time.idle cannot be kept: this node does not count the {0}; leave time.idle out")]
    NoActivity(&'static str),
    /// The init process has ended.
    #[error("the container's process ended during create")]
    Ended,
    /// A mount of a spec without a policy is refused.
    #[error(transparent)]
    Mount(#[from] MountRefusal),
}

/// Why a mount is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountRefusal {
    /// libcontainer makes cgroup mounts too early for this one.
    #[error(
        "the cgroup mount at {0:?} lies over or below a mount that is made after it: put it first"
    )]
    CgroupOrder(PathBuf),
    /// runc's rule.
    #[error("tmpcopyup at {destination:?} is for a tmpfs alone, not for {typ:?}")]
    CopyUp {
        /// Its mount point.
        destination: PathBuf,
        /// Its file system.
        typ: String,
    },
    /// A mount with uidMappings or gidMappings, but not both.
    #[error("the mount {0:?} has uidMappings or gidMappings without the other")]
    HalfMapped(PathBuf),
    /// A mount that asks for mapped ids, without any mapping.
    #[error("the mount {0:?} requests mapped ids, but neither it nor the container has a mapping")]
    NotMapped(PathBuf),
    /// An option that a new mount cannot have.
    #[error(
        "error mounting {source_path:?} to rootfs at {destination:?}: the option {option} is not for a new mount of type {typ:?}"
    )]
    Option {
        /// The option.
        option: &'static str,
        /// What would be mounted.
        source_path: PathBuf,
        /// Its mount point.
        destination: PathBuf,
        /// Its file system.
        typ: String,
    },
    /// /dev, /proc or /sys is a link.
    #[error(
        "the image's {asked:?} leads to {found:?}: use an image where it is a directory that does not change meanwhile"
    )]
    Moved {
        /// Its path in the spec.
        asked: PathBuf,
        /// Where it would be mounted.
        found: PathBuf,
    },
    /// A mount in place of the kernel's procfs.
    #[error("error mounting {source_path:?} to rootfs at {destination:?}: {why}")]
    Proc {
        /// What would be mounted.
        source_path: PathBuf,
        /// Its mount point.
        destination: PathBuf,
        /// For example "it is inside /proc".
        why: &'static str,
    },
}
