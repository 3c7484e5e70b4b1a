//! PURE. Where engines keep their data, layers and files of a container. A path proves nothing alone: an author of a
//! volume can imitate an engine's directory, so the callers also look at owners, file systems and ids.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// containerd's data in its usual place.
pub const CONTAINERD: &str = "/var/lib/containerd";
/// podman's store, and CRI-O's, in its usual place.
pub const PODMAN: &str = "/var/lib/containers/storage";
/// Docker's data in its usual place.
pub const DOCKER: &str = "/var/lib/docker";

/// The lists of a store of podman and CRI-O, beside its containers. From podman 4.6 on, those of `--rm`, which the next
/// boot may drop, are in the second.
pub const PODMAN_LISTS: [&str; 2] = ["containers.json", "volatile-containers.json"];

/// Where netavark, podman's program for networks, keeps the ports that it forwards (its src/firewall/state.rs).
pub const NETAVARK_PORTS: &str = "/run/containers/networks/firewall/ports";

/// The storage drivers of containers/storage that give a container a directory (containers-storage.conf(5)).
const PODMANS_DRIVERS: [&str; 4] = ["overlay", "vfs", "btrfs", "zfs"];
/// How the directories of containerd's snapshotters begin.
const SNAPSHOTTERS: &str = "io.containerd.snapshotter.";
/// containerd's CRI plugin's directory below its state.
const CRI_PLUGIN: &str = "io.containerd.grpc.v1.cri";
/// The directory of containerd's shims below its state.
const TASKS: &str = "io.containerd.runtime.v2.task";

/// An engine's container id: 64 hexadecimal digits.
pub fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether it is the directory that podman fills from `mounts.conf` (containers-mounts.conf(5)) and mounts in every
/// container; Fedora and RHEL have such a file: `<store>/overlay-containers/<id>/userdata/run/secrets`.
pub fn is_podmans_secrets(target: &Path, source: &Path) -> bool {
    let parts: Vec<&str> = source.iter().filter_map(|part| part.to_str()).collect();
    target == Path::new("/run/secrets")
        && matches!(parts[..], [.., list, id, "userdata", "run", "secrets"] if is_podmans(list) && is_id(id))
}

/// Whether podman and CRI-O use this name for the directory of a store's containers: `DRIVER-containers`.
pub fn is_podmans(list: &str) -> bool {
    podmans_driver(list).is_some()
}

/// The storage driver in the name of such a directory.
pub fn podmans_driver(list: &str) -> Option<&str> {
    let driver = list.strip_suffix("-containers")?;
    PODMANS_DRIVERS.contains(&driver).then_some(driver)
}

/// The directory of a store's containers, for a storage driver.
pub fn podmans_list(driver: &str) -> String {
    format!("{driver}-containers")
}

/// A volume that has an id for a name.
pub fn is_anonymous_volume(path: &Path) -> bool {
    volume_name(path).is_some_and(is_id)
}

/// A path that ends as those of all volumes do, wherever an engine's data is.
pub fn is_volume_like(path: &Path) -> bool {
    volume_name(path).is_some()
}

/// `volumes/NAME/_data` of Docker and podman, `volumes/NAMESPACE/NAME/_data` of nerdctl.
fn volume_name(path: &Path) -> Option<&str> {
    let parts: Vec<&str> = path.iter().filter_map(|c| c.to_str()).collect();
    match parts[..] {
        [.., "volumes", name, "_data"] | [.., "volumes", _, name, "_data"] => Some(name),
        _ => None,
    }
}

/// `volumes/NAME/_data` of Docker and podman in its usual place.
pub fn is_named_volume(path: &Path) -> bool {
    let below = [DOCKER, PODMAN]
        .into_iter()
        .find_map(|data| path.strip_prefix(data).ok());
    let parts: Option<Vec<&str>> =
        below.map(|below| below.iter().filter_map(|c| c.to_str()).collect());
    matches!(parts.as_deref(), Some(["volumes", _, "_data"])) && !is_anonymous_volume(path)
}

