//! Directories of unit tests.

use std::path::PathBuf;

/// A directory that is removed on drop.
pub struct TestDir(pub PathBuf);

impl TestDir {
    pub fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("agentbox-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// One with a name of its own, however many tests call it at once.
    pub fn unique() -> Self {
        let base = std::env::temp_dir().join("agentbox-test-XXXXXX");
        Self(nix::unistd::mkdtemp(&base).unwrap().canonicalize().unwrap())
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}
