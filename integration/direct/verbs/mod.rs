//! Verbs under `unconfined`, next to runc: the same call, the same answer. And verbs that only agentbox has.

mod exec;
mod foreground;
mod notify;
mod resources;
mod signals;
mod wrap;

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::{Node, program};
use crate::command::{Finished, await_that};

/// The runtime to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runtime {
    Runc,
    Agentbox,
}

const BOTH: [Runtime; 2] = [Runtime::Runc, Runtime::Agentbox];

impl Runtime {
    fn command(self, node: &Node, arguments: &[&str]) -> Command {
        let mut command = match self {
            Self::Runc => Command::new("runc"),
            Self::Agentbox => {
                let mut command = Command::new(program());
                command.args(["--policy", "unconfined"]);
                command
            }
        };
        command.args(["--root", &format!("{}-{self:?}", node.root)]);
        command.args(arguments);
        command
    }

    fn call(self, node: &Node, arguments: &[&str]) -> Finished {
        node.finish(self.command(node, arguments))
    }

    /// An id that no other test uses.
    fn id(self, name: &str) -> String {
        format!("{name}-{}-{self:?}", std::process::id()).to_lowercase()
    }
}

/// A detached container, deleted when dropped.
struct Running<'a> {
    node: &'a Node,
    runtime: Runtime,
    id: String,
}

impl<'a> Running<'a> {
    fn start(node: &'a Node, runtime: Runtime, name: &str, config: &Value) -> Self {
        let id = runtime.id(name);
        let bundle = node.bundle(&id, config);
        let running = Self { node, runtime, id };
        running
            .runtime
            .call(node, &["run", "--detach", "--bundle", &bundle, &running.id])
            .ok();
        running
    }

    /// `VERB OPTIONS... ID REST...`
    fn call(&self, verb: &[&str], rest: &[&str]) -> Finished {
        let all = [verb, &[self.id.as_str()], rest].concat();
        self.runtime.call(self.node, &all)
    }

    fn state(&self) -> Value {
        serde_json::from_str(&self.call(&["state"], &[]).ok()).unwrap()
    }

    fn pid(&self) -> u64 {
        self.state()["pid"].as_u64().unwrap()
    }

    /// The content of a file of its cgroup (v1).
    fn limit(&self, controller: &str, file: &str) -> String {
        let text = fs::read_to_string(format!("/proc/{}/cgroup", self.pid())).unwrap();
        let line = text
            .lines()
            .find(|l| l.split(':').nth(1) == Some(controller));
        let path = line.unwrap().splitn(3, ':').nth(2).unwrap().to_owned();
        let file = format!("/sys/fs/cgroup/{controller}{path}/{file}");
        fs::read_to_string(&file)
            .unwrap_or_else(|e| panic!("{file}: {e}"))
            .trim()
            .to_owned()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let gone = self.call(&["delete", "--force"], &[]);
        if !std::thread::panicking() {
            assert_eq!(gone.code, 0, "{gone}");
        }
    }
}

/// A config.json for a program that keeps running.
fn sleeper(node: &Node) -> Value {
    let mut config = node.config(&["sleep", "300"]);
    // The control, in a rig, cannot mount cgroup v1. None of these tests needs it.
    let mounts = config["mounts"].as_array_mut().unwrap();
    mounts.retain(|m| m["type"] != "cgroup");
    config["process"]["noNewPrivileges"] = json!(false);
    config
}

/// The answers of both runtimes, which must be equal. Ids and pids are replaced.
#[track_caller]
fn same(name: &str, answers: [Finished; 2]) -> Finished {
    let [theirs, ours] = answers;
    assert_eq!(
        (ours.code, &ours.stdout),
        (theirs.code, &theirs.stdout),
        "{name}: runc\\n{theirs}\\nagentbox\\n{ours}"
    );
    ours
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_state_list_ps_and_kill_answer_as_runc_does() {
    let node = Node::new();
    let config = sleeper(&node);
    let containers = BOTH.map(|r| Running::start(&node, r, "verbs", &config));
    for container in &containers {
        let state = container.state();
        assert_eq!(state["status"], "running");
        assert_eq!(state["id"], container.id.as_str());
        let listed = container
            .runtime
            .call(&node, &["list", "--format", "json"])
            .ok();
        let listed: Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(listed[0]["status"], "running", "{listed}");
        let quiet = container.runtime.call(&node, &["list", "--quiet"]).ok();
        assert_eq!(quiet.trim(), container.id);
        let table = container.runtime.call(&node, &["list"]).ok();
        assert!(table.starts_with("ID "), "{table}");
        let pids = container.call(&["ps", "--format", "json"], &[]).ok();
        assert_eq!(pids.trim(), format!("[{}]", container.pid()));
        let table = container.call(&["ps"], &["-o", "pid,comm"]).ok();
        let lines: Vec<Vec<&str>> = table
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines,
            [
                vec!["PID", "COMMAND"],
                vec![&container.pid().to_string(), "sleep"]
            ]
        );
    }
    let keys = containers.each_ref().map(|c| {
        let state = c.state();
        state
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    });
    assert_eq!(keys[0], keys[1], "the fields of `state`");
    for signal in ["0", "CONT", "SIGCONT", "sigcont", "18"] {
        same(
            signal,
            containers.each_ref().map(|c| c.call(&["kill"], &[signal])),
        );
    }
    for signal in ["NOPE", "SIG", "-5", "1000"] {
        for container in &containers {
            let refused = container.call(&["kill"], &["--", signal]);
            assert_ne!(refused.code, 0, "{signal}: {refused}");
        }
    }
    for container in &containers {
        container.call(&["kill"], &["KILL"]).ok();
        await_that("the end", || container.state()["status"] == "stopped");
        container.call(&["kill", "--all"], &["0"]).ok();
        let late = container.call(&["kill"], &["0"]).failed();
        assert!(late.contains("not running"), "{late}");
        let refused = container.call(&["exec"], &["true"]);
        assert_eq!(refused.code, 255, "{refused}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_spec_writes_runcs_example() {
    let node = Node::new();
    for options in [&[][..], &["--rootless"]] {
        let examples = BOTH.map(|runtime| {
            let dir = node
                .scratch
                .dir(&format!("{}-{}", runtime.id("spec"), options.len()));
            let arguments = [&["spec", "--bundle", &dir], options].concat();
            runtime.call(&node, &arguments).ok();
            let again = runtime.call(&node, &arguments);
            assert_eq!(again.code, 1, "it is there: {again}");
            let text = fs::read(format!("{dir}/config.json")).unwrap();
            let mut example: Value = serde_json::from_slice(&text).unwrap();
            example["hostname"] = Value::Null;
            sort(&mut example);
            example
        });
        assert_eq!(examples[0], examples[1], "{options:?}");
    }
}

/// JSON lists that are sets.
fn sort(value: &mut Value) {
    match value {
        Value::Array(list) => {
            list.iter_mut().for_each(sort);
            list.sort_by_key(Value::to_string);
        }
        Value::Object(map) => map.values_mut().for_each(sort),
        _ => {}
    }
}
