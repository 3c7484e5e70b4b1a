//! `kill` if a container's processes do not end with its init process.

use serde_json::json;

use super::{BOTH, Running, sleeper};
use crate::command::await_that;
use crate::direct::Node;

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_kill_ends_all_without_a_pid_namespace() {
    let node = Node::new();
    let mut config = sleeper(&node);
    let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.retain(|n| n["type"] != "pid");
    config["process"]["args"] = json!(["sh", "-c", "sleep 311 & sleep 312 & wait"]);
    let [_, ours] = BOTH;
    let container = Running::start(&node, ours, "host-pid", &config);
    let count = || {
        container
            .call(&["ps", "--format", "json"], &[])
            .ok()
            .matches(',')
            .count()
            + 1
    };
    await_that("three processes", || count() == 3);
    let paused = container.call(&["pause"], &[]);
    assert_eq!(paused.code, 0, "{paused}");
    let refused = container.call(&["exec"], &["true"]).failed();
    assert!(
        refused.contains("cannot exec in a paused container"),
        "{refused}"
    );
    let arguments = ["exec", "--ignore-paused", &container.id, "true"];
    let mut waiting = ours.command(&node, &arguments).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(
        waiting.try_wait().unwrap().is_none(),
        "it is frozen with the others"
    );
    container.call(&["resume"], &[]).ok();
    await_that("the end of exec", || waiting.try_wait().unwrap().is_some());
    assert!(waiting.wait().unwrap().success());
    container.call(&["kill"], &["KILL"]).ok();
    await_that("the end of all", || {
        container.call(&["ps", "--format", "json"], &[]).ok().trim() == "[]"
    });
}
