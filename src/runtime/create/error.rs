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
    /// A path leads to another namespace than the one that was checked.
    #[error("the {kind} namespace at {path:?} became another one while the container was created")]
    NamespaceChanged {
        /// Its kind, as in /proc/PID/ns.
        kind: &'static str,
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
    Mount(#[from] super::unconfined::MountRefusal),
}
