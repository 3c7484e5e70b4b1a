//! SHELL. Verifies a running container by a short-lived exec process, behind the walls of every exec process.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::inside::{self, Answer};
use super::probe::{Attempt, ContainerView, Finding, HelperProcesses};
use super::probe_process::ProbePipes;
use super::probes;
use super::program;
use super::promise::{Promise, PromisedWalls};
use super::report::{ProbeRunner, VerifyReport};
use crate::audit::Actor;
use crate::cli::{Exec, GlobalOptions};
use crate::egress::tried::TriedPorts;
use crate::runtime::RuntimeError;
use crate::runtime::exec;
use crate::runtime::exec::error::ExecError;
use crate::runtime::launch::Streams;
use crate::runtime::network::tried;
use crate::runtime::own_sandbox;
use crate::runtime::runs::RunDir;
use crate::runtime::state::find;
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::store::{self, ContainerPaths};

/// How often, and at which interval, to check whether a container is ending if no process can be started in it.
const ENDING: u32 = 25;
const PAUSE: Duration = Duration::from_millis(20);

/// Makes all attempts in a running container.
///
/// # Errors
/// There is no such container, or no process can be started in it.
pub fn running(global: &GlobalOptions, id: &str) -> Result<VerifyReport> {
    let place = find::place(global, id)?;
    refuse_debugging_node()?;
    let record = Record::read(&place.dir()).map_err(|error| {
        match error.unknown_if_absent(place.id.as_str()) {
            RuntimeError::Unknown(_) => find::unknown_run(id, std::iter::empty()),
            other => other,
        }
    })?;
    let promise = promise(&record)?;
    let subject = format!("container {}, {}", record.id, policy(&record));
    let mut report = VerifyReport::new(subject, &promise).without(not_enforced(&record));
    by_exec(&place, &record, &promise, &mut report)?;
    RunDir::of(&place).keep_verified(&report.json()?, report.summary());
    Ok(report)
}

/// If processes that changed their ids are dumpable, others of the container could write to the prober's memory.
fn refuse_debugging_node() -> Result<()> {
    let path = "/proc/sys/fs/suid_dumpable";
    let found = std::fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    check_dumpable(found.trim())
}

fn check_dumpable(found: &str) -> Result<()> {
    match found {
        "0" | "2" => Ok(()),
        other => bail!(
            "fs.suid_dumpable is {other}: the container could change the attempts' results; run `sysctl fs.suid_dumpable=0`, or \
             `agentbox verify --policy NAME`"
        ),
    }
}

/// The promises, and the namespaces of the node.
pub(super) fn promise(record: &Record) -> Result<Promise> {
    let mut walls = record.plan().map(|plan| PromisedWalls {
        filter: record.filter_hash.clone(),
        ..PromisedWalls::of(plan)
    });
    let (person, init) = (own_sandbox::person_of(record), record.init);
    let node = match (person, init, &mut walls) {
        (Some(_), Some(init), Some(walls)) => {
            walls.own_cgroup = !record.lacks_cgroup();
            // The kernel refuses device nodes in a user namespace (mknod(2)); other probes try that.
            walls.device_rules = false;
            // Its own one has no rights over its mounts and its network.
            walls.namespaces.insert("user".to_owned());
            own_sandbox::namespaces_of_wrap(init).context("read the namespaces of `wrap`")?
        }
        _ => probes::processes::of("self"),
    };
    Ok(Promise {
        walls,
        node,
        inherited: Vec::new(),
        untried_network: None,
    })
}

/// What holds only with root's rights, and so not here; in words.
pub(super) fn not_enforced(record: &Record) -> Vec<String> {
    if own_sandbox::person_of(record).is_none() {
        return Vec::new();
    }
    let warnings = record.plan().into_iter().flat_map(|plan| &plan.warnings);
    let lacking = warnings.filter(|warning| warning.lacks_roots_rights());
    let rules =
        "device rules of a cgroup: the kernel refuses device nodes in a user namespace instead";
    std::iter::once(rules.to_owned())
        .chain(lacking.map(ToString::to_string))
        .collect()
}

/// The policy in words.
pub(super) fn policy(record: &Record) -> String {
    match &record.decided {
        Some(decided) => {
            let learn = match decided.plan.network.learns() {
                true => ", LEARN MODE",
                false => "",
            };
            format!("policy {}{learn}", decided.resolved.name)
        }
        None => "unconfined".to_owned(),
    }
}

