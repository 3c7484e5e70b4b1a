//! Which mounts are kept, with what access, and why not.

use super::*;
use crate::plan::CredentialDirectory;

#[test]
fn a_support_mount_is_known_by_target_and_source_together() {
    let docker = format!("/var/lib/docker/containers/{ID}/hostname");
    let pod = format!("/run/containerd/io.containerd.grpc.v1.cri/sandboxes/{ID}");
    let podman = format!("/var/lib/containers/storage/overlay-containers/{ID}/userdata");
    let log = "/var/lib/kubelet/pods/44ef987d/containers/a/abfecb25";
    for (kind, source, destination, expect) in [
        (FileKind::File, docker.clone(), "/etc/hostname", "ro"),
        (
            FileKind::File,
            format!("{pod}/hostname"),
            "/etc/hostname",
            "ro",
        ),
        (
            FileKind::File,
            format!("{podman}/hostname"),
            "/etc/hostname",
            "ro",
        ),
        (
            FileKind::File,
            format!("{podman}/.containerenv"),
            "/run/.containerenv",
            "ro",
        ),
        (
            FileKind::Directory,
            format!("{podman}/shm"),
            "/dev/shm",
            "rw",
        ),
        (FileKind::Directory, format!("{pod}/shm"), "/dev/shm", "rw"),
        (
            FileKind::File,
            "/usr/bin/docker-init".to_owned(),
            "/sbin/docker-init",
            "ro",
        ),
        (
            FileKind::File,
            "/usr/bin/tini".to_owned(),
            "/sbin/docker-init",
            "ro",
        ),
        (
            FileKind::File,
            "/usr/libexec/podman/catatonit".to_owned(),
            "/run/podman-init",
            "ro",
        ),
    ] {
        let plan = under("strict").bind_of(kind, &source, destination).plan();
        assert_eq!(access(&plan, destination), expect, "{source}:{destination}");
        let plan = under("strict")
            .bind_of(kind, &source, destination)
            .options(&["ro"])
            .plan();
        assert_eq!(
            access(&plan, destination),
            "ro",
            "{source}:{destination}:ro"
        );
    }
    for (kind, source, destination) in [
        (FileKind::File, "/etc/shadow".to_owned(), "/etc/hostname"),
        (FileKind::File, docker.clone(), "/etc/passwd"),
        (FileKind::Directory, docker.clone(), "/etc/hostname"),
        (FileKind::File, docker.replace(ID, "short"), "/etc/hostname"),
        (
            FileKind::File,
            format!("/var/lib/docker/containers/{ID}/config.v2.json"),
            "/etc/hostname",
        ),
        (FileKind::Directory, "/dev/shm".to_owned(), "/dev/shm"),
        (FileKind::Directory, format!("{pod}/shm"), "/shm"),
        (
            FileKind::File,
            "/usr/bin/bash".to_owned(),
            "/sbin/docker-init",
        ),
        (FileKind::File, log.to_owned(), "/dev/termination-log"),
    ] {
        for policy in ["strict", "standard", "permissive"] {
            let plan = under(policy).bind_of(kind, &source, destination).plan();
            // Another mount is checked like any other: by the policy's rule, or by the never list.
            let answer = access(&plan, destination);
            let judged = if source.starts_with("/usr") && policy != "strict" {
                answer.len() == 2
            } else {
                answer.len() > 2
            };
            assert!(judged, "{policy}: {source}:{destination}: {answer}");
        }
    }
}

#[test]
fn hosts_and_resolv_conf_are_replaced_whatever_their_source_and_spelling() {
    for (source, destination) in [
        ("/etc/shadow", "/etc/hosts"),
        ("/srv/mine", "/etc//hosts"),
        ("/srv/mine", "/etc/./hosts/"),
    ] {
        let plan = under("permissive")
            .bind_of(FileKind::File, source, destination)
            .plan();
        assert_eq!(
            plan.filesystem.replaced,
            [PathBuf::from("/etc/hosts")].into()
        );
        assert_eq!(
            (plan.filesystem.mounts, plan.filesystem.pruned),
            (vec![], vec![])
        );
    }
}

