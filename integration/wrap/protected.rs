//! F37: what a command plants in a workspace for the user's own tools to run: read-only where it is there.

use super::account::Account;
use crate::command::Finished;
use crate::docker::Docker;

const GIT: &str = "export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a; set -e; ";

/// Files that are there at the start, from the project's top.
const THERE: [&str; 9] = [
    ".git/hooks/post-commit",
    ".envrc",
    ".vscode/tasks.json",
    ".claude/settings.json",
    ".codex/config.toml",
    ".github/workflows/ci.yml",
    "sub/.git/hooks/post-commit",
    "sub/.envrc",
    "bare/hooks/post-receive",
];

/// A project with a repository in it and a bare one.
fn project(person: &Account) {
    person.does(&format!(
        "{GIT} cd ~/src/project; git init -q; git init -q sub; git init -q --bare bare; git commit -q --allow-empty -m one; \
         for f in {}; do mkdir -p $(dirname $f); echo kept >$f; done",
        THERE.join(" ")
    ));
}

/// What became of the files.
fn changed(person: &Account) -> Vec<&'static str> {
    let text = |name: &&str| std::fs::read_to_string(format!("{}/{name}", person.project));
    let all = THERE.into_iter();
    all.filter(|name| text(name).ok().as_deref() != Some("kept\n"))
        .collect()
}

/// As root and without its rights.
fn both(person: &Account, options: &[&str], script: &str) -> [Finished; 2] {
    [person.wrap(options, script), person.wraps(options, script)]
}

/// Every way to put something else into a name.
fn attack() -> String {
    THERE
        .iter()
        .map(|name| {
            format!(
                "f={name}; d=$(dirname $f); n=$(dirname $d); echo evil >$f; rm -f $f; echo evil >new && mv new $f; \
                 ln $f link && echo evil >link; chmod 777 $f; rm -f link new; \
                 [ $d = . ] || [ $d = sub ] || {{ mv $d moved && mkdir -p $d && echo evil >$f; }}; \
                 [ $n = . ] || [ $n = sub ] || {{ mv $n moved && mkdir -p $d && echo evil >$f; }}; "
            )
        })
        .collect::<String>()
        + "true"
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_what_the_users_tools_run_later_is_not_changed() {
    let _docker = Docker::connect();
    let person = Account::new();
    project(&person);
    for policy in ["strict", "standard", "permissive"] {
        for seen in both(&person, &["--policy", policy], &attack()) {
            assert_eq!(changed(&person), [""; 0], "{policy} {seen}");
            assert!(seen.stderr.contains("Read-only file system"), "{seen}");
        }
    }
    // The control: the same where the user allows it, and by no project that nobody trusts.
    let free = "filesystem.unprotected=.envrc,.git/hooks";
    let untrusted = "[set]\nfilesystem.unprotected = \".envrc\"\n";
    person.file("src/project/.agentbox.toml", untrusted);
    person.wraps(&[], "echo evil >.envrc; true").ok();
    assert_eq!(changed(&person), [""; 0]);
    person.wraps(&["--set", free], &attack()).ok();
    for name in [".envrc", ".git/hooks/post-commit", "sub/.envrc"] {
        assert!(changed(&person).contains(&name), "{name}");
    }
    assert!(!changed(&person).contains(&".vscode/tasks.json"));
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_git_works_and_nothing_is_left_in_the_project() {
    let _docker = Docker::connect();
    let person = Account::new();
    project(&person);
    let before = person.does("cd ~/src/project; ls -A . sub .claude");
    let work = format!(
        "{GIT} git commit -q --allow-empty -m two; git checkout -q -b other; echo $RANDOM >f; git add f; git commit -qm f; git checkout -q -; \
         git commit -q --allow-empty -m three; git rebase -q other; echo 2 >f; git stash -q; git stash pop -q; git worktree add -q ../$(basename $PWD)/tree; \
         git push -q ./bare HEAD:refs/heads/main; git fetch -q ./bare main; git clone -q -b main bare clone; git gc -q; \
         git -C clone commit -q --allow-empty -m four; git worktree remove tree; rm -rf clone f; git branch -qD other; \
         git reset -q --hard; rm -f f; mkdir -p src/hooks && rmdir src/hooks src; echo plan >.claude/plan; rm .claude/plan"
    );
    for seen in both(&person, &[], &work) {
        assert_eq!(seen.code, 0, "{seen}");
    }
    assert_eq!(changed(&person), [""; 0]);
    let after = person.does("cd ~/src/project; rm -f f; ls -A . sub .claude");
    assert_eq!(after, before);
    // `explain` names them.
    let explained = person.wraps(&["--dry-run"], "true").ok();
    assert!(explained.contains("filesystem.unprotected"), "{explained}");
}
