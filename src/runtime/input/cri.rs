//! Whether the caller is a CRI engine. Only its pods are trusted.

use std::path::Path;

use crate::engines::layout::{is_containerds_bundle, of_the_cri_plugin};
use crate::engines::root::{self as engine_root, Cri};

/// Whether it is, by the engine's `--root` and, for containerd, by what its CRI plugin has made before.
///
/// The `--root` alone tells containerd's namespace, which every client of containerd can choose (`ctr -n k8s.io run`,
/// `nerdctl -n k8s.io run`).
pub fn is_engines(root: &Path, bundle: &Path) -> bool {
    match engine_root::cri_of(root) {
        None => false,
        // A client of containerd can choose the whole `--root` (`ctr -n cri-o run --runc-root DIR`), but not the
        // bundle's path.
        Some(Cri::Crio) => !is_containerds_bundle(bundle),
        Some(Cri::Containerd) => is_of_the_plugin(bundle),
    }
}

/// The plugin made a directory of the bundle's id. containerd gives out ids: no other client gets one that the plugin
/// has.
fn is_of_the_plugin(bundle: &Path) -> bool {
    let Ok(bundle) = bundle.canonicalize() else {
        return false;
    };
    let Some(own) = of_the_cri_plugin(&bundle) else {
        return false;
    };
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
