//! A pod with less CPU time than a sidecar could use outside of it.

use serde_json::json;

use super::{Cgroup, Running, sleeper};
use crate::direct::Node;

const ALLOW: (&str, &str) = ("dev.agentbox.network.allow", "api.example.test");

/// Limits a pod's cgroup to this many thousandths of a processor, if the node has that controller.
fn limit(pod: &Cgroup, thousandths: u32) {
    let quota = thousandths * 100;
    if let Some(v1) = pod.with("cpu.cfs_quota_us") {
        std::fs::write(v1.join("cpu.cfs_quota_us"), quota.to_string()).unwrap();
    } else if let Some(v2) = pod.with("cpu.max") {
        std::fs::write(v2.join("cpu.max"), format!("{quota} 100000")).unwrap();
    }
}

/// The number of processes in the sidecars' cgroups below a pod's.
fn sidecars(pod: &Cgroup) -> usize {
    let entries = pod.dirs().flat_map(|dir| std::fs::read_dir(dir).unwrap());
    let entries = entries.map(|entry| entry.unwrap().path());
    let own = entries.filter(|path| path.to_string_lossy().contains("/agentbox-sidecar-"));
    let processes = own.map(|path| {
        let text = std::fs::read_to_string(path.join("cgroup.procs")).unwrap();
        text.lines().count()
    });
    processes.max().unwrap_or(0)
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_pod_with_less_processor_time_than_a_sidecar_may_use_starts() {
    let node = Node::new();
    for (thousandths, annotations) in [
        (400, &[][..]),
        (100, &[][..]),
        (900, &[ALLOW][..]),
        (100, &[ALLOW][..]),
        // A kubelet's minimum: 10m.
        (10, &[ALLOW][..]),
    ] {
        let pod = Cgroup::new(&format!("k2-{thousandths}-{}", annotations.len()));
        limit(&pod, thousandths);
        let name = format!("limited-{thousandths}-{}", annotations.len());
        let mut config = sleeper(&node, annotations);
        config["linux"]["cgroupsPath"] = json!(format!("/{}/{name}", pod.0));
        let container = Running::start(&node, &name, "standard", &config);
        // The sidecar answers denied calls, and has its warden next to it.
        assert_eq!(sidecars(&pod), 2, "{thousandths}m");
        let state = node.call(&["state", &container.id]).ok();
        assert!(state.contains("\"running\""), "{state}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_running_pod_gets_less_processor_time_than_its_sidecar_may_use() {
    let node = Node::new();
    let pod = Cgroup::new("k2-resized");
    limit(&pod, 2000);
    let mut config = sleeper(&node, &[]);
    config["linux"]["cgroupsPath"] = json!(format!("/{}/resized", pod.0));
    let container = Running::start(&node, "resized", "standard", &config);
    // Like a kubelet after a change of the pod's limits. cgroup v1 refuses a limit below that of a child.
    limit(&pod, 100);
    let state = node.call(&["state", &container.id]).ok();
    assert!(state.contains("\"running\""), "{state}");
}