#[test]
fn no_policy_mounts_a_path_of_the_never_list() {
    for (kind, source, why) in [
        (FileKind::Directory, "/", "whole file system"),
        (FileKind::File, "/etc/shadow", "password hashes"),
        (
            FileKind::Directory,
            "/var/lib/docker/overlay2/x",
            "every container",
        ),
        (FileKind::Directory, "/home/me/.ssh", "credentials"),
        (FileKind::Socket, "/srv/agent", "socket"),
        (FileKind::Device, "/srv/disk", "device"),
        (FileKind::Fifo, "/srv/pipe", "pipe"),
    ] {
        let case = under("permissive").bind_of(kind, source, "/data");
        assert!(
            access(&case.plan(), "/data").contains(why),
            "{source}: {}",
            access(&case.plan(), "/data")
        );
        let message = case.annotation("workspace", "/data").refused();
        assert!(
            message.contains(why) && message.contains("workspace"),
            "{message}"
        );
    }
    let plan = under("permissive")
        .bind("/var/lib/docker/volumes/v/_data", "/data")
        .plan();
    assert_eq!(access(&plan, "/data"), "rw");
}

/// Docker's data-root may be anywhere: paths below it are then known as Docker's.
#[test]
fn dockers_host_name_file_is_kept_if_its_data_was_moved() {
    let file = format!("/srv/docker/containers/{ID}/hostname");
    let case = |destination: &str, same: &str| {
        let case = under("standard").bind_of(FileKind::File, &file, destination);
        let case = case.found(|f| f.same_as = Some(same.into()));
        access(&case.plan(), destination)
    };
    assert_eq!(case("/etc/hostname", "/srv/docker/containers"), "ro");
    for (destination, same) in [
        ("/data", "/srv/docker/containers"),
        ("/etc/hostname", "/srv/docker/cont"),
        ("/etc/hostname", "/etc/shadow"),
    ] {
        let said = case(destination, same);
        assert_eq!(said, format!("it is {same} under another name"));
    }
}

#[test]
fn another_name_of_a_refused_directory_is_refused() {
    let alias = under("permissive")
        .bind("/srv/alias", "/data")
        .found(|f| f.same_as = Some("/etc".into()));
    assert_eq!(
        access(&alias.plan(), "/data"),
        "it is /etc under another name"
    );
    for (name, why) in [
        ("/etc/kubernetes", "under another name: it holds the host's"),
        ("/home/me/.ssh", "credentials"),
        ("/", "whole file system"),
    ] {
        let case = under("permissive")
            .bind("/var/lib/docker/volumes/v/_data", "/data")
            .found(|f| f.names = [name.into()].into());
        let answer = access(&case.plan(), "/data");
        assert!(answer.contains(why) && answer.contains(name), "{answer}");
        assert!(case.cwd("/data").refused().contains(why));
    }
    let case = under("permissive")
        .bind("/srv/alias", "/data")
        .found(|f| f.names = ["/srv/other".into(), "/var/lib".into()].into());
    assert!(
        case.plan()
            .filesystem
            .masked
            .contains(&PathBuf::from("/data/docker"))
    );
}

#[test]
fn an_unidentifiable_source_and_the_kernels_own_are_refused() {
    let case = |change: fn(&mut SourceFacts)| {
        let case = under("permissive").bind("/srv/x", "/data").found(change);
        access(&case.plan(), "/data")
    };
    let proc = case(|f| f.file_system.magic = 0x9fa0);
    assert!(proc.contains("process table"), "{proc}");
    let devices = case(|f| f.file_system.kind = "devtmpfs".to_owned());
    assert!(devices.contains("\"devtmpfs\""), "{devices}");
    let lost = case(|f| f.nameless = Some("a layer is lost".to_owned()));
    assert!(lost.contains("a layer is lost"), "{lost}");
}

#[test]
fn a_bind_of_something_else_is_no_support_mount() {
    let source = format!("/var/lib/docker/containers/{ID}/hostname");
    let case = |name: &str| {
        let names = [PathBuf::from(name)].into();
        under("strict")
            .bind_of(FileKind::File, &source, "/etc/hostname")
            .found(|f| f.names = names)
            .plan()
    };
    assert_ne!(access(&case("/etc/shadow"), "/etc/hostname"), "ro");
    // The engine's directory on its own disk.
    let disk = format!("/mnt/disk/docker/containers/{ID}/hostname");
    assert_eq!(access(&case(&disk), "/etc/hostname"), "ro");
}

