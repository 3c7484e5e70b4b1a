//! PURE. Whether the engine made the networks of a container's namespace for containers. If so, rules `service:` may
//! lead there without the node's file.
//!
//! Docker's and podman's own networks are of this kind: their users put the containers there. A network that a CNI
//! plugin made has other tenants' pods in it, or a cloud's machines, and looks the same from inside. So an unknown
//! engine counts as neither.

use std::collections::BTreeMap;
use std::path::Path;

use crate::engines::annotation::{is_cri_dockerds, is_crio};
use crate::engines::layout::is_of_podmans_store;
use crate::engines::root::cri_of;
use crate::plan::Warning;
use crate::policy::Tool;
use crate::render::identity::ContainerIdentity;

/// Whether the engine makes networks for the container. An image cannot fake it: Docker is known by its `--root`,
/// podman by its list of containers above the bundle.
pub fn makes_networks(
    identity: &ContainerIdentity,
    bundle: &Path,
    annotations: &BTreeMap<String, String>,
) -> bool {
    let Some(name) = &identity.name else {
        return false;
    };
    match identity.engine.as_str() {
        "docker" => !is_cri_dockerds(name),
        "podman" | Tool::PODMAN_POD => is_of_podmans_store(bundle) && !is_crio(annotations),
        _ => false,
    }
}

/// The warning for a container of CRI-O whose `--root` does not show that. Annotations are no proof, so its pod is not
/// treated as a kubelet's.
pub fn unknown_crio(root: &Path, annotations: &BTreeMap<String, String>) -> Option<Warning> {
    let unknown = is_crio(annotations) && cri_of(root).is_none();
    unknown.then(|| Warning::UnknownCrio {
        root: root.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::root::engine;
    use crate::render::identity::EngineIdentity;

    const STORE: &str = "/var/lib/containers/storage/overlay-containers/4b13/userdata";
    const DEFAULT: &str = "/run/agentbox/containers";

    fn makes(root: &str, bundle: &str, pairs: &[(&str, &str)], name: Option<&str>) -> bool {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let annotations: BTreeMap<String, String> = pairs.iter().map(pair).collect();
        let told = EngineIdentity {
            name: name.map(str::to_owned),
            image: None,
        };
        let told = match engine(Path::new(root), &annotations).as_str() {
            "docker" | "podman" => told,
            _ => EngineIdentity::default(),
        };
        let identity = ContainerIdentity::of(Path::new(root), &annotations, told);
        makes_networks(&identity, Path::new(bundle), &annotations)
    }

    const PODMAN: (&str, &str) = ("io.container.manager", "libpod");

    #[test]
    fn docker_and_podman_make_networks() {
        let moby = "/run/docker/runtime-runc/moby";
        assert!(makes(moby, "/run/x", &[], Some("web")));
        assert!(makes(DEFAULT, STORE, &[PODMAN], Some("web")));
        let pod = [
            PODMAN,
            ("io.kubernetes.cri-o.ContainerType", "container"),
            ("io.kubernetes.cri-o.SandboxID", "x"),
        ];
        assert!(makes(DEFAULT, STORE, &pod, Some("web")));
        // podman 4.3 writes these for every container.
        let old = [
            PODMAN,
            ("io.kubernetes.cri-o.Created", "2026-11-22T18:31:46Z"),
            ("io.kubernetes.cri-o.TTY", "false"),
        ];
        assert!(makes(DEFAULT, STORE, &old, Some("web")));
        // cri-dockerd, and a container that Docker's own files do not mention.
        assert!(!makes(moby, "/run/x", &[], Some("k8s_POD_web_team_0")));
        assert!(!makes(moby, "/run/x", &[], None));
    }

    #[test]
    fn crio_with_another_root_is_told_so() {
        let notes = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            pairs.iter().map(pair).collect()
        };
        let own = notes(&[
            ("io.kubernetes.cri-o.ContainerType", "container"),
            ("io.kubernetes.cri-o.Name", "k8s_app"),
        ]);
        for root in ["/run/runc", "/run/crun", "/run/agentbox/containers"] {
            let said = unknown_crio(Path::new(root), &own).unwrap();
            let said = said.to_string();
            assert!(said.contains(root) && said.contains("/run/cri-o"), "{said}");
        }
        assert_eq!(unknown_crio(Path::new("/run/cri-o"), &own), None);
        // podman writes some of the keys, containerd none.
        for other in [
            notes(&[PODMAN, ("io.kubernetes.cri-o.ContainerType", "container")]),
            notes(&[("io.kubernetes.cri.container-type", "container")]),
        ] {
            assert_eq!(unknown_crio(Path::new(DEFAULT), &other), None);
        }
    }

    /// H2: no other engine does, and no image makes its engine look like one that does.
    #[test]
    fn no_other_engine_makes_networks_whatever_an_image_says() {
        let cri = [
            ("io.kubernetes.cri.container-name", "app"),
            ("nerdctl/name", "app"),
            PODMAN,
        ];
        for root in [
            "/run/containerd/runc/k8s.io",
            "/run/containerd/runc/default",
        ] {
            assert!(!makes(root, STORE, &cri, Some("app")), "{root}");
        }
        let crio = [
            PODMAN,
            ("io.kubernetes.cri-o.ContainerType", "sandbox"),
            ("io.kubernetes.cri-o.Name", "k8s_web"),
        ];
        assert!(!makes(DEFAULT, STORE, &crio, Some("web")));
        for root in [DEFAULT, "/run/runc", "/srv/other"] {
            // By hand, with an image's annotations.
            assert!(!makes(root, "/srv/bundle", &[PODMAN], Some("web")));
            assert!(!makes(root, STORE, &[], Some("web")));
            assert!(!makes(root, STORE, &[PODMAN], None));
        }
    }
}
