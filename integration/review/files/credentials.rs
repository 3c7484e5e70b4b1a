//! AGENTS S1 (14): a credential is recognized by its real path, and an intended one can be visible.

use std::path::Path;

use serde_json::json;

use super::{bind, run, run_with, seen};
use crate::direct::Node;

const SECRET: &str = "the-secret-of-the-person";

/// A home with credentials whose names have several components, and other files beside them.
fn home(node: &Node) -> String {
    for file in [
        ".config/gh/hosts.yml",
        ".config/gcloud/credentials.db",
        ".config/git/credentials",
        ".config/containers/auth.json",
        ".cargo/credentials.toml",
        ".codex/auth.json",
        ".claude/.credentials.json",
        ".gem/credentials",
        ".local/share/keyrings/login.keyring",
        ".terraform.d/credentials.tfrc.json",
    ] {
        node.scratch.file(&format!("me/{file}"), SECRET);
    }
    for file in [
        ".config/plain",
        ".cargo/config.toml",
        ".codex/config.toml",
        ".local/share/plain",
    ] {
        node.scratch.file(&format!("me/{file}"), "plain\n");
    }
    node.scratch.path("me")
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn agents_14_credentials_are_masked_wherever_the_mount_begins() {
    let node = Node::new();
    let home = home(&node);
    let look = "grep -r the-secret /x; grep -rl plain /x; true";
    for (mount, plain) in [
        (".config/git", 0),
        (".config/containers", 0),
        (".cargo", 1),
        (".codex", 1),
        (".claude", 0),
        (".gem", 0),
        (".local/share", 1),
        (".terraform.d", 0),
        ("", 4),
    ] {
        let source = format!("{home}/{mount}");
        for policy in ["strict", "standard", "permissive"] {
            let seen = seen(&node, policy, bind(&source), look);
            assert!(!seen.stdout.contains(SECRET), "{mount} {policy}: {seen}");
            // Directories that lead to agents' settings are no workspace, and `strict` shows no other mount.
            let plain = match (mount, policy) {
                (".codex" | ".local/share", "strict") => 0,
                _ => plain,
            };
            assert_eq!(
                seen.stdout.lines().count(),
                plain,
                "{mount} {policy}: {seen}"
            );
        }
    }
    // Directories where agentbox's own settings could be made are not writable.
    for mount in [".config", ".local"] {
        let source = format!("{home}/{mount}");
        for policy in ["strict", "standard", "permissive"] {
            let seen = seen(
                &node,
                policy,
                bind(&source),
                "touch /x/new && echo wrote; true",
            );
            let wrote = seen.stdout.contains("wrote");
            assert!(!wrote && !Path::new(&source).join("new").exists(), "{seen}");
        }
        // The control: another directory is written.
        let source = node.scratch.dir("plain");
        let seen = seen(
            &node,
            "permissive",
            bind(&source),
            "touch /x/new && echo wrote; true",
        );
        assert!(seen.stdout.contains("wrote"), "{seen}");
    }
}

/// A node's policy can allow an agent's own login, as part of a directory and as a single file.
#[test]
#[ignore = "needs the rig: hack/test"]
fn agents_14_a_login_that_is_meant_is_seen_and_no_other() {
    let node = Node::new();
    let home = home(&node);
    let policies = node.scratch.dir("policies");
    node.scratch.file(
        "policies/codex.toml",
        "base = \"standard\"\n[filesystem]\ncredentials = [\".codex/auth.json\"]\n",
    );
    let settings = format!("policy-dir = \"{policies}\"\nceiling = \"codex\"\n");
    let mut config = node.config(&["sh", "-c", "grep -rl the-secret /dir /file /other; true"]);
    let mounts = config["mounts"].as_array_mut().unwrap();
    for (source, place) in [
        (".codex", "/dir"),
        (".codex/auth.json", "/file"),
        (".claude", "/other"),
    ] {
        let source = format!("{home}/{source}");
        mounts.push(
            json!({"destination": place, "type": "bind", "source": source, "options": ["rbind"]}),
        );
    }
    let meant = run_with(&node, &settings, "codex", &config);
    assert_eq!(meant.ok(), "/dir/auth.json\n/file\n");
    let control = run(&node, "standard", &config);
    assert!(!control.stdout.contains('/'), "{control}");
}
