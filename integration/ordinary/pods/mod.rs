//! Pods in a kubelet's layout: their cgroups with limits, their volumes, their annotations, their sandboxes.

mod annotations;
mod calls;
mod features;
mod gone;
mod limits;
mod sandbox;
mod volumes;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::command::await_that;
use crate::direct::Node;

/// A detached container, deleted when dropped.
struct Running<'a> {
    node: &'a Node,
    id: String,
}

impl<'a> Running<'a> {
    fn start(node: &'a Node, name: &str, policy: &str, config: &Value) -> Self {
        let id = format!("{name}-{policy}-{}", std::process::id());
        let container = Self { node, id };
        let (options, bundle) = chosen(node, &container.id, policy, config);
        let run = ["run", "--detach", "--bundle", &bundle, &container.id];
        node.call(&[&options[..], &run].concat()).ok();
        container
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

/// A bundle whose policy is chosen by annotation, as in a pod (`--policy` would be a ceiling), and the options before
/// the verb.
fn chosen(node: &Node, name: &str, policy: &str, config: &Value) -> (Vec<&'static str>, String) {
    let mut config = config.clone();
    let options = match policy {
        "unconfined" => vec!["--policy", "unconfined"],
        _ => {
            config["annotations"]["dev.agentbox.policy"] = json!(policy);
            Vec::new()
        }
    };
    (options, node.bundle(name, &config))
}

/// A config.json with a sleeping process and these annotations.
fn sleeper(node: &Node, annotations: &[(&str, &str)]) -> Value {
    let mut config = node.config(&["sleep", "300"]);
    for (key, value) in annotations {
        config["annotations"][key] = json!(value);
    }
    config
}

/// The directories of cgroup hierarchies.
fn hierarchies() -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let of = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let point = fields.next()?;
        matches!(fields.next()?, "cgroup" | "cgroup2").then(|| PathBuf::from(point))
    };
    mounts.lines().filter_map(of).collect()
}

/// A test's own cgroup in every hierarchy, removed with all below it.
struct Cgroup(String);

impl Cgroup {
    /// Below the hierarchies' roots: `/NAME-PID`.
    fn new(name: &str) -> Self {
        let own = Self(format!("{name}-{}", std::process::id()));
        for dir in own.dirs() {
            std::fs::create_dir_all(dir).unwrap();
        }
        own
    }

    fn dirs(&self) -> impl Iterator<Item = PathBuf> {
        hierarchies().into_iter().map(|h| h.join(&self.0))
    }

    /// The first directory that has this file.
    fn with(&self, file: &str) -> Option<PathBuf> {
        self.dirs().find(|dir| dir.join(file).exists())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for dir in self.dirs() {
            remove_below(&dir);
        }
    }
}

fn remove_below(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            remove_below(&entry.path());
        }
    }
    // A process leaves its cgroup a moment after its end.
    await_that("its cgroup is empty", || {
        std::fs::remove_dir(dir).is_ok() || !dir.exists()
    });
}
