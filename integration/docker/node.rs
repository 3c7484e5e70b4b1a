//! Node files for tests that need other ones than an unconfigured node has.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const DIR: &str = "/etc/agentbox";

/// Files below /etc/agentbox, removed when dropped. The test must have the rig alone.
#[derive(Default)]
pub struct NodeFiles(Vec<PathBuf>);

impl NodeFiles {
    /// Writes one file with this mode.
    #[track_caller]
    pub fn write(&mut self, name: &str, mode: u32, text: &str) {
        let path = Path::new(DIR).join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        assert!(
            self.0.contains(&path) || !path.exists(),
            "{path:?} is there"
        );
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        self.0.push(path);
    }
}

impl Drop for NodeFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            // The list may name a file twice.
            std::fs::remove_file(path).ok();
        }
    }
}
