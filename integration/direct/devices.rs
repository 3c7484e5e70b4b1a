//! Device rules without a policy, on either cgroup version (`hack/rig --cgroup v2` for v2): as runc.

use serde_json::{Value, json};

use super::Node;
use super::seccomp::{BOTH, run};
use crate::command::Finished;

/// A container that may create any node, with these rules.
fn config(node: &Node, script: &str, rules: &Value) -> Value {
    let mut config = node.config(&["sh", "-c", script]);
    let sets = config["process"]["capabilities"].as_object_mut().unwrap();
    for set in ["bounding", "effective", "permitted"] {
        let all = sets[set].as_array_mut().unwrap();
        all.push(json!("CAP_MKNOD"));
    }
    config["linux"]["resources"]["devices"] = rules.clone();
    config
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_device_rules_decide_about_nodes_that_a_container_makes() {
    let node = Node::new();
    // fuse, which every user may open if the device rules allow it.
    let script = "mknod /dev/a c 10 229 && echo made; (: </dev/a) && echo read; (: >>/dev/a) && echo written; true";
    let nothing = json!({"allow": false, "access": "rwm"});
    let fuse = |allow: bool, access: &str| json!({"allow": allow, "type": "c", "major": 10, "minor": 229, "access": access});
    let everything = json!({"allow": true, "type": "a", "access": "rwm"});
    for (rules, expected) in [
        (json!([nothing]), "made\n"),
        (json!([nothing, fuse(true, "r")]), "made\nread\n"),
        (json!([nothing, fuse(true, "rwm")]), "made\nread\nwritten\n"),
        (
            json!([nothing, fuse(true, "rwm"), fuse(false, "w")]),
            "made\nread\n",
        ),
        // Docker's `c 10:* rwm`.
        (
            json!([nothing, {"allow": true, "type": "c", "major": 10, "minor": -1, "access": "rwm"}]),
            "made\nread\nwritten\n",
        ),
        // `c *:229 rw` and `c *:* r`.
        (
            json!([nothing, {"allow": true, "type": "c", "major": -1, "minor": 229, "access": "rwm"}]),
            "made\nread\nwritten\n",
        ),
        (
            json!([nothing, {"allow": true, "type": "c", "major": -1, "minor": -1, "access": "r"}]),
            "made\nread\n",
        ),
        (json!([everything]), "made\nread\nwritten\n"),
        (json!([everything, fuse(false, "w")]), "made\nread\n"),
        // The shell then creates an ordinary file and writes to it.
        (json!([everything, fuse(false, "m")]), "written\n"),
    ] {
        for runtime in BOTH {
            let ended = run(&node, runtime, &config(&node, script, &rules));
            assert_eq!(ended.ok(), expected, "{runtime:?} {rules}");
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_the_usual_devices_work_whatever_the_rules() {
    let node = Node::new();
    let script = "for one in null zero full random urandom tty ptmx; do \
                  (: </dev/$one) 2>&1 || echo $one; done";
    for rules in [json!([]), json!([{"allow": false, "access": "rwm"}])] {
        for runtime in BOTH {
            let ended = run(&node, runtime, &config(&node, script, &rules));
            // Without a terminal, tty cannot be opened.
            let said = ended.ok();
            let words: Vec<&str> = said
                .lines()
                .filter(|line| !line.starts_with("sh:"))
                .collect();
            assert_eq!(words, ["tty"], "{runtime:?} {said}");
            assert!(said.contains("No such device or address"), "{said}");
        }
    }
}

/// On cgroup v1, libcgroups adds tun, and the creation of any node, to every plan.
#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_under_a_policy_a_container_has_only_the_devices_of_its_plan() {
    let node = Node::new();
    let id = format!("devices-{}", std::process::id());
    let bundle = node.bundle(&id, &node.config(&["sleep", "60"]));
    let run = [
        "--policy", "standard", "run", "--detach", "--bundle", &bundle, &id,
    ];
    node.call(&run).ok();
    let _guard = super::Guard(&node, &id);
    let state: Value = serde_json::from_str(&node.call(&["state", &id]).ok()).unwrap();
    let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", state["pid"])).unwrap();
    let devices = cgroups
        .lines()
        .find_map(|line| line.split_once(":devices:"));
    // cgroup v2 has a program instead, with only the plan's rules.
    let Some((_, path)) = devices else { return };
    let list = std::fs::read_to_string(format!("/sys/fs/cgroup/devices{path}/devices.list"));
    let list = list.unwrap();
    assert!(list.contains("c 1:3 rwm\n"), "{list}");
    for beyond in ["c *:*", "b *:*", "c 10:200"] {
        assert!(!list.contains(beyond), "{beyond}: {list}");
    }
}

/// `run` under this policy, on a node that allows tun.
fn under(node: &Node, policy: &str, config: &Value) -> Finished {
    let allows = "[allow]\ndevices = [\"/dev/net/tun\"]\n";
    let file = node.scratch.file("node.toml", allows);
    let bundle = node.bundle("policy", config);
    let options = ["--policy", policy, "--config", &file, "run", "--bundle"];
    let id = format!("policy-{}", std::process::id());
    node.call(&[&options[..], &[&bundle, &id]].concat())
}

/// libcontainer creates the directories of devices with umask 0: any user could put a link in a device's place.
#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_device_is_in_a_directory_that_its_users_cannot_write() {
    let node = Node::new();
    let script =
        "stat -c %a /dev/net; mv /dev/net/tun /dev/net/old 2>/dev/null && echo moved; ls /dev/net";
    let mut config = node.config(&["sh", "-c", script]);
    config["linux"]["devices"] = json!([
        {"path": "/dev/net/tun", "type": "c", "major": 10, "minor": 200, "fileMode": 0o666, "uid": 0, "gid": 0},
    ]);
    config["linux"]["resources"]["devices"] =
        json!([{"allow": true, "type": "c", "major": 10, "minor": 200, "access": "rwm"}]);
    for policy in ["unconfined", "standard"] {
        for (uid, expected) in [(0, "755\nmoved\nold\n"), (1000, "755\ntun\n")] {
            config["process"]["user"] = json!({"uid": uid, "gid": uid});
            assert_eq!(
                under(&node, policy, &config).ok(),
                expected,
                "{policy} {uid}"
            );
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_dev_that_was_requested_read_only_is_read_only() {
    let node = Node::new();
    let script = "(: >/dev/file) 2>/dev/null && echo file; (: >/dev/shm/file) && echo shm; (: >/dev/null) && echo null";
    let mut config = node.config(&["sh", "-c", script]);
    let mounts = config["mounts"].as_array().unwrap().iter();
    let at = mounts
        .clone()
        .position(|m| m["destination"] == "/dev")
        .unwrap();
    let writable = config["mounts"][at]["options"].clone();
    for policy in ["unconfined", "standard"] {
        config["mounts"][at]["options"] = writable.clone();
        assert_eq!(
            under(&node, policy, &config).ok(),
            "file\nshm\nnull\n",
            "{policy}"
        );
        let options = config["mounts"][at]["options"].as_array_mut().unwrap();
        options.push(json!("ro"));
        assert_eq!(
            under(&node, policy, &config).ok(),
            "shm\nnull\n",
            "{policy}"
        );
    }
}
