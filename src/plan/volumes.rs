//! PURE. A pod's own volumes, in a kubelet's layout: `pods/UID/volumes/PLUGIN/NAME`, and for a subPath
//! `pods/UID/volume-subpaths/NAME/CONTAINER/NUMBER`, a bind mount of a part of that volume.
//!
//! A path proves no owner: a hostPath may name another pod's volume. The container's cgroup from the kubelet shows the
//! pod. Docker's caller chooses cgroup and annotations, so these count only in a CRI engine's calls.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{Mount, Spec};

use super::facts::TokenContent;
use super::judge::{by_link, by_nature, refusal};
use super::never::{NeverList, VisibleCredentials};
use super::sort::{MountRules, MountTarget, SortedMounts};
use super::workspace::pod_role;
use super::{BindAccess, BundleFacts, FileKind, SourceFacts, Warning};
use crate::policy::{Filesystem, MountRule, Policy, SecretRule};

/// Why an emptyDir is there.
const SCRATCH: &str = "the pod's own scratch (emptyDir)";

/// Why a Secret is there.
const SECRETS: &str = "the policy gives the pod's Secrets or its token";

/// The pod directories of kubelets, including those of k0s and MicroK8s.
const KUBELETS: [&str; 3] = [
    "/var/lib/kubelet/pods",
    "/var/lib/k0s/kubelet/pods",
    "/var/snap/microk8s/common/var/lib/kubelet/pods",
];

const SECRET: &str = "kubernetes.io~secret";
const PROJECTED: &str = "kubernetes.io~projected";
const SCRATCHES: &str = "kubernetes.io~empty-dir";
const CONFIG: &str = "kubernetes.io~configmap";
const DOWNWARD: &str = "kubernetes.io~downward-api";

/// The kinds of volumes that are a pod's own.
const OWN: [&str; 5] = [SECRET, PROJECTED, SCRATCHES, CONFIG, DOWNWARD];

/// Where containerd mounts images as volumes of a pod, including k3s's and MicroK8s's: `SANDBOX/IMAGE` below it.
const IMAGES: [&str; 3] = [
    "/run/containerd/io.containerd.grpc.v1.cri/image-volumes",
    "/run/k3s/containerd/io.containerd.grpc.v1.cri/image-volumes",
    "/var/snap/microk8s/common/run/containerd/io.containerd.grpc.v1.cri/image-volumes",
];

/// The pod of a container that a CRI engine made for a kubelet.
#[derive(Debug)]
pub(super) struct Pod {
    /// Its uid.
    pub(super) uid: String,
    /// The id of its sandbox, from containerd; an annotation of the author's does not replace it there.
    pub(super) sandbox: Option<String>,
}

/// The type of one of the pod's own volumes. Storage volumes (CSI, NFS, local disks) are ordinary mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Volume {
    /// An emptyDir: made for the pod, removed with it.
    Scratch,
    /// A ConfigMap, or the downward API's data about the pod.
    Settings,
    /// An image.
    Image,
    /// A Secret.
    Secret,
    /// Several of these and tokens in one. The node cannot tell its ConfigMap files from its Secret files.
    Projected,
}

/// The position of a path in a pod's directory.
enum PodPath<'a> {
    /// In a volume.
    In { plugin: &'a str, name: &'a str },
    /// At a subPath's bind mount of a part of the volume of that name.
    SubPath(&'a str),
    /// At a container's file for its termination message.
    Message,
}

/// The pod of a container, if a CRI engine made it for a kubelet.
pub(super) fn pod(spec: &Spec, bundle: &BundleFacts) -> Option<Pod> {
    pod_role(spec).filter(|_| bundle.cri)?;
    let annotations = spec.annotations().as_ref();
    // CRI-O passes on what a pod's author writes under containerd's keys.
    let is_crio = |key: &String| key.starts_with("io.kubernetes.cri-o.");
    let of_containerd = annotations.filter(|a| !a.keys().any(is_crio));
    Some(Pod {
        uid: uid(spec)?,
        sandbox: of_containerd.and_then(|a| a.get("io.kubernetes.cri.sandbox-id").cloned()),
    })
}

/// Where a kubelet mounts the Secrets of the container's pod, each by the volume's name. Only one of several
/// directories exists; none if the container is in no pod.
pub fn secret_volumes(spec: &Spec, bundle: &BundleFacts) -> Vec<PathBuf> {
    let of_pod = |pod: Pod| {
        let below = |pods: &&str| Path::new(pods).join(&pod.uid).join("volumes").join(SECRET);
        KUBELETS.iter().map(below).collect()
    };
    pod(spec, bundle).map(of_pod).unwrap_or_default()
}

