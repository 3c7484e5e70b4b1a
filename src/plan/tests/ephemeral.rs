//! Directories that are private, writable and thrown away.

use super::*;
use crate::policy::RootAccess;

/// Under `standard` with a read-only root, as a ceiling or the engine can set it.
fn read_only() -> Case {
    under("standard").annotation("filesystem.root", "read-only")
}

/// Under `standard` with an ephemeral root.
fn thrown_away() -> Case {
    under("standard").annotation("filesystem.root", "ephemeral")
}

fn paths(case: &Case) -> Vec<String> {
    case.plan()
        .filesystem
        .ephemeral
        .iter()
        .map(|e| e.path.display().to_string())
        .collect()
}

#[test]
fn each_policy_has_its_private_directories() {
    for (policy, expect) in [
        ("strict", vec!["/home/me", "/tmp"]),
        ("standard", vec![]),
        ("permissive", vec![]),
    ] {
        assert_eq!(paths(&under(policy).home("/home/me")), expect, "{policy}");
    }
    assert_eq!(paths(&thrown_away().home("/home/me")), ["/tmp"]);
    // A root that the engine makes read-only stays read-only, with private directories in it.
    let read_only = under("permissive")
        .home("/home/me")
        .set("/root", "readonly", true.into());
    assert_eq!(paths(&read_only), ["/home/me", "/run", "/tmp", "/var"]);
    let strict = under("strict").home("/home/me").plan();
    let content = |plan: &Plan| plan.filesystem.ephemeral[0].content;
    assert_eq!(content(&strict), EphemeralContent::EmptyHome);
}

#[test]
fn scratch_is_stored_where_the_policy_and_the_node_allow() {
    let place = |case: &Case, host: &HostFacts| {
        let plan = case.plan_on(host).unwrap();
        let files = &plan.filesystem;
        (files.scratch_place, files.scratch_bytes, plan.warnings)
    };
    let (at, bytes, warnings) = place(&thrown_away(), &host());
    assert_eq!((at, bytes), (ScratchStorage::Disk, 4 << 30));
    assert!(warnings.is_empty(), "{warnings:?}");
    let without = HostFacts {
        no_disk: Some("no loop devices".to_owned()),
        ..host()
    };
    let (at, bytes, warnings) = place(&thrown_away(), &without);
    assert_eq!((at, bytes), (ScratchStorage::Memory, 1 << 30));
    assert!(
        warnings[0].to_string().contains("no loop devices"),
        "{warnings:?}"
    );
    let memory = thrown_away().annotation("filesystem.scratch-on", "memory");
    let (at, bytes, warnings) = place(&memory, &without);
    assert_eq!((at, bytes), (ScratchStorage::Memory, 4 << 30));
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(place(&under("strict"), &host()).0, ScratchStorage::Memory);
    let disk = thrown_away().annotation("filesystem.scratch-on", "disk");
    let refused = disk.plan_on(&without).unwrap_err().to_string();
    assert!(
        refused.contains("no loop devices") && refused.contains("filesystem.scratch-on"),
        "{refused}"
    );
    // The engine's root needs neither a disk nor memory.
    let engines = under("standard").annotation("filesystem.scratch-on", "disk");
    let plan = engines.plan_on(&without).unwrap().filesystem;
    assert!(!plan.needs_scratch() && plan.root == RootAccess::Engine);
}

