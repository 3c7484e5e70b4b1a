//! PURE. The mounts by which engines support a container, known by target and source together.

use std::path::{Path, PathBuf};

use oci_spec::runtime::Spec;

use super::judge::is_kernel_place;
use super::volumes::{Pod, is_message, pod};
use super::{BundleFacts, FileKind, SourceFacts};

/// An engine's support mount, known by its target and its source together: why it is kept, and whether writable. A
/// source with several names must be one by each of them: else it is a bind of something else.
pub(super) fn support(
    place: &str,
    pod: Option<&Pod>,
    facts: &SourceFacts,
) -> Option<(&'static str, bool)> {
    if facts.same_as.is_some() || facts.nameless.is_some() {
        return None;
    }
    let free = place == "/dev/termination-log" || !is_kernel_place(Path::new(place));
    if free && is_message(pod, facts) {
        return Some(("kubelet's file for the termination message", true));
    }
    let mut found = facts.all_names().map(|name| by_name(place, name, facts));
    let first = found.next().flatten()?;
    found.all(|other| other == Some(first)).then_some(first)
}

fn by_name(place: &str, path: &Path, facts: &SourceFacts) -> Option<(&'static str, bool)> {
    let source: Vec<&str> = path.iter().filter_map(|c| c.to_str()).collect();
    let name = place.rsplit('/').next().unwrap_or("");
    // A name alone proves nothing: what an engine writes is root's own, and its shared memory is in memory.
    let file = facts.kind == FileKind::File && facts.trusted;
    match (place, source.as_slice()) {
        ("/etc/hostname", [.., "containers", id, last]) if file && is_id(id) && *last == name => {
            Some(("Docker's host name file", false))
        }
        ("/etc/hostname", [.., "sandboxes", id, last]) if file && is_id(id) && *last == name => {
            Some(("the pod's host name file", false))
        }
        (
            "/etc/hostname" | "/run/.containerenv",
            [.., "overlay-containers", id, "userdata", last],
        ) if file && is_id(id) && *last == name => Some(("podman's file", false)),
        (
            "/dev/shm",
            [.., "overlay-containers", id, "userdata", "shm"] | [.., "sandboxes", id, "shm"],
        ) if is_id(id) && facts.kind == FileKind::Directory && facts.tmpfs => {
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

/// Where the names of a container stand, as the engine wrote them: `target` is /etc/hosts or /etc/resolv.conf. They are read
/// as root, so that what the caller mounts there is not read at all: that is an error, which names it.
pub fn names_file(
    spec: &Spec,
    bundle: &BundleFacts,
    target: &str,
) -> Result<Option<PathBuf>, PathBuf> {
    let mounts = spec.mounts().iter().flatten();
    let mut found = mounts.zip(&bundle.sources);
    let found = found.find(|(mount, _)| mount.destination() == Path::new(target));
    let Some((_, Some(facts))) = found else {
        return Ok(None);
    };
    // `wrap` gives the null device where the container's own file will be.
    if facts.kind == FileKind::Device {
        return Ok(None);
    }
    let pod = pod(spec, bundle);
    let uid = pod.as_ref().map(|pod| pod.uid.as_str());
    let whole = facts.kind == FileKind::File
        && facts.trusted
        && facts.nameless.is_none()
        // Where Docker's data lies elsewhere, it is known as Docker's.
        && facts.same_as.iter().all(|same| facts.path.starts_with(same));
    match whole && facts.all_names().all(|name| is_names(target, name, uid)) {
        true => Ok(Some(facts.path.clone())),
        false => Err(facts.path.clone()),
    }
}

/// Whether a path is where an engine keeps a container's names.
fn is_names(target: &str, path: &Path, uid: Option<&str>) -> bool {
    let name = target.rsplit('/').next().unwrap_or("");
    let parts: Vec<&str> = path.iter().filter_map(|c| c.to_str()).collect();
    match parts.as_slice() {
        // Docker's, and a pod's of containerd's.
        [.., "containers" | "sandboxes", id, last] if is_id(id) => *last == name,
        // podman's and CRI-O's.
        [.., "overlay-containers", id, "userdata", last] if is_id(id) => *last == name,
        // nerdctl's.
        [.., "etchosts", _, id, last] if is_id(id) => *last == name,
        [.., "containers", _, id, last] if is_id(id) => *last == name,
        [.., "pods", of, "etc-hosts"] => name == "hosts" && uid == Some(of),
        _ => false,
    }
}

/// An engine's container id: 64 hexadecimal digits.
fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}
