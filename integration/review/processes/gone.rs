//! A vanished container can be killed and deleted, even if parts of it were removed.

use std::path::Path;

use super::{Running, called_by, sleeper};
use crate::command::{await_that, finish};
use crate::direct::Node;

/// Empties and removes the container's cgroups, as a kubelet does.
fn remove_cgroups(id: &str) {
    fn below(dir: &Path, id: &str) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if !entry.file_type().is_ok_and(|t| t.is_dir()) {
                continue;
            }
            below(&path, id);
            if entry.file_name().to_string_lossy().ends_with(id) {
                await_that("its cgroup is empty", || {
                    std::fs::remove_dir(&path).is_ok() || !path.exists()
                });
            }
        }
    }
    below(Path::new("/sys/fs/cgroup"), id);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn review_k_3_a_container_whose_cgroup_is_gone_is_killed_and_deleted() {
    let node = Node::new();
    for policy in ["standard", "unconfined"] {
        let container = Running::start(&node, "gone", policy, &sleeper(&node));
        node.call(&["kill", &container.id, "9"]).ok();
        await_that("it stops", || {
            let state = node.call(&["state", &container.id]).ok();
            state.contains("stopped")
        });
        remove_cgroups(&container.id);
        node.call(&["kill", "--all", &container.id, "9"]).ok();
        let refused = node.call(&["kill", &container.id, "9"]).failed();
        assert!(refused.contains("container not running"), "{refused}");
        node.call(&["delete", &container.id]).ok();
        assert!(node.leftovers(&container.id).is_empty());
    }
}

/// A second mount of a hierarchy (a chroot's, another container's) may be read-only. It is not the one to use.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_second_mount_of_the_hierarchies_that_is_read_only_stops_no_delete() {
    let node = Node::new();
    let second = node.scratch.dir("second");
    let mounted = format!(
        "for one in $(findmnt -n -o TARGET -t cgroup,cgroup2); do mkdir -p {second}/$one && \
         mount --bind $one {second}/$one && mount -o remount,bind,ro {second}/$one || exit 9; done; \
         mkdir {second}$one/x 2>&1 | grep -q Read-only || exit 8; exec \"$0\" \"$@\""
    );
    for policy in ["standard", "unconfined"] {
        let container = Running::start(&node, "twice", policy, &sleeper(&node));
        let before = ["unshare", "-m", "sh", "-c", &mounted];
        let mut delete = called_by(&before, &node, &["delete", "--force", &container.id]);
        finish(&mut delete).ok();
        assert!(node.leftovers(&container.id).is_empty());
        let id = format!("{}-ended", container.id);
        let bundle = node.bundle(&id, &node.config(&["true"]));
        let words = ["--policy", policy, "run", "--bundle", &bundle, &id];
        let mut run = called_by(&before, &node, &words);
        finish(&mut run).ok();
        assert_eq!(node.leftovers(&id), [""; 0], "{policy}");
    }
}
