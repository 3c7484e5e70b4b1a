//! F37: `.git/config` is read-only under `strict`. Ordinary git works, and the verbs that write settings say why not.

use super::account::{Account, GIT};
use crate::command::Finished;
use crate::docker::Docker;

/// The settings of a repository, of one in it, of a submodule, of a bare repository and of a second work tree.
const SETTINGS: [&str; 5] = [
    ".git/config",
    "below/deep/.git/config",
    ".git/modules/sub/config",
    "bare/config",
    ".git/worktrees/tree/config.worktree",
];

fn project(person: &Account) {
    person.does(&format!(
        "{GIT} set -e; rm -rf ~/src; mkdir -p ~/src/project; git init -q ~/src/sub; git -C ~/src/sub commit -q --allow-empty -m s; cd ~/src/project; git init -q; \
         git -c protocol.file.allow=always submodule --quiet add ~/src/sub sub; git commit -qm one; \
         git init -q below/deep; git init -q --bare bare; git worktree add -q tree; git config extensions.worktreeConfig true; \
         git -C tree config --worktree core.abbrev 9"
    ));
}

fn texts(person: &Account) -> Vec<String> {
    let text = |name| std::fs::read_to_string(format!("{}/{name}", person.project));
    SETTINGS.map(|name| text(name).unwrap_or_default()).into()
}

/// Every way to change a file of settings, or to put another in its place.
fn attack() -> String {
    let one = |name: &str| {
        format!(
            "f={name}; d=$(dirname $f); n=$(dirname $d); echo '#evil' >>$f; rm -f $f; echo '#evil' >new; mv new $f; \
             ln $f link; echo '#evil' >>link; ln -sf /tmp $f; chmod 777 $f; git config -f $f core.fsmonitor ./evil; \
             git --git-dir=$d config core.hooksPath /tmp; rm -f link new; \
             mv $d moved && mkdir -p $d && echo '#evil' >$f; \
             case $n in . | below/deep) ;; *) mv $n moved && mkdir -p $d && echo '#evil' >$f ;; esac; "
        )
    };
    SETTINGS.map(one).concat() + "true"
}

