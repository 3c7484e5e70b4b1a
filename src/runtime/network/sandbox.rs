//! A pod whose sidecar died (K-7). Its network is then closed, and no container can join it. A kubelet remakes a pod
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
    let sidecar = record.sidecar.as_ref().filter(|_| record.started)?;
    let alone = !ProcessId::from(sidecar).is_alive();
    record.init.filter(|init| alone && init.is_alive())
}
