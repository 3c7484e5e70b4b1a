//! Denied system calls: only the sidecar answers and logs them, even if it stops or dies.

use serde_json::Value;

use super::{Container, Docker, Policy, runtime};
use crate::command::{Finished, run};

const IMAGE: &str = "test-workloads";
/// Calls mount(2) in a loop, and prints the result after each hundred.
const LOOP: &str = r#"
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
while True:
    for _ in range(100):
        libc.mount(None, None, None, 0, None)
    print("errno", ctypes.get_errno(), time.monotonic(), flush=True)
    time.sleep(0.01)
"#;

/// A container whose denied calls are checked.
struct Watched<'a> {
    container: Container<'a>,
}

impl<'a> Watched<'a> {
    #[track_caller]
    fn start(docker: &'a Docker, options: &[&str], program: &str) -> Self {
        let options = [options, &[IMAGE]].concat();
        let container = docker.start(&options, &["python3", "-c", program]);
        Self { container }
    }

    #[track_caller]
    fn python(&self, program: &str) -> Finished {
        self.container.exec(&[], &["python3", "-c", program])
    }

    #[track_caller]
    fn kept(&self, file: &str) -> String {
        let id = self.container.inspect("{{.Id}}");
        let mut index = std::fs::read_dir("/run/agentbox/index").unwrap();
        let dir = index.find_map(|entry| {
            let path = entry.unwrap().path();
            path.to_string_lossy().ends_with(&id).then_some(path)
        });
        std::fs::read_to_string(dir.unwrap().join(file)).unwrap()
    }

    /// The lines of denied calls.
    #[track_caller]
    fn log(&self) -> Vec<Value> {
        let text = self.kept("run/sidecar.jsonl");
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines
            .filter(|line: &Value| line["wall"] == "syscalls")
            .collect()
    }

    #[track_caller]
    fn pid_of(&self, who: &str) -> String {
        let record: Value = serde_json::from_str(&self.kept("record.json")).unwrap();
        let sidecar = &record["sidecar"];
        let of = if who == "warden" {
            &sidecar[who]
        } else {
            sidecar
        };
        of["pid"].to_string()
    }

    #[track_caller]
    fn signal(&self, signal: &str, who: &str) {
        run("kill", &[signal, &self.pid_of(who)]).ok();
    }

    /// Waits until the program has printed this.
    #[track_caller]
    fn await_words(&self, words: &str) {
        self.container.await_log(words);
    }

    fn lines(&self) -> usize {
        self.container.call("logs", &[]).stdout.lines().count()
    }
}

/// A container, and the option to share its network.
fn shared(docker: &Docker) -> (Watched<'_>, String) {
    let first = Watched::start(docker, &[runtime()], "import time; time.sleep(300)");
    let option = format!("--network=container:{}", first.container.name);
    (first, option)
}

