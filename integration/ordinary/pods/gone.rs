//! Kill, kill --all and delete succeed like runc's, whatever another program has removed.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::{Running, remove_below, sleeper};
use crate::command::{await_that, run};
use crate::direct::Node;

/// agentbox's own entries of a container: record, policy, control socket, lock.
fn forget(id: &str) {
    for dir in ["/run/agentbox/index", "/run/agentbox/locks"] {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.ends_with(&format!("-{id}")) {
                continue;
            }
            // A mount point stays, empty.
            run("rm", &["-rf", entry.path().to_str().unwrap()]);
        }
    }
}

/// Removes its cgroups, whose processes have ended.
fn remove_cgroups(dir: &Path, id: &str) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|t| t.is_dir()) {
            continue;
        }
        match entry.file_name().to_string_lossy().ends_with(id) {
            true => remove_below(&entry.path()),
            false => remove_cgroups(&entry.path(), id),
        }
    }
}

fn await_stop(node: &Node, id: &str) {
    await_that("it stops", || {
        let state = node.call(&["state", id]);
        state.code != 0 || state.stdout.contains("stopped")
    });
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_dead_container_without_state_is_killed_and_deleted() {
    let node = Node::new();
    for policy in ["standard", "permissive", "unconfined"] {
        for force in [false, true] {
            let name = format!("dead{}", u8::from(force));
            let container = Running::start(&node, &name, policy, &sleeper(&node, &[]));
            let id = container.id.as_str();
            node.call(&["kill", id, "KILL"]).ok();
            await_stop(&node, id);
            forget(id);
            remove_cgroups(Path::new("/sys/fs/cgroup"), id);
            node.call(&["kill", "--all", id, "9"]).ok();
            let refused = node.call(&["kill", id, "9"]).failed();
            assert!(
                refused.contains("container not running"),
                "{policy}: {refused}"
            );
            match force {
                true => node.call(&["delete", "--force", id]).ok(),
                false => node.call(&["delete", id]).ok(),
            };
            assert_eq!(node.leftovers(id), Vec::<String>::new(), "{policy}");
        }
    }
}

/// A sandbox's network namespace is the engine's, which may remove it first.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_sandbox_whose_network_is_gone_is_killed_and_deleted() {
    let node = Node::new();
    for policy in ["standard", "unconfined"] {
        let name = format!("k3-{policy}-{}", std::process::id());
        run("ip", &["netns", "add", &name]).ok();
        let mut config = sleeper(&node, &[("io.kubernetes.cri.container-type", "sandbox")]);
        let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
        namespaces.retain(|n| n["type"] != "network");
        namespaces.push(json!({"type": "network", "path": format!("/run/netns/{name}")}));
        let container = Running::start(&node, "netless", policy, &config);
        let id = container.id.as_str();
        run("ip", &["netns", "del", &name]).ok();
        node.call(&["kill", id, "KILL"]).ok();
        await_stop(&node, id);
        node.call(&["kill", "--all", id, "9"]).ok();
        node.call(&["delete", id]).ok();
        assert_eq!(node.leftovers(id), Vec::<String>::new(), "{policy}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_running_container_without_state_is_killed_and_deleted() {
    let node = Node::new();
    for policy in ["standard", "permissive", "unconfined"] {
        for (name, verb) in [
            ("all", &["kill", "--all"][..]),
            ("lives", &["kill"]),
            ("forced", &["kill"]),
        ] {
            let container = Running::start(&node, name, policy, &sleeper(&node, &[]));
            let id = container.id.as_str();
            forget(id);
            node.call(&[verb, &[id, "KILL"]].concat()).ok();
            if name == "forced" {
                // At once, also while it still ends.
                node.call(&["delete", "--force", id]).ok();
            } else {
                await_stop(&node, id);
                node.call(&["kill", "--all", id, "KILL"]).ok();
                node.call(&["delete", id]).ok();
            }
            assert!(!Path::new(&format!("{}/{id}", node.root)).exists());
        }
    }
}

/// The caller's directory may be removed, like that of containerd's shim after a pod's sandbox has ended.
#[test]
#[ignore = "needs the rig: hack/test"]
fn exec_works_from_a_directory_that_is_gone() {
    let node = Node::new();
    for policy in ["standard", "unconfined"] {
        let container = Running::start(&node, "nowhere", policy, &sleeper(&node, &[]));
        let script = "cd \"$1\" && rmdir \"$1\" && exec \"$2\" --root \"$3\" exec \"$4\" echo here";
        let gone = node.scratch.dir("gone");
        let words = [
            "-c",
            script,
            "-",
            &gone,
            &crate::direct::program(),
            &node.root,
            &container.id,
        ];
        assert_eq!(run("sh", &words).ok(), "here\n", "{policy}");
    }
}
