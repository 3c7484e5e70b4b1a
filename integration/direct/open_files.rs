//! A spec of more mounts than the caller's limit of open files has descriptors for: agentbox raises its own limit, and
//! nothing that it starts gets more than the spec or the caller gives.

use std::process::Command;

use serde_json::{Value, json};

use super::{Guard, Node, program};
use crate::command::Finished;

const MOUNTS: u32 = 600;

fn config(node: &Node, limits: Value) -> Value {
    let mut config = node.config(&["sleep", "100"]);
    let mounts = config["mounts"].as_array_mut().unwrap();
    let file = node.scratch.file("source", "text");
    mounts.extend((0..MOUNTS).map(|number| {
        json!({"destination": format!("/tmp/m{number}"), "source": file, "type": "bind", "options": ["bind", "ro"]})
    }));
    config["process"]["rlimits"] = limits;
    let hook = |name: &str| {
        let script = format!("ulimit -Sn >{}; ulimit -Hn >>{0}", node.scratch.path(name));
        json!([{"path": "/bin/sh", "args": ["sh", "-c", script]}])
    };
    config["hooks"] = json!({"createRuntime": hook("create"), "poststart": hook("start"), "poststop": hook("stop")});
    config
}

/// `agentbox ...` by a caller with these limits.
fn limited(node: &Node, hard: u32, arguments: &[&str]) -> Finished {
    let mut command = Command::new("bash");
    let script = format!("ulimit -Sn 1024; ulimit -Hn {hard}; exec \"$@\"");
    command.args(["-c", &script, "-", &program(), "--root", &node.root]);
    command.args(arguments);
    node.finish(command)
}

/// Soft and hard limit of a process.
fn limits_of(pid: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = text.lines().find(|line| line.starts_with("Max open files"));
    let words = line.unwrap().split_whitespace().skip(3).take(2);
    words.map(str::to_owned).collect()
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_many_mounts_raise_no_limit_of_what_a_container_runs() {
    let node = Node::new();
    let file = node
        .scratch
        .file("node.toml", "[allow]\nhooks = [\"/bin/sh\"]");
    for (name, limits, own) in [
        ("callers", json!([]), ["1024", "4096"]),
        (
            "own",
            json!([{"type": "RLIMIT_NOFILE", "soft": 512, "hard": 700}]),
            ["512", "700"],
        ),
        (
            "more",
            json!([{"type": "RLIMIT_NOFILE", "soft": 2000, "hard": 4096}]),
            ["2000", "4096"],
        ),
    ] {
        let id = format!("files-{name}-{}", std::process::id());
        let bundle = node.bundle(&id, &config(&node, limits));
        let pid = node.scratch.path("pid");
        let guard = Guard(&node, &id);
        let run = [
            "--config",
            &file,
            "--policy",
            "standard",
            "run",
            "--detach",
            "--pid-file",
            &pid,
            "--bundle",
            &bundle,
            &id,
        ];
        limited(&node, 4096, &run).ok();
        assert_eq!(
            limits_of(std::fs::read_to_string(&pid).unwrap().trim()),
            own,
            "{name}"
        );
        let look = [
            "exec",
            &id,
            "sh",
            "-c",
            "ulimit -Sn; ulimit -Hn; cat /tmp/m599; ls -d /tmp/m* | wc -l",
        ];
        // Without limits of its own, those of the caller of `exec`. Root may lack the right to raise a hard limit.
        let (inside, callers) = match name {
            "callers" => ("1024\n3000".to_owned(), 3000),
            _ => (own.join("\n"), 4096),
        };
        let seen = limited(&node, callers, &look).ok();
        assert_eq!(seen, format!("{inside}\ntext600\n"), "{name}");
        drop(guard);
        for hook in ["create", "start"] {
            let said = std::fs::read_to_string(node.scratch.path(hook)).unwrap();
            assert_eq!(said, "1024\n4096\n", "{name} {hook}");
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_more_mounts_than_the_hard_limit_are_refused_with_a_cure() {
    let node = Node::new();
    let id = format!("files-few-{}", std::process::id());
    let mut spec = config(&node, json!([]));
    spec["hooks"] = json!({});
    let bundle = node.bundle(&id, &spec);
    let run = ["--policy", "standard", "run", "--bundle", &bundle, &id];
    let said = limited(&node, 1024, &run).failed();
    assert!(
        said.contains("too many open files: ") && said.contains("raise ulimit -n to "),
        "{said}"
    );
    assert!(node.leftovers(&id).is_empty());
}
