//! Device rules without a policy, on whatever cgroups the rig has (`hack/rig --cgroup v2` for v2): as runc.

use serde_json::{Value, json};

use super::Node;
use super::seccomp::{BOTH, run};

/// A container that may make any node, with these rules.
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
    // fuse, which everybody may open who is let near it.
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
        (json!([everything]), "made\nread\nwritten\n"),
        (json!([everything, fuse(false, "w")]), "made\nread\n"),
        // What is written is then an ordinary file that the shell makes.
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
            // Without a terminal there is none to open.
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

/// On cgroup v1 libcgroups adds tun, and the making of any node, to whatever a plan says.
#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_under_a_policy_a_container_has_the_devices_of_its_plan_alone() {
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
    // cgroup v2 has a program instead, of the plan's rules alone.
    let Some((_, path)) = devices else { return };
    let list = std::fs::read_to_string(format!("/sys/fs/cgroup/devices{path}/devices.list"));
    let list = list.unwrap();
    assert!(list.contains("c 1:3 rwm\n"), "{list}");
    for beyond in ["c *:*", "b *:*", "c 10:200"] {
        assert!(!list.contains(beyond), "{beyond}: {list}");
    }
}
