//! Denied system calls of a pod's members: each member has its own sidecar for them, and its own log.

use serde_json::{Value, json};

use super::sandbox::{await_end, is_running, kept, member, record};
use super::{Cgroup, Running, chosen, sleeper};
use crate::command::{awaited, kill_and_wait, run};
use crate::direct::Node;

const ROLE: &str = "io.kubernetes.cri.container-type";
const OF: &str = "io.kubernetes.cri.sandbox-id";
/// Makes a denied call repeatedly, and writes how the last one ended.
const LOOP: &str =
    "while true; do mount -t tmpfs none /mnt 2>/tmp/new; mv /tmp/new /tmp/said; sleep 0.02; done";

/// A sandbox with the test's own name, by which its record is found among those of all tests.
fn sandbox<'a>(node: &'a Node, name: &str) -> Running<'a> {
    let config = sleeper(node, &[(ROLE, "sandbox")]);
    Running::start(node, name, "standard", &config)
}

/// A member of this pod that runs a script.
fn config(node: &Node, pod: &str, script: &str) -> Value {
    let mut config = member(node, pod, &[(ROLE, "container"), (OF, pod)]);
    config["process"]["args"] = json!(["sh", "-c", script]);
    config
}

/// The denied calls in a container's own log, by name.
fn own(id: &str) -> Vec<String> {
    let text = kept(id, "run/sidecar.jsonl");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let denied = lines.filter(|line| line["wall"] == "syscalls");
    denied
        .map(|line| {
            assert_eq!(line["container"], id, "{line}");
            line["what"]["name"].as_str().unwrap().to_owned()
        })
        .collect()
}

/// The targets of a process's descriptors.
fn descriptors(pid: &Value) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    // A descriptor may be closed in the meantime.
    let links = entries.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    links
        .map(|link| link.to_string_lossy().into_owned())
        .collect()
}