#[test]
fn the_engines_root_is_writable_only_as_a_layer_of_this_container() {
    let plan = under("standard").home("/home/me").plan().filesystem;
    assert_eq!(plan.root, RootAccess::Engine);
    assert!(plan.is_own(Path::new("/new")) && plan.is_own(Path::new("/tmp/p")));
    // The init process makes its masks, and follows no link of an earlier one.
    assert!(plan.mounted_by_init().hold(Path::new("/etc/secret")));
    for origin in [
        RootOrigin::Named,
        RootOrigin::Mounted("/srv/image/data".into()),
        RootOrigin::Shows("/usr".into()),
    ] {
        let case = |mut case: Case| {
            case.facts.rootfs = "/srv/image".into();
            case.facts.root = origin.clone();
            case
        };
        let plan = case(under("standard")).plan();
        assert_eq!(plan.filesystem.root, RootAccess::Ephemeral);
        let warned = plan.warnings[0].to_string();
        assert!(
            warned.contains("/srv/image is ") && warned.contains("discarded"),
            "{warned}"
        );
        // An explicit request for it fails before the start.
        let asked = under("permissive").annotation("filesystem.root", "engine");
        let refused = case(asked).plan_on(&host()).unwrap_err().to_string();
        assert!(refused.contains("use \"ephemeral\""), "{refused}");
        // A read-only root has no overlay to hide the mounts below it.
        let read_only = case(under("standard").set("/root", "readonly", true.into()));
        match read_only.plan_on(&host()) {
            Ok(plan) => {
                assert_eq!(plan.filesystem.root, RootAccess::ReadOnly);
                assert!(plan.warnings.is_empty());
            }
            Err(error) => {
                assert!(matches!(origin, RootOrigin::Mounted(_)), "{error}");
                assert!(error.to_string().contains("/srv/image/data"), "{error}");
            }
        }
    }
    // `wrap` makes its root itself.
    let mut wrapped = under("standard").bind("/var", "/var");
    wrapped.facts.wrapped.judged = [PathBuf::from("/var")].into();
    wrapped.facts.root = RootOrigin::Named;
    let plan = wrapped.plan();
    assert_eq!(plan.filesystem.root, RootAccess::Ephemeral);
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
}

#[test]
fn directories_above_masked_paths_of_the_engines_root_are_held() {
    let hiding = |case: Case| {
        let paths = serde_json::json!(["/etc/app/key", "/proc/kcore", "/work/.env", "/top"]);
        let case = case.bind("/srv/work", "/work").cwd("/work");
        let case = case.mount("proc", "proc", "/proc", &[], None);
        let case = case.set("/linux", "maskedPaths", paths);
        case.set("/linux", "readonlyPaths", serde_json::json!(["/opt/x"]))
    };
    let held = |case: Case| -> Vec<String> {
        let plan = hiding(case).plan().filesystem;
        plan.pinned
            .iter()
            .map(|p| p.display().to_string())
            .collect()
    };
    assert_eq!(held(under("standard")), ["/etc", "/etc/app", "/opt"]);
    assert_eq!(held(thrown_away()), Vec::<String>::new());
}

/// F22: a renamed one would leave the next start a file of another's to mask.
#[test]
fn directories_above_hidden_paths_of_a_written_mount_are_held() {
    let held = |asked: &[&str]| -> Vec<String> {
        let case = under("strict").bind("/srv/work", "/work").options(asked);
        let case = case.cwd("/work").bind("/dev/null", "/work/a/b/.env");
        let hidden = serde_json::json!(["/work/x/y/key", "/work/top", "/work"]);
        let case = case.set("/linux", "maskedPaths", hidden);
        let plan = case.plan().filesystem;
        let pinned = plan.pinned.iter().map(|p| p.display().to_string());
        pinned.collect()
    };
    assert_eq!(
        held(&["rw"]),
        ["/work/a", "/work/a/b", "/work/x", "/work/x/y"]
    );
    // The control: what the container cannot write needs nothing held.
    assert_eq!(held(&["ro"]), Vec::<String>::new());
}

#[test]
fn the_words_say_which_writes_stay() {
    let words = |case: Case| case.plan().filesystem.written_in_words();
    let project = |case: Case| case.bind("/srv/work", "/work").cwd("/work");
    for (case, start) in [
        (
            under("standard"),
            "its writes stay until the engine removes them",
        ),
        (
            project(under("standard")),
            "its writes at /work stay, all others until the engine removes them",
        ),
        (thrown_away(), "nothing that it wrote stays"),
        (
            project(thrown_away()),
            "its writes at /work stay, all others are discarded",
        ),
        (
            under("strict"),
            "nothing that it wrote stays; the image is read-only",
        ),
    ] {
        let told = words(case);
        assert!(told.starts_with(start), "{told}");
    }
}

/// Former fault: the line listed 33 files of /etc.
#[test]
fn the_words_count_the_files_of_etc_that_wrap_shows() {
    let mut plan = under("strict")
        .bind("/srv/work", "/work")
        .cwd("/work")
        .plan()
        .filesystem;
    for name in ["a", "b", "c"] {
        let mut mount = bind_of(&plan).clone();
        mount.destination = format!("/etc/{name}").into();
        mount.why = MountReason::Programs;
        if let MountKind::Bind(bind) = &mut mount.kind {
            bind.access = BindAccess::ReadOnly;
        }
        plan.mounts.push(mount);
    }
    let told = plan.written_in_words();
    let end =
        "; read-only: 3 files of /etc; all else is read-only; a write that failed has no line";
    assert!(told.ends_with(end), "{told}");
}

