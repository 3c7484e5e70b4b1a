//! Bundles and ids that no engine would send. Each is refused in one line with the reason, and nothing is left behind.

use std::fs;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use super::Node;
use crate::command::Finished;

/// One line on standard error with all of `words`, exit code 1, and no trace of `id`.
#[track_caller]
fn assert_refused(node: &Node, id: &str, seen: &Finished, words: &[&str]) {
    assert_eq!(seen.code, 1, "{seen}");
    assert_eq!(seen.stdout, "", "{seen}");
    assert_eq!(seen.stderr.lines().count(), 1, "{seen}");
    for word in words {
        assert!(seen.stderr.contains(word), "'{word}' is not in\n{seen}");
    }
    let root: Vec<_> = fs::read_dir(&node.root).into_iter().flatten().collect();
    assert!(root.is_empty(), "{root:?} after\n{seen}");
    if !id.is_empty() {
        let left = node.leftovers(id);
        assert!(left.is_empty(), "{left:#?} after\n{seen}");
    }
}

/// `create` of a bundle with this config.json.
#[track_caller]
fn refuses_text(node: &Node, name: &str, text: &[u8], words: &[&str]) {
    let bundle = node.scratch.dir(name);
    fs::write(format!("{bundle}/config.json"), text).unwrap();
    let id = format!("text-{name}-{}", std::process::id());
    let seen = node.call(&["create", "--bundle", &bundle, &id]);
    assert_refused(node, &id, &seen, words);
}

/// `create` of a valid bundle with one change.
#[track_caller]
fn refuses_change(node: &Node, name: &str, change: fn(&mut Value), words: &[&str]) {
    let mut config = node.config(&["true"]);
    change(&mut config);
    refuses_text(node, name, config.to_string().as_bytes(), words);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_config_that_cannot_be_read_is_refused_by_its_path() {
    let node = Node::new();
    let whole = node.config(&["true"]).to_string();
    let half = &whole.as_bytes()[..whole.len() / 2];
    refuses_text(&node, "truncated", half, &["config.json", "EOF"]);
    refuses_text(&node, "empty", b"", &["config.json", "EOF"]);
    refuses_text(&node, "words", b"not JSON", &["config.json", "expected"]);

    let large = whole.replacen('{', &format!("{{{}", " ".repeat(20 << 20)), 1);
    refuses_text(&node, "large", large.as_bytes(), &["config.json", "larger"]);
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    refuses_text(&node, "deep", deep.as_bytes(), &["config.json"]);
    // Where unknown keys are ignored, and where they are refused.
    let inside = format!("{{\"deep\":{deep}}}");
    refuses_text(&node, "inside", inside.as_bytes(), &["config.json"]);
    let field = format!("{{\"ociVersion\":\"1.0.2\",\"annotations\":{{\"a\":{deep}}}}}");
    refuses_text(&node, "field", field.as_bytes(), &["config.json"]);

    let id = format!("fifo-{}", std::process::id());
    let bundle = node.scratch.dir("fifo");
    let path = format!("{bundle}/config.json");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let seen = node.call(&["create", "--bundle", &bundle, &id]);
    assert_refused(&node, &id, &seen, &["config.json", "regular file"]);

    let absent = node.scratch.path("absent");
    let seen = node.call(&["create", "--bundle", &absent, &id]);
    assert_refused(&node, &id, &seen, &[&absent, "No such file"]);
}

fn drop_key(config: &mut Value, key: &str) {
    config.as_object_mut().unwrap().remove(key).unwrap();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_config_without_what_a_container_needs_is_refused_by_the_key() {
    let node = Node::new();
    let refuses = |name, change, words: &[&str]| refuses_change(&node, name, change, words);
    refuses("no-version", |c| drop_key(c, "ociVersion"), &["ociVersion"]);
    refuses("no-root", |c| drop_key(c, "root"), &["root"]);
    refuses("no-process", |c| drop_key(c, "process"), &["process"]);
    refuses("no-linux", |c| drop_key(c, "linux"), &["linux"]);
    refuses(
        "no-args",
        |c| c["process"]["args"] = json!([]),
        &["process.args"],
    );
    refuses(
        "empty-arg",
        |c| c["process"]["args"] = json!([""]),
        &["process.args"],
    );
    refuses(
        "version",
        |c| c["ociVersion"] = json!("2.0.0"),
        &["ociVersion", "2.0.0"],
    );
    let nowhere = |c: &mut Value| c["root"]["path"] = json!("nowhere");
    refuses("rootfs", nowhere, &["nowhere", "No such file"]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_config_that_asks_for_too_much_is_refused_by_the_field() {
    let node = Node::new();
    let refuses = |name, change, words: &[&str]| refuses_change(&node, name, change, words);
    let top = |c: &mut Value| c["linux"]["cgroupsPath"] = json!("/");
    refuses("cgroup-top", top, &["cgroupsPath"]);
    let above = |c: &mut Value| c["linux"]["cgroupsPath"] = json!("/../x");
    refuses("cgroup-above", above, &["cgroupsPath", "/../x"]);
    let hook = |c: &mut Value| c["hooks"] = json!({ "createRuntime": [{ "path": "/bin/true" }] });
    refuses("hook", hook, &["hook", "/bin/true"]);
    let host_pids = |c: &mut Value| {
        let all = c["linux"]["namespaces"].as_array_mut().unwrap();
        all.retain(|namespace| namespace["type"] != "pid");
    };
    refuses("host-pids", host_pids, &["pid namespace"]);
    let unknown = |c: &mut Value| c["annotations"] = json!({ "dev.agentbox.wall": "none" });
    refuses("annotation", unknown, &["dev.agentbox.wall"]);
    let policy = |c: &mut Value| c["annotations"] = json!({ "dev.agentbox.policy": "none" });
    refuses("policy", policy, &["none"]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_every_verb_refuses_an_id_that_is_no_name() {
    let node = Node::new();
    let bundle = node.bundle("bundle", &node.config(&["true"]));
    let long = "x".repeat(300);
    let before = run_directory();
    for id in ["", ".", "..", "a/b", "../a", "a b", "a\nb", &long] {
        let create: &[&str] = &["create", "--bundle", &bundle, id];
        for arguments in [
            create,
            &["start", id],
            &["state", id],
            &["delete", "--force", id],
        ] {
            let seen = node.call(arguments);
            assert_refused(&node, "", &seen, &["invalid container id"]);
            assert!(seen.stderr.len() < 600, "{seen}");
        }
    }
    let new: Vec<_> = run_directory().difference(&before).cloned().collect();
    // Other tests create containers at the same time, with other names.
    let ours = new
        .iter()
        .filter(|name| name.ends_with("-") || name.contains("xxx") || name.ends_with("-a"));
    assert_eq!(ours.count(), 0, "{new:?}");
    assert!(!node.scratch.0.join("a").exists());
}

fn run_directory() -> std::collections::BTreeSet<String> {
    let dirs = ["/run/agentbox/index", "/run/agentbox/locks"];
    let entries = dirs.iter().filter_map(|dir| fs::read_dir(dir).ok());
    let names = entries.flatten().flatten();
    names
        .map(|entry| entry.path().display().to_string())
        .collect()
}
