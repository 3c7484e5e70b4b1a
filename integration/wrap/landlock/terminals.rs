//! Pseudo-terminals: the command makes and opens its own, and no other program's.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use super::{CALLERS, PRELUDE, called, outcomes};
use crate::command::{Finished, finish};
use crate::direct::program;
use crate::docker::Docker;
use crate::wrap::account::Account;

/// `wrap --walls landlock -- COMMAND` in the account's project.
fn wrapped(person: &Account, by: &str, command: &[&str]) -> Command {
    let words = ["wrap", "--walls", "landlock", "--quiet", "--"];
    called(person, by, &[&words[..], command].concat())
}

/// What the same script does without walls.
fn bare(person: &Account, by: &str, script: &str) -> BTreeMap<String, String> {
    let python = ["/usr/bin/python3", "-c", script];
    let mut control = match by {
        "root" => Command::new(python[0]),
        _ => person.alone(&python[..1]),
    };
    outcomes(&run(control.args(&python[1..])).ok())
}

fn run(command: &mut Command) -> Finished {
    finish(command)
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_programs_run_in_pseudo_terminals_of_their_own() {
    let _docker = Docker::connect();
    let person = Account::new();
    for by in CALLERS {
        let spawn = "import pty, sys; sys.exit(pty.spawn(['sh', '-c', 'tty; test -t 0 && stty size && echo a terminal']))";
        let said = run(&mut wrapped(
            &person,
            by,
            &["/usr/bin/python3", "-c", spawn],
        ))
        .ok();
        assert!(
            said.contains("/dev/pts/") && said.contains("a terminal"),
            "{by}: {said}"
        );
        let script = [
            "script",
            "-qec",
            "tty; sh -c 'echo >/dev/tty to the terminal'",
            "typescript",
        ];
        let said = run(&mut wrapped(&person, by, &script)).ok();
        assert!(
            said.contains("/dev/pts/") && said.contains("to the terminal"),
            "{by}: {said}"
        );
        // 64 at a time, and any number one after the other.
        let many = "import os
kept = []
try:
    while True: kept.append(os.openpty())
except OSError as error:
    print('most', len(kept), error.errno)
for pair in kept: [os.close(fd) for fd in pair]
for _ in range(300): [os.close(fd) for fd in os.openpty()]
print('again')";
        let said = run(&mut wrapped(&person, by, &["/usr/bin/python3", "-c", many])).ok();
        assert!(said.contains("most 64 28\nagain"), "{by}: {said}");
        // A caller without a free descriptor gets an error, not silence.
        let few = "import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
kept = []
try:
    while True: kept.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))
except OSError as error:
    print('errno', error.errno)";
        let said = run(&mut wrapped(&person, by, &["/usr/bin/python3", "-c", few])).ok();
        assert!(said.contains("errno 24"), "{by}: {said}");
    }
}

/// A job's container without options: its /dev/ptmx is a link, and Docker's filter forbids pidfd_getfd(2).
#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_pseudo_terminals_work_in_a_container_where_ports_are_not_published() {
    let docker = Docker::connect();
    let mount = format!("{}:/ab:ro", program());
    let options = ["--runtime", "runc", "-v", &mount, "-w", "/w"];
    let job = docker.start(&options, &["test-workloads", "sleep", "1000"]);
    let wrap = |options: &[&str], script: &str| {
        let words = ["/ab", "wrap", "--quiet", "--walls", "landlock"];
        let command = ["--", "python3", "-c", script];
        job.exec(&[], &[&words[..], options, &command].concat())
    };
    let spawned = wrap(&[], "import pty; pty.spawn(['sh', '-c', 'tty'])").ok();
    assert!(spawned.contains("/dev/pts/"), "{spawned}");
    let refused = wrap(&["--publish", "3000"], "print('ran')");
    assert!(!refused.stdout.contains("ran"), "{refused}");
    let refused = refused.failed();
    let words = "needs pidfd_getfd(2), which the seccomp filter around this process forbids";
    assert!(refused.contains(words), "{refused}");
    // The control: the container's filter alone is in the way.
    let options = [&options[..], &["--security-opt", "seccomp=unconfined"]].concat();
    let open = docker.start(&options, &["test-workloads", "sleep", "1000"]);
    let server = "import socket; print(socket.create_server(('0.0.0.0', 3000)).getsockname())";
    let words = [
        "/ab",
        "wrap",
        "--quiet",
        "--walls",
        "landlock",
        "--publish",
        "3000",
        "--",
        "python3",
        "-c",
        server,
    ];
    let served = open.exec(&[], &words).ok();
    assert!(served.contains("('127.0.0.1', 3000)"), "{served}");
}

/// A user's program outside with a pseudo-terminal.
struct Outside {
    child: Child,
    name: String,
}

impl Outside {
    /// If `wanted` is a name, it makes as many as it takes to get that one. Another test may have it for a while.
    fn open(person: &Account, by: &str, wanted: &str) -> Self {
        let script = format!(
            "import os, time
def found(kept):
    while len(kept) < 100:
        kept.append(os.openpty())
        if '{wanted}' in ('', os.ttyname(kept[-1][1])): return True
for _ in range(200):
    kept = []
    if found(kept): break
    [os.close(end) for pair in kept for end in pair]
    time.sleep(0.1)
print(os.ttyname(kept[-1][1]), flush=True); input()"
        );
        let python = ["/usr/bin/python3", "-c", &script];
        let mut command = match by {
            "root" => {
                let mut root = Command::new(python[0]);
                root.args(&python[1..]);
                root
            }
            _ => person.alone(&python),
        };
        let stdio = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = stdio.spawn().unwrap();
        let mut name = String::new();
        let mut out = BufReader::new(child.stdout.as_mut().unwrap());
        out.read_line(&mut name).unwrap();
        let name = name.trim().to_owned();
        assert!(name.starts_with("/dev/pts/"), "{name}");
        Self { child, name }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.child.stdin.take().unwrap().write_all(b"\n");
        let _ = self.child.wait();
    }
}

