//! PURE. Which engine calls, by the `--root` that it passes. Unlike annotations and cgroup paths, a caller of another
//! engine cannot choose it.

use std::path::Path;

use super::annotation::{Annotations, CRIO, MANAGER};

/// Where containers have their state, unless the engine passes another `--root`.
pub const DEFAULT_ROOT: &str = "/run/agentbox/containers";

/// A CRI engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cri {
    /// containerd, in the namespace of its CRI plugin.
    Containerd,
    /// CRI-O.
    Crio,
}

/// The CRI engine of a `--root`: for containerd, the root of its namespace `k8s.io`; for CRI-O, the handler's
/// `runtime_root`, which ends in `cri-o`. Unlike annotations and cgroup paths, a caller of another engine cannot choose
/// it.
pub fn cri_of(root: &Path) -> Option<Cri> {
    let parts: Vec<&str> = root.iter().filter_map(|part| part.to_str()).collect();
    match parts[..] {
        [.., "containerd", "runc", namespace] => (namespace == "k8s.io").then_some(Cri::Containerd),
        [.., "cri-o"] => Some(Cri::Crio),
        _ => None,
    }
}

/// The engine of a container, from its `--root` and from what the engine wrote.
pub fn engine(root: &Path, annotations: &Annotations) -> String {
    let parts: Vec<&str> = root.iter().filter_map(|part| part.to_str()).collect();
    // Docker's directories are runtime-runc, runtime-agentbox ...; containerd's CRI uses the namespace k8s.io.
    let shim = |part: &&str| part.starts_with("runtime-");
    match parts[..] {
        [.., above, "moby"] if shim(&above) => return "docker".to_owned(),
        [.., "containerd", "runc", namespace] => return format!("containerd {namespace}"),
        _ => {}
    }
    let manager = annotations.get(MANAGER).map(String::as_str);
    match manager {
        Some("libpod") => "podman".to_owned(),
        Some("cri-o") => "cri-o".to_owned(),
        _ if annotations.contains_key(CRIO.container_type) => "cri-o".to_owned(),
        _ if root == Path::new(DEFAULT_ROOT) => "agentbox".to_owned(),
        _ => root.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cri_engine_is_known_by_its_root_alone() {
        for (root, expected) in [
            ("/run/containerd/runc/k8s.io", Some(Cri::Containerd)),
            ("/run/k3s/containerd/runc/k8s.io", Some(Cri::Containerd)),
            ("/run/agentbox/cri-o", Some(Cri::Crio)),
            // Other namespaces of containerd are nerdctl's and Docker's.
            ("/run/containerd/runc/default", None),
            ("/run/containerd/runc/moby", None),
            ("/run/docker/runtime-runc/moby", None),
            ("/run/containerd/runc/k8s.io/below", None),
            ("/run/runc/k8s.io", None),
            ("/run/cri-o/below", None),
            ("/run/my-cri-o", None),
            (DEFAULT_ROOT, None),
            ("", None),
        ] {
            assert_eq!(cri_of(Path::new(root)), expected, "{root}");
        }
    }

    #[test]
    fn the_root_names_the_engine_before_any_annotation() {
        let of = |pairs: &[(&str, &str)]| -> Annotations {
            let all = pairs.iter();
            all.map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect()
        };
        let (none, podman, crio) = (
            of(&[]),
            of(&[(MANAGER, "libpod")]),
            of(&[(MANAGER, "cri-o")]),
        );
        let typed = of(&[(CRIO.container_type, "sandbox")]);
        let unknown = of(&[(MANAGER, "somebody")]);
        for (root, annotations, expected) in [
            ("/run/docker/runtime-agentbox/moby", &podman, "docker"),
            ("/run/containerd/runc/k8s.io", &crio, "containerd k8s.io"),
            ("/run/containerd/runc/default", &none, "containerd default"),
            (DEFAULT_ROOT, &podman, "podman"),
            (DEFAULT_ROOT, &crio, "cri-o"),
            (DEFAULT_ROOT, &typed, "cri-o"),
            (DEFAULT_ROOT, &none, "agentbox"),
            (DEFAULT_ROOT, &unknown, "agentbox"),
            ("/run/other/moby", &none, "/run/other/moby"),
        ] {
            assert_eq!(engine(Path::new(root), annotations), expected, "{root}");
        }
    }
}
