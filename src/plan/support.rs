//! PURE. The support mounts of engines, known by target and source together.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::facts::SourceFacts;
use super::file::FileKind;
use super::judge::is_kernel_place;
use super::sorted_mounts::MountRules;
use super::volumes::is_message;
use crate::engines::layout::{self, SupportMount};

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
    // A name alone proves nothing: an engine's files are root's own, and its shared memory is a tmpfs.
    let file = facts.kind == FileKind::File && facts.trusted;
    match layout::support_mount(place, path)? {
        SupportMount::File(name) => file.then_some((name, false)),
        // Another container's shared memory needs a shared IPC namespace.
        SupportMount::SharedMemory(id) => {
            is_shared_memory(id, ipc, facts).then_some(("the container's shared memory", true))
        }
    }
}

fn is_shared_memory(id: &str, ipc: &BTreeSet<&str>, facts: &SourceFacts) -> bool {
    ipc.contains(id) && facts.kind == FileKind::Directory && facts.tmpfs
}
