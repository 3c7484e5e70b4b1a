//! The parts of a spec that describe the process.

use std::collections::{HashMap, HashSet};

use oci_spec::runtime::{PosixRlimitType, Process, Spec};

use super::error::EnforceError;
use crate::sys::file_size::{self, FileSizeLimit};
use crate::sys::open_files::{self, OpenFilesLimit};

/// Variables that libcontainer adds: the descriptors that the process inherits (sd_listen_fds(3)).
const ADDED: [&str; 2] = ["LISTEN_FDS", "LISTEN_PID"];

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

/// The variables that libcontainer has added to an environment. The map has lost the order and the duplicates of the spec's
/// own list.
pub fn only_added(mut env: HashMap<String, String>) -> HashMap<String, String> {
    env.retain(|name, _| ADDED.contains(&name.as_str()));
    env
}

/// Adds those to an environment that does not name them.
pub fn add_missing(env: &mut Vec<String>, added: &HashMap<String, String>) {
    for (name, value) in added {
        if !env.iter().any(|e| e.starts_with(&format!("{name}="))) {
            env.push(format!("{name}={value}"));
        }
    }
}

/// process.rlimits: the limits of descriptors.
pub fn open_files(spec: &Spec) -> Option<OpenFilesLimit> {
    let mut limits = of(spec)?.rlimits().iter().flatten();
    let files = limits.find(|limit| limit.typ() == PosixRlimitType::RlimitNofile)?;
    Some(OpenFilesLimit {
        soft: files.soft(),
        hard: Some(files.hard()),
    })
}

/// process.rlimits: the limits of a file's size. `u64::MAX` is RLIM_INFINITY.
fn file_size(spec: &Spec) -> Option<FileSizeLimit> {
    let mut limits = of(spec)?.rlimits().iter().flatten();
    let size = limits.find(|limit| limit.typ() == PosixRlimitType::RlimitFsize)?;
    let bytes = |limit: u64| Some(limit).filter(|limit| *limit != u64::MAX);
    Some(FileSizeLimit {
        soft: bytes(size.soft()),
        hard: bytes(size.hard()),
    })
}

/// Lowers the limits of descriptors and of a file's size from those of the set-up to the program's. The set-up's
/// descriptors are closed.
pub fn limit_open_files(spec: &Spec) -> Result<(), EnforceError> {
    let limited = open_files::give_back(open_files(spec));
    limited.map_err(EnforceError::step("set the limit of descriptors"))?;
    let limited = file_size::give_back(file_size(spec));
    limited.map_err(EnforceError::step("set the limit of a file's size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_variable_counts_and_an_empty_home_is_none() {
        let spec = |env: &[&str]| -> Spec {
            serde_json::from_value(serde_json::json!({
                "ociVersion": "1.0.2",
                "process": {"cwd": "/", "env": env, "args": ["true"], "user": {"uid": 7, "gid": 8}},
            }))
            .unwrap()
        };
        for (given, kept) in [
            (&["A=1", "B=2", "A=3"][..], &["B=2", "A=3"][..]),
            (&["A=1=2", "A"], &["A"]),
            (&["HOME=", "A=1"], &["A=1"]),
            (&["HOME=", "HOME=/root"], &["HOME=/root"]),
            (&["HOME=/root", "HOME="], &[]),
        ] {
            assert_eq!(env(&spec(given)), kept, "{given:?}");
        }
        let spec = spec(&[]);
        assert_eq!((uid(&spec), gid(&spec), args(&spec).len()), (7, 8, 1));
    }

    #[test]
    fn of_libcontainers_environment_only_its_own_variables_are_added_and_none_twice() {
        let pairs = [
            ("LISTEN_FDS", "1"),
            ("LISTEN_PID", "1"),
            ("LISTEN_FDNAMES", "x"),
            ("PATH", "/evil"),
            ("A", "2"),
        ];
        let all = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let added = only_added(all.into());
        for (given, expected) in [
            (&["A=1"][..], &["A=1", "LISTEN_FDS=1", "LISTEN_PID=1"][..]),
            (&["LISTEN_FDS=3"], &["LISTEN_FDS=3", "LISTEN_PID=1"]),
            // Another name that begins like it.
            (
                &["LISTEN_PIDS=7"],
                &["LISTEN_FDS=1", "LISTEN_PID=1", "LISTEN_PIDS=7"],
            ),
        ] {
            let mut env: Vec<String> = given.iter().map(|one| (*one).to_owned()).collect();
            add_missing(&mut env, &added);
            env.sort();
            assert_eq!(env, expected);
        }
    }
}
