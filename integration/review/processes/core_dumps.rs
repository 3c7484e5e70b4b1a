//! F-H2 (docs/threats.md F16, F24): a crash starts no program on the node. The core limit is 1, at which a core_pattern
//! pipe starts no helper. No process inside can change it: even a soft limit of 0 would start the helper.

use super::{Running, sleeper};
use crate::direct::Node;
use crate::docker::{Docker, NO_WALLS, Policy};

/// Lowers the soft limit, then both, and crashes. The shell ends if a limit cannot be set.
const LOWER: &str = "show() { grep '^Max core' /proc/self/limits; }
    show; ulimit -S -c 0 && show && ulimit -H -c 0 && show && sh -c \"grep '^Max core' /proc/self/limits\" && echo done; sleep 0.1 & kill -SEGV $!; wait $!; echo $?";

fn limits(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|l| l.starts_with("Max core"));
    lines
        .map(|l| l.trim_start_matches("Max core file size").trim())
        .map(|l| l.trim_end_matches("bytes").trim())
        .collect()
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_h2_no_process_changes_the_limit_of_core_files() {
    let docker = Docker::connect();
    let control = docker
        .run(&NO_WALLS, &["test-musl", "sh", "-c", LOWER])
        .ok();
    let seen = limits(&control);
    assert_ne!(seen.first(), seen.last(), "the control: {control}");
    for policy in Policy::ALL {
        for user in ["0", "1000"] {
            let options = [&policy.options()[..], &["--user", user]].concat();
            let seen = docker.run(&options, &["test-musl", "sh", "-c", LOWER]).ok();
            let all = limits(&seen);
            assert!(all.len() >= 3, "{policy:?} {user}: {seen}");
            for limit in all {
                let both: Vec<&str> = limit.split_whitespace().collect();
                assert_eq!(both, ["1", "1"], "{policy:?} {user}: {seen}");
            }
            assert!(seen.contains("done"), "told it was not set: {seen}");
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_h2_neither_does_a_process_of_exec_and_other_limits_are_set() {
    let node = Node::new();
    for policy in ["strict", "standard", "permissive"] {
        let container = Running::start(&node, "core", policy, &sleeper(&node));
        let seen = container.exec(&[], &["sh", "-c", LOWER]).ok();
        for limit in limits(&seen) {
            let both: Vec<&str> = limit.split_whitespace().collect();
            assert_eq!(both, ["1", "1"], "{policy}: {seen}");
        }
        let files = "ulimit -S -n 77; ulimit -S -n";
        let seen = container.exec(&[], &["sh", "-c", files]).ok();
        assert_eq!(seen.trim(), "77", "{policy}");
    }
}
