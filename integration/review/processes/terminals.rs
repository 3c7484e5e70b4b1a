//! F-H7 (docs/threats.md F28): the caller's terminal is never passed in, even if only some descriptors are the
//! terminal. Captured terminal output has no carriage returns. F-M6: a command cannot outlive `wrap`.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Running, called_by, sleeper};
use crate::command::{HANGS, run};
use crate::direct::{Node, Scratch, program};
use crate::docker::Docker;
use crate::wrap::shell::terminal;

/// Waits for its end.
#[track_caller]
fn end(mut child: Child) -> i32 {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap_or(-1);
        }
        if start.elapsed() > HANGS {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it did not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Reads what is available on the master.
fn shown(master: &mut File) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    rustix::io::ioctl_fionbio(&*master, true).unwrap();
    while let Ok(length @ 1..) = master.read(&mut buffer) {
        text.extend_from_slice(&buffer[..length]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Prints which descriptors are terminals, and tries to read typed input from each that could be one.
const LOOK: &str = "for n in 0 1 2; do [ -t $n ] && echo tty $n; done; \
    for n in 1 2; do [ -n \"$(timeout 1 head -c 1 <&$n 2>/dev/null)\" ] && echo read $n; done; \
    echo out; echo err >&2";

/// Runs a command with some descriptors at a terminal with typed input.
fn at_terminal(mut command: Command, which: [bool; 3]) -> String {
    let (mut master, slave) = terminal();
    let stdio = |there: bool| match there {
        true => Stdio::from(slave.try_clone().unwrap()),
        false => Stdio::null(),
    };
    let [input, output, error] = which.map(stdio);
    let child = command
        .stdin(input)
        .stdout(output)
        .stderr(error)
        .spawn()
        .unwrap();
    drop(command);
    master.write_all(b"sudo-password\n").unwrap();
    let code = end(child);
    let text = shown(&mut master);
    assert_eq!(code, 0, "{text}");
    text
}

#[track_caller]
fn nothing_of_the_terminal(text: &str, which: [bool; 3]) {
    for bad in ["tty", "read"] {
        assert!(!text.contains(bad), "{which:?}: {text}");
    }
    assert_eq!(text.contains("out"), which[1], "{which:?}: {text}");
    assert_eq!(text.contains("err"), which[2], "{which:?}: {text}");
}

const SOME: [[bool; 3]; 4] = [
    [false, true, true],
    [false, true, false],
    [false, false, true],
    [true, true, false],
];

#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_h7_wrap_hands_in_no_terminal() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    let mut control = Command::new("bash");
    control.args(["-c", LOOK]);
    let seen = at_terminal(control, SOME[0]);
    assert!(seen.contains("read"), "the control: {seen}");
    for which in SOME {
        let mut wrap = Command::new(program());
        wrap.args(["wrap", "--policy", "strict", "--", "bash", "-c", LOOK]);
        wrap.current_dir(scratch.dir("project"));
        nothing_of_the_terminal(&at_terminal(wrap, which), which);
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_h7_run_and_exec_hand_in_no_terminal() {
    let node = Node::new();
    let all = [true; 3];
    for policy in ["standard", "unconfined"] {
        let id = format!("terminal-{policy}-{}", std::process::id());
        let bundle = node.bundle(&id, &node.config(&["sh", "-c", LOOK]));
        for which in SOME.into_iter().chain([all]) {
            let run = ["--policy", policy, "run", "--bundle", &bundle, &id];
            let seen = at_terminal(called_by(&[], &node, &run), which);
            nothing_of_the_terminal(&seen, which);
        }
        let container = Running::start(&node, "terminals", policy, &sleeper(&node));
        for which in SOME.into_iter().chain([all]) {
            let exec = ["exec", &container.id, "sh", "-c", LOOK];
            let seen = at_terminal(called_by(&[], &node, &exec), which);
            nothing_of_the_terminal(&seen, which);
        }
    }
}

/// Typed input reaches a command whose standard input alone is the terminal.
#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_h7_what_is_typed_is_relayed() {
    let node = Node::new();
    let container = Running::start(&node, "typed", "standard", &sleeper(&node));
    let exec = [
        "exec",
        &container.id,
        "sh",
        "-c",
        "read -r line; echo \"<$line>\"",
    ];
    let seen = at_terminal(called_by(&[], &node, &exec), [true, true, false]);
    assert!(seen.contains("<sudo-password>"), "{seen}");
}

/// If no process stays to relay it, it is refused under a policy.
#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_h7_a_detached_container_at_a_terminal_is_refused() {
    let node = Node::new();
    let container = Running::start(&node, "detached", "standard", &sleeper(&node));
    let id = format!("detach-{}", std::process::id());
    let bundle = node.bundle(&id, &sleeper(&node));
    for call in [
        &["exec", "--detach", &container.id, "true"][..],
        &["create", "--bundle", &bundle, &id],
        &["run", "--detach", "--bundle", &bundle, &id],
    ] {
        let (_master, slave) = terminal();
        let mut command = called_by(&[], &node, call);
        command.stdin(Stdio::from(slave));
        let seen = node.finish(command);
        assert!(
            seen.stderr.contains("standard input is a terminal"),
            "{seen}"
        );
    }
    assert!(node.leftovers(&id).is_empty());
}

/// Repeated twenty times, because it was a race.
#[test]
#[ignore = "needs the rig: hack/test"]
fn review_s_2_captured_output_has_no_carriage_returns() {
    let node = Node::new();
    for policy in ["standard", "unconfined"] {
        let mut config = node.config(&["sh", "-c", "echo a; echo b"]);
        config["process"]["terminal"] = true.into();
        let id = format!("lines-{policy}-{}", std::process::id());
        let bundle = node.bundle(&id, &config);
        let container = Running::start(&node, "lines-exec", policy, &sleeper(&node));
        for _ in 0..20 {
            let run = ["--policy", policy, "run", "--bundle", &bundle, &id];
            assert_eq!(node.call(&run).ok(), "a\nb\n", "run, {policy}");
            let seen = container.exec(&["--tty"], &["sh", "-c", "echo a; echo b"]);
            assert_eq!(seen.ok(), "a\nb\n", "exec, {policy}");
        }
    }
}

/// Removes its death signal, forks, and prints that it runs.
const OUTLIVE: &str = r#"
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(void) {
    prctl(PR_SET_PDEATHSIG, 0);
    if (fork() == 0)
        setsid();
    printf("ready\n");
    fflush(stdout);
    sleep(60);
}
"#;

#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_m6_a_command_does_not_outlive_wrap_whatever_it_asks_for() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    let dir = scratch.dir("project");
    let source = scratch.file("outlive.c", OUTLIVE);
    let name = format!("{dir}/outlive-{}", std::process::id());
    run("gcc", &["-static", "-O1", "-o", &name, &source]).ok();
    let alive = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = all.filter_map(|e| std::fs::read(e.path().join("cmdline")).ok());
        lines
            .filter(|line| line.starts_with(name.as_bytes()))
            .count()
    };
    let mut wrap = Command::new(program());
    wrap.args(["wrap", "--policy", "strict", "--", &name]);
    let mut child = wrap
        .current_dir(&dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut ready)
        .unwrap();
    assert!(alive() > 0, "the command runs");
    child.kill().unwrap();
    child.wait().unwrap();
    let start = Instant::now();
    while alive() > 0 {
        assert!(start.elapsed() < HANGS, "it lives on");
        std::thread::sleep(Duration::from_millis(20));
    }
    run(&program(), &["list", "--quiet"]).ok();
}
