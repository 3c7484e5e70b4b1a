//! Which mount is the workspace, and which part of it is writable.

use super::*;

#[test]
fn the_workspace_is_the_named_mount_or_contains_the_working_directory() {
    let two = || {
        under("standard")
            .bind("/srv/a", "/a")
            .bind("/srv/ab", "/a/b")
    };
    for (case, expect) in [
        (two(), None),
        (two().cwd("/a"), Some("/a")),
        (two().cwd("/a/b/c"), Some("/a/b")),
        (two().cwd("/ab"), None),
        (two().cwd("/a/b").annotation("workspace", "/a"), Some("/a")),
    ] {
        let plan = case.plan();
        assert_eq!(plan.filesystem.workspace, expect.map(PathBuf::from));
        let writable = plan.filesystem.mounts.iter().filter(|m| m.is_writable());
        let writable: Vec<_> = writable.map(|m| m.destination.clone()).collect();
        assert_eq!(writable, Vec::from_iter(expect.map(PathBuf::from)));
    }
    for policy in ["strict", "standard"] {
        let nowhere = under(policy)
            .bind("/srv/a", "/a")
            .annotation("workspace", "/c");
        assert!(nowhere.refused().contains("no bind mount"));
        let memory = under(policy).tmpfs("/c").annotation("workspace", "/c");
        assert!(memory.refused().contains("no bind mount"));
    }
}

#[test]
fn the_only_bind_is_the_workspace_if_none_holds_the_working_directory() {
    let one = || under("standard").bind("/srv/work", "/work");
    let volume = |name: &str| format!("/var/lib/docker/volumes/{name}/_data");
    let pod = json!({"io.kubernetes.cri.container-type": "container"});
    let secrets = format!("/run/containers/storage/overlay-containers/{ID}/userdata/run/secrets");
    for (case, expect) in [
        (one(), Some("/work")),
        (one().cwd("/usr/src/app"), Some("/work")),
        (one().bind(&volume(ID), "/data"), Some("/work")),
        (
            one()
                .bind(&volume("cache"), "/root/.npm")
                .found(|f| f.engines_volume = true),
            Some("/work"),
        ),
        // Fedora's and RHEL's podman mounts it in every container.
        (one().bind(&secrets, "/run/secrets"), Some("/work")),
        (one().bind(&secrets, "/data"), None),
        (one().bind("/srv/secrets", "/run/secrets"), None),
        (
            under("standard").bind("/srv/work", "/home/me/work"),
            Some("/home/me/work"),
        ),
        (under("standard").bind("/srv/conf", "/etc/nginx"), None),
        (under("standard").bind("/srv/work", "/usr/src/app"), None),
        (under("standard").bind("/srv/keys", "/root/.ssh"), None),
        (under("standard").bind("/usr/local/bin", "/work"), None),
        (under("standard").bind("/srv", "/work"), None),
        (one().home("/work/me"), None),
        (
            one().bind_of(FileKind::File, "/data/docker/hosts", "/etc/hosts"),
            Some("/work"),
        ),
        // Another bind, of any kind.
        (one().bind("/srv/data", "/data").options(&["ro"]), None),
        (one().bind_of(FileKind::File, "/srv/notes", "/notes"), None),
        (one().options(&["ro"]), None),
        (one().annotation("filesystem.mounts", "read-only"), None),
        (under("permissive").bind("/srv/work", "/work"), None),
        (under("standard").bind("/mnt", "/work"), None),
        (under("standard").bind("/var/tmp", "/work"), None),
        (one().found(|f| f.engines_volume = true), None),
        // A volume that is not the engine's alone.
        (under("standard").bind(&volume("cache"), "/work"), None),
        (
            under("standard").bind("/data/docker/volumes/v/_data", "/work"),
            None,
        ),
        (
            under("standard").bind("/data/docker/volumes/v/_data/x", "/work"),
            None,
        ),
        (
            under("standard").bind(
                "/var/lib/kubelet/pods/0a1b/volumes/kubernetes.io~empty-dir/v",
                "/work",
            ),
            None,
        ),
        (one().set("", "annotations", pod), None),
        // A kubelet's container of Docker's, which no annotation tells from others.
        (
            one().bind_of(
                FileKind::File,
                "/var/lib/kubelet/pods/0a1b/containers/main/2c3d",
                "/dev/termination-log",
            ),
            None,
        ),
        (under("standard").bind("/srv/p/.git/hooks", "/hooks"), None),
        (under("standard").bind("/home/me/.ssh", "/work"), None),
        (under("strict").bind("/srv/work", "/work"), None),
        (
            under("standard").bind("/home/me", "/work").found(|f| {
                f.home = Some(Home::default());
            }),
            None,
        ),
    ] {
        let plan = case.plan();
        assert_eq!(plan.filesystem.workspace, expect.map(PathBuf::from));
    }
    let mut linked = one();
    let mounts = linked.spec["mounts"].as_array().unwrap().iter();
    linked.facts.destinations = mounts
        .map(|mount| match mount["destination"].as_str().unwrap() {
            "/work" => "/etc/nginx".into(),
            place => place.into(),
        })
        .collect();
    assert_eq!(linked.plan().filesystem.workspace, None);
    let tight = one().annotation("filesystem.workspace", "read-only").plan();
    assert!(
        !tight
            .filesystem
            .mounts
            .iter()
            .any(PlannedMount::is_writable)
    );
}

