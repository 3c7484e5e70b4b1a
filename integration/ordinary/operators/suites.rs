//! Findings of other projects' suites and engines' tests.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::command::Finished;
use crate::direct::{Guard, Node, program};

#[test]
#[ignore = "needs an engine: hack/rig"]
fn lo_is_up_in_a_new_network_namespace() {
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
    // Also for a user without the permission to set it.
    config["process"]["user"] = json!({"uid": 1000, "gid": 1000});
    config["process"]["capabilities"] = json!({});
    assert!(is_up(unconfined("suites-lo-user", &config).ok()));
}

/// Runs a container, with so many descriptors left open by the caller.
fn run_beside(node: &Node, open: u32, policy: &str, config: &serde_json::Value) -> Finished {
    let bundle = node.bundle("suites-limits", config);
    let script = format!(
        "for n in {{3..99}}; do eval \"exec $n>&-\"; done; for n in $(seq 3 {}); do eval \"exec $n</dev/null\"; done; exec \"$@\"",
        2 + open
    );
    let mut command = Command::new("bash");
    command.args(["-c", &script, "-", &program(), "--root", &node.root]);
    command.args(["--policy", policy, "run", "--bundle", &bundle]);
    command.arg("suites-limits");
    node.finish(command)
}

#[test]
#[ignore = "needs an engine: hack/rig"]
fn create_refuses_a_descriptor_limit_below_its_need() {
    let node = Node::new();
    let mut few = node.config(&["true"]);
    for (policy, open, soft, least) in [
        ("unconfined", 0, 7, 20),
        ("standard", 0, 26, 28),
        ("unconfined", 6, 20, 26),
        ("standard", 6, 28, 34),
    ] {
        few["process"]["rlimits"] = json!([{"type": "RLIMIT_NOFILE", "soft": soft, "hard": 100}]);
        let said = run_beside(&node, open, policy, &few).failed();
        let words = format!("RLIMIT_NOFILE is {soft}");
        assert!(
            said.contains(&words) && said.contains(&format!("request {least}")),
            "{said}"
        );
        // With the least number that the message names, it starts.
        few["process"]["rlimits"][0]["soft"] = json!(least);
        run_beside(&node, open, policy, &few).ok();
    }
}

#[test]
#[ignore = "needs an engine: hack/rig"]
fn a_capability_that_prevents_the_start_is_refused_by_name() {
    let node = Node::new();
    let mut unbound = node.config(&["true"]);
    unbound["process"]["capabilities"] = json!({
        "effective": ["CAP_SYS_ADMIN"], "permitted": ["CAP_SYS_ADMIN"], "inheritable": ["CAP_SYS_ADMIN"],
    });
    let bundle = node.bundle("suites-refused", &unbound);
    for policy in ["unconfined", "standard"] {
        let said = node.call(&[
            "--policy",
            policy,
            "run",
            "--bundle",
            &bundle,
            "suites-refused",
        ]);
        let words = "CAP_SYS_ADMIN is in `inheritable` but not in `bounding`";
        let said = said.failed();
        assert!(said.contains(words), "{said}");
    }
}

/// A mount below a read-only one, `-v /p:/app -v /app/node_modules`: runc creates the directory in the source.
#[test]
#[ignore = "needs an engine: hack/rig"]
fn a_mount_point_that_is_missing_in_a_read_only_mount_is_refused_with_the_cure() {
    let node = Node::new();
    let (project, modules) = (node.scratch.dir("project"), node.scratch.dir("modules"));
    let mut config = node.config(&["sh", "-c", "touch /app/node_modules/x || touch /app/y"]);
    for (source, at) in [(&project, "/app"), (&modules, "/app/node_modules")] {
        let mount = json!({"destination": at, "type": "bind", "source": source, "options": ["rbind", "rw"]});
        config["mounts"].as_array_mut().unwrap().push(mount);
    }
    let run = |config: &serde_json::Value| {
        let bundle = node.bundle("suites-point", config);
        node.call(&[
            "--policy",
            "standard",
            "run",
            "--bundle",
            &bundle,
            "suites-point",
        ])
    };
    let said = run(&config).failed();
    assert!(
        said.contains("is read-only; make it in the source"),
        "{said}"
    );
    assert!(!std::path::Path::new(&format!("{project}/node_modules")).exists());
    // As the message says.
    assert!(said.contains("dev.agentbox.workspace=/app"), "{said}");
    let mut annotated = config.clone();
    annotated["annotations"] = json!({"dev.agentbox.workspace": "/app"});
    run(&annotated).ok();
    assert!(std::path::Path::new(&format!("{project}/y")).exists());
    std::fs::remove_file(format!("{project}/y")).unwrap();
    config["process"]["args"] = json!(["ls", "/app"]);
    assert_eq!(run(&config).ok(), "node_modules\n");
}

