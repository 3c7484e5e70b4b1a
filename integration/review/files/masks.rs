//! F-H4, F-M5 (F22, F23): an agent cannot get rid of masks, nor use them to stop the next start.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use serde_json::json;

use super::{bind, run, seen};
use crate::command::run as command;
use crate::direct::Node;

const SECRET: &str = "the-secret-of-the-project";

/// F-H4 a: one run moves a masked path's parent deeper than the search goes.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_credential_that_was_moved_deeper_stays_masked() {
    for policy in ["strict", "standard", "permissive"] {
        let node = Node::new();
        node.scratch.file("ws/proj/.aws/credentials", SECRET);
        let workspace = node.scratch.path("ws");
        let depth = "a/b/c/d/e/f/g/h/i/j";
        let script = format!("mkdir -p {depth} && mv proj {depth}/proj && echo moved");
        assert_eq!(
            seen(&node, policy, bind(&workspace), &script).ok(),
            "moved\n"
        );
        let look = format!("ls -d {depth}/proj/.aws && cat {depth}/proj/.aws/*");
        let next = seen(&node, policy, bind(&workspace), &look);
        assert!(next.stdout.contains(".aws"), "{policy}: {next}");
        assert!(!next.stdout.contains(SECRET), "{policy}: {next}");
    }
}

/// F-H4 a, with a path that is a mount point on the node and an ordinary directory in the container.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_credential_below_a_mount_point_of_the_node_stays_masked() {
    let node = Node::new();
    node.scratch.file("ws/proj/.aws/credentials", SECRET);
    let workspace = node.scratch.path("ws");
    let below = node.scratch.dir("ws/cache");
    command("mount", &["-t", "tmpfs", "tmpfs", &below]).ok();
    let moved = seen(
        &node,
        "strict",
        bind(&workspace),
        "mv proj cache/proj && echo moved",
    );
    let next = seen(
        &node,
        "strict",
        bind(&workspace),
        "ls -a cache/proj; cat cache/proj/.aws/*",
    );
    command("umount", &[&below]).ok();
    assert_eq!(moved.ok(), "moved\n");
    assert!(next.stdout.contains(".aws"), "{next}");
    assert!(!next.stdout.contains(SECRET), "{next}");
}

/// F-H4 b: one run makes so many files that a search would stop before the later ones.
#[test]
#[ignore = "needs the rig: hack/test"]
fn many_files_do_not_hide_a_credential_or_a_socket() {
    let node = Node::new();
    node.scratch.file("ws/zz/proj/.aws/credentials", SECRET);
    let workspace = node.scratch.path("ws");
    let _socket =
        std::os::unix::net::UnixListener::bind(format!("{workspace}/zz/proj/sock")).unwrap();
    let script = "for d in 1 2 3 4 5 6 7 8 9 10 11 12; do mkdir -p a$d; \
        (cd a$d; for f in $(seq 1500); do : >$f; done); done; echo filled";
    assert_eq!(
        seen(&node, "strict", bind(&workspace), script).ok(),
        "filled\n"
    );
    for policy in ["strict", "standard"] {
        let look =
            "cat zz/proj/.aws/*; if [ -S zz/proj/sock ]; then echo socket; fi; ls -a zz/proj";
        let seen = seen(&node, policy, bind(&workspace), look);
        assert!(seen.stdout.contains(".aws"), "{seen}");
        assert!(
            !seen.stdout.contains(SECRET) && !seen.stdout.contains("socket"),
            "{policy}: {seen}"
        );
    }
}

/// F23: a directory too deep for a path, which an agent makes in one loop. Its hidden content stops no later start.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f23_directories_deeper_than_a_path_keep_nobody_out() {
    let node = Node::new();
    let workspace = node.scratch.dir("ws");
    node.scratch.file("ws/.netrc", SECRET);
    // Step by step, as an agent makes it.
    let open = |at: &OwnedFd, name: &str| {
        rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o755)).unwrap();
        rustix::fs::openat(at, name, OFlags::PATH, Mode::empty()).unwrap()
    };
    let top = rustix::fs::open(workspace.as_str(), OFlags::PATH, Mode::empty()).unwrap();
    let mut at = open(&top, "deep");
    for _ in 0..3000 {
        at = open(&at, "dd");
    }
    open(&at, ".aws");
    for policy in ["strict", "standard", "permissive"] {
        let look = "cat .netrc; cd deep/dd && echo in";
        let found = seen(&node, policy, bind(&workspace), look);
        assert!(found.stdout.ends_with("in\n"), "{policy}: {found}");
        assert!(!found.stdout.contains(SECRET), "{policy}: {found}");
    }
    // Two mounts show the same tree, and each has the hidden directory at another depth.
    let mut config = node.config(&["sh", "-c", "cat /x/.netrc; cd /x/deep/dd/dd && echo in"]);
    let inner = json!({"destination": "/x/deep", "type": "bind", "source": format!("{workspace}/deep"), "options": ["rbind", "rw"]});
    config["process"]["cwd"] = "/x".into();
    let mounts = config["mounts"].as_array_mut().unwrap();
    mounts.extend([bind(&workspace), inner]);
    for policy in ["standard", "permissive"] {
        let found = run(&node, policy, &config);
        assert!(found.stdout.ends_with("in\n"), "{policy}: {found}");
        assert!(!found.stdout.contains(SECRET), "{policy}: {found}");
    }
    command("rm", &["-r", &workspace]).ok();
    fs::create_dir(workspace).unwrap();
}

