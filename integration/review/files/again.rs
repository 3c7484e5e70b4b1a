//! Findings of a second hostile review about files (F2): names that change between two runs, races with searches, and
//! mounts without a name.

use std::fs;

use super::{bind, seen};
use crate::command::run as command;
use crate::direct::Node;

const SECRET: &str = "the-secret-of-the-person";

/// F2-H1: a directory that is part of a credential's name is renamed in one run, and read in the next.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_directory_of_a_credentials_name_is_not_renamed() {
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
        // Files beside the credential are written as before, and the directories above it can be moved.
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
        // The control: without the wall's mounts, the same script renames them.
        let away = format!(
            "cd {workspace} && mv moved/.cargo moved/cargo && cat moved/cargo/credentials.toml"
        );
        assert_eq!(command("sh", &["-c", &away]).ok(), SECRET);
    }
}

/// F2-H2: files are moved below a mount point of the node. The container sees the directory under that mount.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_mount_point_of_the_node_hides_no_credential_and_no_socket() {
    let node = Node::new();
    node.scratch.file("ws/proj/.aws/credentials", SECRET);
    let workspace = node.scratch.path("ws");
    let _socket = std::os::unix::net::UnixListener::bind(format!("{workspace}/proj/sock")).unwrap();
    let data = node.scratch.dir("ws/data");
    command("mount", &["-t", "tmpfs", "tmpfs", &data]).ok();
    // The control: by the node's own path they are not there.
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

/// Mounts of the node, unmounted when dropped, last first.
struct Mounts(Vec<String>);

impl Mounts {
    fn add(&mut self, arguments: &[&str], place: &str) -> bool {
        let made = command("mount", &[arguments, &[place]].concat()).code == 0;
        if made {
            self.0.push(place.to_owned());
        }
        made
    }

    fn remove(&mut self, place: &str) {
        command("umount", &[place]).ok();
        self.0.retain(|p| p != place);
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for place in self.0.iter().rev() {
            command("umount", &[place]);
        }
    }
}

/// F2-M3: an overlay's layer is a kernel file system under an unlisted name, also if the overlay covers it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn an_overlay_over_a_file_system_of_the_kernel_is_kept_out() {
    let mut tried = 0;
    for kind in [
        "proc",
        "sysfs",
        "bpf",
        "debugfs",
        "tracefs",
        "mqueue",
        "cgroup2",
        "securityfs",
    ] {
        for covering in [false, true] {
            let node = Node::new();
            let (layer, empty) = (node.scratch.dir("layer"), node.scratch.dir("empty"));
            let mut mounts = Mounts(Vec::new());
            if !mounts.add(&["-t", kind, kind], &layer) {
                continue;
            }
            let over = match covering {
                true => layer.clone(),
                false => node.scratch.dir("over"),
            };
            let layers = format!("lowerdir={layer}:{empty}");
            if !mounts.add(&["-t", "overlay", "overlay", "-o", &layers], &over) {
                continue;
            }
            tried += 1;
            for policy in ["strict", "standard", "permissive"] {
                let message = seen(&node, policy, bind(&over), "ls /x").failed();
                assert!(
                    message.contains("refused") || message.contains("not"),
                    "{kind}: {message}"
                );
                assert!(message.contains(&over), "{kind} {policy}: {message}");
            }
        }
    }
    assert!(
        tried > 0,
        "no file system of the kernel's can be a layer here"
    );
}

/// F2-M2: a bind of a part of a file system whose root is not mounted.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_bind_without_the_mount_that_names_it_is_known_by_its_path_in_its_file_system() {
    let node = Node::new();
    let (all, bound, plain) = (
        node.scratch.dir("all"),
        node.scratch.dir("bound"),
        node.scratch.dir("plain"),
    );
    let config = node.scratch.dir("config");
    let mut mounts = Mounts(Vec::new());
    assert!(mounts.add(&["-t", "tmpfs", "tmpfs"], &all));
    for file in ["me/.ssh/id", "me/.config/gh/hosts.yml", "me/project/file"] {
        node.scratch.file(&format!("all/{file}"), SECRET);
    }
    for (part, place) in [(".ssh", &bound), ("project", &plain), (".config", &config)] {
        assert!(mounts.add(&["--bind", &format!("{all}/me/{part}")], place));
    }
    mounts.remove(&all);
    for policy in ["strict", "standard", "permissive"] {
        let message = seen(&node, policy, bind(&bound), "cat /x/id").failed();
        assert!(message.contains("credentials"), "{policy}: {message}");
        let inside = seen(&node, policy, bind(&config), "ls -a; cat gh/*");
        assert!(
            inside.stdout.contains("gh") && !inside.stdout.contains(SECRET),
            "{inside}"
        );
        // The control: a part without credentials can be a workspace.
        assert_eq!(
            seen(&node, policy, bind(&plain), "cat /x/file").ok(),
            SECRET
        );
    }
}

/// F2-M1: a listed directory is a link on the node. Its target is inside a mount that gives the parent a second name.
#[test]
#[ignore = "needs the rig: hack/test"]
fn where_a_link_of_the_list_leads_is_masked_under_every_name() {
    let node = Node::new();
    node.scratch.file("disk/incus/secret", SECRET);
    let (disk, again) = (node.scratch.path("disk"), node.scratch.dir("again"));
    let mut mounts = Mounts(Vec::new());
    assert!(mounts.add(&["--bind", &disk], &again));
    let look = "ls incus && cat incus/secret; mv incus away; true";
    let control = seen(&node, "standard", bind(&again), look);
    assert!(control.stdout.contains(SECRET), "{control}");
    command("mv", &[&format!("{disk}/away"), &format!("{disk}/incus")]).ok();
    let link = "/var/lib/incus";
    std::os::unix::fs::symlink(format!("{disk}/incus"), link).unwrap();
    let found: Vec<_> = [&disk, &again]
        .iter()
        .map(|source| seen(&node, "standard", bind(source), look))
        .collect();
    fs::remove_file(link).unwrap();
    for found in found {
        assert!(!found.stdout.contains(SECRET), "{found}");
    }
    assert!(fs::exists(format!("{disk}/incus/secret")).unwrap());
}