#[test]
fn a_link_on_the_way_is_the_nodes_own_or_the_mount_is_refused() {
    let case = |path: &str, owner: u32| {
        let link = FollowedLink {
            path: path.into(),
            owner,
        };
        let case = under("permissive")
            .bind("/srv/x", "/data")
            .found(|f| f.links = vec![link]);
        access(&case.plan(), "/data")
    };
    for path in [
        "/srv/current",
        "/opt/x",
        "/var/run",
        "/home/me",
        "/usr/x/y",
        "/link",
    ] {
        assert_eq!(case(path, 0), "rw", "{path}");
        assert!(case(path, 1000).contains(path), "{path}");
    }
    for path in [
        "/srv/workspace/sub",
        "/home/me/project",
        "/data/x",
        "/root/x",
    ] {
        let answer = case(path, 0);
        let closed = path == "/root/x";
        assert_eq!(
            answer.contains("name /srv/x itself"),
            !closed,
            "{path}: {answer}"
        );
    }
}

#[test]
fn directories_of_the_nodes_programs_are_never_writable() {
    for source in [
        "/usr",
        "/usr/local/bin",
        "/var/spool/cron",
        "/root",
        "/home",
        "/srv",
    ] {
        let data = under("permissive").bind(source, "/data").plan();
        assert_eq!(access(&data, "/data"), "ro", "{source}");
        let why = data.filesystem.mounts[0].why.to_string();
        assert!(why.contains("always read-only"), "{why}");
        let work = || under("permissive").bind(source, "/data").cwd("/data");
        let message = work().refused();
        assert!(message.contains("read-only"), "{message}");
        assert_eq!(access(&work().options(&["ro"]).plan(), "/data"), "ro");
        let read = work().annotation("filesystem.workspace", "read-only");
        assert_eq!(access(&read.plan(), "/data"), "ro");
    }
    // Nor the directory of the runtime itself.
    let own = under("strict")
        .bind("/srv/tools", "/data")
        .cwd("/data")
        .found(|f| f.runtime = Some("bin/agentbox".into()));
    assert!(own.refused().contains("bin/agentbox"));
    // Under another name too.
    let alias = under("permissive")
        .bind("/mnt/disk/x", "/data")
        .found(|f| f.names = ["/usr/lib/x".into()].into());
    assert_eq!(access(&alias.plan(), "/data"), "ro");
}

#[test]
fn credentials_that_the_policy_makes_visible_are_mounted() {
    let login = || {
        under("standard")
            .bind_of(FileKind::File, "/home/me/.codex/auth.json", "/data")
            .site(|p| p.filesystem.credentials = [".codex/auth.json".parse().unwrap()].into())
    };
    assert_eq!(access(&login().plan(), "/data"), "ro");
    let other = login().site(|p| p.filesystem.credentials = [".npmrc".parse().unwrap()].into());
    assert!(access(&other.plan(), "/data").contains("credentials"));
}

/// The mount point makes no credential of a directory, but there is a warning.
#[test]
fn a_key_of_the_containers_own_is_mounted_with_a_warning() {
    for (place, expect) in [
        ("/root/.ssh", true),
        ("/root/.ssh/deploy", true),
        ("/root/keys", false),
    ] {
        let project = under("standard").bind("/srv/work", "/work").cwd("/work");
        let plan = project.bind("/srv/deploy-keys", place).plan();
        assert_eq!(access(&plan, place), "ro");
        let told = plan
            .warnings
            .iter()
            .any(|w| w.to_string().contains("/srv/deploy-keys"));
        assert_eq!(told, expect, "{place}: {:?}", plan.warnings);
        let own = under("permissive").bind("/home/me/.ssh", place).plan();
        assert!(access(&own, place).contains("credentials"));
    }
}

#[test]
fn sockets_credentials_and_host_paths_inside_a_kept_mount_are_masked() {
    let inside = vec![FoundCredential::hidden(
        "me/agent.sock".into(),
        "it is a socket".into(),
        1,
    )];
    let unsearched = |policy: &str| {
        under(policy).bind("/var/lib", "/data").found(|f| {
            f.inside = inside.clone();
            f.unsearched = Some("too many files".to_owned());
        })
    };
    // An incomplete search may have missed a credential.
    let message = unsearched("standard").refused();
    assert!(
        message.contains("too many files") && message.contains("filesystem.search"),
        "{message}"
    );
    let plan = unsearched("permissive").plan();
    for path in ["/data/me/agent.sock", "/data/docker", "/data/kubelet"] {
        assert!(
            plan.filesystem.masked.contains(&PathBuf::from(path)),
            "{path}"
        );
    }
    assert!(
        plan.warnings
            .iter()
            .any(|w| w.to_string().contains("too many files")),
        "{:?}",
        plan.warnings
    );
}