/// The attempts of an exec process, and the node's own checks.
pub(super) fn by_exec(
    place: &ContainerPaths,
    record: &Record,
    promise: &Promise,
    report: &mut VerifyReport,
) -> Result<()> {
    let (stdio, talk) = ProbePipes::begin()?;
    let streams = Streams {
        stdio,
        program: program::own()?,
        ..Streams::default()
    };
    let started = exec::exec_by(Actor::Verify, place, &command(record), streams);
    let pid = match started {
        Ok(pid) => pid,
        // A missing wall may be the cause: the node's checks tell which.
        Err(error) => return without_exec(place, record, promise, report, error),
    };
    let announced = Cell::new(false);
    let heard = talk.hear(promise, |ports| {
        announced.set(true);
        announce(place, record, ports)
    });
    let read = match &heard {
        Ok(_) => by_node(place, record, promise, report, Some(pid)),
        Err(_) => Ok(()),
    };
    // While the process still holds the ports.
    if announced.get()
        && let Err(error) = tried::announce(place, record, TriedPorts::default())
    {
        log::debug!("{}", crate::log::chain(&error));
    }
    talk.end(pid)?;
    let said = heard?;
    read?;
    said.log_noise();
    report.add_inside(ProbeRunner::Exec, promise, &said.findings);
    Ok(())
}

/// The node's checks of a running container in which no process can be started, so nothing is tried inside. An error
/// for any other container.
fn without_exec(
    place: &ContainerPaths,
    record: &Record,
    promise: &Promise,
    report: &mut VerifyReport,
    error: RuntimeError,
) -> Result<()> {
    let paused = matches!(error, RuntimeError::Exec(ExecError::Paused));
    if paused || promise.walls.is_none() || has_ended(record) {
        return Err(error).context("start the probe process");
    }
    by_node(place, record, promise, report, None)?;
    let why = format!(
        "no probe process could be started: {}",
        crate::log::chain(&error)
    );
    let untried = probes::all().filter(|probe| inside::is_tried_inside(probe));
    let untried = untried.map(|probe| (probe.id.to_owned(), Finding::not_tried(&why)));
    report.add_inside(ProbeRunner::Exec, promise, &untried.collect::<Vec<_>>());
    Ok(())
}

/// Whether the container has ended or is about to. A process that ends no longer shows its walls.
fn has_ended(record: &Record) -> bool {
    (0..ENDING).any(|_| {
        let ended = !record.init.is_some_and(ProcessId::is_alive);
        if !ended {
            std::thread::sleep(PAUSE);
        }
        ended
    })
}

/// The node's checks of the container.
fn by_node(
    place: &ContainerPaths,
    record: &Record,
    promise: &Promise,
    report: &mut VerifyReport,
    pid: Option<i32>,
) -> Result<()> {
    let controllers = record.controllers()?;
    let init = record.init.context("the record names no init process")?;
    let (filter, mounts) = (place.filter(), place.mounts());
    let others = || others(record);
    let view = ContainerView {
        pid,
        init: init.pid,
        controllers: &controllers,
        promise,
        plan: record.plan(),
        filter: &filter,
        mounts: &mounts,
        others: &others,
    };
    for probe in probes::all() {
        if let Attempt::Read(read) = probe.attempt {
            report.add(ProbeRunner::Node, promise, probe, read(&view));
        }
    }
    Ok(())
}

/// All other containers, and the sidecars of all. A container with an unreadable record is skipped.
fn others(record: &Record) -> HelperProcesses {
    let all = store::all().unwrap_or_default();
    let sidecars = all.iter().filter_map(|one| one.sidecar.as_ref());
    let sidecars = sidecars.map(ProcessId::from).filter(|one| one.is_alive());
    let is_other = |other: &&Record| (&other.root, &other.id) != (&record.root, &record.id);
    let others = all.iter().filter(is_other);
    HelperProcesses {
        sidecars: sidecars.map(|sidecar| sidecar.pid).collect(),
        cgroups: others
            .filter_map(|other| other.controllers().ok())
            .collect(),
    }
}

/// Tells the sidecar, which writes the log, the ports of the network attempts. Otherwise it would log them as the
/// workload's.
fn announce(place: &ContainerPaths, record: &Record, ports: TriedPorts) -> Answer {
    match tried::announce(place, record, ports) {
        Ok(()) => Answer::Known,
        Err(error) => Answer::Unknown(format!(
            "the container's log would record the attempt as the workload's ({}); recreate the container if its sidecar is older than \
             this agentbox",
            crate::log::chain(&error)
        )),
    }
}

/// As the container's own user, in a directory that exists in every container.
fn command(record: &Record) -> Exec {
    Exec {
        console_socket: None,
        cwd: Some(PathBuf::from("/")),
        env: Vec::new(),
        tty: false,
        user: None,
        additional_gids: Vec::new(),
        process: None,
        detach: true,
        pid_file: None,
        pidfd_socket: None,
        process_label: None,
        apparmor: None,
        no_new_privs: false,
        cap: Vec::new(),
        preserve_fds: 0,
        cgroup: Vec::new(),
        ignore_paused: false,
        id: record.id.clone(),
        command: vec!["agentbox".to_owned(), inside::VERB.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_lets_processes_be_debugged_is_refused_with_the_cure() {
        assert!(check_dumpable("0").is_ok() && check_dumpable("2").is_ok());
        for other in ["1", "", "3"] {
            let why = check_dumpable(other).unwrap_err().to_string();
            assert!(why.contains("sysctl fs.suid_dumpable=0"), "{why}");
            assert!(why.contains("verify --policy"), "{why}");
        }
    }
}
