//! `delete`: works from the saved state; idempotent, also after SIGKILL of any process.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use libcontainer::container::{Container, ContainerStatus};

use crate::cgroup::controllers::Controllers;
use crate::cgroup::path;
use crate::runtime::RuntimeError;
use crate::runtime::clock;
use crate::runtime::exec::timed;
use crate::runtime::hooks;
use crate::runtime::planted;
use crate::runtime::runs::{RunDir, events, prune};
use crate::runtime::signal;
use crate::runtime::state::census::Census;
use crate::runtime::state::half_made;
use crate::runtime::state::record::{self, ProcessId, Record, Remains};
use crate::runtime::state::store::ContainerPaths;
use crate::runtime::status;
use crate::sidecar;

/// Which containers are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteScope {
    /// Those that have ended or never started.
    Ended,
    /// All containers; living ones are killed first.
    Any,
}

/// Deletes a container.
pub fn delete(place: &ContainerPaths, deletes: DeleteScope) -> Result<(), RuntimeError> {
    if deletes == DeleteScope::Any {
        end_first(place);
    }
    let lock = place.lock()?;
    let record = read_record(place, deletes)?;
    if record.is_none() && !place.dir().exists() && !place.libcontainer_dir().exists() {
        lock.remove()?;
        return match deletes {
            DeleteScope::Any => Ok(()),
            DeleteScope::Ended => Err(RuntimeError::Unknown(place.id.as_str().to_owned())),
        };
    }
    if deletes == DeleteScope::Ended {
        check_ended(place.id.as_str(), status_of(place)?)?;
    }
    remove_all(place, record.as_ref())?;
    lock.remove()
}

/// The status; that of an ended one if libcontainer's part is missing, which is made last and removed first.
fn status_of(place: &ContainerPaths) -> Result<ContainerStatus, RuntimeError> {
    match status::load(place) {
        Ok(container) => Ok(container.status()),
        Err(RuntimeError::Unknown(_)) => Ok(ContainerStatus::Stopped),
        // It may live.
        Err(error) => Err(RuntimeError::State {
            verb: "delete",
            id: place.id.as_str().to_owned(),
            why: format!(
                "it may be running: {}; `agentbox delete --force` kills and removes it",
                crate::log::chain(&error)
            ),
        }),
    }
}

/// Refuses a container that lives, or that another `create` is making.
fn check_ended(id: &str, status: ContainerStatus) -> Result<(), RuntimeError> {
    match status {
        ContainerStatus::Stopped | ContainerStatus::Created => Ok(()),
        ContainerStatus::Creating | ContainerStatus::Running | ContainerStatus::Paused => {
            Err(RuntimeError::State {
                verb: "delete",
                id: id.to_owned(),
                why: format!("that is not stopped: {}", status::words(status)),
            })
        }
    }
}

/// Kills a container before waiting for its lock. A verb that holds the lock may wait for something in the container
/// that then never comes.
fn end_first(place: &ContainerPaths) {
    let Some(remains) = Remains::read(&place.dir()) else {
        return;
    };
    let killed = match remains.init {
        Some(init) => signal::kill_process(init),
        None => half_made::kill(&place.report()),
    };
    if let Err(error) = killed {
        log::debug!("before the lock: {}", crate::log::chain(&error));
    }
}

/// The record, if there is one. An unreadable one must not keep `delete --force` from removing the rest.
fn read_record(
    place: &ContainerPaths,
    deletes: DeleteScope,
) -> Result<Option<Record>, RuntimeError> {
    let dir = place.dir();
    match Record::read(&dir) {
        Ok(record) => Ok(Some(record)),
        // The creation or deletion was killed.
        Err(_) if !dir.join(record::FILE).exists() => Ok(None),
        Err(error) if deletes == DeleteScope::Ended => Err(error),
        Err(error) => {
            log::warn!(
                "delete by what can be read of its record, so new git hooks and settings stay in its mounts: {}",
                crate::log::chain(&error)
            );
            Ok(None)
        }
    }
}