/// The uid of the pod that owns the container's cgroup: `/kubepods/burstable/podUID/...`, or with systemd
/// `kubepods-burstable-podUID.slice:...`.
fn uid(spec: &Spec) -> Option<String> {
    let path = spec.linux().as_ref()?.cgroups_path().as_ref()?.to_str()?;
    let (slices, _) = path.split_once(':').unwrap_or((path, ""));
    let mut parts = slices.split('/').filter(|part| part.contains("pod"));
    let mut seen = false;
    let uid = parts.find_map(|part| {
        let part = part.strip_suffix(".slice").unwrap_or(part);
        let uid = match part.rsplit_once("-pod") {
            Some((above, uid)) if above.contains("kubepods") => Some(uid),
            _ if seen => part.strip_prefix("pod"),
            _ => None,
        };
        seen |= part.contains("kubepods");
        uid
    })?;
    let uid = uid.replace('_', "-");
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    (uid.len() >= 8 && uid.bytes().all(plain)).then_some(uid)
}

/// The pod's own volume that a mount's source is, whole or as a subPath. All its names must agree: a source with any
/// other name is no such volume.
pub(super) fn volume(pod: Option<&Pod>, facts: &SourceFacts) -> Option<Volume> {
    let pod = pod?;
    if facts.nameless.is_some() || facts.same_as.is_some() {
        return None;
    }
    if pod.sandbox.as_ref().is_some_and(|id| is_image(id, facts)) {
        return Some(Volume::Image);
    }
    let names = facts.kubelets_names();
    let places: Vec<PodPath<'_>> = names.map(|n| place(&pod.uid, n)).collect::<Option<_>>()?;
    let volumes = places.iter().filter_map(|place| match place {
        PodPath::In { plugin, name } => Some((*plugin, *name)),
        PodPath::SubPath(_) | PodPath::Message => None,
    });
    let volumes: BTreeSet<(&str, &str)> = volumes.collect();
    let mut volumes = volumes.into_iter();
    let (Some((plugin, name)), None) = (volumes.next(), volumes.next()) else {
        return None;
    };
    let strange = |place: &PodPath<'_>| match place {
        PodPath::In { .. } => false,
        PodPath::SubPath(of) => *of != name,
        PodPath::Message => true,
    };
    if places.iter().any(strange) {
        return None;
    }
    match plugin {
        SCRATCHES => Some(Volume::Scratch),
        CONFIG | DOWNWARD => Some(Volume::Settings),
        // A kubelet keeps them in memory.
        SECRET if facts.tmpfs => Some(Volume::Secret),
        PROJECTED if facts.tmpfs => Some(Volume::Projected),
        _ => None,
    }
}

/// Whether a source is an image that containerd mounted for this sandbox: by its path, and by its layers, which are
/// containerd's snapshots.
fn is_image(sandbox: &str, facts: &SourceFacts) -> bool {
    let below = IMAGES.iter().find_map(|i| facts.path.strip_prefix(i).ok());
    let own = below.is_some_and(|below| {
        let mut parts = below.iter();
        parts.next().is_some_and(|id| id == sandbox) && parts.next().is_some()
    });
    own && !facts.names.is_empty() && facts.names.iter().all(|name| is_snapshot(name))
}

/// `.../io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs`, or below it.
fn is_snapshot(path: &Path) -> bool {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    parts.windows(4).any(|four| {
        four[0].starts_with("io.containerd.snapshotter.v1.")
            && (four[1], four[3]) == ("snapshots", "fs")
            && four[2].bytes().all(|b| b.is_ascii_digit())
    })
}

/// Whether a file is a kubelet's file for the termination message of one of the pod's containers. It is 0666, and the
/// directories above are root's. A kubelet gives it one name: with another it is another file too.
pub(super) fn is_message(pod: Option<&Pod>, facts: &SourceFacts) -> bool {
    let Some(pod) = pod.map(|p| p.uid.as_str()) else {
        return false;
    };
    let mut names = facts.kubelets_names();
    facts.kind == FileKind::File
        && facts.nameless.is_none()
        && facts.same_as.is_none()
        && !facts.hard_linked
        && names.all(|name| matches!(place(pod, name), Some(PodPath::Message)))
}

/// The warning that one of the pod's own volumes does not count as one because of another name, if so.
pub(super) fn strange(pod: Option<&Pod>, at: &Path, facts: &SourceFacts) -> Option<Warning> {
    let pod = pod?.uid.as_str();
    let is_own = |name| match place(pod, name) {
        Some(PodPath::In { plugin, .. }) => OWN.contains(&plugin),
        Some(PodPath::Message) => true,
        Some(PodPath::SubPath(_)) | None => false,
    };
    if !facts.kubelets_names().any(is_own) {
        return None;
    }
    let mut names = facts.kubelets_names();
    let name = names.find(|name| place(pod, name).is_none())?;
    Some(Warning::StrangeVolume {
        place: at.to_owned(),
        name: name.to_owned(),
    })
}

fn place<'a>(pod: &str, path: &'a Path) -> Option<PodPath<'a>> {
    let parts = in_kubelet(path)?;
    let (uid, parts) = parts.split_first()?;
    (*uid == pod).then(|| place_in(parts))?
}

/// The parts of a path below a kubelet's directory of pods.
fn in_kubelet(path: &Path) -> Option<Vec<&str>> {
    let below = KUBELETS.iter().find_map(|k| path.strip_prefix(k).ok())?;
    below.iter().map(|c| c.to_str()).collect()
}