/// The workspace's mount.
fn bind_of(plan: &FilesystemPlan) -> &PlannedMount {
    let mut mounts = plan.mounts.iter();
    let workspace = mounts.find(|mount| mount.why == MountReason::Workspace);
    workspace.unwrap()
}

#[test]
fn under_a_writable_root_init_makes_all_mounts_but_the_kernels() {
    for case in [under("standard"), thrown_away()] {
        all_but_the_kernels_mounts_is_ours(case);
    }
}

fn all_but_the_kernels_mounts_is_ours(case: Case) {
    let mut case = case.bind("/srv/work", "/work");
    for (kind, at) in [("proc", "/proc"), ("tmpfs", "/dev"), ("devpts", "/dev/pts")] {
        case = case.mount(kind, kind, at, &[], None);
    }
    let plan = case.plan().filesystem;
    let kernel: Vec<_> = plan.kernel_mounts().collect();
    assert!(
        kernel.contains(&Path::new("/proc")) && kernel.contains(&Path::new("/dev")),
        "{kernel:?}"
    );
    assert!(!kernel.contains(&Path::new("/dev/pts")), "{kernel:?}");
    assert!(plan.mounted_by_init().hold(Path::new("/etc/secret")));
    assert!(!plan.mounted_by_init().hold(Path::new("/proc/kcore")));
    assert!(plan.is_own(Path::new("/tmp/p")) && plan.is_own(Path::new("/new")));
    assert!(!plan.is_own(Path::new("/work/p")) && !plan.is_own(Path::new("/proc/p")));
    let strict = under("strict").plan().filesystem;
    assert!(strict.is_own(Path::new("/tmp/p")) && !strict.is_own(Path::new("/new")));
}

#[test]
fn a_home_that_is_part_of_the_system_or_cannot_be_covered_is_left_alone() {
    for home in [
        "/",
        "/etc",
        "/usr/",
        "/proc/1",
        "/dev/x",
        "/sys",
        "relative",
        "/home/../etc",
        "/home/a:b",
        "/home/a\\b",
    ] {
        assert_eq!(
            paths(&read_only().home(home)),
            ["/run", "/tmp", "/var"],
            "{home}"
        );
    }
    assert_eq!(
        paths(&read_only().home("/home//me/")),
        ["/home/me", "/run", "/tmp", "/var"]
    );
    assert_eq!(paths(&read_only()), ["/run", "/tmp", "/var"]);
}

#[test]
fn a_home_below_another_private_directory_is_private_with_it() {
    for home in ["/tmp/me", "/var/www", "/var/lib/postgresql"] {
        assert_eq!(
            paths(&read_only().home(home)),
            ["/run", "/tmp", "/var"],
            "{home}"
        );
    }
    let only_home = read_only()
        .home("/var/www")
        .annotation("filesystem.ephemeral", "home");
    assert_eq!(paths(&only_home), ["/var/www"]);
}

#[test]
fn a_mount_of_the_engine_there_stays() {
    assert_eq!(paths(&read_only().tmpfs("/tmp").tmpfs("/var/")), ["/run"]);
    assert_eq!(
        paths(&read_only().bind("/srv/me", "/home/me").home("/home/me")),
        ["/run", "/tmp", "/var"]
    );
    // A home inside the workspace is written to the workspace.
    let inside = read_only()
        .bind("/srv/work", "/work")
        .cwd("/work")
        .home("/work/home");
    assert_eq!(paths(&inside), ["/run", "/tmp", "/var"]);
    let read_only = read_only().bind("/srv/homes", "/home").home("/home/me");
    assert_eq!(paths(&read_only), ["/home/me", "/run", "/tmp", "/var"]);
}

#[test]
fn a_system_directory_of_wrap_is_covered() {
    let mut case = read_only().bind("/var", "/var").bind("/srv/a", "/var/a");
    case.facts.wrapped.judged = [PathBuf::from("/var")].into();
    let plan = case.plan();
    let private = plan.filesystem.ephemeral.iter();
    assert_eq!(private.filter(|e| e.path == Path::new("/var")).count(), 1);
    assert!(
        plan.filesystem
            .mounted_by_init()
            .hold(Path::new("/var/a/x"))
    );
}
