//! F37: `wrap --unprotect` lets protected files be written by name. Only the user's words do: no file that a sandbox
//! wrote, and nothing beyond a ceiling.

use super::account::Account;
use crate::command::finish;
use crate::docker::Docker;

/// Tries both protected files, and says which were written. One new file is made as well.
const TRY: &str = "for f in .envrc .git/hooks/post-commit; do echo evil 2>/dev/null >$f && echo $f; done; echo '{}' >.mcp.json; true";

fn project(person: &Account) {
    person.does("cd ~/src/project; git init -q; echo kept | tee .envrc >.git/hooks/post-commit; rm -f .mcp.json");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_only_the_user_unprotects_a_file() {
    let _docker = Docker::connect();
    let person = Account::new();
    project(&person);
    // The control: without the option nothing is written, and the last line has the option to type.
    let seen = person.wraps(&[], TRY);
    assert_eq!(seen.stdout, "", "{seen}");
    let said = "your tools would run them; --unprotect .mcp.json lets them stay";
    assert!(seen.stderr.contains(said), "{seen}");
    let left = person.does("ls ~/src/project/.mcp.json 2>/dev/null; true");
    assert_eq!(left, "");
    // Each name by itself, at any depth.
    let seen = person.wraps(&["--unprotect", "./.git/hooks/"], TRY);
    assert_eq!(seen.stdout, ".git/hooks/post-commit\n", "{seen}");
    let both = ["--unprotect", ".envrc", "--unprotect", ".mcp.json"];
    for by_root in [false, true] {
        project(&person);
        let seen = match by_root {
            true => person.wrap(&both, TRY),
            false => person.wraps(&both, TRY),
        };
        assert_eq!(seen.stdout, ".envrc\n", "{seen}");
        assert!(!seen.stderr.contains("your tools would run"), "{seen}");
        assert_eq!(person.does("cat ~/src/project/.mcp.json"), "{}\n");
    }
    // A path of one repository is refused: it would free the name in all of them.
    let refused = person.wraps(&["--unprotect", "sub/.git/hooks"], "true");
    assert_ne!(refused.code, 0, "{refused}");
    assert!(refused.stderr.contains(".git/hooks, which"), "{refused}");
    let named = person.wraps(&["--write", "../../.codex"], "true");
    assert_ne!(named.code, 0, "{named}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_a_file_that_a_sandbox_wrote_unprotects_nothing() {
    let _docker = Docker::connect();
    let person = Account::new();
    project(&person);
    // The command writes the settings of the next run.
    let plant = "echo 'unprotect = [\"*\"]' >.agentbox.toml";
    person.wraps(&[], plant).ok();
    let seen = person.wraps(&[], TRY);
    assert_eq!(seen.stdout, "", "{seen}");
    assert!(seen.stderr.contains("agentbox trust"), "{seen}");
    // The control: the user trusts it, and is told what it does.
    let trust = finish(&mut person.sudo(&["trust", "--yes"]));
    let effect = "lets every file be written that your tools run later";
    assert!(format!("{trust}").contains(effect), "{trust}");
    let seen = person.wrap(&[], TRY);
    assert_eq!(seen.stdout, ".envrc\n.git/hooks/post-commit\n", "{seen}");
    // In the user's own settings it counts everywhere.
    finish(&mut person.sudo(&["trust", "--remove"])).ok();
    person.does("rm ~/src/project/.agentbox.toml");
    project(&person);
    person.file(".config/agentbox/config.toml", "unprotect = [\".envrc\"]\n");
    let seen = person.wraps(&[], TRY);
    assert_eq!(seen.stdout, ".envrc\n", "{seen}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_a_ceiling_holds_for_unprotected_files() {
    let _docker = Docker::connect();
    let person = Account::new();
    project(&person);
    let run = |ceiling: &str| {
        let line = [
            "--policy",
            ceiling,
            "wrap",
            "--unprotect",
            ".envrc",
            "--",
            "bash",
            "-c",
            TRY,
        ];
        finish(&mut person.sudo(&line))
    };
    let seen = run("standard");
    assert!(seen.code != 0 && seen.stdout.is_empty(), "{seen}");
    assert!(seen.stderr.contains("filesystem.unprotected"), "{seen}");
    // The control.
    let seen = run("permissive");
    assert_eq!(seen.stdout, ".envrc\n", "{seen}");
}
