//! `wrap` and a child of it keep the time limit of these walls: nothing that the command does holds it up.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::others::{runs, until};
use super::{CALLERS, Place, called};
use crate::command::{Finished, run_for};
use crate::direct::program;
use crate::docker::Docker;
use crate::wrap::account::Account;

/// Closes sockets with SO_LINGER and unsent data while `wrap` may hold a copy of them, then runs on. Prints the time that
/// the kernel has noted.
const LINGERING: &str = r"
import os, signal, socket, struct, sys, time
port = int(sys.argv[1])
forever = struct.pack('ii', 1, 1000)
probe = socket.socket()
probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, forever)
print('lingers', struct.unpack('ii', probe.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)), flush=True)
if len(sys.argv) > 2: os._exit(0)
junk = bytes(1 << 20)
for turn in range(100):
    child = os.fork()
    if child == 0:
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, forever)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        s.setblocking(False)
        try:
            s.connect(('127.0.0.1', port))
        except BlockingIOError:
            pass
        try:
            while True: s.send(junk)
        except OSError:
            pass
        s.close()
        os._exit(0)
    time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
while True:
    socket.socket().close()
    time.sleep(0.1)
";

/// P02. `wrap` keeps the time limit of these walls, and it holds a copy of each new socket for a moment.
#[test]
#[ignore = "needs the rig: hack/test"]
fn p02_no_lingering_socket_stretches_the_time_limit_of_landlocks_walls() {
    let place = Place::new();
    // A service that never reads.
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = service.local_addr().unwrap().port().to_string();
    let wrap = place.command(&["python3", "-c", LINGERING, &port]);
    let words: Vec<String> = (wrap.get_args())
        .map(|word| word.to_str().unwrap().to_owned())
        .collect();
    let at = words.iter().position(|word| word == "--").unwrap();
    // On one processor the command runs on while `wrap` still holds the copy.
    let mut pinned = Command::new("taskset");
    pinned.args(["-c", "0"]).arg(wrap.get_program());
    pinned.args(&words[..at]);
    pinned.args([
        "--connect",
        &port,
        "--timeout",
        "8s",
        "--set",
        "time.grace=1s",
    ]);
    pinned.args(&words[at..]).current_dir(&place.project);
    pinned.env("HOME", place.scratch.path("home"));
    let ended = run_for(Duration::from_secs(60), &mut pinned);
    assert_eq!(ended.code, 124, "{ended}");
    assert!(ended.stdout.contains("lingers (0, 0)"), "{ended}");
    // The control: without walls the option has its effect.
    let bare = ["-c", LINGERING, &port, "look"];
    let bare = run_for(Duration::from_secs(60), Command::new("python3").args(bare));
    assert!(bare.ok().contains("lingers (1, 1000)"));
    drop(wrap);
}

/// `wrap` with a limit of some seconds, in a terminal, whose foreground group it is in.
fn limited_at_a_terminal(person: &Account, script: &str) -> Finished {
    let program = program();
    let wrap = format!(
        "exec {program} wrap --walls landlock --quiet --timeout 5s --set time.grace=1s -- python3 -c '{script}'"
    );
    let command = ["script", "-qec", &wrap, "/dev/null"];
    run_for(Duration::from_secs(45), &mut person.alone(&command))
}

/// A read from the background stops the reader's whole group (SIGTTIN), which is `wrap`'s too.
#[test]
#[ignore = "needs the rig: hack/test"]
fn p02_no_read_from_the_background_stops_landlocks_wrap() {
    let _docker = Docker::connect();
    let person = Account::new();
    let ended = limited_at_a_terminal(
        &person,
        "
import os, signal, time
if os.fork() == 0:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpid())
    time.sleep(60)
time.sleep(1)
if os.fork() == 0:
    os.read(0, 1)
print(\"stopped\" if os.getpgrp() != os.tcgetpgrp(0) else \"in front\", flush=True)
time.sleep(60)",
    );
    assert_eq!(ended.code, 124, "{ended}");
}

/// A descriptor is installed by the caller itself, once it has a processor: `wrap` waits for that, and not long.
#[test]
#[ignore = "needs the rig: hack/test"]
fn p02_no_caller_without_a_processor_stretches_the_time_limit_of_landlocks_walls() {
    let _docker = Docker::connect();
    let person = Account::new();
    let ended = limited_at_a_terminal(
        &person,
        "
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
# Not that of the test above.
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
for _ in range(24):
    if os.fork() == 0:
        while True: pass
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while True:
    for fd in os.openpty(): os.close(fd)",
    );
    assert_eq!(ended.code, 124, "{ended}");
}

/// Starts `wrap` with a limit and a command that ignores SIGTERM, with a daemon. Each sleeps as long as `mark` says.
fn start(person: &Account, by: &str, timeout: &str, mark: &str) -> Child {
    let script = format!(
        "trap '' TERM; (setsid sh -c 'sleep {mark}.1; sleep {mark}.2' &); sleep {mark}.3 & echo ready; sleep {mark}.4; sleep {mark}.5"
    );
    let options = ["--quiet", "--timeout", timeout, "--set", "time.grace=1s"];
    let wrap = ["wrap", "--walls", "landlock"];
    let command = ["--", "bash", "-c", &script];
    let mut wrap = called(person, by, &[&wrap[..], &options, &command].concat());
    let mut child = wrap.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = [0; 6];
    let out = child.stdout.as_mut().unwrap();
    out.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"ready\n");
    child
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
}

fn is_stopped(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    status.contains("State:\tT")
}

/// A `wrap` in a call to a file system that does not answer does nothing more, as one that is stopped.
#[test]
#[ignore = "needs the rig: hack/test"]
fn p02_a_wrap_that_is_held_up_stretches_no_time_limit_of_landlocks_walls() {
    let _docker = Docker::connect();
    let person = Account::new();
    for (by, number) in CALLERS.into_iter().zip(72516..) {
        let (limited, free) = (format!("{number}"), format!("{}", number + 10));
        let of = |mark: &str| format!("^sleep {mark}[.]");
        let mut held = start(&person, by, "3s", &limited);
        // The control.
        let mut control = start(&person, by, "1h", &free);
        signal(&held, Signal::STOP);
        signal(&control, Signal::STOP);
        assert!(runs(&of(&limited)), "{by}");
        until("the command ends", || !runs(&of(&limited)));
        assert!(is_stopped(&held) && is_stopped(&control), "{by}");
        assert!(runs(&of(&free)), "{by}");
        signal(&held, Signal::CONT);
        assert_eq!(held.wait().unwrap().code(), Some(124), "{by}");
        signal(&control, Signal::KILL);
        control.wait().unwrap();
        let left = ["-KILL", "-f", &format!("sleep {free}[.]")];
        run_for(Duration::from_secs(10), Command::new("pkill").args(left));
    }
}
