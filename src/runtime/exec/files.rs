//! The report pipe of one `exec`.

use std::path::{Path, PathBuf};

use crate::runtime::state::store::ContainerPaths;

/// A pipe in the container's directory, removed when `exec` is done.
pub(super) struct ReportFile(PathBuf);

impl ReportFile {
    pub(super) fn new(place: &ContainerPaths) -> Self {
        let name = format!("exec-{}.report", std::process::id());
        Self(place.dir().join(name))
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
