//! An engine's seccomp profile without a policy works as under runc, agent included: each case runs under both.

use std::fs;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Node, Scratch, program};
use crate::command::{Finished, HANGS};
use crate::fixtures;

/// A runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Runtime {
    Runc,
    Agentbox,
}

pub(super) const BOTH: [Runtime; 2] = [Runtime::Runc, Runtime::Agentbox];

impl Runtime {
    fn call(self, node: &Node, arguments: &[&str]) -> Finished {
        let mut command = match self {
            Runtime::Runc => Command::new("runc"),
            Runtime::Agentbox => {
                let mut command = Command::new(program());
                command.args(["--policy", "unconfined"]);
                command
            }
        };
        command.args(["--root", &node.scratch.path(&format!("{self:?}"))]);
        command.args(arguments);
        node.finish(command)
    }
}

/// Removes the container when dropped.
struct Guard<'a>(Runtime, &'a Node, &'a str);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let gone = self.0.call(self.1, &["delete", "--force", self.2]);
        if !std::thread::panicking() {
            assert_eq!(gone.code, 0, "{gone}");
        }
    }
}

/// agent.py, running.
struct Agent {
    child: Child,
    scratch: Scratch,
}

impl Agent {
    fn start() -> Self {
        let scratch = Scratch::new();
        let script = scratch.file("agent.py", include_str!("agent.py"));
        let arguments = [script, scratch.path("socket"), scratch.path("log")];
        let child = Command::new("python3").args(arguments).spawn().unwrap();
        let agent = Self { child, scratch };
        let start = Instant::now();
        while !fs::exists(agent.scratch.path("log")).unwrap() {
            assert!(start.elapsed() < HANGS, "no agent");
            std::thread::sleep(Duration::from_millis(5));
        }
        agent
    }

    fn socket(&self) -> String {
        self.scratch.path("socket")
    }

    /// The messages so far.
    fn heard(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.scratch.path("log")).unwrap();
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        let lines = whole.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The same, once there are this many: a runtime sends its message and does not wait until the agent has read it.
    #[track_caller]
    fn hears(&self, count: usize) -> Vec<Value> {
        let start = Instant::now();
        loop {
            let heard = self.heard();
            if heard.len() >= count {
                return heard;
            }
            assert!(start.elapsed() < HANGS, "not {count}: {heard:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may already have been stopped.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.stop();
        }
    }
}

fn id(name: &str, runtime: Runtime) -> String {
    // Tests run in parallel, and the id is the cgroup's name.
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{name}-{runtime:?}-{}-{number}", std::process::id())
}

fn config(node: &Node, script: &str, no_new_privs: bool, seccomp: &Value) -> Value {
    let mut config = node.config(&["sh", "-c", script]);
    config["process"]["noNewPrivileges"] = json!(no_new_privs);
    config["process"]["rlimits"] = json!([{"type": "RLIMIT_CORE", "soft": 0, "hard": 0}]);
    config["linux"]["seccomp"] = seccomp.clone();
    config
}

fn notifying(names: &[&str], listener: &str) -> Value {
    json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "listenerPath": listener,
        "listenerMetadata": "metadata",
        "architectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X32", "SCMP_ARCH_X86_64"],
        "syscalls": [{"names": names, "action": "SCMP_ACT_NOTIFY"}],
    })
}

