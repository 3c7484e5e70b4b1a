//! H2: the container sees a volume with an anonymous volume's name, and its own writes go to its scratch.

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

/// Whether it is writable, and whether writes are thrown away.
fn given(plan: &Plan) -> (bool, bool) {
    let mount = mount(plan, "/x");
    (mount.is_writable(), mount.is_private())
}

#[test]
fn writes_go_to_the_containers_own_scratch() {
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
        // Any directory with such a name.
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
    // A source with another name, a read-only mount, and a file.
    let case = || under("standard").bind(&at(ID), "/x");
    let other = case().found(|f| f.names = ["/srv/data".into()].into());
    let file = under("standard").bind_of(FileKind::File, &at(ID), "/x");
    for case in [other, case().options(&["ro"]), file] {
        assert_eq!(given(&case.plan()), READ);
    }
    // A path that is named as writable, or contains the working directory.
    let listed = case().site(|policy| {
        policy.filesystem.write = ["/x".parse().unwrap()].into();
    });
    assert_eq!(given(&listed.plan()), THROUGH);
    assert_eq!(given(&case().cwd("/x").plan()), THROUGH);
}

#[test]
fn without_an_overlay_it_is_read_only_with_the_reason() {
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
fn it_is_scratch_with_the_usual_mount_options() {
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
    // A mount below it is not part of it.
    let plan = under("standard")
        .bind(&at(ID), "/x")
        .bind("/srv/cache", "/x/cache")
        .plan();
    assert!(!plan.filesystem.is_own(Path::new("/x/cache/a")));
    // Older records do not know such mounts.
    let text = serde_json::to_value(mount(&plan, "/x/cache")).unwrap();
    assert_eq!(text.get("private"), None);
}
