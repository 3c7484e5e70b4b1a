//! Directories that are private, writable and thrown away.

use super::*;

/// Under `standard` with a root that is read-only, as a ceiling or the engine can make it.
fn read_only() -> Case {
    under("standard").annotation("filesystem.root", "read-only")
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
        ("standard", vec!["/tmp"]),
        ("permissive", vec!["/tmp"]),
    ] {
        assert_eq!(paths(&under(policy).home("/home/me")), expect, "{policy}");
    }
    // A root that the engine makes read-only stays so, with private directories in it.
    let read_only = under("permissive")
        .home("/home/me")
        .set("/root", "readonly", true.into());
    assert_eq!(paths(&read_only), ["/home/me", "/run", "/tmp", "/var"]);
    let strict = under("strict").home("/home/me").plan();
    let content = |plan: &Plan| plan.filesystem.ephemeral[0].content;
    assert_eq!(content(&strict), EphemeralContent::EmptyHome);
}

#[test]
fn what_is_thrown_away_lies_where_the_policy_and_the_node_say() {
    let place = |case: &Case, host: &HostFacts| {
        let plan = case.plan_on(host).unwrap();
        let files = &plan.filesystem;
        (files.scratch_place, files.scratch_bytes, plan.warnings)
    };
    let standard = under("standard");
    let (at, bytes, warnings) = place(&standard, &host());
    assert_eq!((at, bytes), (ScratchPlace::Disk, 4 << 30));
    assert!(warnings.is_empty(), "{warnings:?}");
    let without = HostFacts {
        no_disk: Some("no loop devices".to_owned()),
        ..host()
    };
    let (at, bytes, warnings) = place(&standard, &without);
    assert_eq!((at, bytes), (ScratchPlace::Memory, 1 << 30));
    assert!(
        warnings[0].to_string().contains("no loop devices"),
        "{warnings:?}"
    );
    let memory = under("standard").annotation("filesystem.scratch-on", "memory");
    let (at, bytes, warnings) = place(&memory, &without);
    assert_eq!((at, bytes), (ScratchPlace::Memory, 4 << 30));
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(place(&under("strict"), &host()).0, ScratchPlace::Memory);
    let disk = under("standard").annotation("filesystem.scratch-on", "disk");
    let refused = disk.plan_on(&without).unwrap_err().to_string();
    assert!(
        refused.contains("no loop devices") && refused.contains("filesystem.scratch-on"),
        "{refused}"
    );
}

#[test]
fn under_a_root_that_is_thrown_away_all_but_the_kernels_mounts_is_mounted_by_init() {
    let mut case = under("standard").bind("/srv/work", "/work");
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
    assert!(plan.is_mounted_by_init(Path::new("/etc/secret")));
    assert!(!plan.is_mounted_by_init(Path::new("/proc/kcore")));
    assert!(plan.is_thrown_away(Path::new("/tmp/p")) && plan.is_thrown_away(Path::new("/new")));
    assert!(
        !plan.is_thrown_away(Path::new("/work/p")) && !plan.is_thrown_away(Path::new("/proc/p"))
    );
    let strict = under("strict").plan().filesystem;
    assert!(
        strict.is_thrown_away(Path::new("/tmp/p")) && !strict.is_thrown_away(Path::new("/new"))
    );
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
fn what_the_engine_mounted_there_stays() {
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
    assert!(plan.filesystem.is_mounted_by_init(Path::new("/var/a/x")));
}
