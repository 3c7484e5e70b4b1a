//! The life of a container by hand: behaviour that engines rely on without documenting it.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use super::{Guard, Node, program};
use crate::command::{await_that, awaited};

fn id(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Waits for this status from `state`.
#[track_caller]
fn await_status(node: &Node, id: &str, status: &str) {
    awaited(status, || match json(&node.call(&["state", id]).ok()) {
        state if state["status"] == status => Ok(()),
        state => Err(state),
    });
}

/// F51: with an engine's umask of 0, any user could start a created container, or change its pid in state.json.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f51_direct_other_users_reach_no_state_of_a_container_whatever_the_umask() {
    use std::os::unix::fs::MetadataExt;
    let node = Node::new();
    let id = &id("umask");
    let bundle = node.bundle("bundle", &node.config(&["sleep", "100"]));
    let _guard = Guard(&node, id);
    let mut shell = std::process::Command::new("bash");
    shell.args(["-c", "umask 0; exec \"$@\"", "-", &program()]);
    shell.args(["--root", &node.root, "create", "--bundle", &bundle, id]);
    node.finish(shell).ok();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    let dir = Path::new(&node.root).join(id);
    assert_eq!(mode(Path::new(&node.root)), 0o700);
    assert_eq!(mode(&dir), 0o700);
    for entry in fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path) & 0o022, 0, "{path:?}");
    }
    // The control: it starts, for root.
    node.call(&["start", id]).ok();
    await_status(&node, id, "running");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_container_has_the_life_of_the_specification() {
    let node = Node::new();
    let id = &id("life");
    let bundle = node.bundle("bundle", &node.config(&["sleep", "100"]));
    let pid_file = node.scratch.path("pid");
    let _guard = Guard(&node, id);

    let create = ["create", "--bundle", &bundle, "--pid-file", &pid_file, id];
    node.call(&create).ok();
    let state = json(&node.call(&["state", id]).ok());
    assert_eq!(state["id"], id.as_str());
    assert_eq!(state["status"], "created");
    assert_eq!(state["bundle"], bundle.as_str());
    assert!(state["ociVersion"].as_str().unwrap().starts_with("1."));
    let pid = state["pid"].as_u64().unwrap().to_string();
    assert_eq!(fs::read_to_string(&pid_file).unwrap(), pid);

    let early = node.call(&["exec", id, "true"]).failed();
    assert!(early.contains("not started"), "{early}");
    let twice = node.call(&create).failed();
    assert!(twice.contains("already exists"), "{twice}");

    node.call(&["start", id]).ok();
    await_status(&node, id, "running");
    let again = node.call(&["start", id]).failed();
    assert!(
        again.contains(id.as_str()) && again.contains("running"),
        "{again}"
    );

    assert_eq!(node.call(&["exec", id, "echo", "hello"]).ok(), "hello\n");
    assert_eq!(node.call(&["exec", id, "sh", "-c", "exit 9"]).code, 9);
    let pids = json(&node.call(&["ps", "--format", "json", id]).ok());
    assert_eq!(pids.to_string(), format!("[{pid}]"));
    assert_eq!(node.call(&["list", "--quiet"]).ok(), format!("{id}\n"));

    let refused = node.call(&["delete", id]).failed();
    assert!(refused.contains("running"), "{refused}");
    node.call(&["kill", id, "KILL"]).ok();
    await_status(&node, id, "stopped");
    let dead = node.call(&["kill", id, "TERM"]).failed();
    assert!(dead.contains("not running"), "{dead}");
    node.call(&["delete", id]).ok();
    assert_eq!(node.leftovers(id), Vec::<String>::new());
    let unknown = node.call(&["state", id]).failed();
    assert!(unknown.contains("does not exist") && unknown.contains(id.as_str()));
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_forced_delete_ends_a_running_container_and_accepts_a_missing_one() {
    let node = Node::new();
    let id = &id("forced");
    let bundle = node.bundle("bundle", &node.config(&["sleep", "100"]));
    node.call(&["delete", "--force", id]).ok();
    for started in [false, true] {
        node.call(&["create", "--bundle", &bundle, id]).ok();
        if started {
            node.call(&["start", id]).ok();
        }
        node.call(&["delete", "--force", id]).ok();
        assert_eq!(node.leftovers(id), Vec::<String>::new());
    }
    node.call(&["delete", id]).failed();
}

/// Only `delete --force` removes a container of which it cannot be read whether it lives.
#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_container_with_damaged_state_is_deleted_by_force_alone() {
    let node = Node::new();
    let id = &id("damaged");
    let bundle = node.bundle("bundle", &node.config(&["sleep", "100"]));
    node.call(&["run", "--detach", "--bundle", &bundle, id])
        .ok();
    let _guard = Guard(&node, id);
    let state = json(&node.call(&["state", id]).ok());
    let alive = format!("/proc/{}", state["pid"]);
    let is_ours = |left: &String| left.contains("/index/");
    let record = node.leftovers(id).into_iter().find(is_ours).unwrap();
    for file in [
        format!("{record}/record.json"),
        format!("{}/{id}/state.json", node.root),
    ] {
        let whole = fs::read(&file).unwrap();
        fs::write(&file, &whole[..whole.len() / 2]).unwrap();
        let refused = node.call(&["delete", id]).failed();
        assert!(refused.contains("delete --force"), "{file}: {refused}");
        assert!(Path::new(&alive).exists(), "{file}: it was killed");
        fs::write(&file, whole).unwrap();
    }
    fs::write(format!("{}/{id}/state.json", node.root), "{").unwrap();
    node.call(&["delete", "--force", id]).ok();
    assert_eq!(node.leftovers(id), Vec::<String>::new());
    assert!(!Path::new(&alive).exists());
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_run_ends_as_its_killed_program_does() {
    let node = Node::new();
    let id = &id("run-killed");
    let bundle = node.bundle(id, &node.config(&["sleep", "100"]));
    std::thread::scope(|scope| {
        let run = scope.spawn(|| node.call(&["run", "--bundle", &bundle, id]));
        await_that("it runs", || {
            node.call(&["state", id]).stdout.contains("running")
        });
        node.call(&["kill", id, "9"]).ok();
        let seen = run.join().unwrap();
        assert_eq!(seen.code, 137, "{seen}");
    });
    assert_eq!(node.leftovers(id), Vec::<String>::new());
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_of_two_creations_of_one_id_only_one_succeeds() {
    let node = Node::new();
    let id = &id("race");
    let bundle = node.bundle("bundle", &node.config(&["sleep", "100"]));
    for round in 0..5 {
        let create = || node.call(&["create", "--bundle", &bundle, id]);
        let (one, two) = std::thread::scope(|scope| {
            let other = scope.spawn(create);
            (create(), other.join().unwrap())
        });
        let _guard = Guard(&node, id);
        let (won, lost) = if one.code == 0 {
            (one, two)
        } else {
            (two, one)
        };
        assert_eq!(won.code, 0, "round {round}: {won}");
        let lost = lost.failed();
        assert!(lost.contains("already exists"), "round {round}: {lost}");
        node.call(&["start", id]).ok();
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_only_a_pipe_is_handed_in_as_a_descriptor() {
    let node = Node::new();
    let id = &id("handed");
    let config = node.config(&["sh", "-c", "echo from inside >&3"]);
    let bundle = node.bundle("bundle", &config);
    let arguments = ["run", "--preserve-fds", "1", "--bundle", &bundle, id];

    let directory: OwnedFd = std::fs::File::open("/").unwrap().into();
    let (socket, _other) = UnixStream::pair().unwrap();
    let file: OwnedFd = std::fs::File::open(format!("{bundle}/config.json"))
        .unwrap()
        .into();
    for handed in [directory, socket.into(), file] {
        let refused = node.call_with(&arguments, Some(handed)).failed();
        assert!(refused.contains("file descriptor 3"), "{refused}");
        assert_eq!(node.leftovers(id), Vec::<String>::new());
    }

    let (mut reader, writer) = std::io::pipe().unwrap();
    node.call_with(&arguments, Some(writer.into())).ok();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
    assert_eq!(text, "from inside\n");
}

/// Signals that the caller (nohup, a daemon) or Rust ignores are not ignored in the program.
#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_program_starts_with_the_default_action_of_every_signal() {
    let node = Node::new();
    let config = node.config(&["grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"]);
    let bundle = node.bundle("signals", &config);
    for policy in ["standard", "unconfined"] {
        let mut command = std::process::Command::new("bash");
        command.args(["-c", "trap '' HUP USR1 PIPE; exec \"$@\"", "-", &program()]);
        command.args(["--root", &node.root, "--policy", policy]);
        command.args(["run", "--bundle", &bundle, "signals"]);
        let said = node.finish(command).ok();
        assert_eq!(
            said.matches("\t0000000000000000\n").count(),
            2,
            "{policy}: {said}"
        );
    }
}

/// `2>&1 | jq`: what a program parses begins with no line of ours, even where the policy wants one.
#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_merged_output_has_no_line_about_requests() {
    let node = Node::new();
    let mut config = node.config(&["sh", "-c", "echo out; echo err >&2"]);
    config["annotations"] = serde_json::json!({"dev.agentbox.report.notice": "on"});
    let sets = config["process"]["capabilities"].as_object_mut().unwrap();
    for set in ["bounding", "effective", "permitted"] {
        let all = sets[set].as_array_mut().unwrap();
        all.push("CAP_SYS_TIME".into());
    }
    let bundle = node.bundle("bundle", &config);
    let run_with = |name: &str, redirection: &str| {
        let id = id(name);
        let _guard = Guard(&node, &id);
        let script = format!(
            "\"$1\" --root \"$2\" create --bundle \"$3\" \"$4\" {redirection} && \"$1\" --root \"$2\" start \"$4\" || exit\n\
             for i in $(seq 100); do \"$1\" --root \"$2\" state \"$4\" | grep -q stopped && exit; sleep 0.1; done; exit 9"
        );
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script, "-", &program(), &node.root, &bundle, &id]);
        node.finish(command)
    };
    let apart = run_with("apart", "");
    let line = apart.stderr.lines().find(|l| l.contains("SYS_TIME"));
    let line = line.unwrap_or_else(|| panic!("{apart}"));
    assert!(line.starts_with("agentbox: not granted: "), "{apart}");
    assert_eq!((apart.code, apart.stdout.as_str()), (0, "out\n"), "{apart}");
    let merged = run_with("merged", "2>&1");
    assert!(merged.stdout.ends_with("out\nerr\n"), "{merged}");
    assert!(!merged.to_string().contains("not granted"), "{merged}");
}
