//! `delete`: from the saved state, idempotent, also after SIGKILL of anything.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use libcontainer::container::{Container, ContainerStatus};

use super::record::{ProcessId, Record};
use super::store::Place;
use super::{RuntimeError, overlay, signal, start};
use crate::sidecar;

/// How long the container's processes may take to die of SIGKILL.
const LIMIT: Duration = Duration::from_secs(10);

/// Deletes a container that has ended or never started; with `force` kills it first.
pub fn delete(place: &Place, force: bool) -> Result<(), RuntimeError> {
    let lock = place.lock()?;
    let record = read_record(place);
    if record.is_none() && !place.dir().exists() && !place.libcontainer_dir().exists() {
        lock.remove()?;
        return if force {
            Ok(())
        } else {
            Err(RuntimeError::Unknown(place.id.as_str().to_owned()))
        };
    }
    if !force {
        let status = start::load(place)
            .map(|c| c.status())
            .unwrap_or(ContainerStatus::Stopped);
        if !matches!(status, ContainerStatus::Stopped | ContainerStatus::Created) {
            let why = format!("that is not stopped: {}", start::words(status));
            return Err(RuntimeError::State {
                verb: "delete",
                id: place.id.as_str().to_owned(),
                why,
            });
        }
    }
    remove_all(place, record.as_ref())?;
    lock.remove()
}

/// The record, if it can be read. One that cannot must not keep the rest from being removed: its sidecar ends with the
/// container's first process, and only an empty cgroup may stay.
fn read_record(place: &Place) -> Option<Record> {
    match Record::read(&place.dir()) {
        Ok(record) => Some(record),
        Err(error) => {
            if place.dir().exists() {
                log::warn!("delete without its record: {}", crate::log::chain(&error));
            }
            None
        }
    }
}

/// Ends and removes whatever there is of a container, in an order in which no record goes before what it names.
/// Each step is tried even when one before it failed; the first failure is reported.
pub fn remove_all(place: &Place, record: Option<&Record>) -> Result<(), RuntimeError> {
    let mut first = Ok(());
    let mut note = |result: Result<(), RuntimeError>| {
        if first.is_ok() {
            first = result;
        }
    };
    note(remove_container(place, record.and_then(|r| r.init)));
    if let Some(sidecar) = record.and_then(|r| r.sidecar.as_ref()) {
        note(sidecar::kill(sidecar).map_err(RuntimeError::from));
        note(sidecar::remove(sidecar).map_err(RuntimeError::from));
    }
    let dir = place.dir();
    if record.is_none_or(|r| r.overlay) {
        note(overlay::remove(&dir));
    }
    if first.is_ok() {
        first = remove_dir(&dir);
    }
    first
}

/// libcontainer's part: processes, cgroup, state directory.
fn remove_container(place: &Place, init: Option<ProcessId>) -> Result<(), RuntimeError> {
    let dir = place.libcontainer_dir();
    if let Some(init) = init {
        signal::kill_process(init)?;
    }
    if !dir.exists() {
        return Ok(());
    }
    match Container::load(dir.clone()) {
        Ok(mut container) => {
            let pid = init.or_else(|| container.pid().and_then(|p| ProcessId::of(p.as_raw())));
            if let Err(error) = signal::kill_all(&container, rustix::process::Signal::KILL) {
                log::debug!("kill what is left in the cgroup: {error}");
            }
            if let Some(pid) = pid {
                wait_for_end(pid);
            }
            container
                .delete(true)
                .map_err(RuntimeError::container("delete the container"))
        }
        // The runtime was killed before it wrote the state: there is nothing but the directory.
        Err(_) => remove_dir(&dir),
    }
}

/// Waits, in short steps, until a killed process is gone: its cgroup cannot be removed before.
fn wait_for_end(process: ProcessId) {
    let end = Instant::now() + LIMIT;
    let mut pause = Duration::from_micros(200);
    while process.is_alive() && Instant::now() < end {
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn remove_dir(dir: &Path) -> Result<(), RuntimeError> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(RuntimeError::io(format!("remove {dir:?}"))(e))
        }
        _ => Ok(()),
    }
}