/// F22: each directory of a found credential is recorded with its inode, except below an overlay.
#[test]
fn the_directories_of_found_credentials_are_recorded() {
    let found = |inside: Option<u64>| {
        let plan = under("standard").bind("/srv/x", "/data").found(|f| {
            let hidden = FoundCredential::hidden("a/.aws".into(), "it holds credentials".into(), 1);
            f.inside = vec![FoundCredential {
                directory: inside,
                ..hidden
            }];
        });
        plan.plan().filesystem.found_in
    };
    let expect = CredentialDirectory {
        directory: "/data/a".into(),
        inodes: [7].into(),
    };
    assert_eq!(found(Some(7)), [expect]);
    assert_eq!(found(None), []);
    // Another mount covers the directory.
    let hidden = FoundCredential {
        directory: Some(7),
        ..FoundCredential::hidden("a/.aws".into(), "it holds credentials".into(), 1)
    };
    let plan = under("standard").bind("/srv/x", "/data");
    let plan = plan.found(|f| f.inside = vec![hidden.clone()]);
    let plan = plan.bind("/srv/y", "/data/a").plan();
    assert_eq!(plan.filesystem.found_in, []);
}

/// F2-H1: each directory of the name, none above.
#[test]
fn the_directories_that_identify_a_credential_are_held_in_place() {
    let inside = [
        ("me/.cargo/credentials.toml", 2),
        ("me/.local/share/keyrings", 3),
        (".config/gh", 2),
        ("keyrings", 3),
        ("me/.ssh", 1),
        ("me/agent.sock", 1),
    ];
    let inside =
        inside.map(|(path, known_by)| FoundCredential::hidden(path.into(), "w".into(), known_by));
    let case = under("standard").bind("/srv/x", "/data");
    let plan = case.found(|f| f.inside = inside.to_vec()).plan();
    let expect = [".config", "me/.cargo", "me/.local", "me/.local/share"];
    let pinned: Vec<_> = plan.filesystem.pinned.into_iter().collect();
    assert_eq!(pinned, expect.map(|p| PathBuf::from("/data").join(p)));
}

#[test]
fn the_path_of_a_pruned_mount_stays_masked() {
    let project = || under("standard").bind("/srv/project", "/project");
    let plan = project()
        .bind_of(FileKind::Device, "/dev/null", "/project/.env")
        .plan();
    assert!(
        plan.filesystem
            .masked
            .contains(&PathBuf::from("/project/.env"))
    );
    // Over the image's own files there is nothing of the host to hide.
    let plan = project()
        .bind_of(FileKind::Device, "/dev/null", "/other")
        .plan();
    assert!(!plan.filesystem.masked.contains(&PathBuf::from("/other")));
}

#[test]
fn no_mount_replaces_the_kernels_files_or_the_root() {
    for place in [
        "/",
        "/proc",
        "/proc/self/x",
        "/proc/",
        "//proc",
        "/sys",
        "/sys/fs/cgroup/y",
        "/dev",
        "/dev/null",
        "/dev/shm/x",
    ] {
        let bind = under("permissive").bind("/srv/data", place).plan();
        assert_eq!(
            (bind.filesystem.mounts.len(), bind.filesystem.pruned.len()),
            (0, 1),
            "{place}"
        );
        if place != "/dev" {
            let tmpfs = under("permissive").tmpfs(place).plan();
            assert_eq!(
                (tmpfs.filesystem.mounts.len(), tmpfs.filesystem.pruned.len()),
                (0, 1),
                "{place}"
            );
        }
    }
    for (typ, place) in [
        ("proc", "/srv/proc"),
        ("sysfs", "/proc"),
        ("overlay", "/data"),
        ("ext4", "/data"),
        ("cgroup2", "/cgroup"),
        ("none", "/data"),
    ] {
        let plan = under("permissive")
            .mount(typ, typ, place, &["rw"], None)
            .plan();
        assert_eq!(plan.filesystem.pruned.len(), 1, "{typ} at {place}");
    }
}

