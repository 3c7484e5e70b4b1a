//! `kill`

use std::process::ExitCode;

use anyhow::Result;
use libcgroups::common::CgroupManager;
use libcontainer::container::{Container, ContainerStatus};

use crate::cli::{GlobalOptions, Kill};
use crate::runtime::RuntimeError;
use crate::runtime::input::bundle;
use crate::runtime::ps;
use crate::runtime::runs::{RunDir, events};
use crate::runtime::signal;
use crate::runtime::state::find;
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::store::ContainerPaths;
use crate::runtime::status;

/// Sends a signal to a container. Takes no lock: a signal must arrive while a `start` or `exec` is under way.
pub fn run(global: &GlobalOptions, args: &Kill) -> Result<ExitCode> {
    let place = find::place(global, &args.id)?;
    let signal = signal::parse(&args.signal)?;
    let container = status::load(&place)?;
    if args.all {
        let record = Record::read(&place.dir());
        let without_cgroup = record.ok().filter(Record::lacks_cgroup);
        match (signal, without_cgroup) {
            (Some(signal), Some(record)) => signal_members(&place, &record, signal)?,
            (Some(signal), None) => signal::kill_all(&container, signal)?,
            (None, _) => {}
        }
        return Ok(ExitCode::SUCCESS);
    }
    if signal == Some(rustix::process::Signal::KILL) && !bundle::has_pid_namespace(&place.dir()) {
        // Without a pid namespace the other processes outlive the init process.
        if !signal::all(&container)?.is_empty() {
            signal::kill_all(&container, rustix::process::Signal::KILL)?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    let init = first(&place, &container).ok_or(RuntimeError::NotRunning)?;
    let Some(signal) = signal else {
        return match init.is_alive() {
            true => Ok(ExitCode::SUCCESS),
            false => Err(RuntimeError::NotRunning.into()),
        };
    };
    if !signal::send(init, signal)? {
        return Err(RuntimeError::NotRunning.into());
    }
    RunDir::of(&place).note(vec![events::signalled(&args.signal)]);
    if container.status() == ContainerStatus::Paused && signal == rustix::process::Signal::KILL {
        // On cgroup v1 a frozen process dies only when it is thawed.
        thaw(&container)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Signals the processes of a container without a cgroup, which nothing can freeze meanwhile. SIGKILL to the init process
/// ends all of them (pid_namespaces(7)).
fn signal_members(
    place: &ContainerPaths,
    record: &Record,
    signal: rustix::process::Signal,
) -> Result<(), RuntimeError> {
    let init = record.init.ok_or(RuntimeError::NotRunning)?;
    let members = || ps::of_pid_namespace(place, init, "signal all processes of");
    let seen = members()?;
    if signal == rustix::process::Signal::KILL {
        return signal::kill_process(init);
    }
    let seen: Vec<ProcessId> = seen.into_iter().filter_map(ProcessId::of).collect();
    // A number may have been another process's by then.
    let still = members()?;
    let mut result = Ok(());
    for member in seen.into_iter().filter(|one| still.contains(&one.pid)) {
        if let Err(error) = signal::send(member, signal) {
            result = Err(error);
        }
    }
    result
}

/// The init process: from our record, or from libcontainer's state if the record was removed.
fn first(place: &ContainerPaths, container: &Container) -> Option<ProcessId> {
    match Record::read(&place.dir()) {
        Ok(record) => record.init,
        Err(error) => {
            log::warn!(
                "kill by libcontainer's state: {}",
                crate::log::chain(&error)
            );
            container.pid().and_then(|pid| ProcessId::of(pid.as_raw()))
        }
    }
}

fn thaw(container: &Container) -> Result<(), RuntimeError> {
    use libcgroups::common::FreezerState;
    let cgroup = signal::cgroup(container)?;
    cgroup
        .freeze(FreezerState::Thawed)
        .map_err(RuntimeError::container("thaw the container"))
}