/// Whether an engine uses this path for a layer, or containerd for the bundle of a task.
pub fn is_store(path: &Path) -> bool {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    let by_id = match parts[..] {
        [.., "overlay" | "overlay2" | "fuse-overlayfs", id, "merged"]
        | [.., "rootfs", _, id]
        | [.., "vfs", "dir", id]
        | [.., "btrfs", "subvolumes", id]
        | [.., "zfs", "graph", id] => is_id(id),
        // BuildKit's.
        [.., "executor", _, "rootfs"] => true,
        _ => parts
            .windows(2)
            .any(|two| is_podmans(two[0]) && is_id(two[1])),
    };
    let containerds = [SNAPSHOTTERS, "io.containerd.runtime."];
    by_id
        || parts
            .iter()
            .any(|part| containerds.iter().any(|start| part.starts_with(start)))
}

/// `.../io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs`, or below it.
pub fn is_snapshot(path: &Path) -> bool {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    parts.windows(4).any(|four| {
        four[0].starts_with("io.containerd.snapshotter.v1.")
            && (four[1], four[3]) == ("snapshots", "fs")
            && four[2].bytes().all(|b| b.is_ascii_digit())
    })
}

/// The data directory of a root file system's engine, and the usual path of it. Knows podman, CRI-O, and Docker with
/// its own stores and containerd's. `is_podmans` decides for drivers whose layout both engines use.
pub fn data_by_root(
    rootfs: &Path,
    is_podmans: impl Fn(&Path, &str) -> bool,
) -> Option<(&Path, &'static str)> {
    let data = rootfs.ancestors().nth(3)?;
    let below = rootfs.strip_prefix(data).ok()?;
    let parts: Vec<&str> = below.iter().filter_map(|part| part.to_str()).collect();
    let usual = match parts[..] {
        ["overlay", id, "merged"] if is_id(id) => PODMAN,
        ["overlay2" | "fuse-overlayfs", id, "merged"] | ["rootfs", _, id] if is_id(id) => DOCKER,
        [driver @ "vfs", "dir", id]
        | [driver @ "btrfs", "subvolumes", id]
        | [driver @ "zfs", "graph", id]
            if is_id(id) =>
        {
            match is_podmans(data, driver) {
                true => PODMAN,
                false => DOCKER,
            }
        }
        _ => return None,
    };
    Some((data, usual))
}

/// `DATA/io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs`.
pub fn data_by_layer(layer: &Path) -> Option<&Path> {
    let is_snapshotter = |path: &&Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(SNAPSHOTTERS))
    };
    layer.ancestors().find(is_snapshotter)?.parent()
}

/// `<store>/overlay-containers/<id>/userdata`.
pub fn is_of_podmans_store(bundle: &Path) -> bool {
    let list = bundle
        .parent()
        .and_then(Path::parent)
        .and_then(Path::file_name);
    let list = list.and_then(|name| name.to_str());
    bundle.ends_with("userdata") && list.is_some_and(|name| name.ends_with("-containers"))
}

/// containerd's shims make every bundle at `STATE/io.containerd.runtime.v2.task/NAMESPACE/ID`.
pub fn is_containerds_bundle(bundle: &Path) -> bool {
    let tasks = bundle.ancestors().nth(2).and_then(Path::file_name);
    tasks.is_none_or(|tasks| tasks == TASKS)
}

/// Docker's data, above the root file system of a container of its store `overlay2`.
pub fn docker_data(rootfs: &Path) -> Option<&Path> {
    let mut above = rootfs.ancestors();
    above.find(|dir| dir.ends_with("overlay2"))?.parent()
}