#[test]
fn strict_does_not_guess_between_two() {
    let two = |policy: &str| {
        under(policy)
            .bind("/srv/ref", "/ref")
            .bind("/srv/work", "/work")
            .cwd("/ref")
    };
    let message = two("strict").refused();
    for word in ["/ref", "/work", "dev.agentbox.workspace"] {
        assert!(message.contains(word), "{message}");
    }
    // A named volume is written whichever mount is the workspace, if the policy keeps it.
    let beside = |policy: &str| {
        under(policy)
            .bind("/var/lib/docker/volumes/cache/_data", "/root/.npm")
            .found(|f| f.engines_volume = true)
            .bind("/srv/work", "/work")
            .cwd("/work")
    };
    assert_eq!(beside("standard").plan().warnings, []);
    assert!(beside("strict").refused().contains("/root/.npm"));
    // `standard` guesses, with a warning.
    let plan = two("standard").plan();
    assert_eq!(plan.filesystem.workspace, Some("/ref".into()));
    assert!(
        plan.warnings
            .iter()
            .any(|w| w.to_string().contains("/work instead")),
        "{:?}",
        plan.warnings
    );
    let plan = two("strict").annotation("workspace", "/work").plan();
    assert_eq!(plan.filesystem.workspace, Some("/work".into()));
    assert_eq!(plan.filesystem.mounts.len(), 1);
    assert_eq!(plan.warnings, []);
    // No rivals: a file, a read-only mount, a refused one, an anonymous volume.
    let volume = format!("/var/lib/docker/volumes/{ID}/_data");
    let one = under("strict")
        .bind_of(FileKind::File, "/srv/gitconfig", "/root/.gitconfig")
        .bind("/etc/ssl", "/ssl")
        .bind("/home/me/.ssh", "/root/.ssh")
        .bind(&volume, "/data")
        .bind("/srv/cache", "/cache")
        .options(&["ro"])
        .bind("/srv/work", "/work")
        .cwd("/work");
    assert_eq!(one.plan().filesystem.workspace, Some("/work".into()));
}