/// libcontainer looks up a process's pid in a joined namespace in the node's /proc.
#[test]
#[ignore = "needs an engine: hack/rig"]
fn a_joined_pid_namespace_works_with_colons_in_the_cgroup() {
    let node = Node::new();
    let is_free = |pid: u32| !std::path::Path::new(&format!("/proc/{pid}")).exists();
    let number = (300..30_000).find(|n| (*n..*n + 8).all(is_free)).unwrap();
    // The next process there gets a pid that does not exist on the node.
    let script = format!(
        "i=0; while [ $i -lt {number} ]; do ( : ); i=$((i+1)); done; touch /tmp/counted; sleep 100"
    );
    let mut config = node.config(&["sh", "-c", &script]);
    let tmp = json!({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"});
    config["mounts"].as_array_mut().unwrap().push(tmp);
    let bundle = node.bundle("suites-first", &config);
    node.call(&[
        "--policy",
        "unconfined",
        "run",
        "--detach",
        "--bundle",
        &bundle,
        "suites-first",
    ])
    .ok();
    let _guard = Guard(&node, "suites-first");
    let counted = ["exec", "suites-first", "test", "-e", "/tmp/counted"];
    let start = std::time::Instant::now();
    while node.call(&counted).code != 0 {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it does not count"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let state: serde_json::Value =
        serde_json::from_str(&node.call(&["state", "suites-first"]).ok()).unwrap();
    let mut second = node.config(&["true"]);
    let namespaces = second["linux"]["namespaces"].as_array_mut().unwrap();
    let pid = namespaces.iter_mut().find(|n| n["type"] == "pid").unwrap();
    pid["path"] = json!(format!("/proc/{}/ns/pid", state["pid"]));
    for name in ["suites-second", "system.slice:agentbox:suites-second"] {
        second["linux"]["cgroupsPath"] = json!(name);
        let bundle = node.bundle("suites-second", &second);
        node.call(&[
            "--policy",
            "unconfined",
            "run",
            "--bundle",
            &bundle,
            "suites-second",
        ])
        .ok();
        assert_eq!(node.leftovers("suites-second"), [""; 0], "{name}");
    }
}

#[test]
#[ignore = "needs an engine: hack/rig"]
fn memory_of_sockets_is_limited_on_cgroup_v1_and_named_on_v2() {
    let node = Node::new();
    let mut config = node.config(&["sleep", "100"]);
    config["linux"]["resources"]["memory"] = json!({"kernelTCP": 8_388_608, "kernel": 8_388_608});
    for policy in ["unconfined", "standard"] {
        let bundle = node.bundle("suites-tcp", &config);
        let created = node.call(&[
            "--policy",
            policy,
            "create",
            "--bundle",
            &bundle,
            "suites-tcp",
        ]);
        let _guard = Guard(&node, "suites-tcp");
        assert_eq!(created.code, 0, "{created}");
        assert!(
            created.stderr.contains("memory.kernel is obsolete"),
            "{created}"
        );
        let state: serde_json::Value =
            serde_json::from_str(&node.call(&["state", "suites-tcp"]).ok()).unwrap();
        let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", state["pid"])).unwrap();
        match cgroups.lines().find_map(|line| line.split_once(":memory:")) {
            Some((_, path)) => {
                let file = format!("/sys/fs/cgroup/memory{path}/memory.kmem.tcp.limit_in_bytes");
                assert_eq!(
                    std::fs::read_to_string(file).unwrap(),
                    "8388608\n",
                    "{policy}"
                );
            }
            None => assert!(
                created.stderr.contains("kernelTCP needs cgroup v1"),
                "{created}"
            ),
        }
    }
}
