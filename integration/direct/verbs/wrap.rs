//! The end of a command of `wrap`.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::{await_that, lives};
use crate::direct::{Scratch, program};
use crate::docker::Docker;

fn wrap(scratch: &Scratch, command: &[&str]) -> Command {
    let mut wrap = Command::new(program());
    wrap.args(["wrap", "--"]).args(command);
    wrap.current_dir(scratch.dir("project"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    wrap
}

/// Starts a sleeper with an argument by which it is found.
fn sleeping(scratch: &Scratch, script: &str, mark: &str) -> (Child, Pid) {
    let child = wrap(scratch, &["bash", "-c", script, mark])
        .spawn()
        .unwrap();
    let mut found = None;
    await_that("the command", || {
        found = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .find_map(|entry| {
                let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
                let line = std::fs::read(entry.path().join("cmdline")).ok()?;
                let line = String::from_utf8_lossy(&line).into_owned();
                (line.starts_with("bash\0") && line.contains(mark)).then(|| Pid::from_raw(pid))
            });
        found.is_some()
    });
    (child, found.unwrap())
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_wrap_fails_like_a_shell_if_the_program_is_missing() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    for (command, code) in [("no-such-program", 127), ("./nope", 127), ("/etc", 126)] {
        let status = wrap(&scratch, &[command]).status().unwrap();
        assert_eq!(status.code(), Some(code), "{command}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_wrap_ends_by_a_signal_as_its_command_would() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    // By SIGINT itself, so that a shell's loop ends too.
    let ends = [
        (Signal::SIGTERM, (Some(143), None)),
        (Signal::SIGINT, (None, Some(libc::SIGINT))),
    ];
    for (signal, end) in ends {
        // Without a handler: as pid 1, it would never end.
        let mark = format!("sleeper-{}-{signal}", std::process::id());
        let (mut child, process) =
            sleeping(&scratch, "while :; do read -t 0.1 <> <(:); done", &mark);
        kill(pid(&child), signal).unwrap();
        await_that("the end", || child.try_wait().unwrap().is_some());
        let status = child.wait().unwrap();
        assert_eq!((status.code(), status.signal()), end, "{signal}");
        await_that("the command's end", || !lives(process));
    }
    let mark = format!("handler-{}", std::process::id());
    let script = "trap 'exit 3' TERM; while :; do read -t 0.1 <> <(:); done";
    let (mut child, process) = sleeping(&scratch, script, &mark);
    let handled = || {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let mask = status
            .lines()
            .find_map(|l| l.strip_prefix("SigCgt:"))
            .unwrap_or("0")
            .trim()
            .to_owned();
        u64::from_str_radix(&mask, 16).unwrap() & (1 << 14) != 0
    };
    await_that("the handler", handled);
    kill(pid(&child), Signal::SIGTERM).unwrap();
    await_that("the end", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(3), "a handler decides");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_a_command_does_not_outlive_wrap() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    let mark = format!("orphan-{}", std::process::id());
    let (mut child, process) = sleeping(&scratch, "while :; do read -t 0.1 <> <(:); done", &mark);
    child.kill().unwrap();
    child.wait().unwrap();
    await_that("the command's end", || !lives(process));
    let gone = crate::command::run(&program(), &["list", "--quiet"]);
    assert_eq!(gone.code, 0, "{gone}");
}
