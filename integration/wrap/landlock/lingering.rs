//! `wrap` and a child of it keep the time limit of these walls: nothing that the command does holds it up.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::others::runs;
use super::{CALLERS, Place, called};
use crate::command::{Finished, await_that, finish};
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
        "12s",
        "--set",
        "time.grace=1s",
    ]);
    pinned.args(&words[at..]).current_dir(&place.project);
    pinned.env("HOME", place.scratch.path("home"));
    let ended = finish(&mut pinned);
    assert_eq!(ended.code, 124, "{ended}");
    assert!(ended.stdout.contains("lingers (0, 0)"), "{ended}");
    // The control: without walls the option has its effect.
    let bare = ["-c", LINGERING, &port, "look"];
    let bare = finish(Command::new("python3").args(bare));
    assert!(bare.ok().contains("lingers (1, 1000)"));
    drop(wrap);
}

/// Runs a command line in a terminal as a shell with job control does: in a foreground group of its own. That group's parent
/// is in its session, so that the kernel may stop it (an orphaned group's read fails instead, setpgid(2)).
fn at_a_terminal(person: &Account, line: &str) -> Finished {
    let run = format!("RUN={line}");
    let shell = r#"bash -mc 'eval "$RUN"; exit $?'"#;
    let command = ["env", &run, "script", "-qec", shell, "/dev/null"];
    finish(&mut person.alone(&command))
}

/// `wrap` with a limit of some seconds, in a terminal, whose foreground group it is in.
fn limited_at_a_terminal(person: &Account, script: &str) -> Finished {
    let program = program();
    let line = format!(
        "{program} wrap --walls landlock --quiet --timeout 10s --set time.grace=1s -- python3 -c '{script}'"
    );
    at_a_terminal(person, &line)
}

/// A read from the background stops the reader's whole group (SIGTTIN), which is `wrap`'s too.
#[test]
#[ignore = "needs the rig: hack/test"]
fn p02_no_read_from_the_background_stops_landlocks_wrap() {
    const SCRIPT: &str = "
import os, signal, time
if os.fork() == 0:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpid())
    time.sleep(60)
while os.getpgrp() == os.tcgetpgrp(0): time.sleep(0.1)
print(\"in the background\", flush=True)
if os.fork() == 0:
    os.read(0, 1)
time.sleep(60)";
    let _docker = Docker::connect();
    let person = Account::new();
    let ended = limited_at_a_terminal(&person, SCRIPT);
    assert_eq!(ended.code, 124, "{ended}");
    assert!(ended.stdout.contains("in the background"), "{ended}");
    // The control: a program that does not see to it is stopped, and its shell goes on.
    let bare = at_a_terminal(&person, &format!("python3 -c '{SCRIPT}'"));
    assert!(bare.stdout.contains("in the background"), "{bare}");
    assert_eq!(bare.code, 128 + Signal::TTIN.as_raw(), "{bare}");
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
print(\"busy\", flush=True)
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while True:
    for fd in os.openpty(): os.close(fd)",
    );
    assert_eq!(ended.code, 124, "{ended}");
    assert!(ended.stdout.contains("busy"), "{ended}");
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
    ready(wrap.stdout(Stdio::piped()))
}

/// Starts a program, and waits until it has said `ready`.
fn ready(command: &mut Command) -> Child {
    let mut child = command.spawn().unwrap();
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
        // The control, first: a start on a busy machine takes longer than a short limit.
        let mut control = start(&person, by, "1h", &free);
        await_that("the control has begun", || runs(&of(&free)));
        signal(&control, Signal::STOP);
        let mut held = start(&person, by, "8s", &limited);
        await_that("the command has begun", || runs(&of(&limited)));
        signal(&held, Signal::STOP);
        await_that("both are stopped", || {
            is_stopped(&held) && is_stopped(&control)
        });
        await_that("the command ends", || !runs(&of(&limited)));
        assert!(is_stopped(&held) && is_stopped(&control), "{by}");
        assert!(runs(&of(&free)), "{by}");
        signal(&held, Signal::CONT);
        assert_eq!(held.wait().unwrap().code(), Some(124), "{by}");
        signal(&control, Signal::KILL);
        control.wait().unwrap();
        let left = ["-KILL", "-f", &format!("sleep {free}[.]")];
        finish(Command::new("pkill").args(left));
    }
}

