//! The configuration of a container's sidecar: its user, its limits, its duty, and what its death means.

use std::path::{Path, PathBuf};

use oci_spec::runtime::Spec;

use crate::audit;
use crate::cgroup::delegated::{self, DelegatedCgroup};
use crate::engines::annotation::SANDBOX;
use crate::engines::root::cri_of;
use crate::plan::pod::pod_role;
use crate::plan::{NetworkPlan, Plan};
use crate::runtime::state::store::{self, ContainerPaths};
use crate::runtime::unprivileged;
use crate::seccomp::NotifyListener;
use crate::sidecar::{CgroupConfig, CgroupLimits, Duty, Loss, SidecarConfig, SidecarRlimits};

/// The largest file that the sidecar may write: more than its log takes, because a write beyond it kills.
const LARGEST_FILE: u64 = audit::quota::MOST_BYTES + (1 << 20);

/// The sidecar's cgroup: its parent, which is the container's, and its name.
pub fn sidecar_cgroup(spec: &Spec, place: &ContainerPaths) -> (PathBuf, String) {
    let linux = spec.linux().as_ref();
    let cgroup = linux
        .and_then(|l| l.cgroups_path().clone())
        .unwrap_or_default();
    // Docker, containerd: /docker/<id>; systemd: slice:prefix:name, whose slice we may not write.
    let parent = match cgroup.parent() {
        Some(parent) if cgroup.is_absolute() => parent.to_owned(),
        _ => PathBuf::from("/agentbox"),
    };
    (parent, format!("agentbox-sidecar-{}", place.key()))
}

pub(super) fn sidecar_config(
    plan: &Plan,
    spec: &Spec,
    place: &ContainerPaths,
    listener: NotifyListener,
) -> SidecarConfig<'static> {
    let limits = plan.sidecar;
    let (parent, name) = sidecar_cgroup(spec, place);
    let cgroup = CgroupConfig {
        parent,
        name,
        limits: CgroupLimits {
            memory_bytes: limits.memory_bytes,
            pids: limits.pids,
            cpu_quota_us: u64::from(limits.cpu_percent) * 1000,
            cpu_period_us: 100_000,
        },
    };
    let (uid, cgroup) = match unprivileged::inside() {
        // Only the caller's id is mapped; there is no other.
        Some(_) => {
            let own = delegated::of_self().filter(DelegatedCgroup::bounds_sidecar);
            (0, own.map(|_| cgroup))
        }
        None => (sidecar_uid(&place.dir()), Some(cgroup)),
    };
    SidecarConfig {
        uid,
        gid: uid,
        limits: SidecarRlimits {
            open_files: limits.files,
            file_bytes: LARGEST_FILE,
        },
        cgroup,
        log: None,
        duty: duty(&plan.network),
        loss: loss(&plan.network, spec, &place.root, listener),
        reading: None,
    }
}

/// A container that has lost its sidecar has no network, no log of denied calls, and no `exec`. It ends, so that a
/// kubelet or a restart policy heals it. A kubelet watches the pod's sandbox. `root` is the engine's.
fn loss(network: &NetworkPlan, spec: &Spec, root: &Path, listener: NotifyListener) -> Loss {
    let sandbox = pod_role(spec) == Some(SANDBOX) && cri_of(root).is_some();
    match duty(network) {
        Duty::Serve => Loss::EndsContainer,
        // The warden does it.
        Duty::Refuse if network.honey_ends() => Loss::EndsContainer,
        _ if sandbox || listener == NotifyListener::Sidecar => Loss::EndsContainer,
        Duty::Wait | Duty::Refuse => Loss::Tolerated,
    }
}

/// The sidecar's duty. One that only refuses needs no socket of its own, and cannot make one.
pub(super) fn duty(network: &NetworkPlan) -> Duty {
    match network.is_served_by_own() {
        false => Duty::Wait,
        true if network.refusing && network.dials_nothing() => Duty::Refuse,
        true => Duty::Serve,
    }
}

/// A user id of a container's timekeepers, for the same reason.
pub fn timekeeper_uid(dir: &Path) -> u32 {
    match unprivileged::inside() {
        Some(_) => 0,
        None => sidecar_uid(dir) + COUNT,
    }
}

/// The sidecars' first user id, and their number. The timekeepers' follow.
const FIRST: u32 = 2_000_000_000;
const COUNT: u32 = 1 << 26;