#[test]
fn kernel_file_systems_get_the_options_of_the_plan() {
    for (typ, place, expect) in [
        ("proc", "/proc/", "nosuid,nodev,noexec"),
        ("sysfs", "/sys", "nosuid,nodev,noexec,ro"),
        ("cgroup", "/sys/fs/cgroup", "nosuid,nodev,noexec,ro"),
        ("mqueue", "/dev/mqueue", "nosuid,nodev,noexec"),
        ("devpts", "/dev/pts", "rw,mode=0620,nosuid,noexec"),
        (
            "tmpfs",
            "/dev",
            "rw,mode=0620,nosuid,noexec,size=16777216,nr_inodes=16384",
        ),
        (
            "tmpfs",
            "/data",
            "rw,mode=0620,nosuid,nodev,size=16777216,nr_inodes=16384",
        ),
    ] {
        let plan = under("strict")
            .mount(
                typ,
                typ,
                place,
                &["rw", "suid", "dev", "rshared", "mode=0620"],
                None,
            )
            .plan();
        assert_eq!(
            plan.filesystem.mounts[0].options().join(","),
            expect,
            "{typ}"
        );
        assert_eq!(plan.network.sysfs, typ == "sysfs");
    }
}

#[test]
fn a_second_cgroup_mount_is_left_out_under_any_name() {
    for (typ, place) in [
        ("cgroup", "/sys/fs/cgroup"),
        ("cgroup2", "/sys/fs/cgroup"),
        ("cgroup", "/sys/fs/cgroup/"),
        ("cgroup2", "//sys/fs/./cgroup"),
    ] {
        let case = under("permissive").mount("cgroup", "cgroup", "/sys/fs/cgroup", &["rw"], None);
        let plan = case.mount(typ, "cgroup", place, &["rw"], None).plan();
        let kept: Vec<&str> = plan
            .filesystem
            .mounts
            .iter()
            .map(PlannedMount::type_name)
            .collect();
        assert_eq!(kept, ["cgroup"], "{typ} at {place}");
        assert_eq!(plan.filesystem.pruned.len(), 1, "{typ} at {place}");
        assert!(!plan.filesystem.mounts[0].is_writable());
    }
}

#[test]
fn a_destination_that_is_no_plain_absolute_path_is_an_error() {
    for place in ["", ".", "data", "/data/..", "/data/../etc", "../proc"] {
        let message = under("standard").tmpfs(place).refused();
        assert!(message.contains("destination"), "{place}: {message}");
    }
}

#[test]
fn each_mount_rule_gives_its_access() {
    let case = |policy: &str| {
        under(policy)
            .bind("/srv/work", "/work")
            .bind("/srv/data", "/data")
            .cwd("/work")
            .annotation("workspace", "/work")
    };
    for (policy, work, data) in [
        ("strict", "rw", "policy 'strict' keeps the workspace alone"),
        ("standard", "rw", "ro"),
        ("permissive", "rw", "rw"),
    ] {
        let plan = case(policy).plan();
        assert_eq!(
            (access(&plan, "/work"), access(&plan, "/data")),
            (work.to_owned(), data.to_owned())
        );
    }
    // The engine's `ro` stays.
    let plan = case("permissive").options(&["ro"]).plan();
    assert_eq!(access(&plan, "/data"), "ro");
    let plan = case("permissive")
        .annotation("filesystem.workspace", "read-only")
        .plan();
    assert_eq!(access(&plan, "/work"), "ro");
    let none = under("strict").bind("/srv/work", "/work").cwd("/work");
    let plan = none.annotation("filesystem.workspace", "none").plan();
    assert_eq!(
        (plan.filesystem.workspace, plan.filesystem.mounts),
        (None, vec![])
    );
}

#[test]
fn write_lifts_read_only_but_not_for_the_workspace() {
    let case = |policy: &str| {
        let case = under(policy)
            .bind("/srv/work", "/work")
            .bind("/srv/data", "/data")
            .bind("/srv/more", "/data/more");
        case.cwd("/work")
            .annotation("filesystem.write", "/data,/work")
            .node("[allow]\nannotations = [\"filesystem.write\"]")
    };
    let plan = case("standard")
        .annotation("filesystem.workspace", "read-only")
        .plan();
    assert_eq!(
        (
            access(&plan, "/work"),
            access(&plan, "/data"),
            access(&plan, "/data/more")
        ),
        ("ro".into(), "rw".into(), "ro".into())
    );
}

