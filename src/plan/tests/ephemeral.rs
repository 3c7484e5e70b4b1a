//! Directories that are private, writable and thrown away.

use super::*;

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
        ("strict", vec!["/tmp"]),
        ("standard", vec!["/home/me", "/tmp", "/var"]),
        ("permissive", vec!["/tmp"]),
    ] {
        assert_eq!(paths(&under(policy).home("/home/me")), expect, "{policy}");
    }
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
            paths(&under("standard").home(home)),
            ["/tmp", "/var"],
            "{home}"
        );
    }
    assert_eq!(
        paths(&under("standard").home("/home//me/")),
        ["/home/me", "/tmp", "/var"]
    );
    assert_eq!(paths(&under("standard")), ["/tmp", "/var"]);
}

#[test]
fn a_home_below_another_private_directory_is_private_with_it() {
    for home in ["/tmp/me", "/var/www", "/var/lib/postgresql"] {
        assert_eq!(
            paths(&under("standard").home(home)),
            ["/tmp", "/var"],
            "{home}"
        );
    }
    let only_home = under("standard")
        .home("/var/www")
        .annotation("filesystem.ephemeral", "home");
    assert_eq!(paths(&only_home), ["/var/www"]);
}

#[test]
fn what_the_engine_mounted_there_stays() {
    assert_eq!(
        paths(&under("standard").tmpfs("/tmp").tmpfs("/var/")),
        Vec::<String>::new()
    );
    assert_eq!(
        paths(
            &under("standard")
                .bind("/srv/me", "/home/me")
                .home("/home/me")
        ),
        ["/tmp", "/var"]
    );
    // A home inside the workspace is written to the workspace.
    let inside = under("standard")
        .bind("/srv/work", "/work")
        .cwd("/work")
        .home("/work/home");
    assert_eq!(paths(&inside), ["/tmp", "/var"]);
    let read_only = under("standard")
        .bind("/srv/homes", "/home")
        .home("/home/me");
    assert_eq!(paths(&read_only), ["/home/me", "/tmp", "/var"]);
}

#[test]
fn a_system_directory_of_wrap_is_covered() {
    let mut case = under("standard")
        .bind("/var", "/var")
        .bind("/srv/a", "/var/a");
    case.facts.wrapped.judged = [PathBuf::from("/var")].into();
    let plan = case.plan();
    let private = plan.filesystem.ephemeral.iter();
    assert_eq!(private.filter(|e| e.path == Path::new("/var")).count(), 1);
    assert!(plan.filesystem.is_mounted_late(Path::new("/var/a/x")));
}
