//! `state`: OCI's JSON, with runc's additional fields.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use chrono::{DateTime, Utc};
use libcontainer::container::{Container, ContainerStatus};
use serde::Serialize;

use super::out;
use crate::cli::{GlobalOptions, Id};
use crate::plan::passwd;
use crate::render::explain;
use crate::runtime::RuntimeError;
use crate::runtime::clock;
use crate::runtime::exec::timed;
use crate::runtime::state::find;
use crate::runtime::state::record::Record;
use crate::runtime::state::store::ContainerPaths;
use crate::runtime::status;

/// A container's state as runc prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    oci_version: String,
    /// Its id.
    pub id: String,
    /// Its init process; 0 when it has ended.
    pub pid: i32,
    /// creating, created, running, paused, stopped
    pub status: &'static str,
    /// The bundle that the engine named, not the one that libcontainer read.
    pub bundle: PathBuf,
    rootfs: PathBuf,
    /// RFC 3339
    pub created: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    /// The user who created it.
    pub owner: String,
    /// Why its time limit has ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_by: Option<String>,
    /// Rules and secrets that end, and when.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    expires: Vec<String>,
    /// Requested options that the policy does not grant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
}

impl State {
    /// The state of a container, which is ended first if its timekeeper is gone and its time is over. Without libcontainer's part its creation
    /// or deletion was killed: it is stopped.
    pub fn of(place: &ContainerPaths, record: Record) -> Result<Self, RuntimeError> {
        clock::enforce(place, &record);
        if record.plan().is_some_and(|plan| plan.exec_time.is_some()) {
            timed::sweep(place);
        }
        let container = status::load_if_whole(place)?;
        let container = container.as_ref();
        let ended_by = clock::ended(place).map(|cause| cause.to_string());
        let status = container.map_or(ContainerStatus::Stopped, |c| status(c, &record));
        let pid = match status {
            ContainerStatus::Stopped => 0,
            _ => container
                .and_then(Container::pid)
                .map_or(0, nix::unistd::Pid::as_raw),
        };
        let left_out = record.plan().map(crate::plan::Plan::left_out);
        let now = Some(clock::reading()).filter(|_| pid != 0);
        let expires = record
            .plan()
            .map(|plan| explain::time::expiries(&plan.network, now));
        let directory = place.dir().metadata().ok();
        // Engines parse it as a time, so it must be one.
        let changed = || directory.as_ref().and_then(|d| d.modified().ok());
        let created = container.and_then(Container::created);
        let created = created.or_else(|| changed().map(DateTime::<Utc>::from));
        let owner = container.map_or_else(|| directory.map(|d| d.uid()), created_by);
        Ok(Self {
            ended_by,
            expires: expires.unwrap_or_default(),
            left_out: left_out.unwrap_or_default(),
            oci_version: record.oci_version,
            id: record.id,
            pid,
            status: status::words(status),
            bundle: record.bundle,
            rootfs: record.rootfs,
            created: created.map(|t| t.to_rfc3339()).unwrap_or_default(),
            annotations: record.annotations,
            owner: owner.map(name).unwrap_or_default(),
        })
    }
}

/// libcontainer calls a container without a process stopped. While `create` is still working it is `creating`.
fn status(container: &Container, record: &Record) -> ContainerStatus {
    let busy = || ContainerPaths::new(&record.root, &record.id).is_ok_and(|place| place.is_busy());
    if record.init.is_none() && busy() {
        ContainerStatus::Creating
    } else {
        container.status()
    }
}

/// The user who created the container: the owner of its directory, as with runc.
fn created_by(container: &Container) -> Option<u32> {
    let owner = container.root.metadata().map(|meta| meta.uid()).ok();
    owner.or(container.state.creator)
}

/// A user's name. In the user namespace of an unprivileged user that user has the id 0. Read from /etc/passwd: the C
/// library's lookup would load code from the system into this static binary.
fn name(uid: u32) -> String {
    let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = passwd::lines(&text).find(|user| user.uid == uid);
    user.map_or_else(|| uid.to_string(), |user| user.name.to_owned())
}

/// Prints a container's state.
pub fn run(global: &GlobalOptions, args: &Id) -> Result<ExitCode> {
    let place = find::place(global, &args.id)?;
    let record = Record::read(&place.dir());
    if record.is_err() {
        // In the words for a container that does not exist.
        status::load_if_whole(&place)?;
    }
    out::json(&State::of(&place, record?)?)?;
    Ok(ExitCode::SUCCESS)
}
