//! Attempts of `verify ID` are logged as `verify`'s, and are in no report about the container.

use serde_json::{Value, json};

use super::running::Running;
use crate::command::{await_that, run};
use crate::direct::Node;

/// A run's denied events of one wall: the workload's, and those of `verify`.
fn denied(container: &Running<'_>, wall: &str) -> (Vec<String>, Vec<String>) {
    let text = container
        .node
        .call(&["audit", "--json", &container.id])
        .ok();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_wall = lines.filter(|line| line["wall"] == wall && line["verdict"] == "denied");
    let (own, verifys): (Vec<Value>, Vec<Value>) = of_wall.partition(|line| line["by"].is_null());
    let words = |all: Vec<Value>| {
        let words = all.iter().map(|line| {
            let count = line["count"].as_u64().unwrap_or(1);
            let what = &line["what"];
            let name = what["call"].as_str().or(what["host"].as_str());
            format!("{} x{count}", name.unwrap_or_default())
        });
        words.collect()
    };
    (words(own), words(verifys))
}

/// The number of events whose words begin with this.
fn total(all: &[String], begin: &str) -> u64 {
    let of_it = all.iter().filter(|words| words.starts_with(begin));
    let times = of_it.map(|words| words.rsplit_once(" x").unwrap().1.parse::<u64>().unwrap());
    times.sum()
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_is_not_taken_for_the_workload() {
    let node = Node::new();
    let container = Running::start(&node, "apart", "permissive", |config| {
        config["annotations"] = json!({
            "dev.agentbox.network.allow": "files.example.test",
            "dev.agentbox.report.denied": "on",
        });
    });
    let try_all = "mount -t tmpfs none /mnt 2>/dev/null; nc -w 2 192.0.2.1 443 </dev/null; nslookup example.com; true";
    container.exec(try_all);
    for _ in 0..2 {
        let (code, _, report) = container.verify();
        assert_eq!(code, 0, "{report:#}");
    }
    // Another call, after the sidecar has written its counts.
    container.exec("sleep 2.5; mount -t tmpfs none /mnt 2>/dev/null; true");

    // Equal events are counted in one line, which comes some seconds later.
    await_that("the second call is counted", || {
        total(&denied(&container, "syscalls").0, "mount(") > 1
    });
    let (own, verifys) = denied(&container, "syscalls");
    assert_eq!(total(&own, "mount("), 2, "{own:?}");
    assert!(
        own.iter().all(|words| words.starts_with("mount(")),
        "{own:?}"
    );
    assert!(verifys.len() > 20, "{verifys:?}");
    let (own, verifys) = denied(&container, "network");
    // A resolver may ask for two types of addresses.
    let asked = total(&own, "example.com ");
    assert!((1..=2).contains(&asked), "{own:?}");
    assert_eq!(total(&own, "192.0.2.1 "), 1, "{own:?}");
    assert_eq!(total(&own, ""), 1 + asked, "{own:?}");
    // The container has no resolv.conf: verify asks the sidecar's name server all the same.
    for host in ["2001:db8::1 ", "192.0.2.1 ", "example.com "] {
        assert!(total(&verifys, host) > 0, "{host}: {verifys:?}");
    }

    let text = node.call(&["audit", &container.id]).ok();
    assert!(text.contains("agentbox verify made"), "{text}");
    for word in ["ptrace", "kexec_load", "bpf", "verify-inside", "2001:db8"] {
        assert!(!text.contains(word), "{word}: {text}");
    }
    let suggested = node.call(&["suggest", &container.id]).ok();
    assert!(!suggested.contains("ptrace"), "{suggested}");
    let status = node
        .call(&["network", "--format", "json", &container.id])
        .ok();
    let status: Value = serde_json::from_str(&status).unwrap();
    let counted = status["denied"].as_object().unwrap();
    let all: u64 = counted.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(all, 1 + asked, "{status:#}");

    // What the workload itself reads, and what is signed.
    let inside = container.exec("cat /run/agentbox/denied");
    assert!(inside.contains("mount("), "{inside}");
    for word in ["kexec_load", "bpf", "2001:db8"] {
        assert!(!inside.contains(word), "{word}: {inside}");
    }
    assert_eq!(signed_counts(&container)["syscalls denied"], 2);
}

/// The counts of the sidecar's log in the container's receipt.
fn signed_counts(container: &Running<'_>) -> Value {
    container.node.call(&["key"]).ok();
    let receipt = container.node.call(&["receipt", &container.id]).ok();
    let receipt: Value = serde_json::from_str(&receipt).unwrap();
    let payload = receipt["payload"].as_str().unwrap();
    let payload = container.node.scratch.file("payload", payload);
    let statement = run("base64", &["-d", &payload]).ok();
    let statement: Value = serde_json::from_str(&statement).unwrap();
    let mut logs = statement["predicate"]["log"].as_array().unwrap().iter();
    let of_sidecar = logs.find(|log| log["counts"]["syscalls denied"].is_u64());
    let counts = of_sidecar.unwrap_or_else(|| panic!("{statement:#}"))["counts"].clone();
    assert!(
        counts["verify: syscalls denied"].as_u64() > Some(20),
        "{counts:#}"
    );
    counts
}
