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

/// `agentbox ...` by a caller whose files may not grow beyond `bytes` (soft:hard, as prlimit takes it), and who ignores
/// the signal of that limit.
fn bounded(node: &Node, user: &[&str], bytes: &str, arguments: &[&str]) -> Finished {
    let mut command = Command::new("sh");
    let script = "trap '' XFSZ; exec \"$@\"";
    command.args(["-c", script, "-"]).args(user);
    command.args(["prlimit", &format!("--fsize={bytes}"), &program()]);
    command.args(["--root", &node.root]).args(arguments);
    node.finish(command)
}

/// F32. A caller's limit would let verbs act without their line in the log.
#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_f32_a_callers_limit_of_file_sizes_costs_no_line_of_the_log() {
    let node = Node::new();
    let id = format!("fsize-{}", std::process::id());
    let bundle = node.bundle("bundle", &node.config(&["sleep", "100"]));
    node.call(&["run", "--detach", "--bundle", &bundle, &id])
        .ok();
    let lines = || {
        let said = crate::command::run(&program(), &["audit", "--json", &id]).ok();
        said.matches("\"signal\":\"CONT\"").count()
    };
    // The control.
    node.call(&["kill", &id, "CONT"]).ok();
    assert_eq!(lines(), 1);
    bounded(&node, &[], "1:unlimited", &["kill", &id, "CONT"]).ok();
    assert_eq!(lines(), 2);
    // Without CAP_SYS_RESOURCE root cannot raise a hard limit either, and does nothing then but end a container.
    let said = bounded(&node, &[], "1000:1000", &["resume", &id]);
    assert!(
        said.code == 0 || said.stderr.contains("RLIMIT_FSIZE is 1000 bytes"),
        "{said}"
    );
    bounded(&node, &[], "1:1", &["kill", &id, "CONT"]).ok();

    // Others cannot raise a hard limit. They are refused before the container is looked for.
    let user = [
        "setpriv",
        "--reuid=12345",
        "--regid=12345",
        "--clear-groups",
    ];
    let said = bounded(&node, &user, "1000:1000", &["resume", "nosuch"]).failed();
    assert!(said.contains("RLIMIT_FSIZE is 1000 bytes"), "{said}");
    let said = bounded(&node, &user, "1000:unlimited", &["resume", "nosuch"]).failed();
    assert!(!said.contains("RLIMIT_FSIZE"), "{said}");

    // What runs in the container has the caller's limit, or the spec's.
    let words = ["sh", "-c", "grep '^Max file size' /proc/self/limits"];
    let limits = |said: &Finished| -> Vec<String> {
        let words = said.stdout.split_whitespace().skip(3).take(2);
        words.map(str::to_owned).collect()
    };
    let exec = [&["exec", &id][..], &words].concat();
    let said = bounded(&node, &[], "90000000:95000000", &exec);
    assert_eq!(limits(&said), ["90000000", "95000000"], "{said}");
    assert_eq!(limits(&node.call(&exec)), ["unlimited"; 2]);
    let own = json!([{"type": "RLIMIT_FSIZE", "soft": 70_000_000, "hard": 80_000_000}]);
    for (name, own, wanted) in [
        ("callers", json!([]), ["90000000", "95000000"]),
        ("specs", own, ["70000000", "80000000"]),
    ] {
        let mut config = node.config(&words);
        config["process"]["rlimits"] = own;
        let bundle = node.bundle(name, &config);
        let id = format!("fsize-{name}-{}", std::process::id());
        let run = ["run", "--bundle", &bundle, &id];
        let said = bounded(&node, &[], "90000000:95000000", &run);
        assert_eq!(limits(&said), wanted, "{name}: {said}");
    }
    node.call(&["delete", "--force", &id]).ok();
}