/// F22: one container keeps moving a directory with credentials between two others while another one starts. The
/// control, a single search that misses it in some starts, is in the search's unit tests.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f22_no_start_sees_a_credential_that_is_moved_past_the_search() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let node = Node::new();
    node.scratch.file("ws/z/x/.aws/credentials", SECRET);
    node.scratch.dir("ws/a");
    let workspace = node.scratch.path("ws");
    for number in 0..400 {
        fs::create_dir(format!("{workspace}/m{number}")).unwrap();
    }
    let look = "for i in 1 2 3 4 5 6 7 8 9; do cat a/x/.aws/credentials z/x/.aws/credentials; done; echo end";
    let [from, to] = ["z/x", "a/x"].map(|name| format!("{workspace}/{name}"));
    let done = AtomicBool::new(false);
    let results: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::rename(&from, &to).unwrap();
                fs::rename(&to, &from).unwrap();
            }
        });
        let policies = [
            "strict", "standard", "strict", "standard", "strict", "standard",
        ];
        let results = policies.map(|policy| seen(&node, policy, bind(&workspace), look));
        done.store(true, Ordering::Relaxed);
        results.into()
    });
    for result in results {
        assert!(!result.stdout.contains(SECRET), "{result}");
        let started = result.stdout.contains("end\n");
        // From the search, from a mask's directory, or from a mask's path, whichever sees the move.
        let refusals = [
            "change while they are searched",
            "it was moved meanwhile",
            "has gone since it was found",
        ];
        let refused = refusals.iter().any(|words| result.stderr.contains(words));
        assert!(started || refused, "{result}");
    }
    // Once nothing moves it is hidden, and without a policy it is visible.
    let hidden = seen(&node, "strict", bind(&workspace), look);
    assert!(
        hidden.stdout.contains("end\n") && !hidden.stdout.contains(SECRET),
        "{hidden}"
    );
    assert_eq!(
        fs::read_to_string(format!("{from}/.aws/credentials")).unwrap(),
        SECRET
    );
}

/// AGENTS 4: containers start beside a build that makes and removes directories all the time.
#[test]
#[ignore = "needs the rig: hack/test"]
fn agents_4_a_start_beside_a_build_is_not_refused() {
    let node = Node::new();
    node.scratch.file("ws/project/.netrc", SECRET);
    let workspace = node.scratch.path("ws");
    let script = "while :; do mkdir -p a/x b/x c/x; : >a/x/f; rm -r a b c; done";
    let mut build = std::process::Command::new("sh")
        .args(["-c", script])
        .current_dir(&workspace)
        .spawn()
        .unwrap();
    let seen: Vec<_> = (0..8)
        .map(|_| {
            seen(
                &node,
                "standard",
                bind(&workspace),
                "cat project/.netrc; echo in",
            )
        })
        .collect();
    build.kill().unwrap();
    build.wait().unwrap();
    for seen in seen {
        assert_eq!(seen.ok(), "in\n");
    }
}

/// Links and odd names need no mask, and prevent no start.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_poisoned_workspace_starts_and_stays_safe() {
    let node = Node::new();
    let workspace = node.scratch.dir("ws");
    let odd = Path::new(&workspace).join(std::ffi::OsStr::from_bytes(b"\xff\n\\x"));
    fs::create_dir_all(odd.join(".ssh")).unwrap();
    fs::write(odd.join(".ssh/id"), SECRET).unwrap();
    fs::write(format!("{workspace}/rc"), "plain").unwrap();
    for (target, name) in [
        ("/nowhere", ".ssh"),
        ("rc", ".npmrc"),
        (".", ".aws"),
        ("/etc", ".kube"),
    ] {
        symlink(target, format!("{workspace}/{name}")).unwrap();
    }
    for policy in ["strict", "standard", "permissive"] {
        let mut config = node.config(&[
            "sh",
            "-c",
            "cat .npmrc; grep -r the-secret . ; ls .kube/shadow; sleep 60",
        ]);
        config["process"]["cwd"] = "/x".into();
        config["mounts"]
            .as_array_mut()
            .unwrap()
            .push(bind(&workspace));
        let bundle = node.bundle("odd", &config);
        let id = format!("review-odd-{}", std::process::id());
        node.call(&["--policy", policy, "create", "--bundle", &bundle, &id])
            .ok();
        node.call(&["start", &id]).ok();
        // Every command can read its record.
        let explained = node.call(&["explain", &id]).ok();
        assert!(
            explained.contains("\\xff") && explained.contains(".ssh"),
            "{explained}"
        );
        node.call(&["state", &id]).ok();
        assert_eq!(node.call(&["exec", &id, "echo", "exec"]).ok(), "exec\n");
        node.call(&["delete", "--force", &id]).ok();
        let seen = super::seen(
            &node,
            policy,
            bind(&workspace),
            "cat .npmrc; cat *x/.ssh/id",
        );
        assert!(
            seen.stdout.contains("plain") && !seen.stdout.contains(SECRET),
            "{seen}"
        );
    }
    // A listed directory that is a link on this node, below a mount that is kept.
    let data = node.scratch.dir("data");
    let link = "/var/lib/incus";
    symlink(&data, link).unwrap();
    let mut mount = bind("/var/lib");
    mount["options"] = serde_json::json!(["rbind", "ro"]);
    let mut config = node.config(&["sh", "-c", "ls -d /x/dpkg"]);
    config["mounts"].as_array_mut().unwrap().push(mount);
    let seen = run(&node, "permissive", &config);
    fs::remove_file(link).unwrap();
    assert_eq!(seen.ok(), "/x/dpkg\n");
}