/// The directories that containerd's CRI plugin may have made for the container of a bundle at
/// `STATE/io.containerd.runtime.v2.task/k8s.io/ID`: for the container's streams or the sandbox's shared memory, in
/// containerd 1.6, 1.7 and 2.1 alike.
pub fn of_the_cri_plugin(bundle: &Path) -> Option<[PathBuf; 2]> {
    let (id, state) = (bundle.file_name()?, bundle.ancestors().nth(3)?);
    Some(["containers", "sandboxes"].map(|kind| state.join(CRI_PLUGIN).join(kind).join(id)))
}

/// Where Docker records the layer of a container.
pub fn docker_layer_record(data: &Path, driver: &str, id: &str) -> PathBuf {
    let mounts = data.join("image").join(driver).join("layerdb/mounts");
    mounts.join(id).join("mount-id")
}

/// The owner of a names file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamesFileOwner<'a> {
    /// The container with this id.
    Container(&'a str),
    /// The pod with this uid.
    Pod(&'a str),
}

/// The owner by whose id an engine keeps a names file (`hosts`, `resolv.conf`) at this path.
pub fn names_file_owner<'a>(name: &str, path: &'a Path) -> Option<NamesFileOwner<'a>> {
    let parts: Vec<&str> = path.iter().filter_map(|c| c.to_str()).collect();
    match parts.as_slice() {
        // podman and CRI-O.
        [.., list, id, "userdata", last] if is_podmans(list) => {
            (*last == name).then_some(NamesFileOwner::Container(id))
        }
        // Docker, and containerd for a pod; nerdctl.
        [.., "containers" | "sandboxes", id, last]
        | [.., "etchosts" | "containers", _, id, last] => {
            (*last == name).then_some(NamesFileOwner::Container(id))
        }
        [.., "pods", of, "etc-hosts"] => (name == "hosts").then_some(NamesFileOwner::Pod(of)),
        _ => None,
    }
}

/// A support mount of an engine, by its target and the path of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SupportMount<'a> {
    /// A file, which is root's own if it is the engine's: its name for people.
    File(&'static str),
    /// The shared memory of the container with this id.
    SharedMemory(&'a str),
}

/// The support mount that a target and a source's path look like.
pub fn support_mount<'a>(target: &str, source: &'a Path) -> Option<SupportMount<'a>> {
    let parts: Vec<&str> = source.iter().filter_map(|c| c.to_str()).collect();
    let name = target.rsplit('/').next().unwrap_or("");
    match (target, parts.as_slice()) {
        ("/etc/hostname", [.., "containers", id, last]) if is_id(id) && *last == name => {
            Some(SupportMount::File("Docker's host name file"))
        }
        ("/etc/hostname", [.., "sandboxes", id, last]) if is_id(id) && *last == name => {
            Some(SupportMount::File("the pod's host name file"))
        }
        ("/etc/hostname" | "/run/.containerenv", [.., list, id, "userdata", last])
            if is_podmans(list) && is_id(id) && *last == name =>
        {
            Some(SupportMount::File("podman's file"))
        }
        ("/dev/shm", [.., list, id, "userdata", "shm"]) if is_podmans(list) => {
            Some(SupportMount::SharedMemory(id))
        }
        ("/dev/shm", [.., "sandboxes", id, "shm"]) => Some(SupportMount::SharedMemory(id)),
        ("/sbin/docker-init", [.., "docker-init" | "tini" | "tini-static"]) => {
            Some(SupportMount::File("Docker's init"))
        }
        ("/run/podman-init" | "/dev/init", [.., "catatonit"]) => {
            Some(SupportMount::File("podman's init"))
        }
        _ => None,
    }
}

