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

/// F37: the user's tools run files of every directory of the node that a container wrote.
#[test]
fn a_written_bind_has_protected_files_and_an_engines_storage_has_none() {
    let protected = |case: Case| {
        let found = FoundProtected {
            path: ".envrc".into(),
            name: ".envrc".to_owned(),
            held: 1,
            file: FileIdentity { dev: 1, ino: 1 },
        };
        let plan = case.found(|f| f.protected.found = vec![found]).plan();
        let watched: Vec<PathBuf> = plan
            .filesystem
            .watched
            .into_iter()
            .map(|w| w.destination)
            .collect();
        watched.contains(&"/x".into())
    };
    let second = |policy: &str| {
        let first = under(policy).bind("/srv/work", "/work").cwd("/work");
        first.bind("/srv/second", "/x")
    };
    let listed = second("standard").annotation("filesystem.write", "/x");
    assert!(protected(second("permissive")) && protected(listed));
    assert!(!protected(second("standard")));
    assert!(!protected(second("permissive").options(&["ro"])));
    assert!(!protected(volume("permissive")));
    let id = "0123456789abcdef".repeat(4);
    let anonymous = format!("/var/lib/docker/volumes/{id}/_data");
    assert!(!protected(under("permissive").bind(&anonymous, "/x")));
    // `docker volume create -o device=/srv/second`.
    let elsewhere = under("permissive").bind(&anonymous, "/x");
    assert!(protected(
        elsewhere.found(|f| f.names = ["/srv/second".into()].into())
    ));
}

/// F37: git runs the programs that its settings name.
#[test]
fn settings_of_git_are_read_only_under_strict_and_compared_everywhere() {
    let protected = |case: Case| {
        let found = FoundProtected {
            path: "sub/.git/config".into(),
            name: ".git/config".to_owned(),
            held: 2,
            file: FileIdentity { dev: 1, ino: 7 },
        };
        let case = case.bind("/srv/work", "/work").cwd("/work");
        let case = case.found(|f| {
            f.protected.settings = vec![found];
            f.protected.known = ["x".to_owned()].into();
        });
        let files = case.plan().filesystem;
        assert_eq!(files.watched[0].known.len(), 1);
        let all = files.protected.into_iter();
        let all: Vec<(PathBuf, u64)> = all.map(|one| (one.path, one.file.ino)).collect();
        // The directory above keeps its name too.
        let is_held = files.pinned.contains(Path::new("/work/sub/.git"));
        assert_eq!(is_held, !all.is_empty());
        all
    };
    let read_only = [("/work/sub/.git/config".into(), 7)];
    assert_eq!(protected(under("strict")), read_only);
    for policy in ["standard", "permissive"] {
        assert_eq!(protected(under(policy)), []);
        let tighter = under(policy).annotation("filesystem.git-config", "read-only");
        assert_eq!(protected(tighter), read_only);
    }
}

#[test]
fn a_bind_that_is_protected_itself_is_written_if_the_policy_lists_it() {
    let codex = || under("permissive").bind("/home/me/.codex", "/x");
    let (access, why) = given(codex());
    assert_eq!(access, Some(false));
    assert!(why.contains("filesystem.unprotected=.codex lets"), "{why}");
    for (name, access) in [(".codex", true), ("*", true), (".vscode", false)] {
        let case = codex().annotation("filesystem.unprotected", name);
        assert_eq!(given(case).0, Some(access), "{name}");
    }
    let hook = "/srv/p/.git/hooks/pre-commit";
    let file = |path: &str| under("permissive").bind_of(FileKind::File, path, "/x");
    assert_eq!(given(file(hook)).0, Some(false));
    assert_eq!(given(file("/srv/p/file")).0, Some(true));
    let other_name = codex().found(|f| {
        f.path = "/srv/c".into();
        f.names = ["/home/me/.codex".into()].into();
    });
    assert_eq!(given(other_name).0, Some(false));
    // A login that the policy shows.
    let login = file("/home/me/.codex/auth.json").site(|policy| {
        policy.filesystem.credentials = [".codex/auth.json".parse().unwrap()].into();
    });
    assert_eq!(given(login).0, Some(true));
    // A working directory, which an image may have chosen, makes it no workspace; a name does.
    let working = codex().cwd("/x");
    assert_eq!(working.plan().filesystem.workspace, None);
    assert_eq!(given(working).0, Some(false));
    let named = codex().annotation("workspace", "/x");
    assert_eq!(given(named).0, Some(true));
}
