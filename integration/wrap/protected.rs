//! F37: files that a command plants in a workspace for the user's own tools to run. Existing ones are read-only, and
//! new ones are moved aside.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use super::account::{Account, GIT};
use crate::command::{Finished, HANGS, await_that};
use crate::direct::program;
use crate::docker::{Docker, Policy};

/// Files that exist at the start, below the project's top.
const THERE: [&str; 10] = [
    ".git/hooks/post-commit",
    ".envrc",
    ".direnv/flake-profile.rc",
    ".vscode/tasks.json",
    ".claude/settings.json",
    ".codex/config.toml",
    ".github/workflows/ci.yml",
    "sub/.git/hooks/post-commit",
    "sub/.envrc",
    "bare/hooks/post-receive",
];

/// A project with a repository and a bare one in it.
fn project(person: &Account) {
    person.does(&format!(
        "{GIT} cd ~/src/project; git init -q; git init -q sub; git init -q --bare bare; git commit -q --allow-empty -m one; \
         for f in {}; do mkdir -p $(dirname $f); echo kept >$f; done",
        THERE.join(" ")
    ));
}

/// The files that have changed.
fn changed(person: &Account) -> Vec<&'static str> {
    let text = |name: &&str| std::fs::read_to_string(format!("{}/{name}", person.project));
    let all = THERE.into_iter();
    all.filter(|name| text(name).ok().as_deref() != Some("kept\n"))
        .collect()
}

/// Runs as root and without root's rights.
fn both(person: &Account, options: &[&str], script: &str) -> [Finished; 2] {
    [person.wrap(options, script), person.wraps(options, script)]
}

/// Every way to replace a file.
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
    // The control: the attacks work if the user allows them, but not by an untrusted project's settings.
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
        assert!(!seen.stderr.contains("refs/replace"), "{seen}");
    }
    assert_eq!(changed(&person), [""; 0]);
    let after = person.does("cd ~/src/project; rm -f f; ls -A . sub .claude");
    assert_eq!(after, before);
    // `explain` names them.
    let explained = person.wraps(&["--dry-run"], "true").ok();
    assert!(explained.contains("filesystem.unprotected"), "{explained}");
}

/// Makes new files in each of these places.
const PLANT: &str = "mkdir -p .zed .devbox/gen .config/fish sub/.github/workflows new src .git/worktrees/x; echo evil | tee .mcp.json .zed/tasks.json prek.toml .config/lefthook.yml .devbox/gen/shell \
                     .config/fish/config.fish sub/.github/workflows/x.yml .git/commondir >/dev/null; ln -s /tmp .idea; \
                     git init -q new; echo evil >new/.git/hooks/post-checkout; git init -q --bare src/made.git; \
                     echo evil >src/made.git/hooks/update; echo ../../../evil >.git/worktrees/x/commondir; echo x >.git/worktrees/x/HEAD; \
                     echo evil >new/.git/hooks/$(printf 'x%.0s' {1..250}); mkdir .circleci; chmod 500 .circleci; \
                     mkdir -p .jj .sl sub/.jj/repo/store; echo evil >.jj/workspace-config.toml; echo ../.x >.jj/repo; echo evil >.sl/config; \
                     mv sub renamed; mkdir sub; echo evil >renamed/.mcp.json; echo ok >src/.mcp.json; ";

/// The new files that the user's tools would run.
const PLANTED: [&str; 17] = [
    ".jj/workspace-config.toml",
    ".jj/repo",
    ".sl/config",
    ".circleci",
    ".mcp.json",
    ".zed",
    ".config/fish",
    ".config/lefthook.yml",
    ".devbox/gen",
    "prek.toml",
    ".idea",
    ".git/commondir",
    ".git/worktrees/x/commondir",
    "new/.git/hooks/post-checkout",
    "src/made.git/hooks/update",
    "renamed/.github/workflows",
    "renamed/.mcp.json",
];

fn left(project: &str) -> Vec<&'static str> {
    let is_there = |name: &&str| Path::new(project).join(name).symlink_metadata().is_ok();
    PLANTED.into_iter().filter(is_there).collect()
}

