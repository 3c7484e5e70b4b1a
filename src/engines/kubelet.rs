//! PURE. A kubelet's directories: `pods/UID/volumes/PLUGIN/NAME`, and for a subPath
//! `pods/UID/volume-subpaths/NAME/CONTAINER/NUMBER`, a bind mount of a part of that volume. A path proves no owner: a
//! hostPath may name another pod's volume.

use std::path::{Path, PathBuf};

/// The pod directories of kubelets, including those of k0s and MicroK8s.
const KUBELETS: [&str; 3] = [
    "/var/lib/kubelet/pods",
    "/var/lib/k0s/kubelet/pods",
    "/var/snap/microk8s/common/var/lib/kubelet/pods",
];

/// Where a kubelet mounts a token of the pod's service account, in every container unless the pod says otherwise.
pub const TOKEN_MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Volumes with a Secret.
pub const SECRET: &str = "kubernetes.io~secret";
/// Volumes with several sources in one.
pub const PROJECTED: &str = "kubernetes.io~projected";
/// Volumes that are empty at first, and removed with the pod.
pub const SCRATCHES: &str = "kubernetes.io~empty-dir";
/// Volumes with a ConfigMap.
pub const CONFIG: &str = "kubernetes.io~configmap";
/// Volumes with data about the pod.
pub const DOWNWARD: &str = "kubernetes.io~downward-api";

/// Where containerd mounts images as volumes of a pod, including k3s's and MicroK8s's: `SANDBOX/IMAGE` below it.
const IMAGES: [&str; 3] = [
    "/run/containerd/io.containerd.grpc.v1.cri/image-volumes",
    "/run/k3s/containerd/io.containerd.grpc.v1.cri/image-volumes",
    "/var/snap/microk8s/common/run/containerd/io.containerd.grpc.v1.cri/image-volumes",
];

/// The position of a path in a pod's directory.
#[derive(Debug)]
pub enum PodPath<'a> {
    /// In a volume.
    In {
        /// The volume's plugin.
        plugin: &'a str,
        /// The volume's name.
        name: &'a str,
    },
    /// At a subPath's bind mount of a part of the volume of that name.
    SubPath(&'a str),
    /// At a container's file for its termination message.
    Message,
}

/// The position of a path in the directory of the pod with this uid.
pub fn pod_path<'a>(pod: &str, path: &'a Path) -> Option<PodPath<'a>> {
    let parts = in_kubelet(path)?;
    let (uid, parts) = parts.split_first()?;
    (*uid == pod).then(|| place_in(parts))?
}

/// Whether a path is a pod's, as a kubelet makes them.
pub fn is_pods(path: &Path) -> bool {
    in_kubelet(path).is_some_and(|parts| !parts.is_empty())
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

/// Whether a path is in the volume that a kubelet adds for the token of the pod's service account: projected, or before
/// Kubernetes 1.21 a Secret. An author's own volume has another name.
pub fn is_token_volume(path: &Path) -> bool {
    let parts = in_kubelet(path);
    let place = parts.as_deref().and_then(|parts| place_in(parts.get(1..)?));
    match place {
        Some(PodPath::In {
            plugin: PROJECTED,
            name,
        }) => name.strip_prefix("kube-api-access-").is_some_and(is_random),
        Some(PodPath::In {
            plugin: SECRET,
            name,
        }) => name
            .rsplit_once("-token-")
            .is_some_and(|(_, end)| is_random(end)),
        _ => false,
    }
}

/// Whether Kubernetes made an ending: five letters and digits that form no words (apimachinery's `rand.SafeEncodeString`).
fn is_random(text: &str) -> bool {
    const OF: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    text.len() == 5 && text.bytes().all(|byte| OF.contains(&byte))
}

/// Whether a path is in a volume that a kubelet fills with secrets: its content is then read.
pub fn is_secret(path: &Path) -> bool {
    let secret = |part: &std::ffi::OsStr| part == SECRET || part == PROJECTED;
    path.iter().any(secret)
}

/// The uid of the pod that owns the container's cgroup: `/kubepods/burstable/podUID/...`, or with systemd
/// `kubepods-burstable-podUID.slice:...`.
pub fn pod_uid(cgroups_path: &str) -> Option<String> {
    let (slices, _) = cgroups_path.split_once(':').unwrap_or((cgroups_path, ""));
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

/// Where kubelets mount the volumes of a plugin for a pod: only one of these directories exists.
pub fn volumes(uid: &str, plugin: &str) -> impl Iterator<Item = PathBuf> {
    KUBELETS
        .iter()
        .map(move |pods| Path::new(pods).join(uid).join("volumes").join(plugin))
}

/// Whether a path is an image, or in one, that containerd mounted for this sandbox.
pub fn is_image_volume(sandbox: &str, path: &Path) -> bool {
    let below = IMAGES.iter().find_map(|i| path.strip_prefix(i).ok());
    below.is_some_and(|below| {
        let mut parts = below.iter();
        parts.next().is_some_and(|id| id == sandbox) && parts.next().is_some()
    })
}