/// The kubelet's own directories above a pod's volume or file, from the directory of all pods down. A volume is never
/// mounted on them, so an equal inode means the same directory.
pub fn kubelets_directories(path: &Path) -> Vec<&Path> {
    let Some(parts) = in_kubelet(path) else {
        return Vec::new();
    };
    // `UID/volumes/PLUGIN`, `UID/containers/NAME`, `UID`.
    let most = match parts[..] {
        [_, "volumes" | "containers", _, _, ..] => 3,
        [_, "etc-hosts"] => 1,
        _ => return Vec::new(),
    };
    let above = path.ancestors();
    above.skip(parts.len() - most).take(most + 1).collect()
}

/// The position of a path in the pod's directory.
fn place_in<'a>(parts: &[&'a str]) -> Option<PodPath<'a>> {
    match *parts {
        ["volumes", plugin, name, ..] => Some(PodPath::In { plugin, name }),
        // Or below it: another subPath may be of a directory above.
        ["volume-subpaths", name, _, _, ..] => Some(PodPath::SubPath(name)),
        ["containers", _, id] if !id.is_empty() && id.bytes().all(|b| b.is_ascii_hexdigit()) => {
            Some(PodPath::Message)
        }
        _ => None,
    }
}

/// Whether a path is in a volume that a kubelet fills with secrets: its content is then read.
pub fn is_secret(path: &Path) -> bool {
    let secret = |part: &std::ffi::OsStr| part == SECRET || part == PROJECTED;
    path.iter().any(secret)
}

/// No name marks a credential in the pod's own Secrets: policy fields decide, and a key has any name (`.npmrc`).
fn all_meant(never: &NeverList) -> VisibleCredentials {
    never.credentials().map(Path::to_owned).collect()
}

/// Why the policy withholds a volume with secrets, with the fields that would grant it; `None` if it does not.
fn withheld(files: &Filesystem, volume: Volume, holds: Option<TokenContent>) -> Option<String> {
    const TOKEN: &str = "filesystem.service-account-token = \"read-only\"";
    const SECRETS: &str = "filesystem.secrets = \"read-only\"";
    let (with_token, with_more) = match holds {
        Some(TokenContent::NoToken) => (false, true),
        Some(TokenContent::TokenAlone) => (true, false),
        // Also if the content could not be read.
        Some(TokenContent::TokenAndMore) | None => (true, true),
    };
    let token = with_token && files.service_account_token != SecretRule::ReadOnly;
    let more = with_more && files.secrets != SecretRule::ReadOnly;
    let what = match (holds, volume) {
        (None, _) if token => {
            "it is empty or cannot be read to its end, so that a token of the pod's service account may be in it, now or later"
        }
        (Some(TokenContent::TokenAndMore), _) if token => {
            "it holds a token of the pod's service account and something else"
        }
        _ if token => "it holds a token of the pod's service account",
        (_, Volume::Projected) => {
            "it may hold a Secret, which looks like a ConfigMap in a projected volume"
        }
        _ => "it is a Secret of the pod",
    };
    match (token, more) {
        (false, false) => None,
        (false, true) => Some(format!("{what}: {SECRETS} gives it")),
        (true, false) => Some(format!(
            "{what}: a policy of the node may give it ({TOKEN})"
        )),
        (true, true) => Some(format!(
            "{what}: a policy of the node may give it ({TOKEN}, with {SECRETS})"
        )),
    }
}

/// Why a bind mount is refused under any mount rules; for the pod's own Secrets the policy's fields decide.
pub(super) fn refused(
    rules: MountRules<'_>,
    destination: &Path,
    volume: Option<Volume>,
    facts: &SourceFacts,
) -> Option<String> {
    match volume {
        Some(secret @ (Volume::Secret | Volume::Projected)) => {
            let meant = all_meant(rules.never);
            let files = &rules.policy.filesystem;
            refusal(rules.never, &meant, destination, facts)
                .or_else(|| withheld(files, secret, facts.holds))
        }
        // Its path and its layers are the engine's own, which are never mounted otherwise.
        Some(Volume::Image) => {
            by_nature(rules.never, destination, facts).or_else(|| by_link(rules.never, facts))
        }
        _ => refusal(rules.never, rules.meant, destination, facts),
    }
}

impl SortedMounts {
    /// The pod's own scratch. If the policy mounts only the workspace, programs on it cannot be executed.
    pub(super) fn scratch(
        &mut self,
        policy: &Policy,
        mount: &Mount,
        facts: &SourceFacts,
        access: BindAccess,
    ) {
        let mut mount = mount.clone();
        if policy.filesystem.mounts == MountRule::Drop {
            let options = mount.options().iter().flatten().cloned();
            mount.set_options(Some(options.chain(["noexec".to_owned()]).collect()));
        }
        self.keep_bind(&mount, facts, access, SCRATCH.to_owned());
    }

    /// One of the pod's Secrets. The author chose the names in it, and its files are meant to be visible.
    pub(super) fn secret(&mut self, mount: &Mount, facts: &SourceFacts, named: MountTarget<'_>) {
        self.keep_bind(mount, facts, BindAccess::ReadOnly, SECRETS.to_owned());
        if named.is_workspace {
            self.workspace = Some(mount.destination().clone());
        }
    }
}
