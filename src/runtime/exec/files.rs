//! Files of one `exec`.

use std::path::PathBuf;

use crate::runtime::RuntimeError;
use crate::runtime::files::write_whole;
use crate::runtime::input::bundle;
use crate::runtime::state::store::ContainerPaths;

/// Files of one `exec` in the container's directory, removed when it is done.
pub(super) struct ExecFiles {
    base: PathBuf,
}

impl ExecFiles {
    pub(super) fn new(place: &ContainerPaths) -> Self {
        Self {
            base: place.dir().join(format!("exec-{}", std::process::id())),
        }
    }

    pub(super) fn process(&self) -> PathBuf {
        self.base.with_extension("json")
    }

    /// The directory of states for libcontainer: the engine's. It runs nothing in a container that is not started, so
    /// for a created container it gets a copy of the state that says Running.
    pub(super) fn state_root(&self, place: &ContainerPaths) -> Result<PathBuf, RuntimeError> {
        let path = place.libcontainer_dir().join("state.json");
        let mut state: serde_json::Value = bundle::read_json(&path)?;
        if state["status"] != "created" {
            return Ok(place.root.clone());
        }
        state["status"] = "running".into();
        let root = self.base.with_extension("root");
        let dir = root.join(place.id.as_str());
        std::fs::create_dir_all(&dir).map_err(RuntimeError::io(format!("make {dir:?}")))?;
        write_whole(&dir.join("state.json"), state.to_string().as_bytes())?;
        Ok(root)
    }

    pub(super) fn report(&self) -> PathBuf {
        self.base.with_extension("report")
    }
}

impl Drop for ExecFiles {
    fn drop(&mut self) {
        for path in [self.process(), self.report()] {
            if let Err(e) = std::fs::remove_file(&path) {
                log::debug!("remove {path:?}: {e}");
            }
        }
        match std::fs::remove_dir_all(self.base.with_extension("root")) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                log::debug!("remove the state's copy: {e}")
            }
            _ => {}
        }
    }
}
