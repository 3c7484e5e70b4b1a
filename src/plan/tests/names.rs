//! Files again, 1: from which files the runtime reads names.

use oci_spec::runtime::LinuxNamespaceType;

use super::*;
use crate::plan::names::{names_file, sharers};

const UID: &str = "44ef987d-52e5-492b-83a5-a0f5664f6f43";

fn names(case: Case, target: &str) -> Result<Option<PathBuf>, PathBuf> {
    let spec = serde_json::from_value(case.spec.clone()).unwrap();
    names_file(&spec, &case.facts, target)
}

fn of(source: &str, target: &str) -> Case {
    let mut case = under("strict").set(
        "/linux",
        "cgroupsPath",
        json!(format!("/kubepods/pod{UID}/{ID}")),
    );
    case.facts.cri = true;
    let role = json!({"io.kubernetes.cri.container-type": "container"});
    case.set("", "annotations", role)
        .bind_of(FileKind::File, source, target)
}

#[test]
fn an_engines_names_files_are_known_by_target_and_source_together() {
    for (source, target) in [
        (
            format!("/var/lib/docker/containers/{ID}/hosts"),
            "/etc/hosts",
        ),
        (
            format!("/var/lib/docker/containers/{ID}/resolv.conf"),
            "/etc/resolv.conf",
        ),
        (
            format!("/run/containers/storage/overlay-containers/{ID}/userdata/hosts"),
            "/etc/hosts",
        ),
        (
            format!("/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/{ID}/resolv.conf"),
            "/etc/resolv.conf",
        ),
        (
            format!("/var/lib/kubelet/pods/{UID}/etc-hosts"),
            "/etc/hosts",
        ),
    ] {
        assert_eq!(
            names(of(&source, target), target),
            Ok(Some(source.clone().into()))
        );
        let strange =
            |change: fn(&mut SourceFacts)| names(of(&source, target).found(change), target);
        for answer in [
            strange(|f| f.trusted = false),
            strange(|f| f.kind = FileKind::Directory),
            strange(|f| f.names = [PathBuf::from("/root/.netrc")].into()),
            strange(|f| f.same_as = Some("/etc/shadow".into())),
            strange(|f| f.nameless = Some("unknown".into())),
        ] {
            assert_eq!(answer, Err(source.clone().into()));
        }
    }
}

#[test]
fn the_callers_own_mounts_there_are_not_read() {
    let host_name = format!("/var/lib/docker/containers/{ID}/hostname");
    let other = format!("/var/lib/kubelet/pods/{}/etc-hosts", UID.replace('4', "5"));
    for source in [
        "/root/.netrc",
        "/etc/hosts",
        "/etc/cron.d/x",
        &host_name,
        &other,
        "/srv/containers/hosts",
    ] {
        assert_eq!(
            names(of(source, "/etc/hosts"), "/etc/hosts"),
            Err(source.into())
        );
    }
    assert_eq!(names(under("strict"), "/etc/hosts"), Ok(None));
}

/// M3: only the container's own, or those of the container whose network it joins.
#[test]
fn another_containers_names_are_not_read() {
    let other = ID.replace('0', "f");
    let joining = |source: &str| {
        let path = "/proc/7/ns/net";
        let neighbour = Neighbour {
            id: other.clone(),
            policy: None,
            namespaces: Vec::new(),
            network: None,
            sets_ids: false,
        };
        under("standard")
            .set(
                "/linux",
                "namespaces",
                json!([{"type": "network", "path": path}]),
            )
            .neighbours(path, vec![neighbour])
            .bind_of(FileKind::File, source, "/etc/hosts")
    };
    for source in [
        format!("/var/lib/docker/containers/{other}/hosts"),
        format!("/run/containers/storage/overlay-containers/{other}/userdata/hosts"),
        format!("/var/lib/nerdctl/1935db59/etchosts/default/{other}/hosts"),
    ] {
        let alone = of(&source, "/etc/hosts");
        assert_eq!(names(alone, "/etc/hosts"), Err(source.clone().into()));
        let joined = names(joining(&source), "/etc/hosts");
        assert_eq!(joined, Ok(Some(source.into())));
    }
    // Joining another type of namespace does not help.
    let source = format!("/var/lib/docker/containers/{other}/hosts");
    let mut ipc = joining(&source);
    ipc.spec["linux"]["namespaces"][0]["type"] = json!("ipc");
    assert_eq!(names(ipc, "/etc/hosts"), Err(source.into()));
}

