//! Other processes: of the same user, wrap itself and its proxy.

use std::process::{Command, Stdio};

use super::Place;
use crate::command::await_that;
use crate::docker::Docker;

/// A process of the same user outside of the walls, killed when dropped.
struct Neighbour(std::process::Child);

impl Neighbour {
    fn new() -> Self {
        let mut command = Command::new("sleep");
        command.arg("1000").env("THEIR_SECRET", "x");
        Self(command.spawn().unwrap())
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_other_processes_are_neither_read_nor_steered() {
    let place = Place::new();
    let neighbour = Neighbour::new();
    let pid = neighbour.0.id();
    let script = format!(
        r"
pid, proc = {pid}, '/proc/{pid}'
attempt('environment', lambda: open(proc + '/environ').read())
attempt('memory', lambda: open(proc + '/mem', 'rb'))
attempt('maps', lambda: open(proc + '/maps').read())
attempt('descriptors', lambda: os.readlink(proc + '/fd/0'))
attempt('files of descriptors', lambda: os.open(proc + '/fd/0', os.O_RDONLY))
attempt('directory', lambda: os.readlink(proc + '/cwd'))
attempt('root', lambda: os.readlink(proc + '/root'))
attempt('program', lambda: os.readlink(proc + '/exe'))
attempt('a signal', lambda: os.kill(pid, 0))
attempt('a signal by pidfd', lambda: syscall(424, syscall(434, pid, 0), 18, None, 0))
attempt('limits', lambda: syscall(302, pid, 7, struct.pack('QQ', 512, 512), None))
attempt('priority', lambda: os.setpriority(os.PRIO_PROCESS, pid, 5))
attempt('processors', lambda: os.sched_setaffinity(pid, os.sched_getaffinity(pid)))
attempt('tracing', lambda: (syscall(101, 0x4206, pid, 0, 0), syscall(101, 17, pid, 0, 0) if False else None))
attempt('shared memory', lambda: syscall(29, 0x61626f78, 4096, 0o1600))
attempt('a message queue', lambda: syscall(68, 0x61626f79, 0o1600))
"
    );
    let words = ["EACCES", "EPERM", "ENOSYS", "ESRCH"];
    place.attempts(&script).all_fail_with(&words, 16);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_wrap_and_its_proxy_are_out_of_reach() {
    let mut place = Place::new();
    place.policy = Some("permissive".to_owned());
    // The proxy is wrap's other child.
    let script = r"
parent = os.getppid()
def parent_of(pid):
    return int(open('/proc/%s/stat' % pid).read().rsplit(')', 1)[1].split()[1])
proxy = 0
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        if parent_of(pid) == parent and int(pid) != os.getpid():
            proxy = int(pid)
    except OSError:
        pass
print('found', 'yes' if proxy else 'no')
for name, pid in (('wrap', parent), ('proxy', proxy)):
    attempt(name + ' killed', lambda: os.kill(pid, signal.SIGKILL))
    attempt(name + ' memory', lambda: open('/proc/%d/mem' % pid, 'rb'))
    attempt(name + ' environment', lambda: open('/proc/%d/environ' % pid).read())
    attempt(name + ' descriptors', lambda: os.readlink('/proc/%d/fd/0' % pid))
    attempt(name + ' limits', lambda: syscall(302, pid, 0, struct.pack('QQ', 1, 1), None))
";
    let script = format!("{}{script}", super::PRELUDE);
    let seen = super::outcomes(&place.wrap(&["python3", "-c", &script]).ok());
    assert_eq!(
        seen.get("found").map(String::as_str),
        Some("yes"),
        "{seen:?}"
    );
    assert_eq!(seen.len(), 11, "{seen:?}");
    for (name, word) in seen.iter().filter(|(name, _)| *name != "found") {
        assert!(
            ["EPERM", "EACCES"].contains(&word.as_str()),
            "{name}: {seen:?}"
        );
    }
}

/// Whether a process has this word in its command line.
pub(super) fn runs(word: &str) -> bool {
    let found = Command::new("pgrep").args(["-f", word]).output().unwrap();
    found.status.success()
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_what_the_command_leaves_ends_with_it() {
    let place = Place::new();
    let seen = place.shell(
        "(setsid sleep 72513.5 & setsid sh -c 'setsid sleep 72513.6 &' &) ; sleep 0.3; exit 7",
    );
    assert_eq!(seen.code, 7, "{seen}");
    assert!(!runs("72513[.]"), "left over");
    let killed = place.shell("kill -KILL $$");
    assert_eq!(killed.code, 137, "{killed}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_signals_reach_the_command_and_a_killed_wrap_ends_it() {
    let place = Place::new();
    let start = |script: &str| {
        let mut command = place.command(&["bash", "-c", script]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let mut wrap = start("trap 'exit 9' TERM; echo >ready; sleep 72514.5 & wait");
    let ready = place.scratch.path("home/project/ready");
    await_that("it is ready", || std::path::Path::new(&ready).exists());
    let pid = rustix::process::Pid::from_raw(wrap.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(wrap.wait().unwrap().code(), Some(9));
    await_that("its child ends", || !runs("72514[.]5"));
    let mut wrap = start("exec sleep 72515.5");
    await_that("it runs", || runs("^sleep 72515[.]5"));
    wrap.kill().unwrap();
    wrap.wait().unwrap();
    await_that("the command ends", || !runs("^sleep 72515[.]5"));
    // The next run removes the killed run's directory.
    assert_eq!(place.shell("true").code, 0);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_the_command_ends_when_its_proxy_is_killed() {
    let mut place = Place::by(Docker::alone());
    place.policy = Some("permissive".to_owned());
    let mut command = place.command(&["sleep", "72516.5"]);
    let mut wrap = command.stderr(Stdio::null()).spawn().unwrap();
    await_that("it runs", || runs("^sleep 72516[.]5"));
    let own = wrap.id().to_string();
    let children = Command::new("pgrep").args(["-P", &own]).output().unwrap();
    let children = String::from_utf8(children.stdout).unwrap();
    let is_proxy = |pid: &&str| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|c| c.starts_with("agentbox-sidec"))
    };
    let proxy = children.lines().find(is_proxy).unwrap().parse().unwrap();
    let proxy = rustix::process::Pid::from_raw(proxy).unwrap();
    rustix::process::kill_process(proxy, rustix::process::Signal::KILL).unwrap();
    assert_ne!(wrap.wait().unwrap().code(), Some(0));
    assert!(!runs("^sleep 72516[.]5"));
}
