//! `start`: releases the container's process, and returns when it has executed its program.

use std::io;
use std::time::Instant;

use libcontainer::container::ContainerStatus;

use crate::cli::GlobalOptions;
use crate::enforce::hooks::{self as enforced, HookMoment};
use crate::enforce::report::FailureKind;
use crate::policy::{NetworkMode, ProxyUrl};
use crate::runtime::agent::SeccompAgent;
use crate::runtime::files::write_whole;
use crate::runtime::input::node_files::config;
use crate::runtime::network::resolver::{self, NameFiles};
use crate::runtime::network::upstream;
use crate::runtime::runs::{RunDir, events};
use crate::runtime::state::half_made::WITHIN;
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::report;
use crate::runtime::state::store::{ContainerPaths, Lock};
use crate::runtime::{RuntimeError, clock, delete, hooks, status};
use crate::sys::procfs;

/// Starts a created container. Holds its lock until the process has moved to the inner network namespace: libcontainer
/// says Running earlier, and an `exec` at that moment would join the engine's. `proxy` is the one of the environment of
/// `wrap`'s user.
///
/// A container whose startContainer or poststart hook fails is ended and deleted (runtime.md "Lifecycle", steps 7 and 9).
pub fn start(
    global: &GlobalOptions,
    place: &ContainerPaths,
    lock: Lock,
    proxy: Option<&ProxyUrl>,
) -> Result<(), RuntimeError> {
    let mut record =
        Record::read(&place.dir()).map_err(|e| e.unknown_if_absent(place.id.as_str()))?;
    start_recorded(global, place, lock, &mut record, proxy)
}

/// As [`start`], for a caller that has the record of this lock. Changes it as the saved one changes.
pub fn start_recorded(
    global: &GlobalOptions,
    place: &ContainerPaths,
    lock: Lock,
    record: &mut Record,
    proxy: Option<&ProxyUrl>,
) -> Result<(), RuntimeError> {
    let started = release(global, place, record, proxy).and_then(|()| poststart(record));
    RunDir::of(place).note(vec![events::started(&started)]);
    if started.as_ref().is_err_and(is_of_a_hook) {
        if let Err(cleanup) = delete::remove_all(place, Some(record)) {
            log::error!("after a failed hook: {}", crate::log::chain(&cleanup));
        }
        lock.remove()?;
    }
    started
}

/// Whether a hook failed, after which the container is deleted. Any other failure leaves it for its caller.
fn is_of_a_hook(error: &RuntimeError) -> bool {
    match error {
        RuntimeError::Hook(_) => true,
        RuntimeError::Init(report) => report.failed == FailureKind::Hook,
        _ => false,
    }
}

/// Runs poststart hooks, once the program runs.
fn poststart(record: &Record) -> Result<(), RuntimeError> {
    let pid = record.init.map(|init| init.pid);
    let env = hooks::default_env(record);
    Ok(enforced::run(
        HookMoment::Poststart,
        &record.hooks,
        &record.hook_state(),
        pid,
        &env,
        None,
    )?)
}

fn release(
    global: &GlobalOptions,
    place: &ContainerPaths,
    record: &mut Record,
    proxy: Option<&ProxyUrl>,
) -> Result<(), RuntimeError> {
    let refuse = |why: &str| RuntimeError::State {
        verb: "start",
        id: record.id.clone(),
        why: why.to_owned(),
    };
    let mut container = status::load(place)?;
    if container.status() != ContainerStatus::Created {
        return Err(refuse(&format!(
            "it is {}, not created",
            status::words(container.status())
        )));
    }
    check_sidecar(record).map_err(refuse)?;
    if !clock::is_kept(record) {
        return Err(refuse(
            "no process keeps its time limit: delete and create it again",
        ));
    }
    if let Some(decided) = &mut record.decided
        && let plan = &mut decided.plan
        && plan.network.mode == NetworkMode::Allowlist
        && plan.network.shared.is_none()
    {
        let proxy = upstream::find(config(global), &plan.network, proxy)?;
        let files = match record.call.wrap {
            true => NameFiles::Node(&plan.network.rules),
            false => NameFiles::Engine(&record.engine_files),
        };
        let search = resolver::hand_over(&place.dir(), files, proxy)?;
        plan.network.rules.search = search;
    }
    if let Some((plan, shared)) = record.plan().zip(record.shared_network())
        && plan.network.mode == NetworkMode::Allowlist
    {
        let dir = ContainerPaths::new(&record.root, &shared.container)?.dir();
        // An engine has one root for all of its containers; another root's index keeps its own names.
        if dir.exists() {
            resolver::add_hosts(&dir, &record.engine_files, &plan.network.own_names)?;
        }
    }
    let reader = report::reader(&place.report())?;
    let agent = SeccompAgent::read(&place.dir())?;
    let socket = match (&agent, record.init) {
        (Some(agent), Some(init)) => agent.fetch(init.pid)?,
        _ => None,
    };
    record.started = true;
    record.save(&place.dir())?;
    container
        .start()
        .map_err(RuntimeError::container("start the container"))?;
    if let (Some(agent), Some(socket)) = (&agent, &socket) {
        agent.serve(socket, &reader, record)?;
    }
    let begun = Instant::now();
    report::wait(&reader, None, || begun.elapsed() >= WITHIN)?;
    keep_mounts(place, record);
    Ok(())
}

