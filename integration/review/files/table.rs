//! F-M3, F-M4 (F26): which of the node's paths may be written, and links on the way to a source.

use std::fs;
use std::os::unix::fs::{lchown, symlink};

use super::{bind, seen};
use crate::direct::Node;

/// Under every policy. The control: in a project directory the file can be made.
#[test]
#[ignore = "needs the rig: hack/test"]
fn what_the_node_runs_as_root_is_no_workspace() {
    let node = Node::new();
    let name = format!("review-table-{}", std::process::id());
    let script = format!("touch {name} && echo written");
    for place in [
        "/usr",
        "/usr/local/bin",
        "/opt",
        "/root",
        "/home",
        "/var",
        "/var/spool",
        "/var/lib",
        "/srv",
        "/usr/lib/systemd",
    ] {
        fs::create_dir_all(place).unwrap();
        for policy in ["strict", "standard", "permissive"] {
            let message = seen(&node, policy, bind(place), &script).failed();
            assert!(
                message.contains("the workspace") && message.contains("read-only"),
                "{place} {policy}: {message}"
            );
        }
        // Other tests work below /srv, and masked files must not disappear meanwhile.
        if place == "/srv" {
            continue;
        }
        // Beside a workspace, even if the policy keeps the engine's options.
        let mut config = node.config(&["sh", "-c", &format!("touch /x/{name}; ls -d /x")]);
        config["mounts"].as_array_mut().unwrap().push(bind(place));
        let read = super::run(&node, "permissive", &config);
        assert!(
            read.stdout == "/x\n" && read.stderr.contains("Read-only"),
            "{place}: {read}"
        );
        assert!(!fs::exists(format!("{place}/{name}")).unwrap(), "{place}");
    }
    for place in [
        "/opt/x",
        "/root/project",
        "/home/me",
        "/var/www",
        "/var/tmp",
    ] {
        let place = format!("{place}/{name}");
        fs::create_dir_all(&place).unwrap();
        assert_eq!(
            seen(&node, "strict", bind(&place), &script).ok(),
            "written\n"
        );
        fs::remove_dir_all(&place).unwrap();
    }
}

/// Stores of hashes and keys cannot be read either.
#[test]
#[ignore = "needs the rig: hack/test"]
fn stores_of_secrets_do_not_come_in() {
    let node = Node::new();
    for place in [
        "/var/backups",
        "/var/lib/etcd",
        "/var/lib/rancher/k3s/server",
        "/var/lib/libvirt",
        "/run/agentbox",
    ] {
        fs::create_dir_all(place).unwrap();
        for policy in ["strict", "standard", "permissive"] {
            let message = seen(&node, policy, bind(place), "true").failed();
            assert!(message.contains("the workspace"), "{place}: {message}");
        }
    }
}

/// F-M4: an agent replaces a part of its writable directory by a link. A later mount of that part is refused with the
/// reason.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_link_that_an_agent_may_have_made_leads_nowhere() {
    let node = Node::new();
    let other = node.scratch.dir("other-project");
    let directory = node.scratch.dir("workspace");
    // Made inside, by a container's root.
    let made = seen(
        &node,
        "strict",
        bind(&directory),
        &format!("ln -s {other} sub && echo made"),
    );
    assert_eq!(made.ok(), "made\n");
    symlink(&other, format!("{directory}/theirs")).unwrap();
    lchown(format!("{directory}/theirs"), Some(1000), Some(1000)).unwrap();
    for link in ["sub", "theirs"] {
        let path = format!("{directory}/{link}");
        for policy in ["strict", "standard", "permissive"] {
            let message = seen(&node, policy, bind(&path), "touch planted").failed();
            assert!(
                message.contains(&path) && message.contains(&format!("name {other} itself")),
                "{policy}: {message}"
            );
        }
        fs::create_dir_all(format!("{other}/below")).unwrap();
        let below = seen(&node, "strict", bind(&format!("{path}/below")), "true").failed();
        assert!(below.contains(&path), "{below}");
    }
    assert!(!fs::exists(format!("{other}/planted")).unwrap());
    // The node's own links are where no container can write.
    let link = format!("/srv/review-link-{}", std::process::id());
    symlink(&other, &link).unwrap();
    let seen = seen(&node, "strict", bind(&link), "echo runs");
    fs::remove_file(&link).unwrap();
    assert_eq!(seen.ok(), "runs\n");
}
