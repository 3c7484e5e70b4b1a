//! `state`: OCI's JSON, with runc's additional fields.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use libcontainer::container::{Container, ContainerStatus};
use serde::Serialize;

use super::out;
use crate::cli::{Global, Id};
use crate::runtime::start;
use crate::runtime::state::find;
use crate::runtime::state::record::Record;
use crate::runtime::state::store::Place;

/// A container's state as runc prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    oci_version: String,
    /// Its id.
    pub id: String,
    /// Its first process, 0 when it has ended.
    pub pid: i32,
    /// creating, created, running, paused, stopped
    pub status: &'static str,
    /// The bundle as the engine named it, not the one that libcontainer read.
    pub bundle: PathBuf,
    rootfs: PathBuf,
    /// RFC 3339
    pub created: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    /// The user who created it.
    pub owner: String,
    /// What was asked for and is not given, under a policy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
}

impl State {
    /// The state of a container.
    pub fn of(container: &Container, record: Record) -> Self {
        let status = status(container, &record);
        let pid = match status {
            ContainerStatus::Stopped => 0,
            _ => container.pid().map_or(0, nix::unistd::Pid::as_raw),
        };
        let left_out = record.plan().map(crate::plan::Plan::left_out);
        Self {
            left_out: left_out.unwrap_or_default(),
            oci_version: record.oci_version,
            id: record.id,
            pid,
            status: start::words(status),
            bundle: record.bundle,
            rootfs: record.rootfs,
            created: container
                .created()
                .map(|t| t.to_rfc3339())
                .unwrap_or_default(),
            annotations: record.annotations,
            owner: owner(container),
        }
    }
}

/// libcontainer calls a container stopped as long as it has no process; one that `create` is at work on is `creating`.
fn status(container: &Container, record: &Record) -> ContainerStatus {
    let busy = || Place::new(&record.root, &record.id).is_ok_and(|place| place.is_busy());
    if record.init.is_none() && busy() {
        ContainerStatus::Creating
    } else {
        container.status()
    }
}

/// The name of the user who created the container: the owner of its directory, as with runc. Inside the namespace of somebody
/// without root's rights they are 0. Read from /etc/passwd: the runtime is a static binary, in which the C library's look-up would
/// load code from the system.
fn owner(container: &Container) -> String {
    let created_by = container.root.metadata().map(|meta| meta.uid()).ok();
    let Some(uid) = created_by.or(container.state.creator) else {
        return String::new();
    };
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let entry = passwd
        .lines()
        .find(|l| l.split(':').nth(2) == Some(uid.to_string().as_str()));
    entry
        .and_then(|l| l.split(':').next())
        .map_or_else(|| uid.to_string(), str::to_owned)
}

/// Prints a container's state.
pub fn run(global: &Global, args: &Id) -> Result<ExitCode> {
    let place = find::place(global, &args.id)?;
    let container = start::load(&place)?;
    let state = State::of(&container, Record::read(&place.dir())?);
    out::json(&state)?;
    Ok(ExitCode::SUCCESS)
}
