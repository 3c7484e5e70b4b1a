//! `kill` where the processes of a container do not end with its first one.

use serde_json::json;

use super::{BOTH, Running, sleeper, until};
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
    until("three processes", || count() == 3);
    let paused = container.call(&["pause"], &[]);
    assert_eq!(paused.code, 0, "{paused}");
    let refused = container.call(&["exec"], &["true"]).failed();
    assert!(
        refused.contains("cannot exec in a paused container"),
        "{refused}"
    );
    container.call(&["resume"], &[]).ok();
    container.call(&["kill"], &["KILL"]).ok();
    until("the end of all", || {
        container.call(&["ps", "--format", "json"], &[]).ok().trim() == "[]"
    });
}
