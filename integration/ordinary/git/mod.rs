//! Files that git has: no commit contains a hidden file, and files that git has, or that hold no secret, are not
//! hidden.

mod crafted;
mod forms;

use std::fs;
use std::path::Path;

use crate::command::{Finished, run};
use crate::docker::Docker;

const IMAGE: &str = "test-workloads";
const SECRET: &str = "the-secret-of-the-person";

/// Names of credentials that projects use for files.
const NAMES: [&str; 12] = [
    ".npmrc",
    ".my.cnf",
    ".pypirc",
    ".boto",
    ".netrc",
    ".docker/Dockerfile",
    ".docker/config.json",
    ".aws/config",
    ".ssh/config",
    ".gradle/gradle.properties",
    ".config/gh/hosts.yml",
    "packages/a/.npmrc",
];

/// A test's repository, below /srv.
struct Repository(String);

impl Repository {
    fn new(name: &str) -> Self {
        Self::with(name, &[])
    }

    fn with(name: &str, options: &[&str]) -> Self {
        let dir = format!("/srv/git-{name}-{}", std::process::id());
        fs::create_dir_all(&dir).unwrap();
        let repository = Self(dir);
        let init = ["init", "--quiet", "--initial-branch=main"];
        repository.git(&[&init[..], options].concat()).ok();
        repository
    }

    fn commit_all(&self) {
        self.git(&["add", "--all", "--force"]).ok();
        self.git(&["commit", "--quiet", "-m", "first"]).ok();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(Path::new(&self.0).join(name)).unwrap()
    }

    fn git(&self, arguments: &[&str]) -> Finished {
        let own = [
            "-C",
            &self.0,
            "-c",
            "user.name=T",
            "-c",
            "user.email=t@example.test",
            "-c",
            "protocol.file.allow=always",
        ];
        run("git", &[&own[..], arguments].concat())
    }

    fn write(&self, name: &str, text: &str) {
        let path = Path::new(&self.0).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Runs a script in the work tree, as the workspace of a container.
    fn inside(&self, docker: &Docker, script: &str) -> Finished {
        self.under("agentbox", docker, script)
    }

    /// The same, under a given runtime.
    fn under(&self, runtime: &str, docker: &Docker, script: &str) -> Finished {
        let volume = format!("--volume={}:/work", self.0);
        let runtime = format!("--runtime={runtime}");
        let options = [&runtime, &volume, "--workdir=/work", IMAGE];
        let script = format!(
            "export GIT_AUTHOR_NAME=T GIT_AUTHOR_EMAIL=t@example.test GIT_COMMITTER_NAME=T GIT_COMMITTER_EMAIL=t@example.test; {script}"
        );
        docker.run(&options, &["sh", "-ec", &script])
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        let gone = fs::remove_dir_all(&self.0);
        if !std::thread::panicking() {
            gone.unwrap();
        }
    }
}

/// Git commands on committed files work as under runc: add, commit, stash, reset, checkout.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_repository_that_tracks_every_name_can_be_worked_in() {
    let docker = Docker::connect();
    let project = Repository::new("tracked");
    for name in NAMES {
        project.write(name, &format!("text of {name}\n"));
    }
    project.git(&["add", "--all", "--force"]).ok();
    project.git(&["commit", "--quiet", "-m", "first"]).ok();
    let script = "git status --porcelain; cat .docker/Dockerfile .npmrc; echo more >new; git add -A; git commit -qm second; \
        git show --stat --format=%s; echo changed >>.npmrc; git stash -q; git stash pop -q; git commit -qam third; \
        git reset -q --hard HEAD~1; git checkout -q -b other; git status --porcelain; echo end";
    let seen = project.inside(&docker, script).ok();
    assert!(
        seen.starts_with("text of .docker/Dockerfile\ntext of .npmrc\n") && seen.ends_with("end\n"),
        "{seen}"
    );
    assert!(
        !seen.contains(" D ") && seen.contains("1 file changed"),
        "{seen}"
    );
    assert_eq!(project.git(&["status", "--porcelain"]).ok(), "");
    let files = project.git(&["ls-files"]).ok();
    assert_eq!(files.lines().count(), NAMES.len() + 1, "{files}");
}

/// Files that git does not have stay hidden. Neither a substitute nor their removal is committed, whether they are
/// ignored, as a secret should be, or not.
#[test]
#[ignore = "needs the rig: hack/test"]
fn what_is_hidden_is_nothing_that_git_would_add() {
    let docker = Docker::connect();
    let project = Repository::new("untracked");
    project.write("a", "a\n");
    project.write(".aws/config", "region = nowhere\n");
    project.write(".gitignore", ".npmrc\ncredentials\n.netrc\n");
    project.git(&["add", "--all"]).ok();
    project.git(&["commit", "--quiet", "-m", "first"]).ok();
    project.write(".aws/credentials", SECRET);
    project.write(
        ".npmrc",
        &format!("//npm.example.test/:_authToken={SECRET}\n"),
    );
    project.write("sub/.netrc", SECRET);
    let script = "git status --porcelain; cat .aws/config; grep -rl the-secret . || echo hidden; echo more >>a; git add -A; \
        git commit -qm second; git show --stat --format=%s";
    let seen = project.inside(&docker, script).ok();
    assert!(
        seen.starts_with("region = nowhere\nhidden\nsecond\n"),
        "{seen}"
    );
    assert!(seen.contains("1 file changed"), "{seen}");
    // The user's own files are unchanged.
    assert_eq!(project.read(".aws/credentials"), SECRET);
}