/// A container in another one's network has its own sidecar for denied calls, and its own log of them.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_container_in_anothers_network_has_its_own_log_of_denied_calls() {
    const UNSHARE: &str = "import ctypes; ctypes.CDLL(None).unshare(0x10000000)";
    const BPF: &str = "import ctypes; ctypes.CDLL(None).syscall(321, 0, 0, 0)";
    const WAITS: &str = "import time; print('waits', flush=True); time.sleep(300)";
    let docker = Docker::connect();
    let (first, option) = shared(&docker);
    let options = [runtime(), option.as_str()];
    let one = Watched::start(&docker, &options, &format!("{UNSHARE}\n{WAITS}"));
    let two = Watched::start(&docker, &options, WAITS);
    one.await_words("waits");
    two.await_words("waits");
    two.python(BPF).ok();
    for (watched, expected) in [
        (&first, &[][..]),
        (&one, &["unshare(CLONE_NEWUSER)"][..]),
        (&two, &["bpf(0, ...)"][..]),
    ] {
        let log = watched.log();
        let calls: Vec<_> = log.iter().map(|l| l["what"]["call"].as_str()).collect();
        let expected: Vec<_> = expected.iter().copied().map(Some).collect();
        assert_eq!(calls, expected);
        // Each container has its own sidecar for denied calls, whichever one serves the network.
        let others = [&first, &one, &two].map(|other| other.pid_of("sidecar"));
        let own = watched.pid_of("sidecar");
        assert_eq!(others.iter().filter(|pid| **pid == own).count(), 1);
    }
    let id = one.container.inspect("{{.Id}}");
    let shown = run("agentbox", &["audit", &id, "--denied"]).ok();
    assert!(shown.contains("unshare(CLONE_NEWUSER)"), "{shown}");
    assert!(!shown.contains("bpf"), "{shown}");
    let explained = run("agentbox", &["explain", &id]).ok();
    assert!(explained.contains("EPERM (logged)"), "{explained}");
    let verified = run("agentbox", &["verify", &id]);
    assert_eq!(verified.code, 0, "{verified}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_denied_call_is_logged_with_its_name_by_init_and_by_exec() {
    let docker = Docker::connect();
    const CALLS: &str = r#"
import ctypes, errno, socket, time
libc = ctypes.CDLL(None, use_errno=True)
libc.unshare(0x10000000)
print(errno.errorcode[ctypes.get_errno()])
try: socket.socket(17, 3, 768)
except OSError as e: print(errno.errorcode[e.errno], flush=True)
"#;
    for policy in Policy::ALL {
        for by_exec in [false, true] {
            let program = if by_exec { "" } else { CALLS };
            let program = format!("{program}\nimport time; time.sleep(300)");
            let watched = Watched::start(&docker, &policy.options(), &program);
            let said = match by_exec {
                true => watched.python(CALLS).ok(),
                false => watched.container.await_log("EAFNOSUPPORT"),
            };
            assert_eq!(said, "EPERM\nEAFNOSUPPORT\n", "{policy:?} {by_exec}");
            let log = watched.log();
            let shown: Vec<_> = log
                .iter()
                .map(|line| {
                    (
                        line["what"]["call"].as_str().unwrap(),
                        line["what"]["errno"].as_str().unwrap(),
                    )
                })
                .collect();
            let expected = [
                ("unshare(CLONE_NEWUSER)", "EPERM"),
                (
                    "socket(AF_PACKET, SOCK_RAW|SOCK_CLOEXEC, 768)",
                    "EAFNOSUPPORT",
                ),
            ];
            assert_eq!(shown, expected, "{policy:?} {by_exec}");
            assert!(log[0]["reason"].as_str().unwrap().contains("namespaces"));
        }
    }
}

