//! F37: attacks on the second look, which moves aside what a command planted for the user's own tools. Each is tried with
//! the look, and without it: then the user's next git runs the command's program.

use super::account::Account;
use crate::docker::Docker;

/// What a user's git does here.
const GIT: &str = "export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=$HOME/gitconfig; ";

/// Something that git runs, which leaves a mark in the home.
const SETTING: &str = "s() { printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \"echo x >>~/ran; false\"\\n'; }; \
                       h() { printf '#!/bin/sh\\necho x >>~/ran\\n' >$1; chmod +x $1; }; set -e; ";

struct PlantedAttack {
    name: &'static str,
    /// What the user did before.
    before: &'static str,
    /// What the command does in the project.
    plants: &'static str,
    /// What the user does after it, in the project.
    after: &'static str,
}

const REPOSITORY: &str = "git init -q; git commit -q --allow-empty -m one";

/// One where no second look comes, such as an agent's home or a kept cache.
const ELSEWHERE: &str = "git init -q; git commit -q --allow-empty -m one; rm -rf ~/evil.git; git init -q --bare ~/evil.git; \
                         printf '#!/bin/sh\\necho x >>~/ran\\n' >~/evil.git/hooks/pre-receive; chmod +x ~/evil.git/hooks/pre-receive";

/// A repository elsewhere whose settings run a program.
const EVIL: &str = "git init -q; git commit -q --allow-empty -m one; rm -rf ~/evil; git init -q ~/evil; \
                    git -C ~/evil commit -q --allow-empty -m one; git -C ~/evil config core.fsmonitor 'echo x >>~/ran; false'";

/// Adds entries to git's index which git itself would not add: paths, hashes, modes and flags.
const ADD: &str = r#"add() { python3 -c '
import hashlib, struct, subprocess, sys
entries = [line.split() for line in subprocess.getoutput("git ls-files -s").splitlines()]
entries = [(path, hash, mode, 0) for mode, hash, _, path in entries] + [arg.split("|") for arg in sys.argv[1:]]
index = b"DIRC" + struct.pack(">II", 2, len(entries))
for path, hash, mode, flags in sorted(entries):
    entry = struct.pack(">10I", 0, 0, 0, 0, 0, 0, int(mode, 8), 0, 0, 0) + bytes.fromhex(hash)
    entry += struct.pack(">H", len(path) | int(flags)) + path.encode()
    index += entry + bytes(8 - len(entry) % 8)
open(".git/index", "wb").write(index + hashlib.sha1(index).digest())
' "$@"; }; "#;

/// The user ends the editor with an error: git has written the message by then.
const AMEND: &str = "GIT_EDITOR=false git commit --amend; git status";