/// Waits until the container's program has written this.
#[track_caller]
fn await_words(id: &str, words: &str) {
    let path = format!("/proc/{}/root/tmp/said", record(id)["init"]["pid"]);
    awaited(words, || {
        let said = std::fs::read_to_string(&path).unwrap_or_default();
        match said.contains(words) {
            true => Ok(()),
            false => Err(format!("{id} says {said:?}")),
        }
    });
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn each_member_of_a_pod_has_its_own_log_of_denied_calls() {
    let node = Node::of_cri();
    let pod = sandbox(&node, "logged-pod");
    let one = Running::start(&node, "one", "standard", &config(&node, &pod.id, LOOP));
    let two = config(&node, &pod.id, "sleep 300");
    let two = Running::start(&node, "two", "standard", &two);
    await_words(&one.id, "permission denied");
    // Only its sidecar has the listener, and the socket by which it was sent is closed.
    for container in [&one, &two] {
        let record = record(&container.id);
        let held = |pid: &Value| {
            let leads = descriptors(pid);
            let listeners = leads.iter().filter(|to| to.contains("seccomp notify"));
            let sockets = leads.iter().filter(|to| to.starts_with("socket:"));
            (listeners.count(), sockets.count())
        };
        assert_eq!(held(&record["init"]["pid"]), (0, 0));
        // It takes listeners by one socket, and asks its warden by another.
        assert_eq!(held(&record["sidecar"]["pid"]), (1, 2));
        assert_eq!(held(&record["sidecar"]["warden"]["pid"]), (0, 1));
    }
    // By an exec process.
    node.call(&["exec", &two.id, "sh", "-c", "umount /proc; true"])
        .ok();
    assert_eq!(own(&pod.id), [""; 0]);
    assert!(own(&one.id).iter().all(|name| name == "mount"));
    assert!(own(&two.id).iter().all(|name| name == "umount2"));
    assert!(!own(&one.id).is_empty() && !own(&two.id).is_empty());
    let shown = run("agentbox", &["audit", &two.id, "--denied"]).ok();
    assert!(
        shown.contains("umount2(") && !shown.contains(" mount("),
        "{shown}"
    );
    let verified = node.call(&["verify", &two.id]);
    assert_eq!(verified.code, 0, "{verified}");
    // Its attempts are denied calls too, and appear in no other log.
    assert!(own(&two.id).contains(&"bpf".to_owned()));
    assert_eq!(own(&pod.id), [""; 0]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_member_ends_with_its_sidecar_and_the_pod_goes_on() {
    let node = Node::of_cri();
    let pod = sandbox(&node, "lossy-pod");
    for signal in ["-KILL", "-STOP"] {
        let name = format!("member{}", signal.to_lowercase());
        let one = Running::start(&node, &name, "standard", &config(&node, &pod.id, LOOP));
        await_words(&one.id, "permission denied");
        node.call(&["exec", &one.id, "true"]).ok();
        let sidecar = record(&one.id)["sidecar"]["pid"].to_string();
        run("kill", &[signal, &sidecar]).ok();
        await_end(&node, &one.id);
        let last = kept(&one.id, "run/warden.jsonl");
        assert!(last.contains("sidecar-lost"), "{last}");
        assert!(is_running(&node, &pod.id));
        node.call(&["exec", &pod.id, "true"]).ok();
    }
}

/// No process of a container runs unless a sidecar answers and logs its denied calls.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_member_does_not_start_without_its_sidecar() {
    let node = Node::of_cri();
    let pod = sandbox(&node, "strict-pod");
    // A sidecar that is killed between create and start.
    let id = format!("lost-member-{}", std::process::id());
    let config = config(&node, &pod.id, LOOP);
    let (options, bundle) = chosen(&node, &id, "standard", &config);
    let create = ["create", "--bundle", &bundle, &id];
    node.call(&[&options[..], &create].concat()).ok();
    let sidecar = record(&id)["sidecar"].clone();
    // Without its warden, which would end the container.
    for pid in [&sidecar["warden"]["pid"], &sidecar["pid"]] {
        kill_and_wait(&pid.to_string());
    }
    let refused = node.call(&["start", &id]).failed();
    assert!(
        refused.contains("the sidecar that answers denied system calls has exited"),
        "{refused}"
    );
    node.call(&["delete", "--force", &id]).ok();
    // A sidecar that cannot be created: the pod has no process left.
    let full = Cgroup::new("full-pod");
    for dir in full.dirs() {
        let limit = dir.join("pids.max");
        if limit.exists() {
            std::fs::write(limit, "0").unwrap();
        }
    }
    let id = format!("no-sidecar-{}", std::process::id());
    let mut config = config.clone();
    config["linux"]["cgroupsPath"] = json!(format!("/{}/{id}", full.0));
    let (options, bundle) = chosen(&node, &id, "standard", &config);
    let create = ["create", "--bundle", &bundle, &id];
    let refused = node.call(&[&options[..], &create].concat()).failed();
    assert!(refused.contains("sidecar"), "{refused}");
    assert_eq!(node.leftovers(&id), [""; 0]);
    assert!(is_running(&node, &pod.id));
}

/// With `report.denied`, which a pod's annotation sets for all of its containers.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_member_reads_its_own_denied_calls_in_its_own_file() {
    const FILE: &str = "/run/agentbox/denied";
    let node = Node::of_cri();
    let on = ("dev.agentbox.report.denied", "on");
    let config_of = |mut config: Value, script: &str| {
        config["process"]["args"] = json!(["sh", "-c", script]);
        config
    };
    let pod = sleeper(&node, &[(ROLE, "sandbox"), on]);
    let pod = Running::start(&node, "shown-pod", "standard", &pod);
    let of_pod = [(ROLE, "container"), (OF, pod.id.as_str()), on];
    let one = config_of(member(&node, &pod.id, &of_pod), LOOP);
    let one = Running::start(&node, "shown-one", "standard", &one);
    let two = config_of(member(&node, &pod.id, &of_pod), "sleep 300");
    let two = Running::start(&node, "shown-two", "standard", &two);
    // The control: a container without it has no file.
    let without = Running::start(
        &node,
        "shown-without",
        "standard",
        &config(&node, &pod.id, LOOP),
    );
    await_words(&one.id, "permission denied");
    let exec = |id: &str, script: &str| node.call(&["exec", id, "sh", "-c", script]);
    // The file is written after the call.
    let read = format!(
        "umount /proc 2>/dev/null; for i in $(seq 300); do grep -q umount2 {FILE} && break; sleep 0.1; done; cat {FILE}"
    );
    let (of_two, of_pod) = (exec(&two.id, &read).ok(), exec(&pod.id, &read).ok());
    let of_one = exec(&one.id, &format!("cat {FILE}")).ok();
    for (shown, has, lacks) in [
        (&of_one, "syscalls mount(", "umount2("),
        (&of_two, "syscalls umount2(", " mount("),
        (&of_pod, "syscalls umount2(", " mount("),
    ] {
        assert!(shown.contains(has) && !shown.contains(lacks), "{shown}");
    }
    let is_of_calls = |text: &str| {
        text.lines()
            .next()
            .unwrap()
            .contains("/denied of the proxy")
    };
    assert!(is_of_calls(&of_one) && is_of_calls(&of_two), "{of_one}");
    assert!(!is_of_calls(&of_pod), "{of_pod}");
    exec(&without.id, &format!("cat {FILE}")).failed();
    let forged = exec(&one.id, &format!("echo forged >{FILE}; mv /run /gone"));
    assert!(forged.code != 0, "{forged}");
    assert!(
        !exec(&one.id, &format!("cat {FILE}"))
            .ok()
            .contains("forged")
    );
}
