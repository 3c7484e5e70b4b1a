//! PURE. The support mounts of engines, known by target and source together.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::judge::is_kernel_place;
use super::sort::MountRules;
use super::volumes::is_message;
use super::{FileKind, SourceFacts};

/// An engine's support mount, known by its target and its source together: why it is kept, and whether writable. Every
/// name of the source must qualify: else it is another bind mount.
pub(super) fn support(
    place: &str,
    rules: MountRules<'_>,
    facts: &SourceFacts,
) -> Option<(&'static str, bool)> {
    // If an engine's data is elsewhere, its host name file is known to be the engine's, under its own name.
    let is_moved = |same: &PathBuf| place == "/etc/hostname" && facts.path.starts_with(same);
    if !facts.same_as.iter().all(is_moved) || facts.nameless.is_some() {
        return None;
    }
    let free = place == "/dev/termination-log" || !is_kernel_place(Path::new(place));
    if free && is_message(rules.pod, facts) {
        return Some(("kubelet's file for the termination message", true));
    }
    let mut found = facts
        .all_names()
        .map(|name| by_name(place, name, rules.ipc, facts));
    let first = found.next().flatten()?;
    found.all(|other| other == Some(first)).then_some(first)
}

fn by_name(
    place: &str,
    path: &Path,
    ipc: &BTreeSet<&str>,
    facts: &SourceFacts,
) -> Option<(&'static str, bool)> {
    let source: Vec<&str> = path.iter().filter_map(|c| c.to_str()).collect();
    let name = place.rsplit('/').next().unwrap_or("");
    // A name alone proves nothing: an engine's files are root's own, and its shared memory is a tmpfs.
    let file = facts.kind == FileKind::File && facts.trusted;
    match (place, source.as_slice()) {
        ("/etc/hostname", [.., "containers", id, last]) if file && is_id(id) && *last == name => {
            Some(("Docker's host name file", false))
        }
        ("/etc/hostname", [.., "sandboxes", id, last]) if file && is_id(id) && *last == name => {
            Some(("the pod's host name file", false))
        }
        ("/etc/hostname" | "/run/.containerenv", [.., list, id, "userdata", last])
            if file && is_podmans(list) && is_id(id) && *last == name =>
        {
            Some(("podman's file", false))
        }
        (
            "/dev/shm",
            [.., list, id, "userdata", "shm"],
            // Another container's shared memory needs a shared IPC namespace.
        ) if is_podmans(list) && is_shared_memory(id, ipc, facts) => {
            Some(("the container's shared memory", true))
        }
        ("/dev/shm", [.., "sandboxes", id, "shm"]) if is_shared_memory(id, ipc, facts) => {
            Some(("the container's shared memory", true))
        }
        ("/sbin/docker-init", [.., "docker-init" | "tini" | "tini-static"]) if file => {
            Some(("Docker's init", false))
        }
        ("/run/podman-init" | "/dev/init", [.., "catatonit"]) if file => {
            Some(("podman's init", false))
        }
        _ => None,
    }
}

fn is_shared_memory(id: &str, ipc: &BTreeSet<&str>, facts: &SourceFacts) -> bool {
    ipc.contains(id) && facts.kind == FileKind::Directory && facts.tmpfs
}

/// The storage drivers of containers/storage that give a container a directory (containers-storage.conf(5)).
const PODMANS_DRIVERS: [&str; 4] = ["overlay", "vfs", "btrfs", "zfs"];

/// Whether podman and CRI-O use this name for the directory of a store's containers: `DRIVER-containers`.
pub fn is_podmans(list: &str) -> bool {
    let driver = list.strip_suffix("-containers");
    driver.is_some_and(|driver| PODMANS_DRIVERS.contains(&driver))
}

/// An engine's container id: 64 hexadecimal digits.
pub fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}
