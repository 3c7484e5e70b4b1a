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

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "0a1b2c3d-0000-4000-8000-0123456789ab";

    fn path(below: &str) -> PathBuf {
        Path::new(KUBELETS[0]).join(POD).join(below)
    }

    #[test]
    fn a_path_of_this_pod_is_in_a_volume_at_a_sub_path_or_a_message() {
        let place = |below: &str| match pod_path(POD, &path(below))? {
            PodPath::In { plugin, name } => Some(format!("in {plugin} {name}")),
            PodPath::SubPath(name) => Some(format!("sub path {name}")),
            PodPath::Message => Some("message".to_owned()),
        };
        for (below, expected) in [
            (
                "volumes/kubernetes.io~secret/keys",
                Some("in kubernetes.io~secret keys"),
            ),
            (
                "volumes/kubernetes.io~empty-dir/tmp/a/b",
                Some("in kubernetes.io~empty-dir tmp"),
            ),
            ("volume-subpaths/data/main/0", Some("sub path data")),
            ("volume-subpaths/data/main/0/below", Some("sub path data")),
            ("containers/main/0a1b2c", Some("message")),
            ("containers/main/0a1b2x", None),
            ("containers/main/0a1b2c/below", None),
            ("volumes", None),
            ("volumes/kubernetes.io~secret", None),
            ("volume-subpaths/data/main", None),
            ("etc-hosts", None),
            ("", None),
        ] {
            assert_eq!(place(below).as_deref(), expected, "{below}");
        }
    }

    #[test]
    fn a_path_of_another_pod_or_of_no_kubelet_is_not_of_this_one() {
        let volume = "volumes/kubernetes.io~secret/keys";
        for kubelet in KUBELETS {
            let own = Path::new(kubelet).join(POD).join(volume);
            assert!(pod_path(POD, &own).is_some() && is_pods(&own), "{own:?}");
            assert!(pod_path("other", &own).is_none());
            assert!(!is_pods(Path::new(kubelet)));
        }
        for other in ["/srv/kubelet/pods", "/var/lib/kubelet", "/"] {
            let imitated = Path::new(other).join(POD).join(volume);
            assert!(pod_path(POD, &imitated).is_none(), "{imitated:?}");
            assert!(!is_pods(&imitated), "{imitated:?}");
        }
    }

    #[test]
    fn the_directories_above_a_volume_are_the_kubelets_own() {
        let all = |below: &str| -> Vec<PathBuf> {
            let path = path(below);
            let all = kubelets_directories(&path).into_iter();
            all.map(Path::to_owned).collect()
        };
        let pod = path("");
        let pods = PathBuf::from(KUBELETS[0]);
        let own = |below: [&str; 2]| {
            let [first, second] = below.map(path);
            vec![first, second, path(""), pods.clone()]
        };
        let volumes = own(["volumes/kubernetes.io~secret", "volumes"]);
        assert_eq!(all("volumes/kubernetes.io~secret/keys"), volumes);
        // However deep in the volume, whose directories are its author's.
        assert_eq!(all("volumes/kubernetes.io~secret/keys/a/b"), volumes);
        assert_eq!(
            all("containers/main/0a1b"),
            own(["containers/main", "containers"])
        );
        assert_eq!(all("etc-hosts"), [pod, pods.clone()]);
        for none in ["", "volumes", "volumes/plugin", "plugins/a/b/c"] {
            assert_eq!(all(none), Vec::<PathBuf>::new(), "{none}");
        }
        assert!(kubelets_directories(Path::new("/srv/volumes/a/b/c")).is_empty());
    }

    #[test]
    fn a_token_volume_is_the_one_that_kubernetes_adds() {
        for (below, expected) in [
            (
                "volumes/kubernetes.io~projected/kube-api-access-2b4dz",
                true,
            ),
            (
                "volumes/kubernetes.io~projected/kube-api-access-2b4dz/token",
                true,
            ),
            ("volumes/kubernetes.io~secret/default-token-x7z9q", true),
            (
                "volumes/kubernetes.io~secret/my-token-app-token-x7z9q",
                true,
            ),
            // An author's own: another name, plugin or ending.
            (
                "volumes/kubernetes.io~projected/kube-api-access-token",
                false,
            ),
            (
                "volumes/kubernetes.io~projected/kube-api-access-2b4d",
                false,
            ),
            (
                "volumes/kubernetes.io~projected/kube-api-access-2b4da",
                false,
            ),
            ("volumes/kubernetes.io~secret/kube-api-access-2b4dz", false),
            ("volumes/kubernetes.io~projected/default-token-x7z9q", false),
            ("volumes/kubernetes.io~secret/default-token-first", false),
            (
                "volumes/kubernetes.io~empty-dir/kube-api-access-2b4dz",
                false,
            ),
            ("volume-subpaths/kube-api-access-2b4dz/main/0", false),
        ] {
            assert_eq!(is_token_volume(&path(below)), expected, "{below}");
        }
        let imitated = "/srv/volumes/kubernetes.io~projected/kube-api-access-2b4dz";
        assert!(!is_token_volume(Path::new(imitated)));
    }

    #[test]
    fn a_volume_with_a_secret_is_known_by_its_plugin() {
        for plugin in [SECRET, PROJECTED] {
            let name = format!("volumes/{plugin}/any");
            assert!(is_secret(&path(&name)), "{name}");
        }
        for plugin in [CONFIG, DOWNWARD, SCRATCHES] {
            let name = format!("volumes/{plugin}/any");
            assert!(!is_secret(&path(&name)), "{name}");
        }
    }

    #[test]
    fn a_pods_uid_is_read_from_a_cgroup_of_either_driver() {
        let uid = Some(POD);
        let slice = POD.replace('-', "_");
        for (cgroup, expected) in [
            (format!("/kubepods/burstable/pod{POD}/c1"), uid),
            (format!("/kubepods/pod{POD}/c1"), uid),
            (
                format!("kubepods-burstable-pod{slice}.slice:cri-containerd:c1"),
                uid,
            ),
            (
                format!(
                    "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{slice}.slice/c1"
                ),
                uid,
            ),
            // A cgroup that a caller of another engine named.
            (format!("/docker/pod{POD}"), None),
            (format!("/pod{POD}/kubepods"), None),
            ("/kubepods/burstable".to_owned(), None),
            ("/kubepods/podx".to_owned(), None),
            ("/kubepods/pod../../../etc".to_owned(), None),
            (format!("system.slice:docker:kubepods-pod{slice}"), None),
            (String::new(), None),
        ] {
            assert_eq!(pod_uid(&cgroup).as_deref(), expected, "{cgroup}");
        }
    }

    #[test]
    fn an_image_volume_is_below_the_directory_of_this_sandbox() {
        for images in IMAGES {
            let path = |below: &str| Path::new(images).join(below);
            for inside in ["s1/image", "s1/image/a/b"] {
                assert!(is_image_volume("s1", &path(inside)), "{inside}");
            }
            for outside in ["", "s1", "s2/image", "s11/image", "image/s1"] {
                assert!(!is_image_volume("s1", &path(outside)), "{outside}");
            }
        }
        assert!(!is_image_volume(
            "s1",
            Path::new("/srv/image-volumes/s1/image")
        ));
    }

    #[test]
    fn a_plugins_volumes_are_looked_for_below_every_kubelet() {
        let found: Vec<_> = volumes(POD, SECRET).collect();
        let expected = KUBELETS.map(|pods| Path::new(pods).join(POD).join("volumes").join(SECRET));
        assert_eq!(found, expected);
    }
}