/// Another process with a listener could let a denied call go on.
#[test]
#[ignore = "needs the rig: hack/test"]
fn the_sidecar_alone_holds_a_listener() {
    let docker = Docker::connect();
    let watched = Watched::start(&docker, &[runtime()], LOOP);
    let _exec = watched.container.exec(&["-d"], &["sleep", "300"]);
    watched.await_words("errno 1");
    let mut holders = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap() {
        let path = process.unwrap().path();
        let Ok(descriptors) = std::fs::read_dir(path.join("fd")) else {
            continue;
        };
        let links = descriptors.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        let listeners = links
            .filter(|link| link.to_string_lossy().contains("seccomp notify"))
            .count();
        if listeners > 0 {
            let pid = path.file_name().unwrap().to_string_lossy().into_owned();
            let status = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
            holders.push((status, pid, listeners));
        }
    }
    // Other tests' containers have sidecars too.
    assert!(
        holders.iter().all(|(name, ..)| name == "agentbox-sideca\n"),
        "{holders:?}"
    );
    let own = watched.pid_of("sidecar");
    let held = holders.iter().find(|(_, pid, _)| *pid == own);
    assert_eq!(
        held.unwrap().2,
        2,
        "init's and the exec process's: {holders:?}"
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_container_ends_with_its_sidecar_and_a_restart_policy_heals_it() {
    let docker = Docker::connect();
    let (first, option) = shared(&docker);
    for options in [&[runtime()][..], &[runtime(), &option]] {
        let watched = Watched::start(&docker, options, LOOP);
        watched.await_words("errno 1");
        watched.signal("-9", "sidecar");
        watched
            .container
            .await_inspect("{{.State.Status}} {{.State.ExitCode}}", "exited 137");
    }
    let options = [runtime(), "--restart=always"];
    let watched = Watched::start(&docker, &options, LOOP);
    watched.await_words("errno 1");
    watched.signal("-9", "sidecar");
    // While Docker waits to restart it, "Running" is also true, and an exec is refused.
    watched
        .container
        .await_inspect("{{.State.Status}} {{.RestartCount}}", "running 1");
    watched.python("").ok();
    // The network's first container has its own sidecar.
    first.python("").ok();
}

/// The control: without the warden a stopped sidecar keeps callers waiting.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_stopped_sidecar_keeps_no_program_waiting() {
    let docker = Docker::connect();
    let (_first, option) = shared(&docker);
    for options in [&[runtime()][..], &[runtime(), &option]] {
        let watched = Watched::start(&docker, options, LOOP);
        watched.await_words("errno 1");
        watched.signal("-STOP", "warden");
        watched.signal("-STOP", "sidecar");
        // The engine may still have lines from before.
        let stands_still = || {
            let before = watched.lines();
            std::thread::sleep(std::time::Duration::from_millis(500));
            watched.lines() == before
        };
        assert!(
            (0..20).any(|_| stands_still()),
            "the control: no sidecar answers"
        );
        watched.signal("-CONT", "warden");
        watched
            .container
            .await_inspect("{{.State.Status}} {{.State.ExitCode}}", "exited 137");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn children_threads_and_signals_change_no_answer() {
    let docker = Docker::connect();
    let watched = Watched::start(&docker, &[runtime()], "import time; time.sleep(300)");
    let said = watched.python(
        r#"
import ctypes, os, signal, subprocess, threading
libc = ctypes.CDLL(None, use_errno=True)
def denied(count):
    found = set()
    for _ in range(count):
        libc.mount(None, None, None, 0, None)
        found.add(ctypes.get_errno())
    return found
seen = set()
threads = [threading.Thread(target=lambda: seen.update(denied(2000))) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print("threads", sorted(seen))
heard = [0]
def hear(*_): heard[0] += 1
signal.signal(signal.SIGALRM, hear)
signal.siginterrupt(signal.SIGALRM, True)
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
found = set()
while heard[0] < 200:
    found |= denied(100)
signal.setitimer(signal.ITIMER_REAL, 0)
print("signals", sorted(found))
child = os.fork()
if child == 0:
    print("child", sorted(denied(10)), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print("spawned", subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode)
"#,
    );
    let said = said.ok();
    for words in ["threads [1]", "child [1]", "spawned 1"] {
        assert!(said.contains(words), "{said}");
    }
    // Until the sidecar has taken a call, a signal may interrupt it. EINTR is a denial too.
    assert!(
        said.contains("signals [1]") || said.contains("signals [1, 4]"),
        "{said}"
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_flood_hides_no_other_call() {
    let docker = Docker::connect();
    let watched = Watched::start(&docker, &[runtime()], "import time; time.sleep(300)");
    watched
        .python(
            r#"
import ctypes
libc = ctypes.CDLL(None)
for protocol in range(30000):
    libc.socket(17, 3, protocol)
libc.syscall(321, 0, 0, 0)
"#,
        )
        .ok();
    let log = watched.log();
    assert!(
        log.iter().any(|line| line["what"]["name"] == "bpf"),
        "{log:?}"
    );
    assert!(log.len() < 20, "{log:?}");
}

/// A call that a program denies by its own filter is denied all the same, and hides no other program's denials. The
/// control's filter allows all calls.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_programs_own_filter_hides_its_own_denials_and_no_others() {
    // struct sock_filter and sock_fprog of seccomp(2); mount is 165.
    const PROGRAM: &str = r#"
import ctypes, errno, os, signal, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def load(answer):
    code = [(0x20, 0, 0, 0), (0x15, 0, 1, 165), (6, 0, 0, answer), (6, 0, 0, 0x7fff0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
    program = struct.pack("HxxxxxxQ", 4, ctypes.addressof(code))
    if libc.syscall(317, 1, 0, program) != 0:
        sys.exit("seccomp: " + errno.errorcode[ctypes.get_errno()])
def mounts():
    libc.mount(None, None, None, 0, None)
    return ctypes.get_errno()
for answer in [int(word, 16) for word in sys.argv[1:]]:
    child = os.fork()
    if child == 0:
        load(answer)
        os._exit(mounts())
    _, status = os.waitpid(child, 0)
    print(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), end=" ")
"#;
    let docker = Docker::connect();
    let watched = Watched::start(&docker, &[runtime()], "import time; time.sleep(300)");
    let say = |answers: &[&str]| {
        let command = [&["python3", "-c", PROGRAM], answers].concat();
        watched.container.exec(&[], &command).ok()
    };
    let mounts = || {
        let log = watched.log();
        let own = log.iter().filter(|line| line["what"]["name"] == "mount");
        own.count()
    };
    // EXDEV (18), and ends by SIGSYS: from SECCOMP_RET_ERRNO, _TRAP, _KILL_THREAD and _KILL_PROCESS.
    let hiding = ["50012", "30000", "0", "80000000"];
    assert_eq!(say(&hiding).trim(), "18 -31 -31 -31");
    assert_eq!(mounts(), 0, "{:?}", watched.log());
    // With SECCOMP_RET_ALLOW the container's filter decides, and the call is logged, like those of other programs
    // beside it.
    assert_eq!(say(&["7fff0000"]).trim(), "1");
    assert_eq!(mounts(), 1, "{:?}", watched.log());
}