/// The paths of the engine's resolver and hosts files, without links. Files that are not the engine's are not here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EngineFiles {
    /// The file that the engine would mount over /etc/resolv.conf; without it the node's own counts.
    pub resolv_conf: Option<PathBuf>,
    /// The file that the engine would mount over /etc/hosts.
    pub hosts: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    /// A path with [`ID`] in the place of `ID`.
    fn path(text: &str) -> PathBuf {
        text.replace("ID", ID).into()
    }

    #[test]
    fn a_containers_id_has_64_hexadecimal_digits() {
        assert!(is_id(ID));
        for other in [
            "",
            "web",
            &ID[1..],
            &format!("{ID}0"),
            &ID.replace('0', "g"),
        ] {
            assert!(!is_id(other), "{other}");
        }
    }

    #[test]
    fn podmans_secrets_are_the_directory_of_a_container_of_its_store() {
        let target = Path::new("/run/secrets");
        let store = "/var/lib/containers/storage/overlay-containers/ID/userdata/run/secrets";
        assert!(is_podmans_secrets(target, &path(store)));
        assert!(!is_podmans_secrets(Path::new("/run/other"), &path(store)));
        for other in [
            "/srv/overlay-containers/web/userdata/run/secrets",
            "/srv/containers/ID/userdata/run/secrets",
            "/srv/aufs-containers/ID/userdata/run/secrets",
            "/srv/overlay-containers/ID/userdata/run/secrets/below",
            "/srv/overlay-containers/ID/userdata/secrets",
        ] {
            assert!(!is_podmans_secrets(target, &path(other)), "{other}");
        }
    }

    #[test]
    fn a_volume_is_known_by_its_path_and_an_anonymous_one_by_its_id() {
        for (volume, named, anonymous) in [
            ("/var/lib/docker/volumes/cache/_data", true, false),
            ("/var/lib/docker/volumes/ID/_data", false, true),
            (
                "/var/lib/containers/storage/volumes/cache/_data",
                true,
                false,
            ),
            // nerdctl's, and those of an engine whose data is elsewhere.
            (
                "/var/lib/nerdctl/1935db59/volumes/default/cache/_data",
                false,
                false,
            ),
            ("/srv/docker/volumes/cache/_data", false, false),
            ("/srv/docker/volumes/ID/_data", false, true),
        ] {
            let volume = path(volume);
            assert!(is_volume_like(&volume), "{volume:?}");
            assert_eq!(is_named_volume(&volume), named, "{volume:?}");
            assert_eq!(is_anonymous_volume(&volume), anonymous, "{volume:?}");
        }
        for other in [
            "/var/lib/docker/volumes/cache",
            "/var/lib/docker/volumes/cache/_data/below",
            "/var/lib/docker/volumes/_data",
            "/srv/cache/_data",
        ] {
            assert!(!is_volume_like(Path::new(other)), "{other}");
            assert!(!is_named_volume(Path::new(other)), "{other}");
        }
    }

    #[test]
    fn a_layer_of_an_engines_store_is_known_wherever_the_store_is() {
        for layer in [
            "/var/lib/docker/overlay2/ID/merged",
            "/var/lib/containers/storage/overlay/ID/merged",
            "/srv/fuse-overlayfs/ID/merged",
            "/var/lib/docker/rootfs/overlayfs/ID",
            "/var/lib/docker/vfs/dir/ID",
            "/var/lib/docker/btrfs/subvolumes/ID",
            "/var/lib/docker/zfs/graph/ID",
            "/var/lib/buildkit/executor/x/rootfs",
            "/srv/storage/overlay-containers/ID/userdata/anything",
            "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs",
            "/run/containerd/io.containerd.runtime.v2.task/default/ID/rootfs",
        ] {
            assert!(is_store(&path(layer)), "{layer}");
        }
        for other in [
            "/srv/overlay2/web/merged",
            "/srv/overlay2/ID/upper",
            "/srv/vfs/dir/web",
            "/srv/executor/rootfs",
            "/srv/overlay-containers/web",
            "/srv/project",
        ] {
            assert!(!is_store(&path(other)), "{other}");
        }
    }

    #[test]
    fn a_snapshot_of_containerd_has_a_number() {
        let top = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs";
        for (below, expected) in [
            ("snapshots/7/fs", true),
            ("snapshots/7/fs/etc", true),
            ("snapshots/7/work", false),
            ("snapshots/a/fs", false),
            ("7/fs", false),
        ] {
            assert_eq!(
                is_snapshot(&Path::new(top).join(below)),
                expected,
                "{below}"
            );
        }
        assert!(!is_snapshot(Path::new("/srv/snapshots/7/fs")));
        assert_eq!(
            data_by_layer(&Path::new(top).join("snapshots/7/fs")),
            Some(Path::new("/var/lib/containerd"))
        );
        assert_eq!(data_by_layer(Path::new("/srv/snapshots/7/fs")), None);
    }

    #[test]
    fn the_data_of_an_engine_is_found_above_its_root_file_system() {
        for (rootfs, podmans, expected) in [
            ("/srv/d/overlay2/ID/merged", false, Some(DOCKER)),
            ("/srv/d/fuse-overlayfs/ID/merged", false, Some(DOCKER)),
            ("/srv/d/rootfs/overlayfs/ID", false, Some(DOCKER)),
            ("/srv/d/overlay/ID/merged", false, Some(PODMAN)),
            // Both engines use these.
            ("/srv/d/vfs/dir/ID", false, Some(DOCKER)),
            ("/srv/d/vfs/dir/ID", true, Some(PODMAN)),
            ("/srv/d/btrfs/subvolumes/ID", true, Some(PODMAN)),
            ("/srv/d/zfs/graph/ID", false, Some(DOCKER)),
            ("/srv/d/overlay2/web/merged", false, None),
            ("/srv/d/vfs/dir/web", true, None),
            ("/srv/d/project/ID/merged", true, None),
        ] {
            let rootfs = path(rootfs);
            let found = data_by_root(&rootfs, |data, driver| {
                assert_eq!(data, Path::new("/srv/d"));
                assert!(["vfs", "btrfs", "zfs"].contains(&driver), "{driver}");
                podmans
            });
            let expected = expected.map(|usual| (Path::new("/srv/d"), usual));
            assert_eq!(found, expected, "{rootfs:?}");
        }
    }

    #[test]
    fn a_bundle_is_podmans_or_containerds_by_its_path() {
        for (bundle, podmans, containerds) in [
            ("/srv/s/overlay-containers/ID/userdata", true, false),
            ("/srv/s/aufs-containers/ID/userdata", true, false),
            ("/srv/s/overlay-containers/ID", false, false),
            ("/srv/s/containers/ID/userdata", false, false),
            (
                "/run/containerd/io.containerd.runtime.v2.task/k8s.io/ID",
                false,
                true,
            ),
            (
                "/run/containerd/io.containerd.runtime.v1.linux/moby/ID",
                false,
                false,
            ),
        ] {
            let bundle = path(bundle);
            assert_eq!(is_of_podmans_store(&bundle), podmans, "{bundle:?}");
            assert_eq!(is_containerds_bundle(&bundle), containerds, "{bundle:?}");
        }
        let bundle = path("/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/ID");
        let plugin = "/run/k3s/containerd/io.containerd.grpc.v1.cri";
        let expected =
            ["containers", "sandboxes"].map(|kind| Path::new(plugin).join(kind).join(ID));
        assert_eq!(of_the_cri_plugin(&bundle), Some(expected));
        assert_eq!(of_the_cri_plugin(Path::new("/bundle")), None);
    }

    #[test]
    fn dockers_data_is_above_its_store_and_has_the_record_of_a_layer() {
        let rootfs = path("/srv/docker/overlay2/ID/merged");
        assert_eq!(docker_data(&rootfs), Some(Path::new("/srv/docker")));
        assert_eq!(docker_data(Path::new("/srv/docker/vfs/dir/x")), None);
        assert_eq!(
            docker_layer_record(Path::new("/srv/docker"), "overlay2", "c1"),
            Path::new("/srv/docker/image/overlay2/layerdb/mounts/c1/mount-id")
        );
    }

    #[test]
    fn a_names_file_is_of_the_container_or_pod_in_its_path() {
        let container = Some(NamesFileOwner::Container(ID));
        for (file, expected) in [
            ("/var/lib/docker/containers/ID/hosts", container),
            (
                "/run/containerd/io.containerd.grpc.v1.cri/sandboxes/ID/hosts",
                container,
            ),
            (
                "/var/lib/nerdctl/1935db59/etchosts/default/ID/hosts",
                container,
            ),
            (
                "/var/lib/nerdctl/1935db59/containers/default/ID/hosts",
                container,
            ),
            ("/srv/s/overlay-containers/ID/userdata/hosts", container),
            (
                "/var/lib/kubelet/pods/uid-1/etc-hosts",
                Some(NamesFileOwner::Pod("uid-1")),
            ),
            // Another file of the engine's, or of somebody else.
            ("/var/lib/docker/containers/ID/resolv.conf", None),
            ("/srv/s/overlay-containers/ID/userdata/config.json", None),
            ("/srv/s/aufs-containers/ID/userdata/hosts", None),
            ("/srv/hosts", None),
        ] {
            let file = path(file);
            assert_eq!(names_file_owner("hosts", &file), expected, "{file:?}");
        }
        let pods = path("/var/lib/kubelet/pods/uid-1/etc-hosts");
        assert_eq!(names_file_owner("resolv.conf", &pods), None);
        let own = path("/var/lib/docker/containers/ID/resolv.conf");
        assert_eq!(names_file_owner("resolv.conf", &own), container);
    }

    #[test]
    fn a_support_mount_needs_its_target_and_its_source() {
        let docker = Some(SupportMount::File("Docker's host name file"));
        let pod = Some(SupportMount::File("the pod's host name file"));
        let podman = Some(SupportMount::File("podman's file"));
        let memory = Some(SupportMount::SharedMemory(ID));
        for (target, source, expected) in [
            (
                "/etc/hostname",
                "/var/lib/docker/containers/ID/hostname",
                docker,
            ),
            ("/etc/hostname", "/run/cri/sandboxes/ID/hostname", pod),
            (
                "/etc/hostname",
                "/srv/s/overlay-containers/ID/userdata/hostname",
                podman,
            ),
            (
                "/run/.containerenv",
                "/srv/s/vfs-containers/ID/userdata/.containerenv",
                podman,
            ),
            (
                "/dev/shm",
                "/srv/s/overlay-containers/ID/userdata/shm",
                memory,
            ),
            ("/dev/shm", "/run/cri/sandboxes/ID/shm", memory),
            (
                "/sbin/docker-init",
                "/usr/bin/tini-static",
                Some(SupportMount::File("Docker's init")),
            ),
            (
                "/run/podman-init",
                "/usr/libexec/podman/catatonit",
                Some(SupportMount::File("podman's init")),
            ),
            (
                "/dev/init",
                "/usr/bin/catatonit",
                Some(SupportMount::File("podman's init")),
            ),
            // Another target, another file, and a name that is no id.
            ("/etc/hosts", "/var/lib/docker/containers/ID/hosts", None),
            ("/etc/hostname", "/var/lib/docker/containers/ID/hosts", None),
            (
                "/etc/hostname",
                "/var/lib/docker/containers/web/hostname",
                None,
            ),
            (
                "/etc/hostname",
                "/srv/s/aufs-containers/ID/userdata/hostname",
                None,
            ),
            ("/dev/shm", "/srv/shm", None),
            ("/dev/shm/below", "/run/cri/sandboxes/ID/shm", None),
            ("/sbin/docker-init", "/usr/bin/sh", None),
            ("/sbin/init", "/usr/bin/tini", None),
        ] {
            let source = path(source);
            assert_eq!(
                support_mount(target, &source),
                expected,
                "{target} {source:?}"
            );
        }
    }
}