/// M3: an author of a volume can imitate an engine's directory in it.
#[test]
fn an_id_in_a_volume_is_not_the_engines() {
    let bundle = format!("/run/containerd/io.containerd.runtime.v2.task/moby/{ID}");
    let at = |source: &str, (bundle, rootfs): (&str, &str)| {
        let mut case = under("standard").bind_of(FileKind::File, source, "/etc/hosts");
        case.facts.bundle = bundle.into();
        case.facts.rootfs = rootfs.into();
        names(case, "/etc/hosts").is_ok()
    };
    let moved = "/srv/engine/overlay2/0a1b/merged";
    for (source, rootfs, is) in [
        (format!("/srv/engine/containers/{ID}/hosts"), moved, true),
        (
            format!("/srv/engine/containers/{ID}/hosts"),
            "/srv/engine/rootfs/overlayfs/0a1b",
            true,
        ),
        (
            format!("/srv/engine/containers/{ID}/hosts"),
            "/srv/other/overlay2/0a1b/merged",
            false,
        ),
        (format!("/srv/containers/{ID}/hosts"), moved, false),
        (
            format!("/srv/engine/volumes/v/_data/containers/{ID}/hosts"),
            moved,
            false,
        ),
        (
            format!("/var/lib/docker/volumes/v/_data/containers/{ID}/hosts"),
            "/var/lib/docker/overlay2/0a1b/merged",
            false,
        ),
        (
            format!("/var/lib/docker/volumes/v/_data/overlay-containers/{ID}/userdata/hosts"),
            "/var/lib/docker/overlay2/0a1b/merged",
            false,
        ),
    ] {
        assert_eq!(at(&source, (&bundle, rootfs)), is, "{source} {rootfs}");
    }
    for (driver, rootfs) in [
        ("overlay", "/srv/storage/overlay/0a1b/merged"),
        ("vfs", "/srv/storage/vfs/dir/0a1b"),
        ("btrfs", "/srv/storage/btrfs/subvolumes/0a1b"),
    ] {
        let own = format!("/srv/storage/{driver}-containers/{ID}/userdata");
        assert!(at(&format!("{own}/hosts"), (&own, rootfs)), "{driver}");
        let other = format!("/srv/x/{driver}-containers/{ID}/userdata/hosts");
        assert!(!at(&other, (&own, rootfs)), "{driver}");
    }
    // A link that a container may have made.
    let source = format!("/var/lib/docker/containers/{ID}/hosts");
    let link = FollowedLink {
        path: "/srv/work/link".into(),
        owner: 0,
    };
    let linked = of(&source, "/etc/hosts").found(|f| f.links = vec![link]);
    assert_eq!(names(linked, "/etc/hosts"), Err(source.into()));
}

/// A sibling of M3: only the container's own shared memory, or that of a container whose ipc namespace it shares.
#[test]
fn another_containers_shared_memory_is_refused() {
    let other = ID.replace('0', "f");
    let with = |kind: &str, id: &str| {
        let path = "/proc/7/ns/ipc";
        let neighbour = Neighbour {
            id: other.clone(),
            policy: None,
            namespaces: Vec::new(),
            network: None,
            sets_ids: false,
        };
        let case = under("standard")
            .set(
                "/linux",
                "namespaces",
                json!([{"type": kind, "path": path}]),
            )
            .neighbours(path, vec![neighbour]);
        let spec = serde_json::from_value(case.spec).unwrap();
        sharers(&spec, &case.facts, LinuxNamespaceType::Ipc, None).contains(id)
    };
    assert!(with("ipc", ID) && with("ipc", &other));
    assert!(with("network", ID) && !with("network", &other));
    for policy in ["strict", "standard"] {
        let shm = |id: &str| {
            let source = format!("/srv/memory/sandboxes/{id}/shm");
            access(&under(policy).bind(&source, "/dev/shm").plan(), "/dev/shm")
        };
        assert_eq!(shm(ID), "rw");
        assert_ne!(shm(&other), "rw", "{policy}");
    }
}
