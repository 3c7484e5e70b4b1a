//! The report pipe of one `exec`.

use std::path::{Path, PathBuf};

use crate::runtime::error::RuntimeError;
use crate::runtime::state::store::ContainerPaths;

/// A pipe in the container's directory, removed when `exec` is done.
pub(super) struct ReportFile(PathBuf);

impl ReportFile {
    /// The name is no other runtime's: neither of one that was killed, nor of one in another pid namespace.
    pub(super) fn new(place: &ContainerPaths) -> Result<Self, RuntimeError> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(RuntimeError::Random)?;
        let name = format!("exec-{:016x}.report", u64::from_ne_bytes(random));
        Ok(Self(place.dir().join(name)))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_file(&self.0) {
            log::debug!("remove {:?}: {e}", self.0);
        }
    }
}