/// Ends and removes all parts of a container; a record goes after the things that it names. Each step is tried even if
/// an earlier one failed. The first failure is reported.
pub fn remove_all(place: &ContainerPaths, record: Option<&Record>) -> Result<(), RuntimeError> {
    let mut first = Ok(());
    let mut note = |result: Result<(), RuntimeError>| {
        if first.is_ok() {
            first = result;
        }
    };
    let remains = match record {
        Some(record) => Some(Remains::from(record)),
        None => Remains::read(&place.dir()),
    };
    let remains = remains.unwrap_or_default();
    let init = remains.init;
    if init.is_none() {
        // `create` was killed before it knew its child, or failed. A child that libcontainer forked still holds the
        // report pipe.
        note(half_made::kill(&place.report()));
    }
    let ended = remove_container(place, init, record);
    let mut last = Vec::new();
    if let (Ok(()), Some(_), Some(record)) = (&ended, init, record) {
        last = planted::set_aside(record);
    }
    let has_ended = ended.is_ok();
    note(ended);
    // Before they are ended: one that is left alone for a moment would note that.
    let cause = clock::ended(place);
    // They end with the init process, and stay with one that could not be ended. They are in the sidecar's cgroup.
    if let Some(timekeeper) = remains.timekeeper.as_ref().filter(|_| has_ended) {
        note(timekeeper.end().map_err(RuntimeError::from));
    }
    let may_have_timed =
        |record: &Record| record.plan().is_some_and(|plan| plan.exec_time.is_some());
    if has_ended && record.is_none_or(may_have_timed) {
        // In the sidecar's cgroup, too.
        last.append(&mut timed::end_all(place));
    }
    if let Some(sidecar) = &remains.sidecar {
        if init.is_some() {
            // It ends with the init process, and writes its counts to the log.
            sidecar::await_end(sidecar);
        }
        note(sidecar::kill(sidecar).map_err(RuntimeError::from));
        note(sidecar::remove(sidecar).map_err(RuntimeError::from));
    }
    if init.is_some() {
        // While the cgroup still exists and the logs are complete.
        let run = RunDir::of(place);
        last.extend(cause.and_then(|cause| clock::unlogged(place, cause)));
        last.extend(record.map(events::limits).unwrap_or_default());
        run.end(place, record, last);
    }
    for cgroup in &remains.cgroups {
        note(path::remove(cgroup).map_err(RuntimeError::from));
    }
    let dir = place.dir();
    if first.is_ok() {
        // While the record still exists: the next deletion finishes one that is killed here.
        if let Some(record) = record {
            let env = hooks::default_env(record);
            hooks::poststop(&record.hooks, &record.hook_state(), &env);
        }
        first = Census::of_node()
            .leave(place)
            .and_then(|()| remove_own_dir(&dir));
        if let Some(record) = record.filter(|_| init.is_some()) {
            prune::prune(record);
        }
    }
    first
}

/// Removes libcontainer's part: processes, cgroup, state directory.
fn remove_container(
    place: &ContainerPaths,
    init: Option<ProcessId>,
    record: Option<&Record>,
) -> Result<(), RuntimeError> {
    let dir = place.libcontainer_dir();
    if let Some(init) = init {
        signal::kill_process(init)?;
    }
    if !dir.exists() {
        return Ok(());
    }
    let controllers = record.and_then(|r| r.controllers.as_ref());
    match status::read(&dir) {
        Ok(container) if is_ours_alone(&container, record) => {
            if let Some(init) = init {
                signal::wait_for_end(init);
            }
            if let Some(controllers) = controllers.filter(|c| path::has_processes(c)) {
                if let Err(error) = signal::kill_all(&container, rustix::process::Signal::KILL) {
                    log::debug!("kill the rest of the cgroup: {error}");
                }
                // A second attempt needs libcontainer's state to kill.
                wait_until_empty(controllers)?;
            }
            remove_dir(&dir)
        }
        Ok(mut container) => {
            let pid = init.or_else(|| container.pid().and_then(|p| ProcessId::of(p.as_raw())));
            if let Err(error) = signal::kill_all(&container, rustix::process::Signal::KILL) {
                log::debug!("kill the rest of the cgroup: {error}");
            }
            if let Some(pid) = pid {
                signal::wait_for_end(pid);
            }
            controllers.map_or(Ok(()), path::remove_below)?;
            // Twice, for the reason in `status::read`.
            match container.delete(true).or_else(|_| container.delete(true)) {
                Ok(()) => Ok(()),
                // Its cgroup was not made, or only in part. The record names it, and it is removed by that.
                Err(error) if init.is_none() => {
                    log::debug!("an unfinished container: {}", crate::log::chain(&error));
                    remove_dir(&dir)
                }
                Err(error) => Err(RuntimeError::container("delete the container")(error)),
            }
        }
        // The runtime was killed before it wrote the state: there is only the directory.
        Err(_) => remove_dir(&dir),
    }
}