/// `run` under this runtime, until it ends.
pub(super) fn run(node: &Node, runtime: Runtime, config: &Value) -> Finished {
    let id = &id("run", runtime);
    let bundle = node.bundle("run", config);
    let _guard = Guard(runtime, node, id);
    runtime.call(node, &["run", "--bundle", &bundle, id])
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_an_agent_answers_for_a_container_and_its_exec_processes() {
    let node = Node::new();
    for runtime in BOTH {
        for no_new_privs in [true, false] {
            let agent = Agent::start();
            let seccomp = notifying(&["mkdir", "mkdirat"], &agent.socket());
            let mut config = config(&node, "mkdir /tmp/a; sleep 100", no_new_privs, &seccomp);
            config["annotations"] = json!({"some.annotation": "its value"});
            let bundle = node.bundle("agent", &config);
            let id = &id("agent", runtime);
            let _guard = Guard(runtime, &node, id);
            runtime
                .call(&node, &["create", "--bundle", &bundle, id])
                .ok();
            let state = runtime.call(&node, &["state", id]).ok();
            let pid = &serde_json::from_str::<Value>(&state).unwrap()["pid"];

            let heard = agent.hears(1);
            assert_eq!(heard.len(), 1, "{runtime:?} {heard:?}");
            let first = &heard[0];
            assert_eq!(first["fds"], json!(["seccompFd"]));
            assert_eq!(first["metadata"], "metadata");
            assert_eq!(&first["pid"], pid);
            assert_eq!(&first["state"]["pid"], pid);
            assert_eq!(first["state"]["id"], id.as_str());
            assert_eq!(first["state"]["status"], "creating");
            assert_eq!(first["state"]["bundle"], bundle.as_str());
            let annotation = &first["state"]["annotations"]["some.annotation"];
            assert_eq!(annotation, "its value", "{runtime:?}");

            runtime.call(&node, &["start", id]).ok();
            let made = runtime.call(&node, &["exec", id, "mkdir", "/tmp/b"]);
            assert!(made.failed().contains("No medium found"));
            let second = &agent.hears(2)[1];
            assert_eq!(second["fds"], json!(["seccompFd"]));
            assert_ne!(&second["pid"], pid, "the process of exec, not the first");
            assert_eq!(&second["state"]["pid"], pid);
            assert_eq!(second["state"]["status"], "running");
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_an_agent_may_have_every_call_but_write() {
    // runc's own test gives the agent these calls. There is no control: runc sometimes hangs with them.
    const CALLS: [&str; 6] = ["execve", "openat", "open", "read", "close", "fcntl"];
    // Calls of agentbox itself between filter and program.
    const OURS: [&str; 7] = [
        "accept4", "capget", "capset", "prctl", "recvfrom", "recvmsg", "sendmsg",
    ];
    let node = Node::new();
    for no_new_privs in [true, false] {
        let agent = Agent::start();
        for calls in [&CALLS[..], &OURS] {
            let seccomp = notifying(calls, &agent.socket());
            let config = config(&node, "echo hello", no_new_privs, &seccomp);
            let ended = run(&node, Runtime::Agentbox, &config);
            assert_eq!(ended.ok(), "hello\n", "{no_new_privs}");
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_without_its_agent_a_container_is_refused_or_denied() {
    let node = Node::new();
    for runtime in BOTH {
        let refused = |seccomp: &Value, why: &str| {
            let ended = run(&node, runtime, &config(&node, "true", false, seccomp));
            let text = ended.failed();
            assert!(text.contains(why), "{runtime:?}: {text}");
        };
        let nobody = node.scratch.path("nobody-listens");
        refused(&notifying(&["mkdir"], ""), "listenerPath is not set");
        let missing = "failed to connect with seccomp agent";
        refused(&notifying(&["mkdir"], &nobody), missing);
        refused(&notifying(&["mkdir"], "@nobody-listens"), missing);
        let mut agent = Agent::start();
        let write = "SCMP_ACT_NOTIFY cannot be used for the write syscall";
        refused(&notifying(&["write"], &agent.socket()), write);
        let mut default = notifying(&["mkdir"], &agent.socket());
        default["defaultAction"] = json!("SCMP_ACT_NOTIFY");
        refused(&default, "SCMP_ACT_NOTIFY cannot be used as default action");

        let seccomp = notifying(&["mkdir", "mkdirat"], &agent.socket());
        let script = "while [ ! -e /tmp/go ]; do sleep 0.1; done; mkdir /tmp/a 2>&1; true";
        let mut config = config(&node, script, true, &seccomp);
        let shared = node.scratch.dir("shared");
        let mounts = config["mounts"].as_array_mut().unwrap();
        mounts.push(
            json!({"destination": "/tmp", "type": "bind", "source": shared, "options": ["rbind"]}),
        );
        let bundle = node.bundle("killed", &config);
        let id = &id("killed", runtime);
        let _guard = Guard(runtime, &node, id);
        let (go, at) = (format!("{shared}/go"), Instant::now());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while agent.heard().is_empty() && at.elapsed() < HANGS {
                    std::thread::sleep(Duration::from_millis(10));
                }
                agent.stop();
                fs::write(&go, "").unwrap();
            });
            let ended = runtime.call(&node, &["run", "--bundle", &bundle, id]);
            let text = ended.ok();
            assert!(
                text.contains("Function not implemented"),
                "{runtime:?} {text}"
            );
        });
        fs::remove_file(&go).unwrap();
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_under_a_policy_the_engines_agent_still_answers() {
    let node = Node::new();
    let agent = Agent::start();
    let seccomp = notifying(&["mkdir", "mkdirat", "mount"], &agent.socket());
    let script = "mkdir /tmp/a; mount -t tmpfs none /tmp; sleep 100";
    let bundle = node.bundle("policy", &config(&node, script, true, &seccomp));
    let id = &format!("policy-{}", std::process::id());
    let _guard = super::Guard(&node, id);
    node.call(&["create", "--bundle", &bundle, id]).ok();
    assert_eq!(agent.heard(), Vec::<Value>::new());
    node.call(&["start", id]).ok();
    let made = node.call(&["exec", id, "mkdir", "/tmp/b"]);
    assert!(made.failed().contains("No medium found"));
    // The agent cannot allow a call that agentbox denies; it would have let this one continue.
    let mounted = node.call(&["exec", id, "mount", "-t", "tmpfs", "none", "/tmp"]);
    let text = mounted.failed();
    assert!(text.contains("denied"), "{text}");
    let heard = agent.hears(2);
    let status = |index: usize| heard[index]["state"]["status"].as_str().unwrap();
    assert_eq!((status(0), status(1)), ("created", "running"));
}

/// Runs under both runtimes, with the same output and exit code.
#[track_caller]
fn alike(node: &Node, script: &str, seccomp: &Value) -> Finished {
    let config = config(node, script, false, seccomp);
    let control = run(node, Runtime::Runc, &config);
    let ended = run(node, Runtime::Agentbox, &config);
    assert_eq!(
        (ended.code, &ended.stdout, &ended.stderr),
        (control.code, &control.stdout, &control.stderr),
        "{seccomp} (left: agentbox, right: runc)"
    );
    ended
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_every_action_does_what_it_does_under_runc() {
    let node = Node::new();
    let rule = |action: &str, errno: Option<u32>| {
        let mut rule = json!({"names": ["mkdir", "mkdirat"], "action": action});
        if let Some(errno) = errno {
            rule["errnoRet"] = json!(errno);
        }
        json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]})
    };
    let script = "mkdir /dev/shm/a; echo it ended with $?";
    // Docker's profile without one call: unlisted calls get the profile's errno.
    let bundle = fixtures::path("fixtures/bundles/docker26-run.json");
    let bundle: Value = serde_json::from_slice(&fs::read(bundle).unwrap()).unwrap();
    let mut without = bundle["linux"]["seccomp"].clone();
    without["defaultErrnoRet"] = json!(6);
    for rule in without["syscalls"].as_array_mut().unwrap() {
        let names = rule["names"].as_array_mut().unwrap();
        names.retain(|name| name != "mkdir" && name != "mkdirat");
    }
    let ended = alike(&node, script, &without);
    assert!(ended.stderr.contains("No such device"), "{ended}");
    for (action, errno, says) in [
        ("SCMP_ACT_ERRNO", None, "Operation not permitted"),
        ("SCMP_ACT_ERRNO", Some(100), "Network is down"),
        ("SCMP_ACT_ERRNO", Some(0), "it ended with 0"),
        ("SCMP_ACT_KILL", None, "it ended with 159"),
        ("SCMP_ACT_KILL_THREAD", None, "it ended with 159"),
        ("SCMP_ACT_KILL_PROCESS", None, "it ended with 159"),
        ("SCMP_ACT_TRAP", None, "it ended with 159"),
        // There is no tracer.
        ("SCMP_ACT_TRACE", Some(7), "Function not implemented"),
        ("SCMP_ACT_LOG", None, "it ended with 0"),
        ("SCMP_ACT_ALLOW", None, "it ended with 0"),
    ] {
        let ended = alike(&node, script, &rule(action, errno));
        let text = format!("{}{}", ended.stdout, ended.stderr);
        assert!(text.contains(says), "{action}: {text}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_every_operator_compares_as_under_runc() {
    let node = Node::new();
    let script = "touch /dev/shm/f; for mode in 0 1 77 700 755 777; do \
                  chmod $mode /dev/shm/f 2>/dev/null; echo $mode $?; done";
    let mut said = std::collections::BTreeSet::new();
    for operator in ["NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ"] {
        let rule = |name: &str, index: u32| {
            json!({
                "names": [name], "action": "SCMP_ACT_ERRNO",
                // 0755; for the mask, the owner's bits.
                "args": [{"index": index, "value": 0o755, "valueTwo": 0o700, "op": format!("SCMP_CMP_{operator}")}],
            })
        };
        let seccomp = json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [rule("chmod", 1), rule("fchmodat", 2), rule("fchmodat2", 2)],
        });
        said.insert(alike(&node, script, &seccomp).stdout);
    }
    assert_eq!(said.len(), 7, "every operator has an effect of its own");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_32_bit_calls_are_judged_as_under_runc() {
    let node = Node::new();
    let profile = |architectures: Value| {
        json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "architectures": architectures,
            "syscalls": [{"names": ["getpid"], "action": "SCMP_ACT_ERRNO", "errnoRet": 44}],
        })
    };
    let script = "probe int80; echo it ended with $?";
    let listed = alike(
        &node,
        script,
        &profile(json!(["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"])),
    );
    let unlisted = alike(&node, script, &profile(json!(["SCMP_ARCH_X86_64"])));
    let nothing = alike(&node, script, &profile(json!([])));
    assert_ne!(listed.stdout, unlisted.stdout);
    assert_eq!(nothing.stdout, unlisted.stdout);
}
