//! P04 of docs/threats.md, the other half: `delete --force` removes everything of a creation that was killed at any
//! moment.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Node, program};

/// Processes that belong to the container: by the bundle in their arguments, or by its id in their cgroups.
fn processes(bundle: &str, id: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let path = entry.path();
        // A process may end meanwhile; a zombie has no arguments.
        let read = |name| {
            let bytes = fs::read(path.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        let (arguments, cgroups) = (read("cmdline"), read("cgroup"));
        if arguments.contains(bundle) || (!arguments.is_empty() && cgroups.contains(id)) {
            found.push(format!("{}: {arguments} [{cgroups}]", path.display()));
        }
    }
    found
}

/// Fractions of the range that a creation takes, spread out by the golden ratio.
fn delay(round: u32) -> Duration {
    Duration::from_micros(u64::from(round * 15_451 % 25_000))
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_creation_that_is_killed_leaves_nothing_after_a_forced_delete() {
    let node = Node::new();
    let config = node.config(&["sleep", "100"]);
    for round in 0..20 {
        let id = format!("killed-{}-{round}", std::process::id());
        let bundle = node.bundle(&format!("bundle-{round}"), &config);
        let mut create = Command::new(program())
            .args(["--root", &node.root, "create", "--bundle", &bundle, &id])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(delay(round));
        create.kill().unwrap();
        create.wait().unwrap();
        let delay = delay(round);
        node.call(&["delete", "--force", &id]).ok();

        let start = Instant::now();
        let mut left = processes(&bundle, &id);
        // Those that lost their parent end by themselves, a moment later.
        while !left.is_empty() && start.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(20));
            left = processes(&bundle, &id);
        }
        assert!(left.is_empty(), "killed after {delay:?}: {left:#?}");
        let files = node.leftovers(&id);
        assert!(files.is_empty(), "killed after {delay:?}: {files:#?}");

        node.call(&["create", "--bundle", &bundle, &id]).ok();
        node.call(&["delete", "--force", &id]).ok();
        let files = node.leftovers(&id);
        assert!(files.is_empty(), "created again: {files:#?}");
    }
}
