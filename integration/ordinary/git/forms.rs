//! Every form of a repository's index, files that git was told to ignore, and cases in which git is not told.

use super::*;

/// In every form of index, git's files stay visible, and other versions of them are refused.
#[test]
#[ignore = "needs the rig: hack/test"]
fn every_form_of_a_repository_is_understood() {
    let docker = Docker::connect();
    for (name, options, then) in [
        ("sha256", &["--object-format=sha256"][..], &[][..]),
        ("v4", &[], &["update-index", "--index-version=4"]),
        ("split", &[], &["update-index", "--split-index"]),
        (
            "sparse",
            &[],
            &["sparse-checkout", "set", "--sparse-index", "in"],
        ),
    ] {
        let project = Repository::with(name, options);
        for name in [".aws/config", "in/.netrc", "in/.pgpass", "out/.netrc"] {
            project.write(name, &format!("text of {name}\n"));
        }
        project.commit_all();
        if !then.is_empty() {
            project.git(then).ok();
        }
        // On top of the shared part of a split index: changed, removed, new.
        project.write("in/.pgpass", "other\n");
        project.write("in/x/.netrc", "new\n");
        project.git(&["add", "--all", "--force"]).ok();
        let script = "git status --porcelain; cat in/.netrc in/.pgpass in/x/.netrc; echo x >in/a; git add -A; git commit -qm second; \
            git show --stat --format=%s";
        let seen = project.inside(&docker, script).ok();
        let expect = "M  in/.pgpass\nA  in/x/.netrc\ntext of in/.netrc\nother\nnew\nsecond\n";
        assert!(seen.starts_with(expect), "{name}: {seen}");
        assert!(seen.contains("3 files changed"), "{name}: {seen}");
        assert_eq!(project.git(&["status", "--porcelain"]).ok(), "", "{name}");
        project.git(&["fsck", "--strict"]).ok();
        project.write("in/.netrc", SECRET);
        let message = project.inside(&docker, "true").failed();
        assert!(message.contains("--skip-worktree"), "{name}: {message}");
        if name == "sparse" {
            project.git(&["checkout", "in/.netrc"]).ok();
            project.write("out/.netrc", SECRET);
            let message = project.inside(&docker, "true").failed();
            assert!(message.contains("sparse-checkout disable"), "{message}");
        }
    }
    // An unknown form, and the remedy.
    let project = Repository::new("broken");
    project.write("a/.netrc", SECRET);
    project.write(".git/index", "none");
    let message = project.inside(&docker, "true").failed();
    assert!(message.contains("not understood"), "{message}");
}

/// A file that git was told not to check is hidden, and every git command works.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_secret_in_a_file_that_git_does_not_look_at_is_hidden() {
    let docker = Docker::connect();
    let project = Repository::new("skipped");
    project.write("a", "a\n");
    project.write(".netrc", "machine example.test\n");
    project.commit_all();
    project
        .git(&["update-index", "--skip-worktree", ".netrc"])
        .ok();
    project.write(".netrc", SECRET);
    let script = "git status --porcelain; cat .netrc; echo more >>a; git add -A; git commit -qm second; git show --stat --format=%s; \
        echo more >>a; git stash -q; git stash pop -q; git commit -qam third; git reset -q --hard HEAD~1; git checkout -qb other; \
        git status --porcelain; echo end";
    let seen = project.inside(&docker, script).ok();
    assert!(
        seen.starts_with("second") && seen.ends_with("\nend\n"),
        "{seen}"
    );
    assert!(seen.contains("1 file changed"), "{seen}");
    assert_eq!(project.read(".netrc"), SECRET);
    assert_eq!(project.git(&["status", "--porcelain"]).ok(), "");
}

/// If git has a file without its secret, it cannot be hidden: the container would commit it as empty. `create` refuses
/// it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_secret_in_a_file_that_git_has_is_refused_with_what_to_do() {
    let docker = Docker::connect();
    let project = Repository::new("changed");
    project.write(".npmrc", "save-exact=true\n");
    project.git(&["add", "--all"]).ok();
    project.git(&["commit", "--quiet", "-m", "first"]).ok();
    project.write(".npmrc", &format!("_authToken={SECRET}\n"));
    let message = project.inside(&docker, "cat .npmrc").failed();
    assert!(
        message.contains(".npmrc") && message.contains("git restore"),
        "{message}"
    );
    assert!(!message.contains(SECRET), "{message}");
    project.write(".npmrc", "save-exact=false\n");
    assert_eq!(
        project.inside(&docker, "cat .npmrc").ok(),
        "save-exact=false\n"
    );
}

/// If git is not told, or told otherwise, it stops with an error, and commits nothing in place of a secret.
#[test]
#[ignore = "needs the rig: hack/test"]
fn git_stops_at_a_hidden_file_rather_than_commit_something() {
    let docker = Docker::connect();
    let project = Repository::new("stops");
    project.write(".gitignore", "*.log\n!.netrc\n");
    project.commit_all();
    project.git(&["checkout", "--quiet", "-b", "has"]).ok();
    project.write("x/.pgpass", "theirs\n");
    project.commit_all();
    project.git(&["checkout", "--quiet", "main"]).ok();
    for name in [".netrc", "x/.pgpass"] {
        project.write(name, SECRET);
    }
    for verb in [
        "git add -A",
        "git add --force x/.pgpass",
        "git stash -qa",
        "git clean -fdxq",
        "git checkout -q has && git commit -qam empty",
    ] {
        let seen = project.inside(&docker, &format!("{verb} 2>&1 || echo stopped"));
        assert!(seen.ok().ends_with("stopped\n"), "{verb}");
        for name in [".netrc", "x/.pgpass"] {
            assert_eq!(project.read(name), SECRET, "{verb}");
        }
    }
    let all = project.git(&["log", "--all", "--format=%s", "-p"]).ok();
    assert!(!all.contains(SECRET) && !all.contains("-theirs"), "{all}");
    // Now the user's own: main's work tree under the other branch.
    let message = project.inside(&docker, "true").failed();
    assert!(message.contains("x/.pgpass"), "{message}");
}
