//! The init process and its cgroup, if another process on the node freezes it or the caller cannot get its pid.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;

use super::Node;

fn id(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// A cgroup that can be frozen (on v1, of the freezer's hierarchy). Thawed and removed when dropped.
struct Freezer {
    name: String,
    dir: PathBuf,
}

impl Freezer {
    fn new(name: &str) -> Self {
        let name = id(name);
        let v1 = PathBuf::from("/sys/fs/cgroup/freezer");
        let hierarchy = if v1.is_dir() {
            v1
        } else {
            "/sys/fs/cgroup".into()
        };
        let dir = hierarchy.join(&name);
        fs::create_dir(&dir).unwrap();
        Self { name, dir }
    }

    fn set(&self, frozen: bool) {
        let (file, text) = match (self.dir.join("freezer.state"), frozen) {
            (file, true) if file.exists() => (file, "FROZEN"),
            (file, false) if file.exists() => (file, "THAWED"),
            (_, true) => (self.dir.join("cgroup.freeze"), "1"),
            (_, false) => (self.dir.join("cgroup.freeze"), "0"),
        };
        fs::write(file, text).unwrap();
    }

    /// The cgroup below it for a container.
    fn below(&self) -> String {
        format!("/{}/child", self.name)
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.set(false);
        for dir in [&self.dir.join("child"), &self.dir] {
            let _ = fs::remove_dir(dir);
        }
    }
}

const POLICIES: [&str; 2] = ["unconfined", "standard"];

fn create<'a>(policy: &'a str, bundle: &'a str, id: &'a str) -> [&'a str; 6] {
    ["--policy", policy, "create", "--bundle", bundle, id]
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_cgroup_below_a_frozen_one_is_refused_at_once() {
    let node = Node::new();
    for policy in POLICIES {
        let freezer = Freezer::new("cold");
        let id = id("below");
        let mut config = node.config(&["sleep", "100"]);
        config["linux"]["cgroupsPath"] = json!(freezer.below());
        let bundle = node.bundle(&id, &config);
        freezer.set(true);
        let begun = Instant::now();
        let refused = node.call(&create(policy, &bundle, &id)).failed();
        assert!(
            refused.contains("unexpectedly frozen")
                && refused.contains(freezer.dir.to_str().unwrap()),
            "{refused}"
        );
        assert!(begun.elapsed() < Duration::from_secs(45), "{policy}");
        assert!(node.leftovers(&id).is_empty(), "{:?}", node.leftovers(&id));
        // The control: the same bundle, after thawing.
        freezer.set(false);
        node.call(&create(policy, &bundle, &id)).ok();
        node.call(&["delete", "--force", &id]).ok();
    }
}

/// No verb waits for ever. In a freezer of cgroup v1, a process does not even die.
#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_cgroup_that_is_frozen_during_create_delays_it_only_for_a_time() {
    let node = Node::new();
    let freezer = Freezer::new("freezing");
    let mut config = node.config(&["sleep", "100"]);
    config["linux"]["cgroupsPath"] = json!(freezer.below());
    // Freeze when the container's cgroup appears, before its process is ready. If that was too late, try again.
    let held_up = (0..20).find_map(|number| {
        let id = id(&format!("freezing{number}"));
        let bundle = node.bundle(&id, &config);
        let begun = Instant::now();
        let called = std::thread::scope(|scope| {
            let called = scope.spawn(|| node.call(&create("unconfined", &bundle, &id)));
            while !called.is_finished() && !freezer.dir.join("child").exists() {
                std::hint::spin_loop();
            }
            freezer.set(true);
            called.join().unwrap()
        });
        let took = begun.elapsed();
        let late = called.code == 0;
        if late {
            freezer.set(false);
            node.call(&["delete", "--force", &id]).ok();
        }
        (!late).then(|| (id, called.failed(), took))
    });
    let (id, said, took) = held_up.expect("20 containers were made before they were frozen");
    assert!(said.contains("30 s") || said.contains("frozen"), "{said}");
    assert!(took < Duration::from_secs(100), "{took:?}");
    // After thawing it dies, and `delete` removes the rest.
    freezer.set(false);
    node.call(&["delete", "--force", &id]).ok();
    assert!(node.leftovers(&id).is_empty(), "{:?}", node.leftovers(&id));
    assert!(!freezer.dir.join("child").exists());
}

/// As runc: a caller that requested the pid and does not get it would not know of the container.
#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_create_fails_where_the_pid_file_cannot_be_written() {
    let node = Node::new();
    for policy in POLICIES {
        let id = id("untold");
        let bundle = node.bundle(&id, &node.config(&["sleep", "100"]));
        let file = node.scratch.path("missing/pid");
        let mut arguments = create(policy, &bundle, &id).to_vec();
        arguments.extend(["--pid-file", file.as_str()]);
        let refused = node.call(&arguments).failed();
        assert!(refused.contains(&file), "{refused}");
        assert!(node.leftovers(&id).is_empty(), "{:?}", node.leftovers(&id));
        node.call(&create(policy, &bundle, &id)).ok();
        node.call(&["delete", "--force", &id]).ok();
    }
}
