//! A pod whose sidecar died. Its network is then closed, and no container can join it. A kubelet remakes a pod
//! only when its sandbox ends. So a new member of such a pod, for example a restarted container, ends the sandbox.

use std::path::Path;

use oci_spec::runtime::Spec;

use crate::engines::annotation::{SANDBOX, sandbox_id};
use crate::plan::pod::pod_role;
use crate::runtime::input::{bundle, cri};
use crate::runtime::signal;
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::store::ContainerPaths;

/// Ends the sandbox of a container that could not be created, if the sandbox has lost its sidecar. Failures are
/// ignored: the caller has its error already.
pub fn end_if_lost(root: &Path, member: &Path) {
    // Other engines let callers choose the annotations.
    if !cri::is_engines(root, member) {
        return;
    }
    let Some(id) = sandbox_of(member) else {
        return;
    };
    let Ok(place) = ContainerPaths::new(root, &id) else {
        return;
    };
    if let Some(init) = lost(&place) {
        log::warn!(
            "the sidecar of sandbox {id} has exited: agentbox ends the sandbox, so that its pod is recreated"
        );
        if let Err(error) = signal::kill_process(init) {
            log::warn!("{}", crate::log::chain(&error));
        }
    }
}

/// The sandbox that a CRI engine names for a bundle's container.
fn sandbox_of(bundle: &Path) -> Option<String> {
    let spec: Spec = bundle::read_json(&bundle.join("config.json")).ok()?;
    pod_role(&spec).filter(|role| *role != SANDBOX)?;
    let annotations = spec.annotations().as_ref()?;
    sandbox_id(|key| annotations.get(key)).map(str::to_owned)
}

/// The init process of a running sandbox whose sidecar has died.
fn lost(place: &ContainerPaths) -> Option<ProcessId> {
    let spec: Spec = bundle::read_json(&place.dir().join("config.json")).ok()?;
    pod_role(&spec).filter(|role| *role == SANDBOX)?;
    let record = Record::read(&place.dir()).ok()?;
    init_without_sidecar(&record, ProcessId::is_alive)
}

/// The init process of a started container that lives without its sidecar.
fn init_without_sidecar(
    record: &Record,
    is_alive: impl Fn(ProcessId) -> bool,
) -> Option<ProcessId> {
    let sidecar = record.sidecar.as_ref().filter(|_| record.started)?;
    let is_alone = !is_alive(ProcessId::from(sidecar));
    record.init.filter(|init| is_alone && is_alive(*init))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sidecar::SidecarRecord;

    const fn process(pid: i32) -> ProcessId {
        ProcessId { pid, start_time: 5 }
    }

    #[test]
    fn a_sandbox_is_lost_if_it_lives_and_its_sidecar_does_not() {
        let (init, sidecar) = (process(10), process(20));
        let mut record = Record::bare("pod");
        record.init = Some(init);
        record.started = true;
        let lost = |record: &Record, living: &[ProcessId]| {
            init_without_sidecar(record, |process| living.contains(&process))
        };
        assert_eq!(lost(&record, &[init]), None, "it has none");
        record.sidecar = Some(SidecarRecord {
            pid: sidecar.pid,
            start_time: sidecar.start_time,
            cgroups: Vec::new(),
            unlimited: Vec::new(),
            landlock_abi: 0,
            warden: None,
        });
        assert_eq!(lost(&record, &[init]), Some(init));
        assert_eq!(lost(&record, &[init, sidecar]), None);
        assert_eq!(lost(&record, &[sidecar]), None);
        assert_eq!(lost(&record, &[]), None);
        record.started = false;
        assert_eq!(
            lost(&record, &[init]),
            None,
            "its sidecar may be on its way"
        );
    }
}
