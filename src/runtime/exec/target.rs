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
    let refuse = |why: String| {
        Err(RuntimeError::State {
            verb: "exec in",
            id: record.id.clone(),
            why,
        })
    };
    clock::enforce(place, record);
    if record.plan().is_some_and(|plan| plan.exec_time.is_some()) {
        timed::sweep(place);
    }
    if let Some(cause) = clock::ended(place) {
        return refuse(format!("it is ended: {cause}"));
    }
    let container = status::load(place)?;
    let status = container.status();
    match status {
        ContainerStatus::Running => Ok(()),
        // As with runc: its init process waits in complete namespaces and a complete root file system.
        ContainerStatus::Created if record.plan().is_none() => Ok(()),
        ContainerStatus::Paused if args.ignore_paused => Ok(()),
        ContainerStatus::Paused => Err(ExecError::Paused.into()),
        ContainerStatus::Created => {
            refuse("it is not started, so its network wall does not stand yet".to_owned())
        }
        ContainerStatus::Stopped => refuse("it is stopped".to_owned()),
        ContainerStatus::Creating => refuse(format!("it is {}", status::words(status))),
    }
}
