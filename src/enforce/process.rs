//! The parts of a spec that describe the process.

use std::collections::HashSet;

use oci_spec::runtime::{Process, Spec};

/// process
pub fn of(spec: &Spec) -> Option<&Process> {
    spec.process().as_ref()
}

/// process.user.uid
pub fn uid(spec: &Spec) -> u32 {
    of(spec).map_or(0, |p| p.user().uid())
}

/// process.user.gid
pub fn gid(spec: &Spec) -> u32 {
    of(spec).map_or(0, |p| p.user().gid())
}

/// process.args
pub fn args(spec: &Spec) -> Vec<String> {
    of(spec).and_then(|p| p.args().clone()).unwrap_or_default()
}

/// The environment, each name once. As with runc the last value counts; a C library would take the first.
pub fn env(spec: &Spec) -> Vec<String> {
    let all = of(spec).and_then(|p| p.env().clone()).unwrap_or_default();
    let name = |entry: &str| entry.split('=').next().unwrap_or_default().to_owned();
    let mut seen = HashSet::new();
    let mut kept: Vec<String> = all
        .into_iter()
        .rev()
        .filter(|e| seen.insert(name(e)))
        .collect();
    kept.reverse();
    // libcontainer has looked up the user's home.
    kept.retain(|e| e != "HOME=");
    kept
}