/// A project like the others, ready for another run.
fn fresh(person: &Account) {
    person.does("rm -rf ~/src/project ~/.local/state/agentbox; mkdir -p ~/src/project");
    project(person);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_what_appears_is_moved_aside() {
    let _docker = Docker::connect();
    let person = Account::new();
    for (by_root, policy) in [(false, "strict"), (false, "standard"), (true, "permissive")] {
        fresh(&person);
        let options = ["--policy", policy];
        let seen = match by_root {
            true => person.wrap(&options, PLANT),
            false => person.wraps(&options, PLANT),
        };
        assert_eq!(seen.code, 0, "{seen}");
        assert_eq!(left(&person.project), [""; 0], "{policy} {seen}");
        for said in ["moved ", "/.mcp.json to ", "agents start the servers in it"] {
            assert!(seen.stderr.contains(said), "{seen}");
        }
        // Files that are at no top, or that every new repository has, stay.
        let kept = "cd ~/src/project; cat src/.mcp.json; ls renamed/.jj/repo; ls new/.git/hooks | grep -c sample >/dev/null && echo samples";
        assert_eq!(person.does(kept), "ok\nstore\nsamples\n");
        // Nothing is deleted.
        if !by_root {
            let aside = "cat ~/.local/state/agentbox/quarantine/*/*.mcp.json ~/.local/state/agentbox/quarantine/*/*-.zed/tasks.json";
            assert_eq!(person.does(aside), "evil\nevil\nevil\n");
        }
    }
    // The control: if the user allows them, they stay.
    fresh(&person);
    let free = "filesystem.unprotected=.mcp.json,.zed";
    person.wraps(&["--set", free], PLANT).ok();
    assert_eq!(
        left(&person.project),
        [".mcp.json", ".zed", "renamed/.mcp.json"]
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_what_a_killed_run_left_is_moved_by_the_next_look() {
    let _docker = Docker::connect();
    let person = Account::new();
    for verb in ["list", "audit"] {
        fresh(&person);
        let script = format!("{PLANT} touch ready; sleep 50");
        let arguments = ["wrap", "--", "bash", "-c", &script];
        let mut killed = person.sudo(&arguments);
        killed.stdin(Stdio::null()).stderr(Stdio::null());
        let mut killed = killed.spawn().unwrap();
        await_that("the command begins", || {
            Path::new(&person.project).join("ready").exists()
        });
        killed.kill().unwrap();
        killed.wait().unwrap();
        let end = Instant::now() + HANGS;
        // The control: until then they are there.
        assert_eq!(left(&person.project), PLANTED, "{verb}");
        // Its processes end with it, which takes a moment on a busy machine. A look meanwhile leaves them.
        let mut all = String::new();
        while !left(&person.project).is_empty() {
            assert!(Instant::now() < end, "{verb}: {all}");
            let mut looked = person.sudo(&[verb]);
            let looked = crate::command::finish(&mut looked);
            // Another test's look may be the one that moves them.
            all += &looked.to_string();
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_containers_of_docker_have_the_same_protected_files() {
    let docker = Docker::connect();
    let person = Account::new();
    let bound = format!("--volume={}:/work", person.project);
    let there = [bound.as_str(), "--workdir=/work", "test-probe"];
    for policy in Policy::ALL {
        fresh(&person);
        let options = [&policy.options()[..], &there].concat();
        let plant = "for f in .git/hooks/post-commit .vscode/tasks.json .envrc; do echo evil >$f; done; \
                     mv .git .git2; mkdir .zed; echo evil >.zed/tasks.json; echo evil >.mcp.json; true";
        let seen = docker.run(&options, &["sh", "-c", plant]);
        assert_eq!(changed(&person), [""; 0], "{policy:?} {seen}");
        assert!(seen.stderr.contains("Read-only file system"), "{seen}");
        assert_eq!(left(&person.project), [""; 0], "{policy:?} {seen}");
    }
    // The control: under runc they change.
    fresh(&person);
    let options = [&["--runtime=runc"][..], &there].concat();
    let plant = "echo evil >.envrc; echo evil >.mcp.json";
    docker.run(&options, &["sh", "-c", plant]).ok();
    assert_eq!(changed(&person), [".envrc"]);
    assert_eq!(left(&person.project), [".mcp.json"]);
}

/// A bind besides the workspace, which `standard` lets be written if it is listed, and `permissive` as the engine says.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_a_second_bind_has_the_same_protected_files() {
    let docker = Docker::connect();
    let person = Account::new();
    person.does("mkdir -p ~/first");
    let first = format!("--volume={}/first:/work", person.home);
    let second = format!("--volume={}:/v", person.project);
    let there = [&first, "--workdir=/work", &second, "test-probe"];
    let listed = ["--annotation", "dev.agentbox.filesystem.write=/v"];
    let plant = "cd /v; for f in .git/hooks/post-commit .vscode/tasks.json .envrc; do echo evil >$f; done; \
                 printf '[core]\n\tfsmonitor = evil\n' >>.git/config; mv .git .git2; \
                 mkdir .zed; echo evil >.zed/tasks.json; echo evil >.mcp.json; echo ok >file";
    let is_set = || {
        person
            .does("cat ~/src/project/.git*/config")
            .contains("evil")
    };
    for (policy, more) in [(Policy::Standard, &listed[..]), (Policy::Permissive, &[])] {
        fresh(&person);
        let options = [&policy.options()[..], more, &there].concat();
        let seen = docker.run(&options, &["sh", "-c", plant]);
        assert_eq!(seen.code, 0, "{seen}");
        assert_eq!(changed(&person), [""; 0], "{policy:?} {seen}");
        assert!(seen.stderr.contains("Read-only file system"), "{seen}");
        assert_eq!(left(&person.project), [""; 0], "{policy:?} {seen}");
        assert!(!is_set(), "{policy:?}");
        assert_eq!(person.does("cat ~/src/project/file"), "ok\n");
        // If the policy exempts them, they change. Annotations can under `permissive`.
        if !more.is_empty() {
            continue;
        }
        let free = "dev.agentbox.filesystem.unprotected=.envrc,.mcp.json";
        let options = [&options[..1], &["--annotation", free], &options[1..]].concat();
        docker.run(&options, &["sh", "-c", plant]).ok();
        assert_eq!(changed(&person), [".envrc"], "{policy:?}");
        assert_eq!(left(&person.project), [".mcp.json"], "{policy:?}");
    }
    // The control.
    fresh(&person);
    let options = [&["--runtime=runc"][..], &there].concat();
    docker.run(&options, &["sh", "-c", plant]).ok();
    assert!(changed(&person).contains(&".envrc") && is_set());
    assert_eq!(left(&person.project)[..2], [".mcp.json", ".zed"]);
}

/// A mount that is such a file, or an agent's directory: nothing in it shows what it is.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_a_mount_of_a_protected_file_itself_is_not_written() {
    let docker = Docker::connect();
    let person = Account::new();
    fresh(&person);
    person.does("mkdir -p ~/.codex ~/.claude ~/.config/opencode ~/other/.github");
    let write = "if [ -d /v ]; then echo evil >/v/planted; else echo evil >/v; fi 2>/dev/null && echo written";
    let project = person.project.as_str();
    let places = [
        format!("{project}/.git/hooks"),
        format!("{project}/.git/hooks/post-commit"),
        format!("{project}/.envrc"),
        format!("{project}/.vscode"),
        format!("{project}/.github"),
        format!("{}/.codex", person.home),
        format!("{}/.claude", person.home),
        format!("{}/.config/opencode", person.home),
    ];
    let listed = ["--annotation", "dev.agentbox.filesystem.write=/v"];
    for place in &places {
        let mounted = format!("--volume={place}:/v");
        let tried = |options: &[&str], at: &str| {
            let at = format!("--workdir={at}");
            let all = [options, &[&mounted, &at, "test-probe"]].concat();
            docker.run(&all, &["sh", "-c", write])
        };
        let standard = Policy::Standard.options();
        // An image chooses a working directory, too.
        for at in ["/", "/v"]
            .into_iter()
            .filter(|at| *at == "/" || Path::new(place).is_dir())
        {
            let seen = tried(&Policy::Permissive.options(), at);
            assert_eq!(seen.stdout, "", "{place} {at}: {seen}");
            let all = [&standard[..], &listed].concat();
            let seen = tried(&all, at);
            assert_eq!(seen.stdout, "", "{place} {at}: {seen}");
        }
        let free = ["--annotation", "dev.agentbox.filesystem.unprotected=*"];
        let all = [&Policy::Permissive.options()[..], &free].concat();
        let seen = tried(&all, "/");
        assert_eq!(seen.stdout, "written\n", "{place}: {seen}");
        // The control.
        let seen = tried(&["--runtime=runc"], "/");
        assert_eq!(seen.stdout, "written\n", "{place}: {seen}");
    }
    let options = ["--write", "../../.codex"];
    assert_ne!(person.wraps(&options, "true").code, 0);
    let seen = person
        .wraps(&["--write", "../../other/.github"], "true")
        .failed();
    assert!(seen.contains("--unprotect .github/hooks "), "{seen}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_settings_of_git_that_name_programs_are_taken_out() {
    let _docker = Docker::connect();
    let person = Account::new();
    let set = format!(
        "{GIT} git config user.email inside@example.org; git config core.fsmonitor ./evil; git config alias.st '!./evil'; \
         git config include.path ../evil; git config core.sshCommand ./evil; git config filter.x.clean ./evil; git config pull.rebase true; \
         git config remote.p.url ../evil; git config remote.p.fetch +refs/heads/evil:refs/replace/0; \
         mkdir -p .git/remotes .git/branches; echo 'URL: ../evil' >.git/remotes/evil; ! {{ echo ../evil >.git/branches/evil; }} 2>/dev/null; \
         git remote add o ./bare; git push -q -u o HEAD:refs/heads/main; git remote set-url o git@example.org:x; git remote remove gone || true; \
         git init -q new; git -C new config core.hooksPath /tmp; \
         git -C bare config core.fsmonitor ./evil; printf '[core\\n' >sub/.git/config; \
         git worktree add -q tree; git config extensions.worktreeConfig true; git -C tree config --worktree core.pager ./evil"
    );
    let all = "for d in . new bare sub tree; do git -C $d config --list --show-scope 2>/dev/null | grep -v ^global | sort -u; done; true";
    let all = format!(
        "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1; cd ~/src/project; ls .git/remotes .git/branches; {all}"
    );
    for policy in ["standard", "permissive"] {
        fresh(&person);
        person.does("cd ~/src/project; git config core.pager less; git remote add gone git@example.org:y; chmod 640 .git/config");
        let seen = person.wraps(&["--policy", policy], &set);
        assert_eq!(seen.code, 0, "{seen}");
        let now = person.does(&all);
        assert!(!now.contains("evil") && !now.contains("hookspath"), "{now}");
        for kept in [
            "core.pager=less",
            "user.email=inside@example.org",
            "pull.rebase=true",
            "branch.",
            "remote.o.url=",
        ] {
            assert!(now.contains(kept), "{kept}: {now}");
        }
        for said in [
            "took out \"core.fsmonitor\", \"core.sshcommand\", \"alias.st\", \"include.path\", \"filter.x.clean\", \"remote.p.url\" and 1 more: ",
            "the remote \"gone\" has lost its address",
            ".git/remotes/evil to ",
            "took out \"core.hookspath\": ",
            "sub/.git/config to ",
        ] {
            assert!(seen.stderr.contains(said), "{said}: {seen}");
        }
        let mode = person.does(
            "cd ~/src/project; stat -c '%a %U' .git/config; ls .git | grep -c agentbox; true",
        );
        assert_eq!(mode, format!("640 {}\n0\n", person.name));
        let kept = person.does("cat ~/.local/state/agentbox/quarantine/*/*-config");
        assert!(kept.contains("./evil"), "{kept}");
    }
    // Files that stay do so in the next run too.
    let seen = person.wraps(&[], "true");
    assert_eq!(seen.stderr, "", "{seen}");
    // The control: if the user allows it, all of them stay.
    fresh(&person);
    person
        .wraps(
            &[
                "--set",
                "filesystem.unprotected=.git/config,.git/config.worktree",
            ],
            &set,
        )
        .ok();
    assert!(person.does(&all).contains("core.fsmonitor=./evil"));
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_the_users_git_shows_what_it_pushes() {
    let _docker = Docker::connect();
    let person = Account::new();
    let evil = |more: &str| {
        format!(
            "{GIT} echo good >a; git add a; git commit -qm two; G=$(git rev-parse HEAD); echo evil >b; git add b; \
             git commit -q --amend -m two; git replace HEAD $G; git config status.showUntrackedFiles no; {more} true"
        )
    };
    let look = format!("{GIT} cd ~/src/project; git log -p -1 --format=; git status -s sub");
    fresh(&person);
    let seen = person.wraps(&[], &evil(""));
    assert_eq!(seen.code, 0, "{seen}");
    assert!(
        seen.stderr.contains(".git/refs/replace to ")
            && seen
                .stderr
                .contains("git shows other commits than it pushes")
            && seen.stderr.contains("\"status.showuntrackedfiles\""),
        "{seen}"
    );
    let shown = person.does(&look);
    assert!(
        shown.contains("+evil") && shown.contains("?? sub"),
        "{shown}"
    );
    // Lines of packed references are said.
    fresh(&person);
    let seen = person.wraps(&[], &evil("git pack-refs --all;"));
    assert!(
        seen.stderr.contains("packed-refs has replaced objects"),
        "{seen}"
    );
    // Tables are not searched, which is said. (2.46 migrates to them, 2.39 knows none.) More of them take no other's line.
    fresh(&person);
    let tables = "rm -rf .git/logs; git refs migrate --ref-format=reftable 2>/dev/null || mkdir .git/reftable; \
                  for i in 1 2 3 4 5 6 7 8; do mkdir -p d$i/.git/reftable; done;";
    let seen = person.wraps(&[], &evil(tables));
    let said = "reftable is not searched for replaced objects";
    for (line, times) in [
        (said, 5),
        ("project/.git/reftable is", 1),
        ("4 more of ", 1),
    ] {
        assert_eq!(seen.stderr.matches(line).count(), times, "{line}: {seen}");
    }
    // The control: without the wall git shows the other commit.
    fresh(&person);
    person
        .wraps(&["--set", "filesystem.unprotected=*"], &evil(""))
        .ok();
    let shown = person.does(&look);
    assert!(!shown.contains("evil") && !shown.contains("??"), "{shown}");
    // The user's own stay, and git works beside them.
    fresh(&person);
    person.does(&format!(
        "{GIT} cd ~/src/project; git commit -q --allow-empty -m two; git replace HEAD HEAD~1"
    ));
    let work =
        format!("{GIT} git commit -q --allow-empty -m three; git gc -q; ! git replace -d HEAD~1");
    let seen = person.wraps(&[], &work);
    assert_eq!(seen.code, 0, "{seen}");
    assert_eq!(person.does("cd ~/src/project; git replace | wc -l"), "1\n");
}

/// In a second work tree `refs` is a mount of its own. A link of the user's in place of a directory stays.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_a_second_work_tree_replaces_no_object_and_links_stay() {
    let _docker = Docker::connect();
    let person = Account::new();
    fresh(&person);
    person.does(&format!(
        "{GIT} cd ~/src/project; git worktree add -q ~/src/tree; cd ~/src; mv project/.git/info shared; ln -s ../../shared project/.git/info"
    ));
    let replace = format!("{GIT} git commit -q --allow-empty -m two; git replace HEAD HEAD~1");
    let mut seen = person.wraps(&[], "true");
    assert!(!seen.stderr.contains("moved"), "{seen}");
    assert_eq!(
        person.does("readlink ~/src/project/.git/info"),
        "../../shared\n"
    );
    person.file("src/tree/replace.sh", &replace);
    let program = program();
    seen = person.tries(&format!("cd ~/src/tree; {program} wrap -- bash replace.sh"));
    assert!(seen.stderr.contains("git shows other commits"), "{seen}");
    assert_eq!(person.does("cd ~/src/project; git replace | wc -l"), "0\n");
}
