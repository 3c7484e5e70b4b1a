//! A kubelet recreates a pod that has lost its sidecar, because its sandbox ends when a member is created.

use serde_json::{Value, json};

use super::{Running, sleeper};
use crate::command::{await_that, kill_and_wait, run};
use crate::direct::Node;

/// agentbox's record of a container.
pub(super) fn record(id: &str) -> Value {
    serde_json::from_str(&kept(id, "record.json")).unwrap()
}

/// A file of a container's directory.
pub(super) fn kept(id: &str, file: &str) -> String {
    let entries = std::fs::read_dir("/run/agentbox/index").unwrap();
    let mut dirs = entries.map(|entry| entry.unwrap().path());
    // The hash of its root, then its id.
    let is_own = |name: &str| name.split_once('-').is_some_and(|(_, own)| own == id);
    let own = dirs.find(|path| is_own(&path.file_name().unwrap().to_string_lossy()));
    std::fs::read_to_string(own.unwrap().join(file)).unwrap()
}

pub(super) fn is_running(node: &Node, id: &str) -> bool {
    node.call(&["state", id]).ok().contains("\"running\"")
}

/// A member of a sandbox's network, as a CRI engine describes it.
pub(super) fn member(node: &Node, sandbox: &str, annotations: &[(&str, &str)]) -> Value {
    let mut config = sleeper(node, annotations);
    let init = record(sandbox)["init"]["pid"].to_string();
    let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.retain(|n| n["type"] != "network");
    let path = format!("/proc/{init}/ns/net");
    namespaces.push(json!({"type": "network", "path": path}));
    config
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_sandbox_that_lost_its_sidecar_ends_when_a_container_of_its_pod_is_created() {
    const ROLE: &str = "io.kubernetes.cri.container-type";
    const OF: &str = "io.kubernetes.cri.sandbox-id";
    let node = Node::of_cri();
    let create = |name: &str, config: &Value| {
        let id = format!("{name}-{}", std::process::id());
        let bundle = node.bundle(&id, config);
        let refused = node.call(&["create", "--bundle", &bundle, &id]).failed();
        assert!(refused.contains("is gone"), "{refused}");
    };
    let pod = Running::start(
        &node,
        "lost",
        "standard",
        &sleeper(&node, &[(ROLE, "sandbox")]),
    );
    let plain = Running::start(&node, "plain", "standard", &sleeper(&node, &[]));
    for container in [&pod, &plain] {
        let sidecar = &record(&container.id)["sidecar"];
        // Without its warden, which would end the sandbox at once.
        for who in [&sidecar["warden"], sidecar] {
            if let Some(pid) = who["pid"].as_u64() {
                kill_and_wait(&pid.to_string());
            }
        }
        assert!(is_running(&node, &container.id));
    }
    // A container that is no member of the pod ends nothing, and a container that is no sandbox does not end.
    create("stranger", &member(&node, &pod.id, &[]));
    create(
        "other",
        &member(&node, &pod.id, &[(ROLE, "container"), (OF, &plain.id)]),
    );
    let claims = [(ROLE, "container"), (OF, plain.id.as_str())];
    create("claims", &member(&node, &plain.id, &claims));
    for container in [&pod, &plain] {
        assert!(is_running(&node, &container.id));
    }
    create(
        "again",
        &member(&node, &pod.id, &[(ROLE, "container"), (OF, &pod.id)]),
    );
    await_end(&node, &pod.id);
}

#[track_caller]
pub(super) fn await_end(node: &Node, id: &str) {
    await_that("it ends", || !is_running(node, id));
}

/// A sandbox ends with its sidecar, whatever its network mode, and so does every container.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_container_ends_when_its_sidecar_dies() {
    const ROLE: (&str, &str) = ("io.kubernetes.cri.container-type", "sandbox");
    const ALLOW: (&str, &str) = ("dev.agentbox.network.allow", "api.example.test");
    const NONE: (&str, &str) = ("dev.agentbox.network.mode", "none");
    let (node, docker) = (Node::of_cri(), Node::new());
    let cases = [
        ("pod-local", &node, &[ROLE][..]),
        ("pod-none", &node, &[ROLE, NONE]),
        ("pod-allow", &node, &[ROLE, ALLOW]),
        ("allow", &docker, &[ALLOW]),
        ("local", &docker, &[]),
        ("none", &docker, &[NONE]),
    ];
    for (name, node, annotations) in cases {
        let one = Running::start(node, name, "standard", &sleeper(node, annotations));
        let sidecar = record(&one.id)["sidecar"].clone();
        assert!(sidecar["warden"].is_object(), "{name}: {sidecar}");
        run("kill", &["-9", &sidecar["pid"].to_string()]).ok();
        await_end(node, &one.id);
        let log = kept(&one.id, "run/warden.jsonl");
        let last = log.lines().last().unwrap();
        assert!(last.contains("sidecar died (signal 9)"), "{log}");
    }
}