const ATTACKS: [PlantedAttack; 26] = [
    PlantedAttack {
        name: "a common directory without HEAD",
        before: REPOSITORY,
        plants: "mkdir -p x/worktrees/y x/objects x/refs sub; echo 'ref: refs/heads/main' >x/worktrees/y/HEAD; \
                 echo ../.. >x/worktrees/y/commondir; s >x/config; echo 'gitdir: ../x/worktrees/y' >sub/.git",
        after: "cd sub && git status",
    },
    PlantedAttack {
        name: "a blank behind the common directory of a work tree",
        before: "git init -q; git commit -q --allow-empty -m one; git worktree add -q ~/tree",
        plants: "printf '../.. ' >.git/worktrees/tree/commondir; mkdir -p '.git/worktrees/.. /objects' '.git/worktrees/.. /refs'; \
                 s >'.git/worktrees/.. /config'",
        after: "cd ~/tree && git status",
    },
    PlantedAttack {
        name: "a git directory that the next git init makes one",
        before: "true",
        plants: "mkdir -p .git/hooks; h .git/hooks/pre-commit; s >.git/config",
        after: "git init -q && git commit -q --allow-empty -m two",
    },
    PlantedAttack {
        name: "a NUL in a name",
        before: REPOSITORY,
        plants: "h evil; rm -rf .git/objects/*; printf '[remote \"o.uploadpack\\0\"]\\n\\turl = ~/src/project/evil #\\n[remote \"o\"]\\n\\turl = .\\n\
                 \\tpromisor = true\\n[extensions]\\n\\tpartialclone = o\\n[core]\\n\\trepositoryformatversion = 1\\n' >>.git/config",
        after: "git status; git log",
    },
    PlantedAttack {
        name: "something in the way of the cleaned file",
        before: REPOSITORY,
        plants: "mkdir .git/config.agentbox; s >>.git/config",
        after: "git status",
    },
    PlantedAttack {
        name: "quoted blanks",
        before: "git init -q; mkdir .ok; git config core.hooksPath .ok; git commit -q --allow-empty -m one",
        plants: "mkdir '.ok '; h e; mv e '.ok /pre-commit'; printf '[core]\\n\\thooksPath = \".ok \"\\n' >>.git/config",
        after: "git commit -q --allow-empty -m two",
    },
    PlantedAttack {
        name: "a path that no mount could have",
        before: "true",
        plants: "x=$(printf 'd%.0s' $(seq 250)); d=$x; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do d=$d/$x; done; \
                 mkdir -p $d/.git/objects $d/.git/refs; echo 'ref: refs/heads/main' >$d/.git/HEAD; s >$d/.git/config; ln -s $d sub",
        after: "cd sub && git status",
    },
    PlantedAttack {
        name: "a repository in what is moved",
        before: "true",
        plants: "mkdir -p .vscode/.git/objects .vscode/.git/refs; echo 'ref: refs/heads/main' >.vscode/.git/HEAD; s >.vscode/.git/config",
        after: "cd ~/src/project/.vscode || cd ~/src/project/.vscode.agentbox* || cd ~/.local/state/agentbox/quarantine/*/*.vscode; git status",
    },
    PlantedAttack {
        name: "a remote on this machine",
        before: ELSEWHERE,
        plants: "printf '[remote \"o\"]\\n\\turl = ~/evil.git\\n[branch \"main\"]\\n\\tremote = o\\n\\tmerge = refs/heads/main\\n' >>.git/config",
        after: "git push",
    },
    PlantedAttack {
        name: "a path in place of a remote's name",
        before: ELSEWHERE,
        plants: "ln -s ~/evil.git up; printf '[branch \"main\"]\\n\\tremote = up\\n\\tmerge = refs/heads/main\\n' >>.git/config",
        after: "git push",
    },
    PlantedAttack {
        name: "a path as a remote's name",
        before: ELSEWHERE,
        plants: "printf '[remote \"~/evil.git\"]\\n\\turl = git@h.invalid:x\\n[branch \"main\"]\\n\\tremote = ~/evil.git\\n\\tmerge = refs/heads/main\\n' \
                 >>.git/config",
        after: "git push",
    },
    PlantedAttack {
        name: "a remote in git's older files",
        before: ELSEWHERE,
        plants: "mkdir -p .git/remotes; printf 'URL: ~/evil.git\\nPush: HEAD:refs/heads/main\\n' >.git/remotes/origin",
        after: "git push origin",
    },
    PlantedAttack {
        name: "a message that git writes through a link",
        before: REPOSITORY,
        plants: "s | git -c user.name=a -c user.email=a@b commit -q --allow-empty -F -; ln -sf config .git/COMMIT_EDITMSG",
        after: AMEND,
    },
    PlantedAttack {
        name: "a message that git writes by a hard link",
        before: REPOSITORY,
        plants: "s | git -c user.name=a -c user.email=a@b commit -q --allow-empty -F -; ln -f .git/config .git/COMMIT_EDITMSG",
        after: AMEND,
    },
    PlantedAttack {
        name: "a name that git writes through a link",
        before: "git init -q; git commit -q --allow-empty -m one; echo true >~/rc",
        plants: "rm .git/logs/HEAD; ln -s ~/rc .git/logs/HEAD; git config user.name 'a$(touch ~/ran)b'",
        after: "git commit -q --allow-empty -m two; sh ~/rc",
    },
    PlantedAttack {
        name: "a work tree whose git directory is elsewhere",
        before: EVIL,
        plants: "mkdir -p vendor/x; echo 'gitdir: ~/evil/.git' >vendor/x/.git; \
                 git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),vendor/x",
        after: "git status",
    },
    PlantedAttack {
        name: "a link to a work tree's git directory elsewhere",
        before: EVIL,
        plants: "mkdir -p vendor/x; ln -s ~/evil/.git vendor/x/.git; \
                 git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),vendor/x",
        after: "git status",
    },
    PlantedAttack {
        name: "a link in place of a second work tree's directory",
        before: "git init -q; git commit -q --allow-empty -m one; git worktree add -q ~/tree; rm -rf ~/evil; git init -q ~/evil; \
                 git -C ~/evil commit -q --allow-empty -m one; git -C ~/evil config core.fsmonitor 'echo x >>~/ran; false'",
        plants: "mv .git/worktrees/tree .git/worktrees/old; ln -s ~/evil/.git .git/worktrees/tree",
        after: "cd ~/tree && git status",
    },
    PlantedAttack {
        name: "a reference to a replaced object",
        before: REPOSITORY,
        plants: "echo \"ref: refs/replace/$(git rev-parse HEAD)\" >.git/refs/heads/topic",
        after: "git checkout -q -b topic; test -e .git/refs/replace && touch ~/ran",
    },
    PlantedAttack {
        name: "a submodule outside of the project in the index",
        before: EVIL,
        plants: "add \"../../evil|$(git rev-parse HEAD)|160000|0\"",
        after: "git status",
    },
    PlantedAttack {
        name: "a submodule by its whole path in a shared index",
        before: EVIL,
        plants: "add \"~/evil|$(git rev-parse HEAD)|160000|0\"; git -c index.threads=1 update-index --split-index",
        after: "git status",
    },
    PlantedAttack {
        name: "a hook in the index",
        before: REPOSITORY,
        plants: "h hook; add \".git/hooks/pre-commit|$(git hash-object -w hook)|100755|32768\"",
        after: "git restore .; git commit -q --allow-empty -m two",
    },
    PlantedAttack {
        name: "a conflict in a user's file",
        before: "git init -q; git commit -q --allow-empty -m one; echo true >~/rc",
        plants: "n=$(printf x | sha1sum | cut -d' ' -f1); c=.git/rr-cache/$n; mkdir -p $c; : >$c/preimage; ln $c/preimage $c/thisimage; \
                 echo 'echo x >>~/ran' >$c/postimage; printf '%s.-1\\t~/rc\\0' $n >.git/MERGE_RR",
        after: "git commit -q --allow-empty -m two; sh ~/rc",
    },
    PlantedAttack {
        name: "changes that a commit applies",
        before: REPOSITORY,
        plants: "export GIT_INDEX_FILE=/tmp/i; b=$(echo 'echo x >>~/ran' | git hash-object -w --stdin); \
                 c() { git -c user.name=a -c user.email=a@b commit-tree \"$@\"; }; i=$(c -p HEAD -m i $(git write-tree)); \
                 git update-index --add --cacheinfo 100644,$b,.envrc; c -p HEAD -p $i -m w $(git write-tree) >.git/MERGE_AUTOSTASH",
        after: "git commit -q --allow-empty -m two; sh .envrc",
    },
    PlantedAttack {
        name: "a work tree of a git directory that came with the checkout",
        before: "git init -q; git commit -q --allow-empty -m one; mkdir docs; cp -r .git docs/bare; rm -r docs/bare/hooks; \
                 printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \"echo x >>~/ran; false\"\\n' >docs/bare/config",
        plants: "mkdir sub; echo 'gitdir: ../docs/bare' >sub/.git; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub",
        after: "git status",
    },
    PlantedAttack {
        name: "a link as a directory",
        before: "true",
        plants: "mkdir cfg; h cfg/settings.json; ln -s cfg .claude",
        after: "./.claude/settings.json",
    },
];