/// Opens a terminal by its name in each way.
const WAYS: &str = r"
import threading
def opened(name, flags):
    os.close(os.open(name, flags))
def ways(kind, name):
    for word, flags in [('r', os.O_RDONLY), ('w', os.O_WRONLY), ('rw', os.O_RDWR), ('terminal', os.O_RDWR | os.O_NOCTTY), ('quick', os.O_RDWR | os.O_NONBLOCK)]:
        attempt(kind + ' ' + word, lambda: opened(name, flags))
    attempt(kind + ' old call', lambda: os.close(syscall(2, ctypes.c_char_p(name.encode()), 2, 0)))
    directory = os.path.dirname(name) + '/.//' + os.path.basename(name)
    attempt(kind + ' other spelling', lambda: opened(directory, os.O_RDWR))
";

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_no_other_programs_terminal_is_opened() {
    let _docker = Docker::connect();
    let person = Account::new();
    for by in CALLERS {
        let outside = Outside::open(&person, by, "");
        let name = &outside.name;
        let script = format!(
            "{PRELUDE}{WAYS}
ways('named', '{name}')
master, slave = os.openpty()
attempt('own', lambda: opened(os.ttyname(slave), os.O_RDWR | os.O_NOCTTY))
attempt('own peer', lambda: os.close(fcntl.ioctl(master, 0x5441, os.O_RDWR | os.O_NOCTTY)))
attempt('master again', lambda: opened('/proc/self/fd/%d' % master, os.O_RDWR))
sys.stdout.flush(); os._exit(0)"
        );
        let walled = outcomes(
            &run(&mut wrapped(
                &person,
                by,
                &["/usr/bin/python3", "-c", &script],
            ))
            .ok(),
        );
        let done: Vec<&str> = (walled.iter().filter(|(_, word)| *word == "done"))
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!((walled.len(), done), (10, vec!["own"]), "{by}: {walled:?}");
        // The control: the same user opens it without walls.
        let control = bare(&person, by, &script);
        assert!(
            control.values().all(|word| word == "done"),
            "{by}: {control:?}"
        );
    }
}

/// The number of a terminal of the command becomes another program's.
#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_a_terminals_number_opens_no_later_terminal() {
    let _docker = Docker::connect();
    let person = Account::new();
    for by in CALLERS {
        let script = format!(
            "{PRELUDE}{WAYS}
master, slave = os.openpty()
name = os.ttyname(slave)
opened(name, os.O_RDWR | os.O_NOCTTY)
os.close(slave); os.close(master)
print(name, flush=True); input()
ways('later', name)
# Other terminals of its own do not make it one of them.
kept = [os.openpty() for _ in range(8)]
ways('beside', name)
sys.stdout.flush(); os._exit(0)"
        );
        let mut walled = wrapped(&person, by, &["/usr/bin/python3", "-c", &script]);
        let mut child = walled
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut name = String::new();
        out.read_line(&mut name).unwrap();
        let outside = Outside::open(&person, by, name.trim());
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut out, &mut text).unwrap();
        child.wait().unwrap();
        let walled = outcomes(&text);
        assert_eq!(walled.len(), 14, "{by}: {text}");
        assert!(
            walled.values().all(|word| word != "done"),
            "{by}: {walled:?}"
        );
        // The control: the same user opens it without walls.
        let script = format!("{PRELUDE}{WAYS}ways('later', '{}')", outside.name);
        let control = bare(&person, by, &script);
        assert!(
            control.len() == 7 && control.values().all(|word| word == "done"),
            "{control:?}"
        );
    }
}

/// One thread exchanges the path while others open it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_no_exchange_of_a_path_opens_another_terminal() {
    let _docker = Docker::connect();
    let person = Account::new();
    for by in CALLERS {
        let outside = Outside::open(&person, by, "");
        let script = format!(
            "{PRELUDE}
import threading
theirs = b'{}'
master, slave = os.openpty()
own = os.ttyname(slave).encode()
path = ctypes.create_string_buffer(64)
over = False
def swap():
    texts = [own + bytes(40 - len(own)), theirs + bytes(40 - len(theirs)), b'/dev/ptmx' + bytes(31)]
    turn = 0
    while not over:
        ctypes.memmove(path, texts[turn % 3], 40)
        turn += 1
threading.Thread(target=swap, daemon=True).start()
sys.setswitchinterval(1e-6)
seen = set()
turn = 0
while turn < 2000 or (turn < 100000 and own not in seen):
    turn += 1
    time.sleep(0.0001)
    fd = libc.open(path, os.O_RDWR | os.O_NOCTTY)
    if fd >= 0:
        seen.add(os.readlink('/proc/self/fd/%d' % fd).encode())
        os.close(fd)
over = True
print('theirs' if theirs in seen else 'not', 'done')
print('own' if own in seen else 'never', 'done')
sys.stdout.flush(); os._exit(0)",
            outside.name
        );
        let walled = outcomes(
            &run(&mut wrapped(
                &person,
                by,
                &["/usr/bin/python3", "-c", &script],
            ))
            .ok(),
        );
        let names: Vec<&String> = walled.keys().collect();
        assert_eq!(names, ["not", "own"], "{by}");
        let control = bare(&person, by, &script);
        let names: Vec<&String> = control.keys().collect();
        assert_eq!(names, ["own", "theirs"], "{by}");
    }
}
