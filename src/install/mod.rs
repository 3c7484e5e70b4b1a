//! `agentbox install` and `uninstall`: the program, its registration with the installed engines, and the removal of
//! both.
//!
//! A call first computes every step ([`plan`], [`removal`]). So a file that cannot be changed stops it before any
//! change, and a dry run shows the same steps. Only [`files`] writes.
//!
//! | File | Content |
//! |---|---|
//! | [`docker`], [`containerd`], [`podman`], [`own`] | PURE: the text of a file -> its text with agentbox, and without
//! |
//! | [`plan`], [`removal`] | which steps there are |
//! | [`step`], `diff` | one step, and its effect; what it changes in a text |
//! | [`files`] | reads files that no other user can write, writes atomically |
//! | [`daemon`] | asks Docker whether it has the runtime |
//! | [`record`] | what was installed, for the removal |
//! | [`twin`] | other agentbox programs than this one |

mod containerd;
pub mod daemon;
mod diff;
mod docker;
mod error;
mod files;
mod own;
mod plan;
mod podman;
mod record;
mod removal;
mod step;
#[cfg(test)]
mod tests;
mod twin;

use std::path::{Path, PathBuf};

pub use containerd::{handler, has_no_pods};
pub use error::InstallError;
pub use plan::plan;
pub use removal::{RunningSandboxes, removal};
pub use step::InstallPlan;
pub use twin::is_another;

use crate::engines::daemon::CONTAINERD_CONFIG;
use files::TextFile;

const PODMAN: &str = "/etc/containers/containers.conf.d/agentbox.conf";
const APPARMOR: &str = "/etc/apparmor.d/agentbox";
const CONFIG: &str = "/etc/agentbox/config.toml";
/// The record of installed files, one word and path on each line.
const RECORD: &str = "/var/lib/agentbox/installed";
/// The digest of the node file as installed, in the form of sha256sum(1).
const CONFIG_DIGEST: &str = "/var/lib/agentbox/installed.config";
/// The suffix of a file's backup.
const BACKUP: &str = ".before-agentbox";

/// The system to change.
#[derive(Debug)]
pub struct TargetSystem {
    /// The directory that stands for `/`; `/` itself for this system.
    root: PathBuf,
}

impl TargetSystem {
    /// This system, or the one below a directory.
    ///
    /// # Errors
    /// The directory is a relative path.
    pub fn of(destdir: Option<&Path>) -> Result<Self, InstallError> {
        let root = destdir.unwrap_or(Path::new("/")).to_owned();
        match root.is_absolute() {
            true => Ok(Self { root }),
            false => Err(InstallError::Relative("--destdir", root)),
        }
    }

    /// Whether it is the running system, whose engines can be asked and reloaded.
    fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Refuses a caller who cannot change it.
    ///
    /// # Errors
    /// It is this system, and the caller is not root.
    pub fn require_root(&self, verb: &'static str) -> Result<(), InstallError> {
        match self.is_live() && !rustix::process::geteuid().is_root() {
            true => Err(InstallError::NotRoot(verb)),
            false => Ok(()),
        }
    }

    /// The path on this system of a path in that system.
    fn real(&self, path: &str) -> PathBuf {
        self.real_path(Path::new(path))
    }

    fn real_path(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn has(&self, path: &str) -> bool {
        self.real(path).exists()
    }

    fn read(&self, path: &str) -> Result<Option<TextFile>, InstallError> {
        files::read(&self.real(path))
    }

    fn text(&self, path: &str) -> Result<Option<String>, InstallError> {
        Ok(self.read(path)?.map(|file| file.text))
    }
}

/// The text of this node's containerd main file; `None` if there is none.
///
/// # Errors
/// It, or agentbox's drop-in file, cannot be read, or root's programs should not trust it.
pub fn containerd_config() -> Result<Option<String>, InstallError> {
    let Some(main) = files::read(Path::new(CONTAINERD_CONFIG))? else {
        return Ok(None);
    };
    if let Some(path) = containerd::drop_in(&main.text) {
        files::read(&path)?;
    }
    Ok(Some(main.text))
}

/// The path of a file's backup.
fn backup(path: &str) -> String {
    format!("{path}{BACKUP}")
}
