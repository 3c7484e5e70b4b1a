//! `start`: release the container's process, and return when it has executed its program.

use std::path::Path;

use libcontainer::container::{Container, ContainerStatus};
use libcontainer::error::LibcontainerError;

use super::record::{ProcessId, Record};
use super::store::Place;
use super::{RuntimeError, report};

/// Starts a created container. The caller holds its lock: libcontainer says Running before the process has moved to
/// the inner network namespace, and an `exec` in that moment would join the engine's.
pub fn start(place: &Place) -> Result<(), RuntimeError> {
    let mut record = Record::read(&place.dir())
        .map_err(|_| RuntimeError::Unknown(place.id.as_str().to_owned()))?;
    let refuse = |why: &str| RuntimeError::State {
        verb: "start",
        id: record.id.clone(),
        why: why.to_owned(),
    };
    let mut container = load(place)?;
    if container.status() != ContainerStatus::Created {
        return Err(refuse(&format!(
            "it is {}, not created",
            words(container.status())
        )));
    }
    if let Some(sidecar) = &record.sidecar {
        let process = ProcessId {
            pid: sidecar.pid,
            start_time: sidecar.start_time,
        };
        if !process.is_alive() {
            return Err(refuse(
                "its sidecar is gone, so there is no network wall: delete and create it again",
            ));
        }
    }
    let reader = report::reader(&place.report())?;
    record.started = true;
    record.save(&place.dir())?;
    container
        .start()
        .map_err(RuntimeError::container("start the container"))?;
    report::wait(&reader)
}

/// libcontainer's view of a container.
pub fn load(place: &Place) -> Result<Container, RuntimeError> {
    let dir = place.libcontainer_dir();
    if !dir.join("state.json").exists() {
        return Err(RuntimeError::Unknown(place.id.as_str().to_owned()));
    }
    read(&dir).map_err(RuntimeError::container("load the container's state"))
}

/// libcontainer finds a process and then reads its state, and fails if it is reaped in between. It is reaped only once.
pub fn read(dir: &Path) -> Result<Container, LibcontainerError> {
    Container::load(dir.to_owned()).or_else(|_| Container::load(dir.to_owned()))
}

/// The specification's words for a status.
pub fn words(status: ContainerStatus) -> &'static str {
    match status {
        ContainerStatus::Creating => "creating",
        ContainerStatus::Created => "created",
        ContainerStatus::Running => "running",
        ContainerStatus::Stopped => "stopped",
        ContainerStatus::Paused => "paused",
    }
}
