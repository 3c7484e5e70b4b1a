//! Whether the caller is a CRI engine. Only its pods are trusted.

use std::path::Path;

use crate::render::identity;

/// Whether it is, by the engine's `--root` and, for containerd, by what its CRI plugin has made before.
///
/// The `--root` alone tells containerd's namespace, which every client of containerd can choose (`ctr -n k8s.io run`,
/// `nerdctl -n k8s.io run`).
pub fn is_engines(root: &Path, bundle: &Path) -> bool {
    match identity::cri_of(root) {
        None => false,
        // A client of containerd can choose the whole `--root` (`ctr -n cri-o run --runc-root DIR`), but not the
        // bundle's path.
        Some(identity::Cri::Crio) => !is_of_containerd(bundle),
        Some(identity::Cri::Containerd) => is_of_the_plugin(bundle),
    }
}

/// containerd's shims make every bundle at `STATE/io.containerd.runtime.v2.task/NAMESPACE/ID`.
fn is_of_containerd(bundle: &Path) -> bool {
    let tasks = bundle.ancestors().nth(2).and_then(Path::file_name);
    tasks.is_none_or(|tasks| tasks == "io.containerd.runtime.v2.task")
}

/// The bundle is `STATE/io.containerd.runtime.v2.task/k8s.io/ID`, and the plugin made a directory of that id for the
/// container's streams or the sandbox's shared memory, in containerd 1.6, 1.7 and 2.1 alike. containerd gives out ids:
/// no other client gets one that the plugin has.
fn is_of_the_plugin(bundle: &Path) -> bool {
    const PLUGIN: &str = "io.containerd.grpc.v1.cri";
    let Ok(bundle) = bundle.canonicalize() else {
        return false;
    };
    let (Some(id), Some(state)) = (bundle.file_name(), bundle.ancestors().nth(3)) else {
        return false;
    };
    let own = ["containers", "sandboxes"].map(|kind| state.join(PLUGIN).join(kind).join(id));
    own.iter()
        .any(|own| own.symlink_metadata().is_ok_and(|found| found.is_dir()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// M4: a client of containerd that is not its CRI plugin chooses the namespace.
    #[test]
    fn the_namespace_alone_makes_no_pod() {
        let state = std::env::temp_dir().join(format!("agentbox-cri-{}", std::process::id()));
        let bundle = |id: &str| {
            let bundle = state.join("io.containerd.runtime.v2.task/k8s.io").join(id);
            fs::create_dir_all(&bundle).unwrap();
            bundle
        };
        let root = Path::new("/run/containerd/runc/k8s.io");
        assert!(!is_engines(root, &bundle("mine")));
        for (kind, id) in [("containers", "app"), ("sandboxes", "pod")] {
            let made = state.join("io.containerd.grpc.v1.cri").join(kind).join(id);
            fs::create_dir_all(made).unwrap();
            assert!(is_engines(root, &bundle(id)), "{id}");
            assert!(!is_engines(
                Path::new("/run/containerd/runc/default"),
                &bundle(id)
            ));
        }
        assert!(!is_engines(root, &bundle("mine")));
        assert!(!is_engines(root, Path::new("/")));
        let userdata = state.join("overlay-containers/mine/userdata");
        assert!(is_engines(Path::new("/run/cri-o"), &userdata));
        assert!(!is_engines(Path::new("/mine/cri-o"), &bundle("mine")));
        fs::remove_dir_all(state).unwrap();
    }
}