/// Saves the init process's mounts, which the container cannot change from here on: `verify` compares them.
fn keep_mounts(place: &ContainerPaths, record: &Record) {
    let Some(init) = record.init.filter(|_| record.decided.is_some()) else {
        return;
    };
    let found = procfs::bytes(format!("/proc/{}/mountinfo", init.pid));
    // A process that exits releases its namespaces before it is a zombie: EINVAL (fs/proc_namespace.c,
    // mounts_open_common). Once it has ended, its pid may be another process's.
    let is_exiting = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
    if !init.is_alive() || found.as_ref().is_err_and(is_exiting) {
        return;
    }
    let found = found.map_err(RuntimeError::io("read the container's mounts".to_owned()));
    if let Err(error) = found.and_then(|text| write_whole(&place.mounts(), &text)) {
        let why = crate::log::chain(&error);
        log::warn!(
            "`agentbox verify` will compare the container's mounts with its plan alone: {why}"
        );
    }
}

/// Refuses to start a container without the sidecar that it was created with, or without that of the network it shares.
fn check_sidecar(record: &Record) -> Result<(), &'static str> {
    let own = record.sidecar.as_ref().map(ProcessId::from);
    let shared = record.shared_network().map(|shared| ProcessId {
        pid: shared.sidecar_pid,
        start_time: shared.sidecar_start,
    });
    let state = |sidecar: Option<ProcessId>| match sidecar.map(ProcessId::is_alive) {
        None => NeededSidecar::None,
        Some(true) => NeededSidecar::Alive,
        Some(false) => NeededSidecar::Gone,
    };
    judge_sidecars(state(own), state(shared))
}

/// A sidecar that a container needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NeededSidecar {
    /// It needs none.
    None,
    Alive,
    Gone,
}

fn judge_sidecars(own: NeededSidecar, shared: NeededSidecar) -> Result<(), &'static str> {
    use NeededSidecar::{Alive, Gone, None};
    match (own, shared) {
        (_, Gone) => Err(
            "the container whose network it shares has ended or lost its sidecar: delete and create it again",
        ),
        (Gone, None) => {
            Err("its sidecar is gone, so there is no network wall: delete and create it again")
        }
        (Gone, Alive) => Err(
            "the sidecar that answers denied system calls has exited: delete the container and create it again",
        ),
        (None | Alive, None | Alive) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::NeededSidecar::{Alive, Gone, None};
    use super::*;
    use crate::enforce::report::FailureReport;

    #[test]
    fn no_container_starts_without_a_sidecar_that_it_needs() {
        for (own, shared, expected) in [
            (None, None, Option::None),
            (Alive, None, Option::None),
            (Alive, Alive, Option::None),
            (None, Alive, Option::None),
            (Gone, None, Some("no network wall")),
            (Gone, Alive, Some("answers denied system calls")),
            // The other container's matters more: with it goes the network.
            (Gone, Gone, Some("whose network it shares")),
            (Alive, Gone, Some("whose network it shares")),
            (None, Gone, Some("whose network it shares")),
        ] {
            let why = judge_sidecars(own, shared).err();
            let fits = match (why, expected) {
                (Some(why), Some(expected)) => why.contains(expected) && why.contains("create it"),
                (why, expected) => why == expected,
            };
            assert!(fits, "{own:?} {shared:?}: {why:?}");
        }
    }

    #[test]
    fn only_a_failed_hook_deletes_the_container() {
        let report = |failed| {
            RuntimeError::Init(FailureReport {
                failed,
                text: String::new(),
            })
        };
        assert!(is_of_a_hook(&report(FailureKind::Hook)));
        for other in [
            FailureKind::NoProgram,
            FailureKind::Program,
            FailureKind::Step,
        ] {
            assert!(!is_of_a_hook(&report(other)));
        }
        assert!(!is_of_a_hook(&RuntimeError::NotRunning));
    }
}
