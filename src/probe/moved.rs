//! Finds an engine's data in an unusual place, by the paths of a container's root file system and its layers.

use std::path::Path;

use crate::plan::support::is_id;

/// The list's path of containerd's data.
pub(super) const CONTAINERD: &str = "/var/lib/containerd";
/// The list's path of podman's store, and of CRI-O's.
const PODMAN: &str = "/var/lib/containers/storage";
/// The list's path of Docker's data.
const DOCKER: &str = "/var/lib/docker";

/// The data directory of a root file system's engine, and the list's path of it. Knows podman, CRI-O, and Docker with
/// its own stores and containerd's. `is_podmans` decides for drivers whose layout both engines use.
pub(super) fn by_root(
    rootfs: &Path,
    is_podmans: impl Fn(&Path, &str) -> bool,
) -> Option<(&Path, &'static str)> {
    let data = rootfs.ancestors().nth(3)?;
    let below = rootfs.strip_prefix(data).ok()?;
    let parts: Vec<&str> = below.iter().filter_map(|part| part.to_str()).collect();
    let usual = match parts[..] {
        ["overlay", id, "merged"] if is_id(id) => PODMAN,
        ["overlay2" | "fuse-overlayfs", id, "merged"] | ["rootfs", _, id] if is_id(id) => DOCKER,
        [driver @ "vfs", "dir", id]
        | [driver @ "btrfs", "subvolumes", id]
        | [driver @ "zfs", "graph", id]
            if is_id(id) =>
        {
            match is_podmans(data, driver) {
                true => PODMAN,
                false => DOCKER,
            }
        }
        _ => return None,
    };
    Some((data, usual))
}

/// Whether a driver's data has podman's list of containers beside it.
pub(super) fn has_list(data: &Path, driver: &str) -> bool {
    data.join(format!("{driver}-containers"))
        .symlink_metadata()
        .is_ok()
}

/// `DATA/io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs`.
pub(super) fn by_layer(layer: &Path) -> Option<&Path> {
    let is_snapshotter = |path: &&Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("io.containerd.snapshotter."))
    };
    layer.ancestors().find(is_snapshotter)?.parent()
}
