//! PURE. The hosts file and resolv.conf that the runtime may read: those that the engine itself wrote for this
//! container, or for the one whose network it joins. They say where rules like `service:db` lead, in a network that
//! is shared also for the other container.
//!
//! A path alone proves nothing: somebody who fills a volume can imitate an engine's directory in it. So the file is
//! the engine's where its id is one of those two and it lies where no container writes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxNamespaceType, Spec};

use super::judge::by_link;
use super::never::NeverList;
use super::support::{is_id, is_podmans};
use super::volumes::{Pod, pod};
use super::{BundleFacts, FileKind, SourceFacts};

/// Where the names of a container stand, as the engine wrote them: `target` is /etc/hosts or /etc/resolv.conf. They are
/// read as root, so the caller's own mounts are not read at all: such a mount is an error with its name.
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
    let whose = NameOwners {
        ids: sharers(spec, bundle, LinuxNamespaceType::Network, pod.as_ref()),
        uid: pod.as_ref().map(|pod| pod.uid.as_str()),
    };
    let whole = facts.kind == FileKind::File
        && facts.trusted
        && facts.nameless.is_none()
        && by_link(NeverList::builtin(), facts).is_none()
        // Where Docker's data lies elsewhere, it is known as Docker's.
        && facts.same_as.iter().all(|same| facts.path.starts_with(same));
    let own = whole && facts.kubelets_names().all(|name| whose.has(target, name));
    match own && is_engines(facts, bundle) {
        true => Ok(Some(facts.path.clone())),
        false => Err(facts.path.clone()),
    }
}

/// The ids and the user whose names count.
struct NameOwners<'a> {
    /// The container, and those whose network it joins.
    ids: BTreeSet<&'a str>,
    /// Its pod.
    uid: Option<&'a str>,
}

/// The ids of a container and of those whose namespace of this type it joins. Engines name a bundle by the container's id;
/// those that it joins are other containers of this runtime, which may be the sandbox of its pod.
pub(super) fn sharers<'a>(
    spec: &'a Spec,
    bundle: &'a BundleFacts,
    kind: LinuxNamespaceType,
    pod: Option<&'a Pod>,
) -> BTreeSet<&'a str> {
    let own = bundle.bundle.iter().filter_map(|part| part.to_str());
    let linux = spec.linux().as_ref();
    let namespaces = linux.and_then(|linux| linux.namespaces().as_ref());
    let all = namespaces.into_iter().flatten();
    let shared = all.filter(|n| n.typ() == kind);
    let joined = shared.filter_map(|n| bundle.neighbours.get(n.path().as_ref()?));
    let joined = joined.flatten().map(|neighbour| neighbour.id.as_str());
    let sandbox = pod.and_then(|pod| pod.sandbox.as_deref());
    own.chain(joined)
        .chain(sandbox)
        .filter(|id| is_id(id))
        .collect()
}

impl NameOwners<'_> {
    /// Whether a path is where an engine keeps their names.
    fn has(&self, target: &str, path: &Path) -> bool {
        let name = target.rsplit('/').next().unwrap_or("");
        let parts: Vec<&str> = path.iter().filter_map(|c| c.to_str()).collect();
        match parts.as_slice() {
            // podman's and CRI-O's.
            [.., list, id, "userdata", last] if is_podmans(list) => {
                self.ids.contains(id) && *last == name
            }
            // Docker's, and a pod's of containerd's; nerdctl's.
            [.., "containers" | "sandboxes", id, last]
            | [.., "etchosts" | "containers", _, id, last] => {
                self.ids.contains(id) && *last == name
            }
            [.., "pods", of, "etc-hosts"] => name == "hosts" && self.uid == Some(of),
            _ => false,
        }
    }
}

/// Whether a file lies where the engine alone writes: in a directory that no container has for writing, or in Docker's data or
/// podman's store, where those lie elsewhere. The author of a pod does not know its sandbox's id when he names a path, and
/// containerd's data lies anywhere.
fn is_engines(facts: &SourceFacts, bundle: &BundleFacts) -> bool {
    // `overlay2/ID/merged`, `vfs/dir/ID`, `rootfs/overlayfs/ID`, `btrfs/subvolumes/ID`, `fuse-overlayfs/ID/merged`.
    let data = bundle.rootfs.ancestors().nth(3);
    let docker = data.map(|data| data.join("containers"));
    // `overlay-containers/ID/userdata`, `vfs-containers/ID/userdata`.
    let podman = bundle.bundle.ancestors().nth(2);
    let list = |store: &&Path| {
        store
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(is_podmans)
    };
    let podman = podman.filter(list);
    let above = |steps| facts.path.ancestors().nth(steps);
    let closed = above(1).is_some_and(|directory| NeverList::builtin().is_closed(directory));
    bundle.cri
        || closed
        || (docker.is_some() && above(2) == docker.as_deref())
        || (podman.is_some() && above(3) == podman)
}
