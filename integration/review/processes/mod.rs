//! Processes: commands that wait, core dumps, set-id files, groups, terminals (F-H1, F-H2, F-H5 to F-H7).

mod core_dumps;
mod gone;
mod groups;
mod redirected;
mod set_id;
mod terminals;
mod waiting;

use std::process::Command;

use serde_json::{Value, json};

use crate::command::Finished;
use crate::direct::{Node, program};

/// `agentbox --root ROOT ARGUMENTS...`, started by the program `before`.
fn called_by(before: &[&str], node: &Node, arguments: &[&str]) -> Command {
    let mut command = match before {
        [] => Command::new(program()),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program());
            command
        }
    };
    command.args(["--root", &node.root]).args(arguments);
    command
}

/// A bundle's config.json whose process sleeps.
fn sleeper(node: &Node) -> Value {
    node.config(&["sleep", "300"])
}

/// The policies that each test runs under.
const POLICIES: [&str; 4] = ["strict", "standard", "permissive", "unconfined"];

/// A container under a policy, deleted when dropped.
struct Running<'a> {
    node: &'a Node,
    id: String,
}

impl<'a> Running<'a> {
    fn start(node: &'a Node, name: &str, policy: &str, config: &Value) -> Self {
        let id = format!("{name}-{policy}-{}", std::process::id());
        let bundle = node.bundle(&id, config);
        let container = Self { node, id };
        node.call(&[
            "--policy",
            policy,
            "run",
            "--detach",
            "--bundle",
            &bundle,
            &container.id,
        ])
        .ok();
        container
    }

    fn exec(&self, options: &[&str], command: &[&str]) -> Finished {
        self.node
            .call(&[&["exec"], options, &[self.id.as_str()], command].concat())
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let gone = self.node.call(&["delete", "--force", &self.id]);
        if !std::thread::panicking() {
            assert_eq!(gone.code, 0, "{gone}");
        }
    }
}

/// Removes a field from a JSON object.
fn without(mut config: Value, pointer: &str, key: &str) -> Value {
    if let Some(object) = config.pointer_mut(pointer).and_then(Value::as_object_mut) {
        object.remove(key);
    }
    config
}

/// Like [`sleeper`], with these additional groups.
fn with_groups(mut config: Value, groups: Option<&[u32]>) -> Value {
    match groups {
        Some(groups) => {
            config["process"]["user"]["additionalGids"] = json!(groups);
            config
        }
        None => without(config, "/process/user", "additionalGids"),
    }
}
