//! Whether a root file system is the engine's own layer of this container, and so may be written. Its path and the
//! engine's records decide. A caller can name any directory of the node as a root (`podman run --rootfs`,
//! `ctr run --rootfs`), which must not be written.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::ProbeError;
use super::source::{Judge, is_home};
use crate::engines::layout::{PODMAN_LISTS, docker_layer_record, is_id, is_store, podmans_list};
use crate::plan::RootOrigin;
use crate::plan::never::NeverList;

/// Larger than the records of some ten thousand containers.
const LARGEST: u64 = 32 << 20;

/// Who owns a root file system. `names` are all its names on the node.
pub(super) fn origin(
    judge: &Judge,
    root: &OwnedFd,
    (bundle, base): (&Path, &Path),
    names: &BTreeSet<PathBuf>,
) -> Result<RootOrigin, ProbeError> {
    // libcontainer also takes mounts below the root, which no check covers.
    let mounts = judge.mounts()?.mounts();
    let below = mounts
        .iter()
        .find(|m| m.point != base && m.point.starts_with(base));
    if let Some(mount) = below {
        return Ok(RootOrigin::Mounted(mount.point.clone()));
    }
    if let Some(entry) = judge.hosts.entry(root) {
        return Ok(RootOrigin::Shows(entry));
    }
    if is_in_bundle(bundle, base) {
        let shown = names.iter().find(|name| is_nodes(judge.never, name, base));
        return Ok(shown.map_or(RootOrigin::Layer, |name| RootOrigin::Shows(name.clone())));
    }
    // In a user namespace podman mounts it again itself.
    Ok(match names.iter().any(|name| is_recorded(bundle, name)) {
        true => RootOrigin::Layer,
        false => RootOrigin::Named,
    })
}

/// Whether the root is inside the bundle (containerd, buildah), or in podman's data of the container beside the bundle
/// (`--rootfs DIR:O`).
fn is_in_bundle(bundle: &Path, base: &Path) -> bool {
    let beside = bundle.parent().filter(|dir| {
        let name = dir.file_name().and_then(|name| name.to_str());
        name.is_some_and(is_id)
    });
    let inside = |dir: &Path| base != dir && base.starts_with(dir);
    inside(bundle) || beside.is_some_and(inside)
}

/// Whether a name or the path of the root is a directory of the node that no container may write. Engine stores are
/// exempt: they have the layers.
fn is_nodes(never: &NeverList, name: &Path, base: &Path) -> bool {
    let listed = never.read_only(name).is_some() || is_home(name);
    (listed || name != base && never.refuses(name).is_some()) && !is_store(name)
}

/// Whether the records of the bundle's engine say that this is the container's layer. Engines name a bundle by the
/// container's id, and keep a layer at `DATA/DRIVER/LAYER/merged` or `DATA/DRIVER/SUBDIRECTORY/LAYER`.
fn is_recorded(bundle: &Path, base: &Path) -> bool {
    let Some(data) = base.ancestors().nth(3) else {
        return false;
    };
    let below = base.strip_prefix(data).unwrap_or(base);
    let parts: Vec<&str> = below.iter().filter_map(|part| part.to_str()).collect();
    let [driver, _, last] = parts[..] else {
        return false;
    };
    let ids: Vec<&str> = bundle.iter().filter_map(|part| part.to_str()).collect();
    let ids = ids.into_iter().filter(|id| is_id(id));
    ids.into_iter().any(|id| {
        // Docker with containerd's image store; Docker with its own store; podman and CRI-O.
        driver == "rootfs" && last == id
            || dockers(data, driver, id).is_some_and(|layer| parts.contains(&layer.as_str()))
            || podmans(data, driver, (bundle, id)).is_some_and(|l| parts.contains(&l.as_str()))
    })
}

fn dockers(data: &Path, driver: &str, id: &str) -> Option<String> {
    read(&docker_layer_record(data, driver, id)).filter(|layer| !layer.is_empty())
}

/// A container in the records of containers/storage.
#[derive(Deserialize)]
struct StoredContainer {
    id: String,
    layer: String,
}

fn podmans(data: &Path, driver: &str, (bundle, id): (&Path, &str)) -> Option<String> {
    let place = podmans_list(driver);
    // A container that the next boot may drop is recorded in the run directory.
    let run = bundle.ancestors().find(|dir| dir.ends_with(&place));
    let places = [Some(data.join(&place)), run.map(Path::to_owned)];
    let files = places
        .into_iter()
        .flatten()
        .flat_map(|dir| PODMAN_LISTS.map(|name| dir.join(name)));
    files.into_iter().find_map(|file| {
        let all: Vec<StoredContainer> = serde_json::from_str(&read(&file)?).ok()?;
        let stored = all.into_iter().find(|stored| stored.id == id)?;
        (!stored.layer.is_empty()).then_some(stored.layer)
    })
}

