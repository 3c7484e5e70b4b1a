//! Named volumes in an engine's own storage.

use super::*;

const SOURCE: &str = "/var/lib/docker/volumes/cache/_data";

/// The access to a mount: none, read-only or writable; with the reason.
fn given(case: Case) -> (Option<bool>, String) {
    let plan = case.plan();
    let mut mounts = plan.filesystem.mounts.iter();
    let found = mounts.find(|m| m.destination == Path::new("/x"));
    let why = found.map(|mount| mount.why.to_string()).unwrap_or_default();
    (found.map(PlannedMount::is_writable), why)
}

fn volume(policy: &str) -> Case {
    under(policy)
        .bind(SOURCE, "/x")
        .found(|f| f.engines_volume = true)
}

#[test]
fn a_named_volume_is_written_as_the_engine_says() {
    let words = "a named volume of the engine";
    for policy in ["standard", "ci", "permissive"] {
        assert_eq!(
            given(volume(policy)),
            (Some(true), words.to_owned()),
            "{policy}"
        );
        let reads = volume(policy).options(&["ro"]);
        assert_eq!(given(reads).0, Some(false), "{policy}");
    }
    assert_eq!(given(volume("strict")).0, None);
    let tighter = volume("standard").annotation("filesystem.mounts", "read-only");
    assert_eq!(given(tighter).0, Some(false));
    // One that the probe does not know as the engine's.
    assert_eq!(given(under("standard").bind(SOURCE, "/x")).0, Some(false));
    let listed = under("standard")
        .bind(SOURCE, "/x")
        .annotation("filesystem.write", "/x");
    assert_eq!(given(listed).0, Some(true));
}

#[test]
fn an_annotation_lists_a_second_bind_for_writing() {
    let two = |source: &str| {
        under("standard")
            .bind("/srv/work", "/work")
            .cwd("/work")
            .bind(source, "/x")
    };
    let listed = |source: &str| two(source).annotation("filesystem.write", "/x");
    assert_eq!(given(two("/srv/cache")).0, Some(false));
    assert_eq!(given(listed("/srv/cache")).0, Some(true));
    // Never written, or never mounted.
    for (source, access) in [
        ("/usr/local", Some(false)),
        ("/var/lib/misc", Some(false)),
        ("/etc", None),
        ("/home/me/.ssh", None),
    ] {
        assert_eq!(given(listed(source)).0, access, "{source}");
    }
    let home = listed("/home/me").found(|f| f.home = Some(Home::default()));
    assert_eq!(given(home).0, Some(false));
}
