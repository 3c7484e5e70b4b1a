//! PURE. The hosts file and resolv.conf that the runtime may read: those that the engine wrote for this container, or
//! for the container whose network it joins. They decide where rules like `service:db` lead. In a shared network that
//! affects the other container too.
//!
//! A path alone proves nothing: an author of a volume can imitate an engine's directory in it. So the file counts as
//! the engine's only if its id is one of those two and no container can write there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxNamespaceType, Spec};

use super::facts::{BundleFacts, SourceFacts};
use super::file::FileKind;
use super::judge::by_link;
use super::never::NeverList;
use super::pod::{Pod, pod};
use crate::engines::layout::{NamesFileOwner, is_id, is_podmans, names_file_owner};

/// The engine's file with a container's names: `target` is /etc/hosts or /etc/resolv.conf. It is read as root, so
/// mounts of the caller are not read: the error is the path of such a mount.
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
    // `wrap` mounts the null device where the container's own file will be.
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
        // If Docker's data is elsewhere, it is known to be Docker's.
        && facts.same_as.iter().all(|same| facts.path.starts_with(same));
    let own = whole && facts.kubelets_names().all(|name| whose.has(target, name));
    match own && is_engines(facts, bundle) {
        true => Ok(Some(facts.path.clone())),
        false => Err(facts.path.clone()),
    }
}

/// The container ids and the pod uid whose names files count.
struct NameOwners<'a> {
    /// The container, and the containers whose network it joins.
    ids: BTreeSet<&'a str>,
    /// Its pod.
    uid: Option<&'a str>,
}

/// The ids of a container and of those whose namespace of this type it joins. Engines name a bundle by the container's
/// id. The joined ones are containers of this runtime, perhaps the sandbox of its pod.
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
    /// Whether an engine keeps the names of these owners at this path.
    fn has(&self, target: &str, path: &Path) -> bool {
        let name = target.rsplit('/').next().unwrap_or("");
        match names_file_owner(name, path) {
            Some(NamesFileOwner::Container(id)) => self.ids.contains(id),
            Some(NamesFileOwner::Pod(uid)) => self.uid == Some(uid),
            None => false,
        }
    }
}

/// Whether only the engine writes where a file is: a directory that no container has writable, or Docker's data or
/// podman's store at another path. The author of a pod does not know its sandbox's id when naming a path, and
/// containerd's data can be anywhere.
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
