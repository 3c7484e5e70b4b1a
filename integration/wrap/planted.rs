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

const ATTACKS: [PlantedAttack; 9] = [
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
    format!("{SETTING}{}", attack.plants).replace('~', &person.home)
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
