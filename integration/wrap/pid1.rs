//! A command ends, stops and gets signals as without `wrap`. The init process that ensures this is no way out.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::command::{Finished, HANGS, finish};
use crate::direct::{Scratch, program};
use crate::docker::Docker;

/// Behind the walls, or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Plain,
    Wrapped,
}

const BOTH: [How; 2] = [How::Plain, How::Wrapped];

struct Place {
    _docker: Docker,
    scratch: Scratch,
}

impl Place {
    fn new() -> Self {
        Self {
            _docker: Docker::connect(),
            scratch: Scratch::new(),
        }
    }

    fn command(&self, how: How, command: &[&str]) -> Command {
        let mut made = match how {
            How::Plain => Command::new(command[0]),
            How::Wrapped => {
                let mut wrap = Command::new(program());
                wrap.args(["wrap", "--", command[0]]);
                wrap
            }
        };
        made.args(&command[1..]);
        made.current_dir(self.scratch.dir("project"));
        made
    }

    fn bash(&self, how: How, script: &str) -> Finished {
        let mut command = self.command(how, &["bash", "-c", script]);
        finish(&mut command)
    }

    /// Starts it, and waits for its first line.
    fn start(&self, how: How, script: &str) -> Child {
        let mut command = self.command(how, &["python3", "-u", "-c", script]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        child
    }
}

#[track_caller]
fn end(child: &mut Child) -> i32 {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            let signal = std::os::unix::process::ExitStatusExt::signal(&status);
            return status.code().or(signal.map(|s| 128 + s)).unwrap();
        }
        if start.elapsed() > HANGS {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(child: &Child, signal: nix::sys::signal::Signal) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, signal).unwrap();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_u_a6_a_command_ends_with_the_status_that_it_has_without_wrap() {
    let place = Place::new();
    for (script, code) in [
        ("exit 5", 5),
        ("kill -9 $$", 137),
        ("kill -TERM $$; exit 3", 143),
        ("kill -SEGV $$; exit 3", 139),
        ("kill -40 $$; exit 3", 168),
        ("exec python3 -c 'import os; os.abort()'", 134),
        ("trap '' TERM; kill -TERM $$; exit 3", 3),
        ("trap 'exit 4' USR1; kill -USR1 $$; exit 3", 4),
    ] {
        for how in BOTH {
            let seen = place.bash(how, script);
            assert_eq!(seen.code, code, "{how:?}: {seen}");
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_u_a6_a_command_ends_when_nobody_reads_on() {
    let place = Place::new();
    for how in BOTH {
        let mut wrap = place.command(how, &["bash", "-c", "while :; do echo x; done"]);
        let mut child = wrap.stdout(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 2];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
        drop(child.stdout.take());
        assert_eq!(end(&mut child), 141, "{how:?}");
    }
}

/// As in node: clean up, then end by the signal's default action.
const AGAIN: &str = r"
import os, signal, time
def again(number, frame):
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, again)
print('ready')
time.sleep(60)
";

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_u_a6_a_signal_that_the_command_raises_again_ends_it() {
    use nix::sys::signal::Signal;
    let place = Place::new();
    for how in BOTH {
        for (number, code) in [
            (Signal::SIGTERM, 143),
            (Signal::SIGINT, 130),
            (Signal::SIGHUP, 129),
        ] {
            let mut child = place.start(how, AGAIN);
            signal(&child, number);
            assert_eq!(end(&mut child), code, "{how:?}, {number}");
        }
    }
}

/// Orphans that end; prints which of them stay zombies.
const ORPHANS: &str = r"
import glob, os, time
for n in range(3):
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            time.sleep(0.3)
        os._exit(0)
    os.waitpid(child, 0)
time.sleep(1)
print('zombies', sum(') Z 1 ' in open(f).read() for f in glob.glob('/proc/[0-9]*/stat')))
";

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_u_a6_orphans_leave_no_zombies() {
    let place = Place::new();
    let mut wrapped = place.command(How::Wrapped, &["python3", "-c", ORPHANS]);
    let seen = finish(&mut wrapped).ok();
    assert_eq!(seen, "zombies 0\n");
    // The control: an init process that reaps no other processes.
    let mut alone = Command::new("unshare");
    alone.args(["--pid", "--fork", "--mount-proc", "python3", "-c", ORPHANS]);
    let seen = finish(&mut alone).ok();
    assert_eq!(seen, "zombies 3\n");
}

/// Tries what a process may do to another one of its user, and prints what works.
const WAYS: &str = r"
import ctypes, os, signal, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def ways(pid):
    for name in ('environ', 'mem', 'maps', 'auxv', 'syscall'):
        try:
            os.read(os.open(f'/proc/{pid}/{name}', os.O_RDONLY), 1) if name != 'mem' else os.open(f'/proc/{pid}/mem', os.O_RDWR)
            yield name
        except OSError:
            pass
    for name in ('exe', 'root', 'cwd', 'fd/0', 'ns/net'):
        try:
            os.stat(f'/proc/{pid}/{name}')
            yield name
        except OSError:
            pass
    pidfd = os.pidfd_open(pid)
    if libc.syscall(438, pidfd, 0, 0) >= 0:
        yield 'pidfd_getfd'
    if libc.ptrace(16, pid, 0, 0) == 0:
        yield 'ptrace'
other = subprocess.Popen(['sleep', '60'], stdin=subprocess.DEVNULL)
time.sleep(0.2)
print('other', *ways(other.pid))
other.kill()
print('first', *ways(1))
print('cmdline', open('/proc/1/cmdline').read().strip('\0'))
for line in open('/proc/1/status'):
    if line.split(':')[0] in ('CapEff', 'CapPrm', 'NoNewPrivs', 'Seccomp'):
        print(line.strip().replace('\t', ''))
for number in (signal.SIGSTOP, signal.SIGKILL):
    os.kill(1, number)
os.kill(os.getppid(), 0)
print('the first process lives')
";

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_the_first_process_is_no_way_out_for_the_command() {
    let place = Place::new();
    let dir = place.scratch.dir("project");
    let mut wrap = Command::new(program());
    let secret = format!("--workspace={dir}");
    wrap.args(["wrap", &secret, "--", "python3", "-c", WAYS]);
    wrap.env("SECRET_OF_THE_NODE", "1");
    let seen = finish(wrap.current_dir(&dir)).ok();
    let mut lines = seen.lines();
    let other = lines.next().unwrap();
    for way in ["environ", "mem", "exe", "root", "fd/0"] {
        assert!(other.contains(way), "the control: {other}");
    }
    assert_eq!(lines.next(), Some("first"), "{seen}");
    assert_eq!(lines.next(), Some("cmdline "), "{seen}");
    let rest: Vec<&str> = lines.collect();
    assert_eq!(
        rest,
        [
            "CapPrm:0000000000000020",
            "CapEff:0000000000000020",
            "NoNewPrivs:1",
            "Seccomp:2",
            "the first process lives"
        ]
    );
}

/// Leaves every group and session, without a death signal, and tries to stop the init process.
const HOLD_ON: &str = r"
import ctypes, os, signal, time
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
for number in range(1, 32):
    if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
os.kill(1, signal.SIGSTOP)
print('ready')
time.sleep(61.25)
";

/// Live processes whose program text contains this.
fn alive(mark: &str) -> Vec<nix::unistd::Pid> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let ours = all.filter(|e| {
        let line = std::fs::read(e.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(mark)
    });
    ours.filter_map(|e| e.file_name().to_str()?.parse().ok())
        .map(nix::unistd::Pid::from_raw)
        .collect()
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_u_a14_nothing_of_a_command_outlives_a_killed_wrap() {
    let place = Place::new();
    for how in BOTH {
        let mark = format!("of {how:?} in {}", std::process::id());
        let mut script = format!("{HOLD_ON}# {mark}");
        if how == How::Plain {
            // Without walls, process 1 is the node's.
            script = script.replace("os.kill(1", "os.getpgid(0) or (1");
        }
        let mut child = place.start(how, &script);
        child.kill().unwrap();
        child.wait().unwrap();
        let start = Instant::now();
        // Without wrap they live on, no matter how long the test waits.
        let within = Duration::from_secs(if how == How::Wrapped { 60 } else { 2 });
        while !alive(&mark).is_empty() && start.elapsed() < within {
            std::thread::sleep(Duration::from_millis(20));
        }
        let left = alive(&mark);
        assert_eq!(left.is_empty(), how == How::Wrapped, "{how:?}: {left:?}");
        for process in left {
            nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL).unwrap();
        }
    }
}
