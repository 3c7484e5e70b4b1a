//! PURE. The annotations that engines write into a config.json.
//!
//! Docker writes none. podman and CRI-O copy annotations from an image, so a key alone proves no engine: the callers
//! combine it with [`super::root`] or with a path.

use std::collections::BTreeMap;

/// A container's annotations.
pub type Annotations = BTreeMap<String, String>;

/// The annotation in which podman and CRI-O name themselves.
pub const MANAGER: &str = "io.container.manager";
/// nerdctl's name of a container.
pub const NERDCTL_NAME: &str = "nerdctl/name";
/// The value of [`CriKeys::container_type`] for the container that holds a pod's namespaces.
pub const SANDBOX: &str = "sandbox";

/// Keys of every container of CRI-O: its name, log and so on. podman writes some of them: two for its pods, and 4.3 the
/// others for every container.
const CRIO_KEYS: &str = "io.kubernetes.cri-o.";
const ALSO_PODMAN: [&str; 4] = ["ContainerType", "Created", "SandboxID", "TTY"];
/// Keys that podman keeps for itself.
const PODMAN_KEYS: &str = "io.podman.annotations.";
/// How cri-dockerd begins the names of its containers, whose networks CNI plugins make.
const CRI_DOCKERD: &str = "k8s_";

/// The keys of a CRI engine.
#[derive(Debug)]
pub struct CriKeys {
    /// The container's name.
    pub container_name: &'static str,
    /// The pod's name.
    pub pod_name: &'static str,
    /// The pod's namespace.
    pub pod_namespace: &'static str,
    /// The image, as given to the engine.
    pub image: &'static str,
    /// The container's role in its pod.
    pub container_type: &'static str,
    /// The id of the pod's sandbox container.
    pub sandbox_id: &'static str,
}

/// containerd's keys.
pub const CONTAINERD: CriKeys = CriKeys {
    container_name: "io.kubernetes.cri.container-name",
    pod_name: "io.kubernetes.cri.sandbox-name",
    pod_namespace: "io.kubernetes.cri.sandbox-namespace",
    image: "io.kubernetes.cri.image-name",
    container_type: "io.kubernetes.cri.container-type",
    sandbox_id: "io.kubernetes.cri.sandbox-id",
};

/// CRI-O's keys.
pub const CRIO: CriKeys = CriKeys {
    container_name: "io.kubernetes.container.name",
    pod_name: "io.kubernetes.pod.name",
    pod_namespace: "io.kubernetes.pod.namespace",
    image: "io.kubernetes.cri-o.ImageName",
    container_type: "io.kubernetes.cri-o.ContainerType",
    sandbox_id: "io.kubernetes.cri-o.SandboxID",
};

/// The CRI engines, in the order in which their keys are looked up.
const CRI_ENGINES: [&CriKeys; 2] = [&CONTAINERD, &CRIO];

/// The role of a container in its pod, if a CRI engine made it; `get` looks an annotation up.
pub fn pod_role<'a>(get: impl Fn(&str) -> Option<&'a String>) -> Option<&'a str> {
    let found = CRI_ENGINES.iter().find_map(|keys| get(keys.container_type));
    found.map(String::as_str)
}

/// The sandbox that a CRI engine names for a container; `get` looks an annotation up.
pub fn sandbox_id<'a>(get: impl Fn(&str) -> Option<&'a String>) -> Option<&'a str> {
    let found = CRI_ENGINES.iter().find_map(|keys| get(keys.sandbox_id));
    found.map(String::as_str)
}

/// Whether a key is one of CRI-O's, some of which podman writes too.
pub fn is_crio_key(key: &str) -> bool {
    key.starts_with(CRIO_KEYS)
}

/// Whether CRI-O made the container. Its keys stand beside the image's, which can claim podman's but cannot remove
/// CRI-O's.
pub fn is_crio(annotations: &Annotations) -> bool {
    let mut own = annotations
        .keys()
        .filter_map(|key| key.strip_prefix(CRIO_KEYS));
    own.any(|key| !ALSO_PODMAN.contains(&key))
}

