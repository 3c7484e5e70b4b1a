//! `pause` and `resume`

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use libcontainer::container::ContainerStatus;

use crate::audit::LifeState;
use crate::cli::{GlobalOptions, Id};
use crate::runtime::RuntimeError;
use crate::runtime::runs::RunDir;
use crate::runtime::state::find;
use crate::runtime::state::record::Record;
use crate::runtime::status;

/// How long `pause` waits for another verb.
const COURTESY: Duration = Duration::from_secs(2);

/// Freezes all processes of a container.
pub fn pause(global: &GlobalOptions, args: &Id) -> Result<ExitCode> {
    let place = find::place(global, &args.id)?;
    // A courtesy to a `start` that is about to end. A verb that holds the lock for longer is waiting for the processes
    // to pause.
    let _lock = place.lock_existing_within(COURTESY)?;
    let mut container = status::load(&place)?;
    require(&container, "pause", &args.id, &[ContainerStatus::Running])?;
    if let Ok(record) = Record::read(&place.dir()) {
        record.own_cgroup("pause")?;
    }
    container
        .pause()
        .map_err(RuntimeError::container("pause the container"))?;
    RunDir::of(&place).note_life(LifeState::Paused);
    Ok(ExitCode::SUCCESS)
}

/// Thaws a paused container.
pub fn resume(global: &GlobalOptions, args: &Id) -> Result<ExitCode> {
    let place = find::place(global, &args.id)?;
    let _lock = place.lock_existing()?;
    let mut container = status::load(&place)?;
    require(&container, "resume", &args.id, &[ContainerStatus::Paused])?;
    container
        .resume()
        .map_err(RuntimeError::container("resume the container"))?;
    RunDir::of(&place).note_life(LifeState::Resumed);
    Ok(ExitCode::SUCCESS)
}

fn require(
    container: &libcontainer::container::Container,
    verb: &'static str,
    id: &str,
    allowed: &[ContainerStatus],
) -> Result<(), RuntimeError> {
    let status = container.status();
    if allowed.contains(&status) {
        return Ok(());
    }
    Err(RuntimeError::State {
        verb,
        id: id.to_owned(),
        why: format!("it is {}", status::words(status)),
    })
}