/// As root, or without root's rights.
fn strict(person: &Account, by_root: bool, script: &str) -> Finished {
    let options = ["--policy", "strict"];
    match by_root {
        true => person.wrap(&options, script),
        false => person.wraps(&options, script),
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_files_with_gits_settings_do_not_change_under_strict() {
    let _docker = Docker::connect();
    let person = Account::new();
    // Another tool may read them before the end, so they are read inside.
    let read = format!(
        "{}; cat {} 2>&1 | grep -c evil",
        attack(),
        SETTINGS.join(" ")
    );
    for by_root in [true, false] {
        project(&person);
        let before = texts(&person);
        assert!(before.iter().all(|text| !text.is_empty()), "{before:?}");
        let seen = strict(&person, by_root, &read);
        assert_eq!(texts(&person), before, "{seen}");
        assert_eq!(seen.stdout, "0\n", "{seen}");
        assert!(seen.stderr.contains("Read-only file system"), "{seen}");
    }
    project(&person);
    // A repository that is new is compared at the end.
    let new = format!(
        "{GIT} git init -q new; git -C new config core.fsmonitor ./evil; cat new/.git/config"
    );
    let seen = person.wraps(&["--policy", "strict"], &new);
    assert!(seen.stdout.contains("evil"), "{seen}");
    let left = person.does("cat ~/src/project/new/.git/config; rm -r ~/src/project/new");
    assert!(!left.contains("evil"), "{left}");
    // The controls: `standard` lets them change until the end, and an exception for good.
    let one = "git config core.fsmonitor ./evil; grep -c evil .git/config";
    let seen = person.wraps(&[], one);
    assert_eq!(seen.stdout, "1\n", "{seen}");
    assert!(seen.stderr.contains("took out"), "{seen}");
    for free in [
        "filesystem.git-config=compared",
        "filesystem.unprotected=.git/config",
    ] {
        let seen = person.wraps(&["--policy", "strict", "--set", free], one);
        assert_eq!(seen.stdout, "1\n", "{free} {seen}");
        let stays = free.contains("unprotected");
        assert_eq!(texts(&person)[0].contains("evil"), stays, "{free}");
    }
    // `standard` with the field is as tight.
    person.does("cd ~/src/project; git config --unset core.fsmonitor");
    let seen = person.wraps(&["--set", "filesystem.git-config=read-only"], one);
    assert_eq!(seen.stdout, "0\n", "{seen}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_git_works_without_writing_its_settings() {
    let _docker = Docker::connect();
    let person = Account::new();
    project(&person);
    person.does(&format!(
        "{GIT} cd ~/src/project; git remote add o ./bare; git push -q o HEAD:refs/heads/main HEAD:refs/heads/far; git fetch -q o"
    ));
    let before = texts(&person);
    let work = format!(
        "{GIT} set -e; echo 1 >f; git add f; git commit -qm f; git checkout -q -b other; git commit -q --allow-empty -m two; \
         git checkout -q -; git merge -q other; git branch -q third; git switch -q third; git commit -q --allow-empty -m three; \
         git rebase -q other; git switch -q -; echo 2 >f; git stash -q; git stash pop -q; git commit -qam four; git tag t; \
         git push -q o HEAD:refs/heads/main; git fetch -q o; git pull -q o main 2>&1; git clone -q bare clone; rm -rf clone; \
         git worktree add -q ../$(basename $PWD)/second; git worktree remove second; git gc -q; git reset -q --hard; \
         git submodule --quiet status >/dev/null; git -C sub commit -q --allow-empty -m s; git -C tree commit -q --allow-empty -m t; \
         git branch -q --no-track local o/far; git log --oneline | wc -l"
    );
    for by_root in [true, false] {
        let seen = strict(&person, by_root, &work);
        assert_eq!(seen.code, 0, "{seen}");
        assert_eq!(texts(&person), before, "{seen}");
        person.does("cd ~/src/project; git branch -qD other third second local; git tag -d t");
    }
    // These write settings (docs/policy.md): they fail, or do the rest and say what is missing.
    for (verb, works) in [
        ("git config user.name x", false),
        ("git remote add p ./bare", false),
        ("git worktree remove tree", false),
        ("git push -q -u o HEAD:refs/heads/main", true),
        ("git branch -q --track tracks o/far", true),
        ("git checkout -q far", true),
    ] {
        let seen = strict(&person, false, &format!("{GIT} {verb}"));
        assert_eq!(seen.code == 0, works, "{verb} {seen}");
        let said = seen.stderr.contains("Device or resource busy");
        assert!(said || verb.contains("worktree"), "{verb} {seen}");
        assert_eq!(texts(&person), before, "{verb} {seen}");
    }
    let locks = person.does("find ~/src/project -name '*.lock'");
    assert_eq!(locks, "");
}

/// F03. They stay writable: `npm install` writes those of husky.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f03_changed_hooks_of_the_users_own_path_are_named() {
    let _docker = Docker::connect();
    let person = Account::new();
    project(&person);
    person.does(
        "cd ~/src/project; mkdir -p .husky/_; echo true >.husky/pre-commit; git config core.hooksPath .husky/_; sleep 0.1",
    );
    let seen = person.wraps(&[], "cat .husky/pre-commit; echo 1 >f");
    assert!(!seen.stderr.contains("core.hooksPath"), "{seen}");
    for change in [
        "echo evil >.husky/pre-commit",
        "mkdir x; echo evil >x/pre-push; mv x/pre-push .husky/_",
        "rm -r .husky/_; ln -s ../tree .husky/_",
    ] {
        let seen = person.wraps(&[], change);
        let said = seen.stderr.contains("/.husky/_ (core.hooksPath)");
        assert!(seen.code == 0 && said, "{change}: {seen}");
    }
}