/// A FUSE file system with one file, whose first page is never read. It ends with this process.
const SLOW: &str = r"
import ctypes, os, struct, sys
fuse = os.open('/dev/fuse', os.O_RDWR)
options = 'fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other' % fuse
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b'slow', sys.argv[1].encode(), b'fuse', 6, options.encode()):
    sys.exit('mount: %d' % ctypes.get_errno())
def attributes(node):
    mode, size = (0o40755, 0) if node == 1 else (0o100644, 4096)
    return struct.pack('<6Q10I', node, size, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
def answer(unique, body=b'', error=0):
    os.write(fuse, struct.pack('<IiQ', 16 + len(body), -error, unique) + body)
while True:
    request = os.read(fuse, 1 << 20)
    _, opcode, unique, node = struct.unpack_from('<IIQQ', request)
    if opcode == 26:
        answer(unique, struct.pack('<4I2H2I2H8I', 7, 31, 4096, 0, 12, 9, 4096, 1, 1, 0, *[0] * 8))
        print('ready', flush=True)
    elif opcode == 1 and request[40:] == b'page\0':
        answer(unique, struct.pack('<4Q2I', 2, 0, 60, 60, 0, 0) + attributes(2))
    elif opcode == 3:
        answer(unique, struct.pack('<Q2I', 60, 0, 0) + attributes(node))
    elif opcode in (14, 27):
        answer(unique, struct.pack('<Q2I', 1, 0, 0))
    elif opcode in (18, 25, 28, 44):
        answer(unique)
    elif opcode not in (2, 15, 36, 42):
        answer(unique, error=2 if opcode == 1 else 38)
";

/// Lets `wrap` read an address from the page that is never read.
const HELD: &str = r"
import ctypes, os, signal, socket, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(['setsid', 'sleep', sys.argv[1]])
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
page = os.open(sys.argv[2] + '/page', os.O_RDONLY)
at = libc.mmap(None, 4096, 1, 2, page, ctypes.c_long(0))
print('ready', flush=True)
if sys.argv[2] == 'chmod':
    libc.chmod(ctypes.c_void_p(at), 0o600)
libc.connect(socket.socket().fileno(), ctypes.c_void_p(at), 16)
print('answered', flush=True)
";

/// A mounted [`SLOW`].
struct SlowFiles(Child, String);

impl SlowFiles {
    fn at(place: &str) -> Self {
        std::fs::create_dir(place).unwrap();
        let mut server = Command::new("python3");
        server.args(["-c", SLOW, place]).stdout(Stdio::piped());
        Self(ready(&mut server), place.to_owned())
    }
}

impl Drop for SlowFiles {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = Command::new("umount").args(["-l", &self.1]).status();
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn p02_no_file_system_that_does_not_answer_stretches_the_time_limit_of_landlocks_walls() {
    let _docker = Docker::connect();
    let person = Account::new();
    // One for each: the kernel fails the second reader of a page early.
    let calls = ["connect", "chmod"];
    let slow = calls.map(|call| SlowFiles::at(&format!("{}/{call}", person.project)));
    let start = |call: &str, mark: &str| {
        let options = ["--quiet", "--timeout", "8s", "--set", "time.grace=1s"];
        let wrap = ["wrap", "--walls", "landlock"];
        let command = ["--", "python3", "-c", HELD, mark, call];
        let mut wrap = called(&person, "alone", &[&wrap[..], &options, &command].concat());
        ready(wrap.stdout(Stdio::piped()))
    };
    let mut wraps = [start("connect", "72550.5"), start("chmod", "72550.6")];
    await_that("both have begun", || {
        runs("^sleep 72550[.]5") && runs("^sleep 72550[.]6")
    });
    await_that("the commands end", || !runs("^sleep 72550[.]"));
    // `wrap` is held up still, and goes on when the file system ends.
    assert!(
        wraps
            .iter_mut()
            .all(|wrap| wrap.try_wait().unwrap().is_none())
    );
    drop(slow);
    for mut wrap in wraps {
        assert_eq!(wrap.wait().unwrap().code(), Some(124));
        let mut rest = String::new();
        wrap.stdout.unwrap().read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
    }
}

/// A chain of processes, each of which ends when it has made the next one. It leaves a byte for each. It ends by itself. While `wrap` is
/// stopped it reaps none: without the pause they would take all numbers of the machine (pid_max).
const CHAIN: &str = r#"
open(F, ">>", $ARGV[0]); $| = 1; $SIG{TERM} = "IGNORE"; $end = time + $ARGV[1];
while (time < $end) { syswrite F, "."; exit if fork; select undef, undef, undef, 0.002 }
"#;

/// Whether the chains that write to a file go on.
fn grows(file: &std::path::Path) -> bool {
    let length = || std::fs::metadata(file).map_or(0, |file| file.len());
    let before = length();
    std::thread::sleep(Duration::from_millis(500));
    length() > before
}

/// P02. Killing by number does not reach a process that is new at each look; one signal to all does.
#[test]
#[ignore = "needs the rig: hack/test"]
fn p02_no_endless_fork_outlasts_the_time_limit_or_wrap_by_landlocks_walls() {
    let _docker = Docker::connect();
    let person = Account::new();
    let wrap = [
        "wrap",
        "--walls",
        "landlock",
        "--quiet",
        "--set",
        "time.grace=1s",
    ];
    for by in CALLERS {
        let begin = |name: &str, options: &[&str]| {
            let file = std::path::Path::new(&person.project).join(name);
            let chains = "for i in 1 2 3; do perl -e \"$0\" \"$1\" 60 & done; trap '' TERM; echo ready; sleep 100; sleep 100";
            let command = ["--", "bash", "-c", chains, CHAIN, name];
            let mut wrap = called(&person, by, &[&wrap[..], options, &command].concat());
            (ready(wrap.stdout(Stdio::piped())), file)
        };
        // The control: some outrun one look that kills by number, as `wrap` did. Not at each look, where two CPUs are busy.
        let free = std::env::temp_dir().join(format!("chain-{by}"));
        let outrun = || {
            for _ in 0..6 {
                let mut chain = Command::new("perl");
                chain.args(["-e", CHAIN]).arg(&free).arg("12");
                chain.spawn().unwrap().wait().unwrap();
            }
            let mark = format!("^perl -e .*chain-{by} 12");
            let kill = ["-KILL", "-f", &mark];
            finish(Command::new("pkill").args(kill));
            grows(&free)
        };
        assert!((0..10).any(|_| outrun()), "{by}: the control");

        let (mut limited, file) = begin("limited", &["--timeout", "6s"]);
        assert!(grows(&file), "{by}");
        assert_eq!(limited.wait().unwrap().code(), Some(124), "{by}");
        assert!(!grows(&file), "{by}");

        let (mut killed, file) = begin("killed", &[]);
        assert!(grows(&file), "{by}");
        signal(&killed, Signal::KILL);
        killed.wait().unwrap();
        await_that("the chains end", || !grows(&file));

        // One that is held up beyond its time.
        let (mut held, file) = begin("held", &["--timeout", "6s"]);
        signal(&held, Signal::STOP);
        assert!(grows(&file), "{by}");
        await_that("the chains end", || !grows(&file));
        assert!(is_stopped(&held), "{by}");
        signal(&held, Signal::CONT);
        assert_eq!(held.wait().unwrap().code(), Some(124), "{by}");
    }
}
