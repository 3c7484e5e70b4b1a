//! Why `create` refuses, or gives up.

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
    /// A terminal that nobody would get.
    #[error("process.terminal needs --console-socket")]
    NoConsoleSocket,
    /// A source that the plan names and that nobody opened.
    #[error("copy the mount of {0:?}: it was not judged")]
    NotJudged(PathBuf),
    /// A path led to another namespace than the one that was judged.
    #[error("the {kind} namespace at {path:?} became another one while the container was created")]
    NamespaceChanged {
        /// Its kind, as in /proc/PID/ns.
        kind: &'static str,
        /// What the spec names.
        path: PathBuf,
    },
    /// Its log would go with it.
    #[error(
        "no log of this container can be kept ({0}), and log.required of the node's file refuses it for that: see to the directory, or set required = false"
    )]
    NoLog(String),
    /// The first process is gone.
    #[error("the container's process ended during create")]
    Ended,
    /// A mount of a spec without a policy.
    #[error(transparent)]
    Mount(#[from] super::unconfined::MountRefusal),
}