#[test]
fn a_policy_pins_the_path_of_the_workspace() {
    let pinned = || {
        under("standard")
            .bind("/srv/ref", "/ref")
            .bind("/srv/work", "/work")
            .annotation("filesystem.workspace-at", "/work, /src")
    };
    // With any working directory.
    for cwd in ["/", "/ref", "/work"] {
        let plan = pinned().cwd(cwd).plan();
        assert_eq!(plan.filesystem.workspace, Some("/work".into()), "{cwd}");
        assert_eq!(plan.warnings, []);
    }
    let message = pinned().annotation("workspace", "/ref").refused();
    assert!(
        message.contains("workspace-at") && message.contains("/work"),
        "{message}"
    );
    let other = under("standard")
        .bind("/srv/ref", "/ref")
        .cwd("/ref")
        .annotation("filesystem.workspace-at", "/work");
    let message = other.refused();
    assert!(message.contains("\"/ref\""), "{message}");
    let two = pinned().bind("/srv/src", "/src");
    assert!(
        pinned()
            .bind("/srv/src", "/src")
            .cwd("/ref")
            .refused()
            .contains("workspace-at")
    );
    let two = two.cwd("/src").plan();
    assert_eq!(two.filesystem.workspace, Some("/src".into()));
}

#[test]
fn a_pods_annotation_reaches_containers_without_the_mount() {
    let pod = |role: &str| {
        let annotations = json!({"io.kubernetes.cri.container-type": role});
        under("strict")
            .set("", "annotations", annotations)
            .annotation("workspace", "/work")
    };
    let sandbox = pod("sandbox").plan();
    assert_eq!(
        (sandbox.filesystem.workspace, sandbox.warnings.len()),
        (None, 1)
    );
    assert!(
        sandbox.warnings[0]
            .to_string()
            .contains("dev.agentbox.workspace")
    );
    let other = pod("container").bind("/srv/a", "/a").cwd("/a").plan();
    assert_eq!(other.filesystem.workspace, None);
    assert!(
        other.warnings[0].to_string().contains("/work"),
        "{:?}",
        other.warnings
    );
    let with = pod("container").bind("/srv/work", "/work").plan();
    assert_eq!(with.filesystem.workspace, Some("/work".into()));
}

#[test]
fn only_the_working_directory_of_a_whole_home_is_writable() {
    let home = |working: Option<&str>| {
        let working = working
            .map(|path| Box::new(SourceFacts::plain(path.into(), 1, 77, FileKind::Directory)));
        under("standard")
            .bind("/home/me", "/home/me")
            .found(|f| f.home = Some(Home { working }))
    };
    let plan = home(Some("/home/me/project"))
        .cwd("/home/me/project")
        .plan();
    assert_eq!(access(&plan, "/home/me"), "ro");
    assert_eq!(access(&plan, "/home/me/project"), "rw");
    assert_eq!(plan.filesystem.workspace, Some("/home/me/project".into()));
    assert!(
        plan.filesystem.mounts[0]
            .why
            .to_string()
            .contains("whole home")
    );
    assert_eq!(plan.filesystem.mounts[1].bind().unwrap().judged.ino, 77);
    // Named by annotation too; the engine's `ro` stays.
    let named = home(Some("/home/me/p"))
        .cwd("/home/me/p")
        .annotation("workspace", "/home/me");
    assert_eq!(access(&named.plan(), "/home/me/p"), "rw");
    let read = home(Some("/home/me/p"))
        .options(&["ro"])
        .cwd("/home/me/p")
        .plan();
    assert_eq!(read.filesystem.mounts.len(), 1);
    // A missing directory is not created.
    let absent = home(None).cwd("/home/me/absent").plan();
    assert_eq!(access(&absent, "/home/me"), "ro");
    let secret = home(Some("/home/me/.ssh")).cwd("/home/me/.ssh").refused();
    assert!(secret.contains("credentials"), "{secret}");
    // F2-M5: no working directory below, one with a leading dot, and a home besides the workspace.
    let whole = |cwd: &str| home(None).cwd(cwd).annotation("workspace", "/home/me");
    for cwd in ["/", "/home/me", "/tmp"] {
        let plan = whole(cwd).plan();
        assert_eq!(access(&plan, "/home/me"), "ro", "{cwd}");
        assert!(
            plan.filesystem.mounts[0]
                .why
                .to_string()
                .contains("whole home")
        );
    }
    let dotted = home(Some("/home/me/.config")).cwd("/home/me/.config");
    let plan = dotted.plan();
    assert_eq!(access(&plan, "/home/me"), "ro");
    assert_eq!(plan.filesystem.mounts.len(), 1);
    let beside = under("permissive")
        .bind("/home/me", "/home/me")
        .found(|f| f.home = Some(Home { working: None }))
        .bind("/srv/p", "/p")
        .cwd("/p");
    assert_eq!(access(&beside.plan(), "/home/me"), "ro");
    // Root's home, which is never writable as a whole.
    let root = under("standard").bind("/root", "/root").found(|f| {
        let project = SourceFacts::plain("/root/project".into(), 1, 78, FileKind::Directory);
        f.home = Some(Home {
            working: Some(Box::new(project)),
        });
    });
    let plan = root.cwd("/root/project").plan();
    assert_eq!(
        (access(&plan, "/root"), access(&plan, "/root/project")),
        ("ro".into(), "rw".into())
    );
}

