//! `agentbox wrap` as users meet it: which user the command runs as, what is visible of the node, and what git and
//! toolchains find. A command ends, stops and gets signals as without it.

pub(crate) mod account;
mod agents;
mod agents_outside;
mod agents_planted;
mod ask;
mod ask_signatures;
mod caches;
mod connect;
mod doctor;
mod entered;
mod first;
mod forged;
mod git_config;
mod keys;
mod landlock;
mod leftovers;
mod matrix;
mod mcp;
mod name;
mod named;
mod next_run;
mod odd;
mod options;
mod person;
mod pid1;
mod planted;
mod protected;
mod protected_races;
mod publish;
mod readme;
mod repository;
mod rootless;
mod settings;
pub mod shell;
mod shown;
mod sockets;
mod ssh_agent;
mod summary;
mod terminal;
mod toolchains;
mod unprotect;
mod way_out;
mod wide_path;

/// Node files where no sandbox writes: below the rig's own /etc, which goes with the rig.
pub(crate) struct NodeDir(pub String);

impl NodeDir {
    pub fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        assert!(std::env::var_os("AGENTBOX_RIG").is_some(), "only in a rig");
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = format!("/etc/agentbox-test-{}-{count}", std::process::id());
        std::fs::create_dir_all(format!("{path}/policies")).unwrap();
        Self(path)
    }

    /// Its directory of policies.
    pub fn policies(&self) -> String {
        format!("{}/policies", self.0)
    }

    /// Writes a file in it. Returns its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = format!("{}/{name}", self.0);
        std::fs::write(&path, text).unwrap();
        path
    }
}
