//! What other projects' suites found under `unconfined` (S-1, S-3, S-6, S-9).

use std::time::Duration;

use serde_json::json;

use crate::command::run_for;
use crate::direct::{Node, program};

#[test]
#[ignore = "needs an engine: hack/rig"]
fn s_1_lo_is_up_in_a_new_network_namespace() {
    let node = Node::new();
    let mut config = node.config(&["cat", "/sys/class/net/lo/flags", "/proc/net/route"]);
    // IFF_UP is the first bit.
    let is_up = |said: String| {
        let flags = said.lines().next().unwrap().trim_start_matches("0x");
        u32::from_str_radix(flags, 16).unwrap() & 1 == 1
    };
    let unconfined = |id: &str, config: &serde_json::Value| {
        let bundle = node.bundle(id, config);
        node.call(&["--policy", "unconfined", "run", "--bundle", &bundle, id])
    };
    assert!(is_up(unconfined("suites-lo", &config).ok()));
    // Also for a user who may not do so.
    config["process"]["user"] = json!({"uid": 1000, "gid": 1000});
    config["process"]["capabilities"] = json!({});
    assert!(is_up(unconfined("suites-lo-user", &config).ok()));
}

#[test]
#[ignore = "needs an engine: hack/rig"]
fn s_3_a_second_mount_of_a_hierarchy_that_is_read_only_keeps_nothing_from_being_deleted() {
    let node = Node::new();
    let bundle = node.bundle("suites-ro", &node.config(&["true"]));
    let script = r#"
        set -euo pipefail
        first=$(awk '$3 ~ /^cgroup2?$/ { print $2; exit }' /proc/self/mounts)
        mkdir -p "$4" && mount --bind "$first" "$4" && mount -o remount,bind,ro "$4"
        "$1" --root "$2" --policy unconfined run --bundle "$3" suites-ro
        [ -z "$(find "$first" -maxdepth 3 -name '*suites-ro' | head -1)" ]
    "#;
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "bash", "-c", script, "-", &program()]);
    command.args([&node.root, &bundle, &node.scratch.path("hierarchy")]);
    run_for(Duration::from_secs(60), &mut command).ok();
    assert_eq!(node.leftovers("suites-ro"), [""; 0]);
}

#[test]
#[ignore = "needs an engine: hack/rig"]
fn s_6_s_9_what_cannot_start_is_refused_by_its_name() {
    let node = Node::new();
    let refused = |policy: &str, config: &serde_json::Value| {
        let bundle = node.bundle("suites-refused", config);
        let arguments = [
            "--policy",
            policy,
            "run",
            "--bundle",
            &bundle,
            "suites-refused",
        ];
        node.call(&arguments).failed()
    };
    let mut few = node.config(&["true"]);
    for (policy, soft, least) in [("unconfined", 7, 20), ("standard", 26, 28)] {
        few["process"]["rlimits"] = json!([{"type": "RLIMIT_NOFILE", "soft": soft, "hard": 100}]);
        let said = refused(policy, &few);
        let words = format!("RLIMIT_NOFILE is {soft}");
        assert!(
            said.contains(&words) && said.contains(&format!("ask for {least}")),
            "{said}"
        );
        // With as many as the message says it starts.
        few["process"]["rlimits"][0]["soft"] = json!(least);
        let bundle = node.bundle("suites-enough", &few);
        node.call(&[
            "--policy",
            policy,
            "run",
            "--bundle",
            &bundle,
            "suites-enough",
        ])
        .ok();
    }
    let mut unbound = node.config(&["true"]);
    unbound["process"]["capabilities"] = json!({
        "effective": ["CAP_SYS_ADMIN"], "permitted": ["CAP_SYS_ADMIN"], "inheritable": ["CAP_SYS_ADMIN"],
    });
    for policy in ["unconfined", "standard"] {
        let said = refused(policy, &unbound);
        let words = "CAP_SYS_ADMIN is in `inheritable` and not in `bounding`";
        assert!(said.contains(words), "{said}");
    }
}
