//! `kill`

use std::process::ExitCode;

use anyhow::Result;
use libcgroups::common::CgroupManager;
use libcontainer::container::ContainerStatus;
use oci_spec::runtime::{LinuxNamespaceType, Spec};

use crate::cli::{Global, Kill};
use crate::runtime::record::Record;
use crate::runtime::store::Place;
use crate::runtime::{RuntimeError, bundle, signal, start};

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
    if signal == Some(rustix::process::Signal::KILL) && !has_pid_namespace(&place)? {
        // Without a namespace of their own the others do not end with the first process.
        let pids = signal::cgroup(&container)?
            .get_all_pids()
            .map_err(RuntimeError::container("list the container's processes"))?;
        if !pids.is_empty() {
            signal::kill_all(&container, rustix::process::Signal::KILL)?;
            return Ok(ExitCode::SUCCESS);
        }
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

/// Whether the container's processes end with its first one (pid_namespaces(7)).
fn has_pid_namespace(place: &Place) -> Result<bool, RuntimeError> {
    let spec: Spec = bundle::read_json(&place.dir().join("config.json"))?;
    let namespaces = spec.linux().as_ref().and_then(|l| l.namespaces().as_ref());
    Ok(namespaces
        .into_iter()
        .flatten()
        .any(|n| n.typ() == LinuxNamespaceType::Pid && n.path().is_none()))
}

fn thaw(container: &libcontainer::container::Container) -> Result<(), RuntimeError> {
    use libcgroups::common::FreezerState;
    let cgroup = signal::cgroup(container)?;
    cgroup
        .freeze(FreezerState::Thawed)
        .map_err(RuntimeError::container("thaw the container"))
}
