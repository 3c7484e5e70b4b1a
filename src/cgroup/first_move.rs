//! Does the slow first cgroup migration early, in parallel.
//!
//! Moving a process to another cgroup takes a lock with a grace period of RCU, some milliseconds; moves soon afterwards
//! take microseconds (cgroup_threadgroup_rwsem, rcu_sync in kernel/rcu/sync.c). A child that moves itself into its own
//! cgroup pays for it in parallel, in a `create` that libcontainer does alone. Nothing depends on it: if
//! it fails, the first real move is slow.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use rustix::process::{Pid, WaitOptions};

use crate::cgroup::hierarchies::Hierarchies;
use crate::sys::process::fork_into;

/// The child.
pub struct FirstMove(Option<Pid>);

/// Starts the child.
pub fn begin() -> FirstMove {
    let procs = own_procs_file();
    FirstMove(procs.and_then(|path| {
        fork_into(move || {
            let moved = fs::OpenOptions::new()
                .write(true)
                .open(path)
                .and_then(|mut f| f.write_all(b"0"));
            i32::from(moved.is_err())
        })
        .ok()
    }))
}

impl Drop for FirstMove {
    fn drop(&mut self) {
        if let Some(pid) = self.0.take()
            && let Err(error) = rustix::process::waitpid(Some(pid), WaitOptions::empty())
        {
            log::debug!("wait for the cgroup helper: {error}");
        }
    }
}

/// `cgroup.procs` of this process's own cgroup in a v1 hierarchy, or in v2 if that is the only one.
fn own_procs_file() -> Option<PathBuf> {
    let own = Hierarchies::read().ok()?.of("self").ok()?;
    let own = own.v1.into_values().chain(own.v2);
    let mut files = own.map(|dir| dir.join("cgroup.procs"));
    files.find(|file| file.exists())
}
