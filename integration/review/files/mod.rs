//! Files: sources whose name is not their real place, masks, workspaces (F-H3, F-H4, F-M2 to F-M5, K-1), and `wrap`'s
//! own mounts (C1, M5c).

mod again;
mod credentials;
mod masks;
mod mounted;
mod table;
mod volumes;
mod workspace;
mod wrap;

use serde_json::{Value, json};

use crate::command::Finished;
use crate::direct::Node;

/// Runs a script under a policy with one more mount, as the workspace.
fn seen(node: &Node, policy: &str, mount: Value, script: &str) -> Finished {
    let mut config = node.config(&["sh", "-c", script]);
    config["process"]["cwd"] = mount["destination"].clone();
    config["mounts"].as_array_mut().unwrap().push(mount);
    run(node, policy, &config)
}

/// Runs a bundle to its end.
fn run(node: &Node, policy: &str, config: &Value) -> Finished {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let bundle = node.bundle(&format!("bundle-{number}"), config);
    let id = format!("review-{}-{number}", std::process::id());
    let seen = node.call(&["--policy", policy, "run", "--bundle", &bundle, &id]);
    node.call(&["delete", "--force", &id]).ok();
    assert_eq!(node.leftovers(&id), Vec::<String>::new());
    seen
}

fn bind(source: &str) -> Value {
    json!({"destination": "/x", "type": "bind", "source": source, "options": ["rbind", "rw"]})
}

/// Runs it with a test's own node file.
fn run_with(node: &Node, settings: &str, policy: &str, config: &Value) -> Finished {
    let file = node.scratch.file("config.toml", settings);
    let bundle = node.bundle("bundle-with", config);
    let id = format!("review-with-{}", std::process::id());
    let seen = node.call(&[
        "--config", &file, "--policy", policy, "run", "--bundle", &bundle, &id,
    ]);
    node.call(&["delete", "--force", &id]).ok();
    seen
}