/// Whether the engine merges annotations of the image's manifest with the caller's. podman and CRI-O do, and mark a
/// container with [`MANAGER`] (podman only if unset: an image can change the value, not remove it). Docker and
/// containerd, which pass on the caller's annotations only, never mark one.
pub fn may_be_of_the_image(annotations: &Annotations) -> bool {
    annotations
        .keys()
        .any(|key| key == MANAGER || key.starts_with(PODMAN_KEYS) || is_crio_key(key))
}

/// Whether cri-dockerd named this container of Docker.
pub fn is_cri_dockerds(name: &str) -> bool {
    name.starts_with(CRI_DOCKERD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(keys: &[&str]) -> Annotations {
        let pairs = keys.iter().map(|key| ((*key).to_owned(), String::new()));
        pairs.collect()
    }

    #[test]
    fn crio_is_known_by_a_key_that_podman_never_writes() {
        assert!(is_crio(&of(&["io.kubernetes.cri-o.Name"])));
        // As podman 4.3 writes them.
        let podmans = [
            "io.container.manager",
            "io.kubernetes.cri-o.ContainerType",
            "io.kubernetes.cri-o.Created",
            "io.kubernetes.cri-o.SandboxID",
            "io.kubernetes.cri-o.TTY",
        ];
        assert!(!is_crio(&of(&podmans)));
        let both = [&podmans[..], &["io.kubernetes.cri-o.LogPath"]].concat();
        assert!(is_crio(&of(&both)));
        // An image can claim podman's keys, and cannot remove CRI-O's; others are neither's.
        for none in [
            &[][..],
            &["io.kubernetes.container.name"],
            &["io.kubernetes.cri.container-type"],
            &["io.kubernetes.cri-oX"],
        ] {
            assert!(!is_crio(&of(none)), "{none:?}");
        }
    }

    #[test]
    fn annotations_of_podman_and_crio_may_be_the_images() {
        for key in [
            MANAGER,
            "io.podman.annotations.autoremove",
            "io.kubernetes.cri-o.Image",
            "io.kubernetes.cri-o.TTY",
        ] {
            assert!(may_be_of_the_image(&of(&["other", key])), "{key}");
        }
        // Docker's and containerd's are the caller's alone, whatever the caller writes.
        for keys in [
            &[][..],
            &["dev.agentbox.policy"],
            &["io.kubernetes.cri.container-type", NERDCTL_NAME],
            &["io.container.manager.other"],
        ] {
            assert!(!may_be_of_the_image(&of(keys)), "{keys:?}");
        }
    }

    #[test]
    fn a_role_and_a_sandbox_are_looked_up_under_containerds_keys_first() {
        let pairs = |all: &[(&str, &str)]| -> Annotations {
            let all = all.iter();
            all.map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect()
        };
        let containerds = [
            ("io.kubernetes.cri.container-type", "sandbox"),
            ("io.kubernetes.cri.sandbox-id", "a"),
        ];
        let crios = [
            ("io.kubernetes.cri-o.ContainerType", "container"),
            ("io.kubernetes.cri-o.SandboxID", "b"),
        ];
        for (all, role, sandbox) in [
            (pairs(&containerds), Some(SANDBOX), Some("a")),
            (pairs(&crios), Some("container"), Some("b")),
            (
                pairs(&[containerds, crios].concat()),
                Some(SANDBOX),
                Some("a"),
            ),
            (pairs(&[]), None, None),
        ] {
            assert_eq!(pod_role(|key| all.get(key)), role);
            assert_eq!(sandbox_id(|key| all.get(key)), sandbox);
        }
    }

    #[test]
    fn a_name_of_cri_dockerd_begins_with_its_letters() {
        assert!(is_cri_dockerds("k8s_POD_web-0_default_uid_0"));
        for other in ["", "web", "/k8s_POD", "k8s-web", "my_k8s_"] {
            assert!(!is_cri_dockerds(other), "{other}");
        }
    }
}