fn fresh(person: &Account, attack: &PlantedAttack) {
    person.does("rm -rf ~/src ~/tree ~/ran ~/.local; mkdir -p ~/src/project; printf '[user]\\nname=a\\nemail=a@b\\n[init]\\ndefaultBranch=main\\n' >~/gitconfig");
    person.does(&format!("{GIT} cd ~/src/project; {}", attack.before));
}

/// Whether the user's own tools run what was planted.
fn is_run(person: &Account, attack: &PlantedAttack) -> bool {
    person.tries(&format!("{GIT} cd ~/src/project; {}", attack.after));
    person.tries("test -e ~/ran").code == 0
}

/// The scripts write the path of the user's home, which is not the container's.
fn script(person: &Account, attack: &PlantedAttack) -> String {
    format!("{SETTING}{ADD}{}", attack.plants).replace('~', &person.home)
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_hostile_no_planted_repository_escapes_the_second_look() {
    let _docker = Docker::connect();
    let person = Account::new();
    for attack in &ATTACKS {
        let script = script(&person, attack);
        for by_root in [false, true] {
            fresh(&person, attack);
            let seen = match by_root {
                true => person.wrap(&[], &script),
                false => person.wraps(&[], &script),
            };
            assert_eq!(seen.code, 0, "{} {seen}", attack.name);
            assert!(!is_run(&person, attack), "{} {by_root} {seen}", attack.name);
            assert!(seen.stderr.contains("agentbox: "), "{} {seen}", attack.name);
        }
        // The control: it works if the user allows it.
        fresh(&person, attack);
        person
            .wraps(&["--set", "filesystem.unprotected=*"], &script)
            .ok();
        assert!(is_run(&person, attack), "{}", attack.name);
    }
}

/// Indexes in each form that git writes: in versions 2 and 4 with the offsets for its threads, split, sparse, with other hashes.
const INDEXES: &str = r#"
set -e
export GIT_CONFIG_GLOBAL=/dev/null
r() { git init -q "$@"; cd "${!#}"; git config index.threads 2; b=$(echo x | git hash-object -w --stdin)
    seq 30000 | sed "s|.*|100644 $b\tdir$((RANDOM % 9))/&|" | git update-index --index-info
    git -c user.name=a -c user.email=a@b commit -qm one; }
(r two; git update-index --force-write-index; git status --porcelain | wc -l; grep -ac IEOT .git/index)
(r four; git update-index --index-version 4 --force-write-index; grep -ac IEOT .git/index)
(r split; git update-index --split-index; echo "100644 $b	new" | git update-index --index-info; ls .git/sharedindex.*)
(r sparse; git sparse-checkout set --cone --sparse-index other; grep -ac sdir .git/index)
(r --object-format=sha256 wide; git worktree add -q --no-checkout tree; git -C tree read-tree HEAD; ls .git/worktrees/tree/index)
"#;

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_indexes_that_git_writes_stay() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.does("mkdir -p ~/src/project");
    let seen = person.wraps(&[], INDEXES);
    assert_eq!(seen.code, 0, "{seen}");
    let has_extension = seen.stdout.lines().filter(|line| *line == "1");
    assert_eq!(has_extension.count(), 3, "{seen}");
    assert!(!seen.stderr.contains(".git/index"), "{seen}");
    person
        .does("cd ~/src/project && ls split/.git/sharedindex.* */.git/index | wc -l | grep -qx 6");
}

