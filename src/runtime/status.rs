//! libcontainer's view of a container, and the specification's words for it.

use std::path::Path;

use libcontainer::container::{Container, ContainerStatus};
use libcontainer::error::LibcontainerError;
use nix::unistd::Pid;

use crate::runtime::RuntimeError;
use crate::runtime::state::record;
use crate::runtime::state::store::ContainerPaths;
use crate::sys::process_id;

/// libcontainer's view of a container.
pub fn load(place: &ContainerPaths) -> Result<Container, RuntimeError> {
    let dir = place.libcontainer_dir();
    if !dir.join("state.json").exists() {
        return Err(RuntimeError::Unknown(place.id.as_str().to_owned()));
    }
    read(&dir).map_err(RuntimeError::container("load the container's state"))
}

/// The same; `None` if the creation or deletion of the container was killed. libcontainer's part is made last and
/// removed first, so the record still exists.
pub fn load_if_whole(place: &ContainerPaths) -> Result<Option<Container>, RuntimeError> {
    let unfinished = || place.dir().join(record::FILE).exists();
    match load(place) {
        Err(RuntimeError::Unknown(_)) if unfinished() && !place.is_busy() => match load(place) {
            // Nothing has worked on it in between.
            Err(RuntimeError::Unknown(_)) if unfinished() => Ok(None),
            other => other.map(Some),
        },
        other => other.map(Some),
    }
}

/// libcontainer finds a process and then reads its state, and fails if it is reaped in between. That happens only once.
///
/// It takes a process whose first thread has ended for one that has ended.
pub fn read(dir: &Path) -> Result<Container, LibcontainerError> {
    let load = || Container::load(dir.to_owned());
    let mut container = load().or_else(|_| load())?;
    let stopped = container.status() == ContainerStatus::Stopped;
    let runs = |pid: Pid| process_id::outlives_first_thread(pid.as_raw());
    if stopped && container.pid().is_some_and(runs) {
        container.refresh_state()?;
    }
    Ok(container)
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
