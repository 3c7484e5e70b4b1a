//! P04 of docs/threats.md, the other half: after a creation or a deletion is killed at any moment, `delete --force`
//! removes everything. Until then the container is listed.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Node, program};
use crate::command::{HANGS, await_that};

/// Processes that belong to the container: by the bundle in their arguments, or by its id in their cgroups.
fn processes(bundle: &str, id: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let path = entry.path();
        // A process may end in the meantime; a zombie has no arguments.
        let read = |name| {
            let bytes = fs::read(path.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        let (arguments, cgroups) = (read("cmdline"), read("cgroup"));
        if arguments.contains(bundle) || (!arguments.is_empty() && cgroups.contains(id)) {
            found.push(format!("{}: {arguments} [{cgroups}]", path.display()));
        }
    }
    found
}

/// Fractions of a creation's duration, spread by the golden ratio.
fn delay(round: u32) -> Duration {
    Duration::from_micros(u64::from(round * 15_451 % 25_000))
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_creation_that_is_killed_leaves_nothing_after_a_forced_delete() {
    let node = Node::new();
    let config = node.config(&["sleep", "100"]);
    for round in 0..20 {
        let id = format!("killed-{}-{round}", std::process::id());
        let bundle = node.bundle(&format!("bundle-{round}"), &config);
        let mut create = Command::new(program())
            .args(["--root", &node.root, "create", "--bundle", &bundle, &id])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(delay(round));
        create.kill().unwrap();
        create.wait().unwrap();
        let delay = delay(round);
        node.call(&["delete", "--force", &id]).ok();

        let start = Instant::now();
        let mut left = processes(&bundle, &id);
        // Processes without a parent end by themselves a moment later.
        while !left.is_empty() && start.elapsed() < HANGS {
            std::thread::sleep(Duration::from_millis(20));
            left = processes(&bundle, &id);
        }
        assert!(left.is_empty(), "killed after {delay:?}: {left:#?}");
        let files = node.leftovers(&id);
        assert!(files.is_empty(), "killed after {delay:?}: {files:#?}");

        node.call(&["create", "--bundle", &bundle, &id]).ok();
        node.call(&["delete", "--force", &id]).ok();
        let files = node.leftovers(&id);
        assert!(files.is_empty(), "created again: {files:#?}");
    }
}

/// The container's status from `state`, `list` and `list --all`; `None` if they do not know it.
fn statuses(node: &Node, id: &str) -> [Option<String>; 3] {
    let listed = |options: &[&str]| {
        let text = node
            .call(&[&["list", "--format", "json"], options].concat())
            .ok();
        let all: Value = serde_json::from_str(&text).unwrap();
        let one = all.as_array().unwrap().iter().find(|one| one["id"] == id)?;
        Some(one["status"].as_str().unwrap().to_owned())
    };
    let state = node.call(&["state", id]);
    let state = (state.code == 0).then(|| {
        let state: Value = serde_json::from_str(&state.stdout).unwrap();
        // Engines parse it as a time.
        assert!(
            state["created"].as_str().unwrap().starts_with("20"),
            "{state}"
        );
        state["status"].as_str().unwrap().to_owned()
    });
    [state, listed(&[]), listed(&["--all"])]
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_killed_deletion_leaves_a_container_that_is_listed_and_can_be_deleted() {
    let node = Node::new();
    let config = node.config(&["sleep", "100"]);
    let mut cut = 0;
    for round in 0..24 {
        let id = format!("cut-{}-{round}", std::process::id());
        let bundle = node.bundle(&format!("bundle-{round}"), &config);
        node.call(&["run", "--detach", "--bundle", &bundle, &id])
            .ok();
        let mut delete = Command::new(program())
            .args(["--root", &node.root, "delete", "--force", &id])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Up to 100 ms: a deletion takes about 20 ms on an idle machine.
        std::thread::sleep(delay(round) * 4);
        delete.kill().unwrap();
        delete.wait().unwrap();
        let record = |left: &String| {
            left.contains("/index/") && fs::exists(format!("{left}/record.json")).unwrap()
        };
        let is_recorded = node.leftovers(&id).iter().any(record);
        let found = statuses(&node, &id);
        for status in &found {
            assert_eq!(status.is_some(), is_recorded, "round {round}: {found:?}");
        }
        cut += u32::from(is_recorded);
        node.call(&["delete", "--force", &id]).ok();
        let left = node.leftovers(&id);
        assert!(left.is_empty(), "round {round}: {left:#?}");
    }
    assert!(cut > 0, "none was killed half way");
}

/// The moment after libcontainer's directory is removed, which only a kill reveals.
#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_container_without_libcontainers_part_is_stopped() {
    let node = Node::new();
    let id = format!("part-{}", std::process::id());
    let bundle = node.bundle("bundle", &node.config(&["true"]));
    node.call(&["run", "--detach", "--bundle", &bundle, &id])
        .ok();
    let stopped = || Some("stopped".to_owned());
    await_that("it ends", || statuses(&node, &id)[0] == stopped());
    fs::remove_dir_all(format!("{}/{id}", node.root)).unwrap();
    assert_eq!(statuses(&node, &id), [stopped(), stopped(), stopped()]);
    // Like engines, which delete ended containers.
    node.call(&["delete", &id]).ok();
    assert_eq!(statuses(&node, &id), [None, None, None]);
    assert!(node.leftovers(&id).is_empty());
    // A deletion that is killed at the very end leaves nothing that blocks the id.
    node.call(&["create", "--bundle", &bundle, &id]).ok();
    let index = node
        .leftovers(&id)
        .into_iter()
        .find(|left| left.contains("/index/"));
    node.call(&["delete", "--force", &id]).ok();
    fs::create_dir(index.unwrap()).unwrap();
    node.call(&["create", "--bundle", &bundle, &id]).ok();
    node.call(&["delete", "--force", &id]).ok();
}
