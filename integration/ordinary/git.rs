//! Files that git knows: whatever is hidden inside a workspace, no commit carries it out; and what git has anyway, or
//! what is no secret, is not hidden.

use std::fs;
use std::path::Path;

use crate::command::{Finished, run};
use crate::docker::Docker;

const IMAGE: &str = "test-workloads";
const SECRET: &str = "the-secret-of-the-person";

/// Names of credentials that projects have files of.
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

/// A repository that a test owns, below /srv.
struct Repository(String);

impl Repository {
    fn new(name: &str) -> Self {
        let dir = format!("/srv/git-{name}-{}", std::process::id());
        fs::create_dir_all(&dir).unwrap();
        let repository = Self(dir);
        repository.git(&["init", "--quiet"]).ok();
        repository
    }

    fn git(&self, arguments: &[&str]) -> Finished {
        let own = [
            "-C",
            &self.0,
            "-c",
            "user.name=T",
            "-c",
            "user.email=t@example.test",
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
        let volume = format!("--volume={}:/work", self.0);
        let options = ["--runtime=agentbox", &volume, "--workdir=/work", IMAGE];
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

/// Everything that is committed works as with runc: add, commit, stash, reset, checkout.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_1_a_repository_that_tracks_every_name_can_be_worked_in() {
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

/// What git does not have stays hidden: neither something in its place nor its removal is committed, whether it is ignored,
/// as a secret should be, or not.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_1_what_is_hidden_is_nothing_that_git_would_add() {
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
    // One that is not ignored stops `add --all`, and is in no commit.
    project.write("other/.pgpass", SECRET);
    let script = "git add -A 2>&1 || echo stopped; echo more >>a; git commit -qm third a; git show --stat --format=%s";
    let seen = project.inside(&docker, script).ok();
    assert!(
        seen.contains("regular files") && seen.contains("stopped\nthird\n"),
        "{seen}"
    );
    assert!(seen.contains("1 file changed"), "{seen}");
    // The person's own stay what they were.
    let kept = fs::read_to_string(format!("{}/.aws/credentials", project.0)).unwrap();
    assert_eq!(kept, SECRET);
}

/// A file that git has without the secret cannot be hidden: the container would commit it as empty. `create` says so.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_1_a_secret_in_a_file_that_git_has_is_refused_with_what_to_do() {
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