/// Reads an engine's record: a file of this user that no other user can write.
pub(super) fn read(path: &Path) -> Option<String> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .ok()?;
    let found = file.metadata().ok()?;
    let own = found.is_file()
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.mode() & 0o022 == 0;
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text).ok()?;
    own.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::TestDir;

    const ID: &str = "86c916b67771a4d4e659ec6987d8a477c933a8ede44d7f139524aff398fc4d8f";
    const LAYER: &str = "0643acf04b82809109980b5fef30c810b457747c72132aa884c02e97c8b0beed";

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn a_layer_is_what_its_engine_has_written_down() {
        let dir = TestDir::new("layer-recorded");
        let data = dir.0.join("data");
        let docker = dir.0.join("run/moby").join(ID);
        let podman = data.join("overlay-containers").join(ID).join("userdata");
        let at = |parts: [&str; 3]| parts.iter().fold(data.clone(), |path, p| path.join(p));
        let (merged, plain) = (at(["overlay2", LAYER, "merged"]), at(["vfs", "dir", LAYER]));
        assert!(!is_recorded(&docker, &merged) && !is_recorded(&docker, &plain));
        for driver in ["overlay2", "vfs"] {
            let mounts = data.join("image").join(driver).join("layerdb/mounts");
            write(&mounts.join(ID).join("mount-id"), LAYER);
        }
        assert!(is_recorded(&docker, &merged) && is_recorded(&docker, &plain));
        assert!(is_recorded(&docker, &at(["rootfs", "overlayfs", ID])));
        for other in [
            at(["overlay2", ID, "merged"]),
            at(["rootfs", "overlayfs", LAYER]),
            PathBuf::from("/"),
            "/etc".into(),
            "/home/me/x".into(),
        ] {
            assert!(!is_recorded(&docker, &other), "{other:?}");
        }
        assert!(!is_recorded(Path::new("/run/mine"), &merged));
        // podman's.
        let merged = at(["overlay", LAYER, "merged"]);
        assert!(!is_recorded(&podman, &merged));
        let stored = format!(
            "[{{\"id\":\"x\",\"layer\":\"y\"}},{{\"id\":\"{ID}\",\"layer\":\"{LAYER}\",\"names\":[]}}]"
        );
        let list = data.join("overlay-containers/volatile-containers.json");
        write(&list, &stored);
        assert!(is_recorded(&podman, &merged));
        // A file that other users can write proves nothing.
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(&list, all).unwrap();
        assert!(!is_recorded(&podman, &merged));
    }

    #[test]
    fn a_root_in_the_bundle_is_a_layer() {
        let bundle = Path::new("/run/containerd/io.containerd.runtime.v2.task/k8s.io/x");
        assert!(is_in_bundle(bundle, &bundle.join("rootfs")));
        assert!(!is_in_bundle(bundle, bundle));
        assert!(!is_in_bundle(bundle, Path::new("/srv/image")));
        let store = Path::new("/store/overlay-containers").join(ID);
        let bundle = store.join("userdata");
        assert!(is_in_bundle(&bundle, &store.join("rootfs/merge")));
        assert!(!is_in_bundle(&bundle, Path::new("/store/overlay/x/merged")));
    }

    #[test]
    fn a_directory_of_the_node_in_a_bundle_is_not_a_layer() {
        let never = NeverList::builtin();
        let base = Path::new("/b/rootfs");
        for name in [
            "/usr",
            "/usr/lib",
            "/etc",
            "/var/lib",
            "/var/lib/x",
            "/run/x",
            "/root",
            "/home",
            "/var/lib/docker",
            "/boot",
            "/",
        ] {
            assert!(is_nodes(never, Path::new(name), base), "{name}");
        }
        let snapshot = "/var/lib/containerd/io.containerd.snapshotter.v1.native/snapshots/12";
        let vfs = format!("/var/lib/containers/storage/vfs/dir/{LAYER}");
        for name in ["/b/rootfs", "/srv/images/x", snapshot, &vfs] {
            assert!(!is_nodes(never, Path::new(name), base), "{name}");
        }
        // A bundle may be in /run; a directory of programs may not hold a root.
        let own = Path::new("/run/engine/x/rootfs");
        assert!(!is_nodes(never, own, own));
        assert!(is_nodes(
            never,
            Path::new("/usr/lib"),
            Path::new("/usr/lib")
        ));
    }
}
