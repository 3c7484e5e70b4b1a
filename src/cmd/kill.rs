//! `kill`

use std::process::ExitCode;

use anyhow::Result;
use libcontainer::container::ContainerStatus;

use crate::cli::{Global, Kill};
use crate::runtime::record::Record;
use crate::runtime::store::Place;
use crate::runtime::{RuntimeError, signal, start};

/// Sends a signal to a container. Takes no lock: a signal must arrive while a `start` or `exec` is under way.
pub fn run(global: &Global, args: &Kill) -> Result<ExitCode> {
    let place = Place::new(&global.root, &args.id)?;
    let signal = signal::parse(&args.signal)?;
    let container = start::load(&place)?;
    if args.all {
        if let Some(signal) = signal {
            signal::kill_all(&container, signal)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let init = Record::read(&place.dir())?
        .init
        .ok_or(RuntimeError::NotRunning)?;
    let Some(signal) = signal else {
        return match init.is_alive() {
            true => Ok(ExitCode::SUCCESS),
            false => Err(RuntimeError::NotRunning.into()),
        };
    };
    if !signal::send(init, signal)? {
        return Err(RuntimeError::NotRunning.into());
    }
    if container.status() == ContainerStatus::Paused && signal == rustix::process::Signal::KILL {
        // A frozen process of cgroup v1 dies only when it is thawed.
        thaw(&container)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn thaw(container: &libcontainer::container::Container) -> Result<(), RuntimeError> {
    use libcgroups::common::{CgroupManager, FreezerState};
    let cgroup = signal::cgroup(container)?;
    cgroup
        .freeze(FreezerState::Thawed)
        .map_err(RuntimeError::container("thaw the container"))
}