/// Names that are special to git, or do not fit on a line.
const ODD: [&str; 12] = [
    "a b/.netrc",
    "end /.netrc",
    "#h/.netrc",
    "!e/.netrc",
    "st*r/.netrc",
    "q?/.netrc",
    "br[a]/.netrc",
    "back\\slash/.netrc",
    "new\nline/.netrc",
    "re\rturn/.netrc",
    "\"quoted\"/.netrc",
    "\u{fc}/.netrc",
];

/// Even files that no pattern ignores are left alone by each git command, and the node keeps no trace of that.
#[test]
#[ignore = "needs the rig: hack/test"]
fn git_is_told_to_ignore_hidden_files() {
    let docker = Docker::connect();
    let project = Repository::new("told");
    project.git(&["config", "core.untrackedCache", "true"]).ok();
    project.write("a", "a\n");
    project.write("star/.npmrc", "save-exact=true\n");
    project.commit_all();
    let own = "# mine\nignored\n!.netrc";
    project.write(".git/info/exclude", own);
    for name in ODD {
        project.write(name, SECRET);
    }
    project.write(".ssh/id", SECRET);
    // Next to a hidden one, and similar to its pattern.
    project.write("star/.netrc.txt", "plain\n");
    project.write("new line", "plain\n");
    let before = project.git(&["status", "--porcelain", "-uall"]).ok();
    let script = "git status --porcelain -uall; echo =added; git add -A; git commit -qm second; git show --stat --format=%s; \
        echo more >>a; git commit -qam third; echo =stash; echo more >>a; echo n >n; git stash -qu; git status --porcelain; \
        git stash pop -q; git status --porcelain; echo =clean; git clean -nd; git clean -fdq; git reset -q --hard; \
        git checkout -q -b other HEAD~1; git checkout -q main; git status --porcelain; git gc -q; \
        (echo x >>.git/info/exclude) 2>&1 || echo refused; mv a .git/info/exclude 2>&1 || echo refused; grep -rl the-secret . || echo hidden";
    let seen = project.inside(&docker, script).ok();
    let expect = "?? \"new line\"\n?? star/.netrc.txt\n=added\nsecond\n\n new line         | 1 +\n star/.netrc.txt | 1 +\n \
        2 files changed, 2 insertions(+)\n=stash\n M a\n?? n\n=clean\nWould remove n\n";
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(plain(&seen).starts_with(&plain(expect)), "{seen}");
    assert_eq!(seen.matches("refused").count(), 2, "{seen}");
    assert!(
        seen.contains("Read-only") && seen.ends_with("hidden\n"),
        "{seen}"
    );
    // The user's own.
    assert_eq!(project.read(".git/info/exclude"), own);
    for name in ODD {
        assert_eq!(project.read(name), SECRET);
    }
    let after = project.git(&["status", "--porcelain", "-uall"]).ok();
    let committed = ["?? \"new line\"", "?? star/.netrc.txt"];
    let kept = before.lines().filter(|line| !committed.contains(line));
    assert_eq!(after.lines().collect::<Vec<_>>(), kept.collect::<Vec<_>>());
    project.git(&["fsck", "--strict"]).ok();
    project.git(&["stash", "list"]).ok();
}

/// A repository without an exclude file gets an empty one, with the repository's owner.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_missing_exclude_file_is_created() {
    use std::os::unix::fs::{MetadataExt, chown};
    let docker = Docker::connect();
    for (name, kept, runtime) in [
        ("no-file", true, "agentbox-strict"),
        ("no-directory", false, "agentbox-permissive"),
    ] {
        let project = Repository::new(name);
        project.write("sub/.netrc", SECRET);
        let git = Path::new(&project.0).join(".git");
        fs::remove_dir_all(git.join("info")).unwrap();
        if kept {
            fs::create_dir(git.join("info")).unwrap();
        }
        chown(&git, Some(1234), Some(1235)).unwrap();
        let seen = project
            .under(runtime, &docker, "cat .git/info/exclude")
            .ok();
        assert!(seen.ends_with("\n/sub/.netrc\n"), "{seen}");
        let made = fs::metadata(git.join("info/exclude")).unwrap();
        assert_eq!((made.uid(), made.gid(), made.len()), (1234, 1235, 0));
        let info = fs::metadata(git.join("info")).unwrap().uid();
        assert_eq!(info, if kept { 0 } else { 1234 });
    }
}

/// Submodules and second work trees have their repositories elsewhere in the mount.
#[test]
#[ignore = "needs the rig: hack/test"]
fn submodules_and_work_trees_are_told_too() {
    let docker = Docker::connect();
    let part = Repository::new("part");
    part.write("a", "a\n");
    part.commit_all();
    let project = Repository::new("whole");
    project.write("a", "a\n");
    project.commit_all();
    let add = ["submodule", "--quiet", "add", &part.0, "sub"];
    project.git(&add).ok();
    project.git(&["commit", "--quiet", "-m", "sub"]).ok();
    project.git(&["worktree", "add", "--quiet", "tree"]).ok();
    // As with `worktree.useRelativePaths`.
    project.write("tree/.git", "gitdir: ../.git/worktrees/tree\n");
    for name in ["sub/.netrc", "tree/x/.pgpass"] {
        project.write(name, SECRET);
    }
    let script = "for at in sub tree; do cd $at; git status --porcelain; echo x >>a; git add -A; git commit -qm second; \
        git show --stat --format=%s; cd ..; done";
    let seen = project.inside(&docker, script).ok();
    assert_eq!(seen.matches("1 file changed").count(), 2, "{seen}");
    assert!(seen.starts_with("second") && !seen.contains("??"), "{seen}");
    assert_eq!(project.read("sub/.netrc"), SECRET);
}