/// Waits until the processes of the container's cgroup are gone. All of them were sent SIGKILL.
fn wait_until_empty(controllers: &Controllers) -> Result<(), RuntimeError> {
    let end = Instant::now() + signal::END_WITHIN;
    let mut pause = Duration::from_micros(200);
    while path::has_processes(controllers) {
        if Instant::now() >= end {
            let dirs = controllers.all().into_iter().map(Path::to_owned).collect();
            return Err(RuntimeError::StillRunning(dirs));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    Ok(())
}

/// Whether libcontainer has only its directory to remove: the cgroup is in the record, and is removed with the
/// sidecar's. libcontainer reads the node's mounts twice for each controller before it removes one.
fn is_ours_alone(container: &Container, record: Option<&Record>) -> bool {
    let recorded = record.is_some_and(|r| !r.systemd_cgroup && r.controllers.is_some());
    recorded
        && container.intel_rdt_dir().is_none()
        && container.intel_rdt_monitoring_dir().is_none()
}

/// Removes our directory, the record last: `list` shows the container as long as anything remains to be removed.
fn remove_own_dir(dir: &Path) -> Result<(), RuntimeError> {
    let step = || RuntimeError::io(format!("empty {dir:?}"));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name() == record::FILE {
            continue;
        }
        let removed = match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => fs::remove_dir_all(entry.path()),
            false => fs::remove_file(entry.path()),
        };
        match removed {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(step()(e)),
            _ => {}
        }
    }
    remove_dir(dir)
}

fn remove_dir(dir: &Path) -> Result<(), RuntimeError> {
    use std::io::ErrorKind;
    // An `exec` that has lost its container may write another file meanwhile.
    for last in [false, false, true] {
        match fs::remove_dir_all(dir) {
            Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty && !last => {}
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(RuntimeError::io(format!("remove {dir:?}"))(e));
            }
            _ => return Ok(()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_ended_container_is_deleted_without_force() {
        for (status, expected) in [
            (ContainerStatus::Stopped, None),
            (ContainerStatus::Created, None),
            (ContainerStatus::Running, Some("running")),
            (ContainerStatus::Paused, Some("paused")),
            (ContainerStatus::Creating, Some("creating")),
        ] {
            let why = check_ended("c1", status).err().map(|e| e.to_string());
            match expected {
                None => assert_eq!(why, None),
                Some(word) => assert!(why.unwrap().ends_with(word), "{status:?}"),
            }
        }
    }

    #[test]
    fn a_directory_is_removed_once_or_twice() {
        let base = std::env::temp_dir().join("agentbox-test-XXXXXX");
        let dir = nix::unistd::mkdtemp(&base).unwrap();
        fs::create_dir(dir.join("run")).unwrap();
        fs::write(dir.join("run/x"), "").unwrap();
        fs::write(dir.join(record::FILE), "{}").unwrap();
        remove_own_dir(&dir).unwrap();
        assert!(!dir.exists());
        // Twice is no error: `delete` can be repeated.
        remove_own_dir(&dir).unwrap();
    }
}
