//! Why nothing is installed or removed.

use std::path::{Path, PathBuf};

use crate::log::chain;

/// Why nothing is installed or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// Only root changes the system.
    #[error("{0} must run as root: use sudo, or --dry-run to see the changes")]
    NotRoot(&'static str),
    /// `--prefix`, `--destdir`
    #[error("{0} must be an absolute path, not {1:?}")]
    Relative(&'static str, PathBuf),
    /// A file that cannot be changed.
    #[error("{path:?} {why}; nothing was changed")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason, and what to do.
        why: String,
    },
    /// The file has changed since the steps were computed.
    #[error("another program changed {0:?} meanwhile: run this again")]
    Changed(PathBuf),
    /// containerd refuses its new file.
    #[error("containerd rejects the new {path:?}, so it stays unchanged: {said}")]
    Containerd {
        /// The file.
        path: PathBuf,
        /// The error of `containerd config dump`.
        said: String,
    },
    /// dockerd was reloaded, and does not list the runtime.
    #[error(
        "Docker does not list the runtime agentbox {0} s after its reload: `systemctl restart docker`, or see its log"
    )]
    NotListed(u64),
    /// Sandboxes would lose the program that manages them.
    #[error(
        "{count} sandboxes are on this node ({names}): remove them first (`agentbox list --all`, as their user), or use --force"
    )]
    Running {
        /// Their number.
        count: usize,
        /// Some of their names.
        names: String,
    },
    /// An error of the kernel.
    #[error("{step}")]
    Io {
        /// The failed operation.
        step: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// A directory in which no file can be made.
    #[error("write in {0:?}: {1}; nothing was changed: make it writable and run this again")]
    NotWritable(PathBuf, std::io::Error),
    /// A step failed, after others were made.
    #[error("{}; earlier steps were made: correct this and run it again", chain(.0))]
    Half(Box<InstallError>),
}

impl InstallError {
    pub(super) fn io(step: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let step = step.into();
        move |source| Self::Io { step, source }
    }

    pub(super) fn file(path: &Path, why: impl Into<String>) -> Self {
        Self::File {
            path: path.to_owned(),
            why: why.into(),
        }
    }
}