/// A user id of the sidecar's own, in a range that neither /etc/passwd nor /etc/subuid uses by default: with
/// `--pid=host` a root process without any capability may signal every process of root.
fn sidecar_uid(dir: &Path) -> u32 {
    let hash = store::hash(dir.as_os_str().as_encoded_bytes());
    FIRST + u32::try_from(hash % u64::from(COUNT)).expect("less than 2^26")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plan::SharedNetwork;
    use crate::plan::tests::sample;
    use crate::policy::NetworkMode;

    /// A container of an engine that starts no pods.
    const DOCKER: &str = "/run/docker/runtime-runc/moby";
    const CONTAINERD: &str = "/run/containerd/runc/k8s.io";

    fn network(mode: NetworkMode) -> NetworkPlan {
        let mut network = sample().network;
        network.mode = mode;
        network.refusing = false;
        network
    }

    /// Under mode `local`, only to refuse with the reason.
    fn refusing() -> NetworkPlan {
        NetworkPlan {
            refusing: true,
            ..network(NetworkMode::Local)
        }
    }

    fn shared(network: NetworkPlan) -> NetworkPlan {
        let shared = SharedNetwork {
            container: "c1".to_owned(),
            path: "/proc/7/ns/net".into(),
            cookie: 7,
            sidecar_pid: 7,
            sidecar_start: 7,
        };
        NetworkPlan {
            shared: Some(shared),
            ..network
        }
    }

    fn spec(annotations: Value) -> Spec {
        let spec = json!({"ociVersion": "1.2.0", "annotations": annotations});
        serde_json::from_value(spec).unwrap()
    }

    fn ends(network: &NetworkPlan, spec: &Spec, root: &str, listener: NotifyListener) -> bool {
        loss(network, spec, Path::new(root), listener) == Loss::EndsContainer
    }

    #[test]
    fn a_sidecar_serves_an_allowlist_and_only_refuses_where_it_dials_nothing() {
        let mut dialling = refusing();
        dialling.inbound = [80].into();
        for (network, expected) in [
            (network(NetworkMode::Allowlist), Duty::Serve),
            (network(NetworkMode::Local), Duty::Wait),
            (network(NetworkMode::None), Duty::Wait),
            (refusing(), Duty::Refuse),
            (dialling, Duty::Serve),
            // The other container's sidecar does it.
            (shared(network(NetworkMode::Allowlist)), Duty::Wait),
            (shared(refusing()), Duty::Wait),
        ] {
            assert_eq!(duty(&network), expected, "{network:?}");
        }
    }

    #[test]
    fn a_container_ends_with_a_sidecar_that_serves_it() {
        let plain = spec(json!({}));
        for (network, expected) in [
            (network(NetworkMode::Allowlist), true),
            (network(NetworkMode::None), false),
            (refusing(), false),
            (shared(network(NetworkMode::Allowlist)), false),
        ] {
            let found = ends(&network, &plain, DOCKER, NotifyListener::Nobody);
            assert_eq!(found, expected, "{network:?}");
        }
    }

    #[test]
    fn a_container_ends_with_the_sidecar_that_logs_its_denied_calls() {
        let plain = spec(json!({}));
        for network in [
            network(NetworkMode::None),
            refusing(),
            shared(network(NetworkMode::Allowlist)),
        ] {
            for (listener, expected) in [
                (NotifyListener::Sidecar, true),
                (NotifyListener::Agent, false),
                (NotifyListener::Nobody, false),
            ] {
                let found = ends(&network, &plain, DOCKER, listener);
                assert_eq!(found, expected, "{listener:?}");
            }
        }
    }

    #[test]
    fn a_container_ends_with_the_sidecar_whose_warden_ends_it_for_a_honeytoken() {
        let plain = spec(json!({}));
        for (then, expected) in [("end", true), ("log", false)] {
            let honey = json!([{
                "name": "bait", "value": "sk-0123456789abcdef0123456789", "policies": ["standard"], "then": then,
            }]);
            let mut network = refusing();
            network.honey = serde_json::from_value(honey).unwrap();
            let found = ends(&network, &plain, DOCKER, NotifyListener::Nobody);
            assert_eq!(found, expected, "{then}");
        }
    }

    #[test]
    fn a_pods_sandbox_ends_with_its_sidecar_and_no_container_that_only_says_it_is_one() {
        let network = network(NetworkMode::None);
        let role = |role: &str| spec(json!({"io.kubernetes.cri.container-type": role}));
        for (role, root, expected) in [
            (role("sandbox"), CONTAINERD, true),
            (role("sandbox"), "/run/cri-o", true),
            (role("container"), CONTAINERD, false),
            (spec(json!({})), CONTAINERD, false),
            // A caller of Docker chose the annotation.
            (role("sandbox"), DOCKER, false),
            (role("sandbox"), "/run/containerd/runc/default", false),
        ] {
            let found = ends(&network, &role, root, NotifyListener::Nobody);
            assert_eq!(found, expected, "{root}");
        }
    }
}
