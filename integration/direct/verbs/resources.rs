//! `update` and `events`: the same numbers in the same files, and the same JSON.

use std::collections::BTreeSet;
use std::fs::File;

use serde_json::{Value, json};

use super::{BOTH, Running, sleeper};
use crate::command::await_that;
use crate::direct::Node;

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_update_sets_what_runcs_sets() {
    let node = Node::new();
    let config = sleeper(&node);
    let containers = BOTH.map(|r| Running::start(&node, r, "update", &config));
    let files = [
        ("memory", "memory.limit_in_bytes"),
        ("memory", "memory.memsw.limit_in_bytes"),
        ("memory", "memory.soft_limit_in_bytes"),
        ("cpu", "cpu.cfs_quota_us"),
        ("cpu", "cpu.cfs_period_us"),
        ("cpu", "cpu.shares"),
        ("cpuset", "cpuset.cpus"),
        ("cpuset", "cpuset.mems"),
        ("pids", "pids.max"),
    ];
    let steps: &[&[&str]] = &[
        &[
            "--memory",
            "64M",
            "--memory-reservation",
            "32MiB",
            "--pids-limit",
            "20",
        ],
        &["--memory", "32M"],
        &["--memory-swap", "96M"],
        &["--memory", "128M", "--memory-swap", "256M"],
        &["--memory", "-1"],
        &["--cpu-quota", "30000"],
        &["--cpu-period", "50000"],
        &["--cpu-period", "900000", "--cpu-quota", "600000"],
        &["--cpu-quota", "-1"],
        &[
            "--cpu-share",
            "512",
            "--cpuset-cpus",
            "0",
            "--cpuset-mems",
            "0",
        ],
        &["--pids-limit", "-1"],
    ];
    for options in steps {
        let verb = [&["update"], *options].concat();
        for container in &containers {
            container.call(&verb, &[]).ok();
        }
        for (controller, file) in files {
            let [theirs, ours] = containers.each_ref().map(|c| c.limit(controller, file));
            assert_eq!(ours, theirs, "{options:?}: {file}");
        }
    }
    let json = node.scratch.file(
        "limits.json",
        &json!({"cpu": {"shares": 100}, "pids": {"limit": 9}}).to_string(),
    );
    for container in &containers {
        container.call(&["update", "--resources", &json], &[]).ok();
        assert_eq!(container.limit("cpu", "cpu.shares"), "100");
        assert_eq!(container.limit("pids", "pids.max"), "9");
        for bad in [
            &["--memory", "lots"][..],
            &["--cpu-period", "1"],
            &["--l3-cache-schema", "L3:0=f"],
        ] {
            let refused = container.call(&[&["update"], bad].concat(), &[]);
            assert_ne!(refused.code, 0, "{bad:?}: {refused}");
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_update_is_the_same_limit_under_a_policy() {
    let node = Node::new();
    let id = format!("limited-{}", std::process::id());
    let bundle = node.bundle(&id, &node.config(&["sleep", "300"]));
    node.call(&["run", "--detach", "--bundle", &bundle, &id])
        .ok();
    let devices = json!({"devices": [{"allow": true, "access": "rwm"}], "pids": {"limit": 30}});
    let json = node.scratch.file("devices.json", &devices.to_string());
    node.call(&["update", "--resources", &json, &id]).ok();
    let state: Value = serde_json::from_str(&node.call(&["state", &id]).ok()).unwrap();
    let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", state["pid"])).unwrap();
    let place = |name: &str| {
        let line = cgroups
            .lines()
            .find(|l| l.contains(&format!(":{name}:")))
            .unwrap();
        format!("/sys/fs/cgroup/{name}{}", line.rsplit(':').next().unwrap())
    };
    let read = |file: String| std::fs::read_to_string(file).unwrap();
    assert_eq!(read(format!("{}/pids.max", place("pids"))), "30\n");
    let rules = read(format!("{}/devices.list", place("devices")));
    assert!(!rules.starts_with('a'), "all devices are allowed: {rules}");
    node.call(&["delete", "--force", &id]).ok();
}

/// The names in an object and its nested objects.
fn names(value: &Value, prefix: &str, found: &mut BTreeSet<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        found.insert(format!("{prefix}{key}"));
        names(value, &format!("{prefix}{key}."), found);
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_events_print_runcs_json() {
    let node = Node::new();
    let mut config = sleeper(&node);
    config["linux"]["resources"]["memory"] = json!({"limit": 33_554_432});
    let containers = BOTH.map(|r| Running::start(&node, r, "events", &config));
    let [theirs, ours] = containers.each_ref().map(|c| {
        let text = c.call(&["events", "--stats"], &[]).ok();
        let event: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (event["type"].as_str(), event["id"].as_str()),
            (Some("stats"), Some(c.id.as_str()))
        );
        assert_eq!(
            event["data"]["memory"]["usage"]["limit"], 33_554_432,
            "{event}"
        );
        assert_eq!(event["data"]["pids"]["current"], 1, "{event}");
        let mut found = BTreeSet::new();
        names(&event, "", &mut found);
        // Absent at zero, and zero or not by chance.
        found.retain(|n| {
            !n.starts_with("data.blkio.") && !n.ends_with(".max") && !n.ends_with(".usage")
        });
        found
    });
    assert_eq!(ours, theirs);
    for bad in ["0s", "soon"] {
        assert_ne!(
            containers[1].call(&["events", "--interval", bad], &[]).code,
            0
        );
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_events_report_exhausted_memory() {
    let node = Node::new();
    let mut config = sleeper(&node);
    config["process"]["args"] = json!([
        "sh",
        "-c",
        "while [ ! -e /go ]; do sleep 0.1; done; tail /dev/zero; sleep 1"
    ]);
    config["root"]["readonly"] = json!(false);
    config["linux"]["resources"]["memory"] = json!({"limit": 16_777_216, "swap": 16_777_216});
    config["mounts"].as_array_mut().unwrap().push(
        json!({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["size=1m"]}),
    );
    config["process"]["args"][2] =
        json!("while [ ! -e /tmp/go ]; do sleep 0.1; done; tail /dev/zero; sleep 1");
    for runtime in BOTH {
        let container = Running::start(&node, runtime, "oom", &config);
        let mut command = runtime.command(&node, &["events", "--interval", "300ms", &container.id]);
        let log = node.scratch.path(&format!("events-{runtime:?}"));
        let mut events = command.stdout(File::create(&log).unwrap()).spawn().unwrap();
        let said = || std::fs::read_to_string(&log).unwrap();
        await_that("the first line", || said().contains("stats"));
        container.call(&["exec"], &["touch", "/tmp/go"]).ok();
        await_that("the end of the container", || {
            container.state()["status"] == "stopped"
        });
        // runc's runs until the cgroup is gone.
        container.call(&["delete", "--force"], &[]).ok();
        await_that("the end of events", || events.try_wait().unwrap().is_some());
        let text = said();
        let kinds: Vec<Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        let count = |kind: &str| kinds.iter().filter(|e| e["type"] == kind).count();
        assert!(
            count("stats") >= 1 && count("oom") >= 1,
            "{runtime:?}: {text}"
        );
    }
}
