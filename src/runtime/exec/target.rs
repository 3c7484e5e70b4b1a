//! The container in which `exec` starts a process.

use libcontainer::container::ContainerStatus;
use oci_spec::runtime::Spec;

use super::error::ExecError;
use super::timed;
use crate::cli;
use crate::runtime::clock;
use crate::runtime::error::RuntimeError;
use crate::runtime::input::bundle;
use crate::runtime::launch::has_user_namespace;
use crate::runtime::own_sandbox;
use crate::runtime::state::record::Record;
use crate::runtime::state::store::ContainerPaths;
use crate::runtime::status;
use crate::sys::user_namespace::Ids;

/// A container that takes processes.
pub(super) struct ExecTarget {
    /// Its record.
    pub(super) record: Record,
    /// libcontainer's spec of it.
    pub(super) shadow: Spec,
}

impl ExecTarget {
    /// Looks at a container. `start` holds the lock until the init process has left the engine's network namespace and
    /// executed its program, so an `exec` at that moment waits.
    pub(super) fn look(place: &ContainerPaths, args: &cli::Exec) -> Result<Self, RuntimeError> {
        let _lock = place.lock_existing()?;
        let unknown = |e: RuntimeError| e.unknown_if_absent(place.id.as_str());
        let record = Record::read(&place.dir()).map_err(unknown)?;
        check_state(place, &record, args)?;
        let shadow = bundle::read_json(&place.dir().join("config.json"))?;
        Ok(Self { record, shadow })
    }

    /// The user without root's rights whose sandbox it is; its processes join a user namespace that its spec does not have.
    pub(super) fn person(&self) -> Option<Ids> {
        let own = has_user_namespace(&self.shadow);
        own_sandbox::person_of(&self.record).filter(|_| !own)
    }
}

fn check_state(
    place: &ContainerPaths,
    record: &Record,
    args: &cli::Exec,
) -> Result<(), RuntimeError> {
    clock::enforce(place, record);
    if record.plan().is_some_and(|plan| plan.exec_time.is_some()) {
        timed::sweep(place);
    }
    if let Some(cause) = clock::ended(place) {
        return Err(refused(record, format!("it is ended: {cause}")));
    }
    check_status(record, status::load(place)?.status(), args)
}

/// Whether a container in this state takes a process.
fn check_status(
    record: &Record,
    status: ContainerStatus,
    args: &cli::Exec,
) -> Result<(), RuntimeError> {
    let why = match status {
        ContainerStatus::Running => return Ok(()),
        // As with runc: its init process waits in complete namespaces and a complete root file system.
        ContainerStatus::Created if record.plan().is_none() => return Ok(()),
        ContainerStatus::Paused if args.ignore_paused => return Ok(()),
        ContainerStatus::Paused => return Err(ExecError::Paused.into()),
        ContainerStatus::Created => {
            "it is not started, so its network wall does not stand yet".to_owned()
        }
        ContainerStatus::Stopped => "it is stopped".to_owned(),
        ContainerStatus::Creating => format!("it is {}", status::words(status)),
    };
    Err(refused(record, why))
}

fn refused(record: &Record, why: String) -> RuntimeError {
    RuntimeError::State {
        verb: "exec in",
        id: record.id.clone(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::super::arguments;
    use super::*;
    use crate::plan::tests::sample;

    /// A container without a policy, and one with.
    fn records() -> [Record; 2] {
        [Record::bare("c1"), Record::with_plan("c1", sample())]
    }

    /// The answers for a container without a policy and for one with: nothing, or the message.
    fn answers(status: ContainerStatus, options: &str) -> [String; 2] {
        let answer = |record: &Record| match check_status(record, status, &arguments(options)) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        records().each_ref().map(answer)
    }

    #[test]
    fn no_process_enters_a_container_whose_network_wall_does_not_stand_yet() {
        for options in ["", "--ignore-paused"] {
            assert_eq!(
                answers(ContainerStatus::Created, options),
                [
                    "",
                    "cannot exec in container c1: it is not started, so its network wall does not stand yet"
                ]
            );
        }
    }

    #[test]
    fn a_running_container_takes_processes_and_a_paused_one_if_the_caller_says_so() {
        let both = |text: &str| [text.to_owned(), text.to_owned()];
        let paused = "cannot exec in a paused container (use --ignore-paused to override)";
        let stopped = "cannot exec in container c1: it is stopped";
        let creating = "cannot exec in container c1: it is creating";
        for (status, plain, ignoring) in [
            (ContainerStatus::Running, "", ""),
            (ContainerStatus::Paused, paused, ""),
            (ContainerStatus::Stopped, stopped, stopped),
            (ContainerStatus::Creating, creating, creating),
        ] {
            assert_eq!(answers(status, ""), both(plain));
            assert_eq!(answers(status, "--ignore-paused"), both(ignoring));
        }
    }
}
