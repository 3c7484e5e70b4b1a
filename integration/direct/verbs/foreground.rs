//! `run` in the foreground: exit codes, signals, descriptors, and what is kept.

use std::io::Read;
use std::process::Stdio;

use super::{BOTH, same};
use crate::command::await_that;
use crate::direct::Node;

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_run_ends_as_its_program_does() {
    let node = Node::new();
    for script in [
        "exit 0",
        "exit 7",
        "kill -KILL $$",
        // As a child: signals of its own namespace do not end an init process.
        "sh -c 'kill -KILL $$'; exit $?",
        "echo out; echo err >&2; exit 3",
    ] {
        let config = node.config(&["sh", "-c", script]);
        let answers = BOTH.map(|runtime| {
            let id = runtime.id("ends");
            let bundle = node.bundle(&id, &config);
            let file = node.scratch.path("pid");
            let answer = runtime.call(
                &node,
                &["run", "--pid-file", &file, "--bundle", &bundle, &id],
            );
            assert!(
                std::fs::read_to_string(&file)
                    .unwrap()
                    .parse::<u32>()
                    .is_ok()
            );
            let gone = runtime.call(&node, &["state", &id]);
            assert_ne!(gone.code, 0, "it is deleted: {gone}");
            assert_eq!(node.leftovers(&id), [""; 0], "{script}");
            answer
        });
        same(script, answers);
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_run_passes_signals_on() {
    let node = Node::new();
    let script = "trap 'echo TERM; exit 9' TERM; trap 'echo USR1' USR1; echo ready; while :; do sleep 0.1; done";
    let config = node.config(&["sh", "-c", script]);
    for runtime in BOTH {
        let id = runtime.id("signals");
        let bundle = node.bundle(&id, &config);
        let mut command = runtime.command(&node, &["run", "--bundle", &bundle, &id]);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut seen = [0; 6];
        out.read_exact(&mut seen).unwrap();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGUSR1).unwrap();
        let mut seen = [0; 5];
        out.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"USR1\n", "{runtime:?}");
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        await_that("the end", || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(9), "{runtime:?}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_run_keeps_descriptors_and_containers_on_request() {
    let node = Node::new();
    let config = node.config(&["sh", "-c", "ls /proc/self/fd; echo $LISTEN_FDS $LISTEN_PID"]);
    let answers = BOTH.map(|runtime| {
        let id = runtime.id("kept");
        let bundle = node.bundle(&id, &config);
        let mut command = runtime.command(
            &node,
            &["run", "--preserve-fds", "1", "--bundle", &bundle, &id],
        );
        let line: Vec<String> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|a| a.to_str().unwrap().to_owned())
            .collect();
        let script = "exec 3</dev/null 4</dev/zero; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\"";
        command = std::process::Command::new("bash");
        command.args(["-c", script, "-"]).args(line);
        node.finish(command)
    });
    let answer = same("descriptors", answers);
    assert!(answer.stdout.ends_with("1 1\n"), "{answer}");
    let config = node.config(&["true"]);
    for runtime in BOTH {
        let id = runtime.id("keep");
        let bundle = node.bundle(&id, &config);
        // Debian 12's runc has no --keep.
        if runtime
            .call(&node, &["run", "--help"])
            .stdout
            .contains("--keep")
        {
            runtime
                .call(&node, &["run", "--keep", "--bundle", &bundle, &id])
                .ok();
            let state = runtime.call(&node, &["state", &id]).ok();
            assert!(state.contains("\"stopped\""), "{state}");
            runtime.call(&node, &["delete", &id]).ok();
        }
    }
}
