//! H2: what is called like an anonymous volume is seen, and what is written over it is the container's own.

use super::*;

fn at(name: &str) -> String {
    format!("/var/lib/docker/volumes/{name}/_data")
}

fn mount<'a>(plan: &'a Plan, destination: &str) -> &'a PlannedMount {
    let mut mounts = plan.filesystem.mounts.iter();
    mounts
        .find(|m| m.destination == Path::new(destination))
        .unwrap()
}

/// Access, and whether what is written is thrown away.
fn given(plan: &Plan) -> (bool, bool) {
    let mount = mount(plan, "/x");
    (mount.is_writable(), mount.is_private())
}

#[test]
fn it_is_written_in_the_containers_own_scratch() {
    const OWN: (bool, bool) = (true, true);
    const READ: (bool, bool) = (false, false);
    const THROUGH: (bool, bool) = (true, false);
    let nerdctl = format!("/var/lib/nerdctl/1935db59/volumes/default/{ID}/_data");
    for (policy, source, expect) in [
        ("standard", at(ID), OWN),
        (
            "standard",
            format!("/var/lib/containers/storage/volumes/{ID}/_data"),
            OWN,
        ),
        ("standard", nerdctl, OWN),
        // A directory of anybody's that is called so.
        ("standard", format!("/srv/volumes/{ID}/_data"), OWN),
        ("standard", at("cache"), READ),
        ("permissive", at(ID), THROUGH),
        ("permissive", at("cache"), THROUGH),
    ] {
        let plan = under(policy).bind(&source, "/x").plan();
        assert_eq!(given(&plan), expect, "{policy} {source}");
    }
    let strict = access(&under("strict").bind(&at(ID), "/x").plan(), "/x");
    assert!(strict.contains("workspace alone"), "{strict}");
    // Something else under such a name, what is to be read only, and what is no directory.
    let case = || under("standard").bind(&at(ID), "/x");
    let other = case().found(|f| f.names = ["/srv/data".into()].into());
    let file = under("standard").bind_of(FileKind::File, &at(ID), "/x");
    for case in [other, case().options(&["ro"]), file] {
        assert_eq!(given(&case.plan()), READ);
    }
    // Whoever is to write it is named, or works in it.
    let listed = case().site(|policy| {
        policy.filesystem.write = ["/x".parse().unwrap()].into();
    });
    assert_eq!(given(&listed.plan()), THROUGH);
    assert_eq!(given(&case().cwd("/x").plan()), THROUGH);
}

#[test]
fn without_an_overlay_it_is_read_only_and_says_why() {
    let plan = under("standard")
        .bind(&at(ID), "/x")
        .found(|f| f.no_overlay = Some("a file system of type \"vfat\"".into()))
        .plan();
    assert_eq!(given(&plan), (false, false));
    let why = mount(&plan, "/x").why.to_string();
    assert!(why.contains("vfat") && why.contains("overlay"), "{why}");
    let plan = under("standard").bind(&at(ID), "/dev/shm").plan();
    let shm = mount(&plan, "/dev/shm");
    assert!(
        !shm.is_writable() && shm.why.to_string().contains("/dev"),
        "{shm:?}"
    );
}

#[test]
fn it_is_scratch_and_keeps_what_mounts_are_given() {
    let plan = under("standard")
        .annotation("filesystem.root", "read-only")
        .annotation("filesystem.ephemeral", "")
        .bind(&at(ID), "/x")
        .options(&["noexec", "suid", "dev"])
        .plan();
    let files = &plan.filesystem;
    assert!(files.needs_scratch(), "{files:?}");
    assert!(files.is_own(Path::new("/x/below")));
    assert!(!files.is_own(Path::new("/y")));
    let options = mount(&plan, "/x").options();
    for option in ["nosuid", "nodev", "noexec"] {
        assert!(options.iter().any(|o| o == option), "{options:?}");
    }
    // What lies deeper is as it is.
    let plan = under("standard")
        .bind(&at(ID), "/x")
        .bind("/srv/cache", "/x/cache")
        .plan();
    assert!(!plan.filesystem.is_own(Path::new("/x/cache/a")));
    // A record of before knows no such mounts.
    let text = serde_json::to_value(mount(&plan, "/x/cache")).unwrap();
    assert_eq!(text.get("private"), None);
}
