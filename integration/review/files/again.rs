//! What a second hostile reading found about files (F2): names that are changed between two runs, searches that are
//! raced, and mounts with no name.

use std::fs;

use super::{bind, seen};
use crate::command::run as command;
use crate::direct::Node;

const SECRET: &str = "the-secret-of-the-person";

/// F2-H1: the directory that is part of a credential's name is renamed in one run, and read in the next.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f2_h1_a_directory_of_a_credentials_name_is_not_renamed() {
    const FILES: [&str; 3] = [
        "home/.cargo/credentials.toml",
        "h2/.config/gh/hosts.yml",
        "h3/.local/share/keyrings/login",
    ];
    let script = "mv home/.cargo home/cargo; mv h2/.config h2/cfg; mv h3/.local/share h3/share; \
        mv h3/.local h3/local; rmdir home/.cargo; mv home moved; echo plain >moved/.cargo/new; \
        touch h2/.config/beside; grep -r the-secret . ; ls -d moved/.cargo h2/.config h3/.local/share";
    for policy in ["strict", "standard", "permissive"] {
        let node = Node::new();
        for file in FILES {
            node.scratch.file(&format!("ws/{file}"), SECRET);
        }
        let workspace = node.scratch.path("ws");
        let first = seen(&node, policy, bind(&workspace), script);
        assert!(!first.stdout.contains(SECRET), "{policy}: {first}");
        for kept in ["moved/.cargo", "h2/.config", "h3/.local/share"] {
            assert!(first.stdout.contains(kept), "{policy}: {first}");
        }
        // What lies beside the credential is written as before, and the directories above are moved.
        let written = fs::read_to_string(format!("{workspace}/moved/.cargo/new")).unwrap();
        assert_eq!(written, "plain\n", "{policy}");
        let next = seen(
            &node,
            policy,
            bind(&workspace),
            "grep -r the-secret . ; ls -a moved",
        );
        assert!(!next.stdout.contains(SECRET), "{policy}: {next}");
        assert!(next.stdout.contains(".cargo"), "{policy}: {next}");
        // The control: without the wall's mounts the same script does rename them.
        let away = format!(
            "cd {workspace} && mv moved/.cargo moved/cargo && cat moved/cargo/credentials.toml"
        );
        assert_eq!(command("sh", &["-c", &away]).ok(), SECRET);
    }
}

/// F2-H2: what is moved below a place where the node has something mounted, to which the container does not see.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f2_h2_a_mount_point_of_the_node_hides_no_credential_and_no_socket() {
    let node = Node::new();
    node.scratch.file("ws/proj/.aws/credentials", SECRET);
    let workspace = node.scratch.path("ws");
    let _socket = std::os::unix::net::UnixListener::bind(format!("{workspace}/proj/sock")).unwrap();
    let data = node.scratch.dir("ws/data");
    command("mount", &["-t", "tmpfs", "tmpfs", &data]).ok();
    // The control: by the node's own path there is nothing.
    let hidden = || !fs::exists(format!("{data}/proj")).unwrap();
    let script = "mv proj/.aws data/; mv proj data/proj; ls -d data/proj";
    let moved = seen(&node, "strict", bind(&workspace), script);
    let was_hidden = hidden();
    let look = "ls -a data/proj; cat data/proj/.aws/* data/.aws/*; if [ -S data/proj/sock ]; then echo socket; fi";
    let next: Vec<_> = ["strict", "standard", "permissive"]
        .iter()
        .map(|policy| seen(&node, policy, bind(&workspace), look))
        .collect();
    command("umount", &[&data]).ok();
    assert_eq!(moved.ok(), "data/proj\n");
    assert!(was_hidden);
    for next in next {
        assert!(next.stdout.contains(".aws"), "{next}");
        assert!(
            !next.stdout.contains(SECRET) && !next.stdout.contains("socket"),
            "{next}"
        );
    }
}