#[test]
fn binds_are_private_not_recursive_and_keep_the_checked_inode() {
    let plan = under("permissive")
        .bind("/srv/data", "/data")
        .options(&["rshared", "suid", "dev", "noexec"])
        .plan();
    let mount = &plan.filesystem.mounts[0];
    assert_eq!(
        mount.options(),
        ["bind", "rprivate", "nosuid", "nodev", "noexec", "rw"]
    );
    let judged = mount.bind().unwrap().judged;
    assert_eq!(
        (judged.dev, judged.ino, judged.kind),
        (1, 9, FileKind::Directory)
    );
}

#[test]
fn masks_are_the_same_where_the_engine_has_none() {
    let plan = under("permissive").plan();
    for path in [
        "/proc/kcore",
        "/proc/keys",
        "/proc/timer_list",
        "/sys/firmware",
        "/sys/devices/virtual/powercap",
    ] {
        assert!(
            plan.filesystem.masked.contains(&PathBuf::from(path)),
            "{path}"
        );
    }
    let engine = under("permissive")
        .set("/linux", "maskedPaths", json!(["/srv/x"]))
        .plan();
    assert_eq!(
        engine.filesystem.masked.len(),
        plan.filesystem.masked.len() + 1
    );
}

#[test]
fn a_tmpfs_is_never_larger_than_the_policy_allows() {
    let size = |place: &str, asked: &[&str]| {
        let case = under("strict").tmpfs(place).options(asked);
        let plan = case.plan();
        let mount = plan.filesystem.mounts.iter();
        let mount = mount.clone().find(|m| m.destination == Path::new(place));
        let options = mount.unwrap().options();
        let all = |key: &str| -> Vec<u64> {
            let values = options.iter().filter_map(|o| o.strip_prefix(key));
            values.map(|v| v.parse().unwrap()).collect()
        };
        (all("size="), all("nr_inodes="))
    };
    let most = under("strict").plan().filesystem.scratch_bytes;
    for asked in [
        vec![],
        vec!["size=1g"],
        vec!["size=50%"],
        vec!["size=0", "nr_inodes=0"],
        vec!["size=1k", "size=64g"],
        vec!["nr_blocks=999999999"],
        vec!["size=18446744073709551615t", "nr_inodes=99999999"],
    ] {
        assert_eq!(
            size("/data", &asked),
            (vec![most], vec![most / 1024]),
            "{asked:?}"
        );
    }
    assert_eq!(size("/data", &["size=64k"]), (vec![65536], vec![1024]));
    assert_eq!(size("/dev", &["size=64g"]), (vec![most], vec![most / 1024]));
    // The engine's --shm-size is a number; without one, /dev/shm is limited like the others.
    let shm = under("strict")
        .tmpfs("/dev/shm")
        .options(&["size=1g"])
        .plan();
    let shm = shm.filesystem.mounts.last().unwrap().options();
    assert!(shm.contains(&"size=1g".to_owned()), "{shm:?}");
    assert_eq!(
        size("/dev/shm", &["size=90%"]),
        (vec![most], vec![most / 1024])
    );
}

/// What a company adds to an image by a mount, and nothing beside it.
#[test]
fn certificates_and_the_time_zone_are_mounted_read_only() {
    for (source, kind) in [
        ("/etc/ssl/certs", FileKind::Directory),
        ("/etc/ssl/certs/ca-certificates.crt", FileKind::File),
        ("/etc/pki/ca-trust", FileKind::Directory),
        ("/etc/pki/tls/certs", FileKind::Directory),
        ("/etc/ca-certificates", FileKind::Directory),
        ("/etc/localtime", FileKind::File),
        ("/etc/timezone", FileKind::File),
    ] {
        for policy in ["standard", "permissive"] {
            let plan = under(policy).bind_of(kind, source, source).plan();
            assert_eq!(access(&plan, source), "ro", "{policy} {source}");
        }
    }
    for source in [
        "/etc",
        "/etc/ssl",
        "/etc/ssl/private",
        "/etc/pki",
        "/etc/pki/tls",
        "/etc/pki/tls/private",
    ] {
        let why = access(&under("permissive").bind(source, source).plan(), source);
        assert!(why.contains("configuration"), "{source}: {why}");
    }
}

/// A setting without effect is an error that names one with effect.
#[test]
fn a_write_path_that_is_no_mount_is_refused_with_the_cure() {
    let message = under("permissive")
        .annotation("filesystem.mounts", "read-only")
        .annotation("filesystem.write", "/app")
        .refused();
    assert!(
        message.contains("/app") && message.contains("filesystem.root"),
        "{message}"
    );
}