/// A rebase that the user has begun, here and in a second work tree, is not this run's: who believed it would lose it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_a_rebase_of_the_users_own_is_named_only_when_a_run_changes_it() {
    let _docker = Docker::connect();
    let person = Account::new();
    let begin = "rm -rf ~/src/project; mkdir -p ~/src/project; cd ~/src/project; export GIT_CONFIG_GLOBAL=/dev/null GIT_EDITOR=true; \
                 git init -q -b main; git config user.name a; git config user.email a@b; \
                 for name in main other third; do git switch -qc $name 2>/dev/null || true; echo $name >f; git add f; git commit -qm $name; done; \
                 git switch -q main; echo again >f; git commit -qam again; git worktree add -q tree third; \
                 git -C tree commit -q --amend -m other; echo x >tree/f; git -C tree commit -qam x; \
                 git rebase -q other; git -C tree rebase -q main; ls -d .git/rebase-merge .git/worktrees/tree/rebase-merge";
    for by_root in [false, true] {
        person.tries(begin);
        person.does(
            "cd ~/src/project; test -d .git/rebase-merge -a -d .git/worktrees/tree/rebase-merge",
        );
        let run = |script: &str| match by_root {
            true => person.wrap(&[], script),
            false => person.wraps(&[], script),
        };
        let seen = run(
            "git status >/dev/null; git -C tree status >/dev/null; touch tree/new; git -C tree add new",
        );
        let said = seen.stderr.clone();
        seen.ok();
        assert!(!said.contains("waits to be continued"), "{said}");
        let seen = run("echo exec evil >>.git/rebase-merge/git-rebase-todo");
        assert!(seen.stderr.contains("waits to be continued"), "{seen}");
    }
}