#[test]
fn a_write_path_that_is_no_mount_is_an_error() {
    let leave = "[allow]\nannotations = [\"filesystem.write\"]";
    let case = || {
        under("standard")
            .bind("/srv/cache", "/cache")
            .annotation("filesystem.write", "/cach")
            .node(leave)
    };
    let message = case().refused();
    assert!(message.contains("\"/cach\""), "{message}");
    case().bind("/srv/x", "/cach").plan();
    // A pod's annotations are for all of its containers.
    let pod = json!({"io.kubernetes.cri.container-type": "container"});
    let plan = case().set("", "annotations", pod.clone()).plan();
    assert!(
        plan.warnings[0].to_string().contains("/cach,"),
        "{:?}",
        plan.warnings
    );
    let placed = |mount: &str| {
        let case = under("standard").bind("/srv/project", mount).cwd(mount);
        case.annotation("filesystem.workspace-at", "/work")
    };
    assert!(placed("/data").refused().contains("workspace-at"));
    let placed = |mount: &str| placed(mount).set("", "annotations", pod.clone());
    let plan = placed("/data").plan();
    assert_eq!(plan.filesystem.workspace, None);
    assert!(
        plan.warnings[0]
            .to_string()
            .contains("workspace-at names /work")
    );
    assert_eq!(
        placed("/work").plan().filesystem.workspace,
        Some("/work".into())
    );
    // A site's own pin is no annotation.
    let pinned = |policy: &mut Policy| {
        policy.filesystem.workspace_at = ["/work".parse().unwrap()].into();
    };
    let case = under("standard").bind("/srv/project", "/data").cwd("/data");
    let refused = case
        .set("", "annotations", pod.clone())
        .site(pinned)
        .refused();
    assert!(refused.contains("workspace-at"), "{refused}");
}

/// Former fault: an omitted or read-only mount left no trace inside.
#[test]
fn a_container_can_read_which_mounts_are_less_than_requested() {
    let case = under("standard")
        .bind("/srv/work", "/work")
        .bind("/srv/ref", "/ref\n");
    let text = case
        .bind_of(FileKind::Device, "/dev/null", "/x")
        .cwd("/work")
        .plan()
        .filesystem
        .less();
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(lines, ["/ref\\n: read-only", "/x: not mounted"]);
}

/// `suggest` names `+,/data`. The runner's places of `ci` are never mounted all together.
#[test]
fn an_addition_to_the_writable_mounts_judges_only_its_own_items() {
    let case = |written: &str| {
        let case = under("ci").bind("/srv/data", "/data");
        case.annotation("filesystem.write", written)
    };
    let plan = case("+,/data").plan();
    assert_eq!(access(&plan, "/data"), "rw");
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
    assert!(case("+,/dat").refused().contains("\"/dat\""));
    // Also one that the policy has: here it is written for this container.
    assert!(case("+,/data,/builds").refused().contains("\"/builds\""));
    let pod = json!({"io.kubernetes.cri.container-type": "container"});
    let plan = case("+,/dat").set("", "annotations", pod).plan();
    let warnings: Vec<String> = plan.warnings.iter().map(ToString::to_string).collect();
    assert!(
        matches!(&warnings[..], [warning] if warning.contains("/dat,")),
        "{warnings:?}"
    );
}
