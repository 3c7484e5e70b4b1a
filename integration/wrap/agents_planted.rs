//! F38: programs that a sandbox has planted under an agent's name, and what it leaves for the agent's next run. Each attack is tried by
//! sudo and as the user, with both kinds of walls.

use super::NodeDir;
use super::account::Account;
use super::agents::{AGENT, SEEN, WALLS, person};
use crate::command::{finish, run};
use crate::direct::program;
use crate::docker::Docker;

const PLANTED: &str = "#!/bin/bash\necho PLANTED; exec bash -c \"$1\"\n";

impl Account {
    /// Tries to get Claude's login by this PATH, and controls that the program is there for a user who names the agent.
    fn plants(&self, path: &str, says: &str) {
        for walls in WALLS {
            let options = ["--walls", walls];
            for finished in self.by_path(path, &options, &["claude", SEEN]) {
                assert!(!finished.stdout.contains("token-of"), "{path}: {finished}");
                let refused = "agent claude is not chosen by the command's name";
                assert!(finished.stderr.contains(refused), "{path}: {finished}");
            }
            let options = ["--walls", walls, "--agent", "claude"];
            let [_, alone] = self.by_path(path, &options, &["claude", SEEN]);
            assert_eq!(alone.ok(), format!("{says}token-of-claude"), "{path}");
        }
    }

    /// Gets Claude's login by this PATH.
    fn gets(&self, path: &str, shown: &str) {
        for walls in WALLS {
            for finished in self.by_path(path, &["--walls", walls], &["claude", SEEN]) {
                assert_eq!(finished.ok(), shown, "{walls} {path}");
            }
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_the_program_that_is_judged_is_the_one_that_runs() {
    let _docker = Docker::connect();
    let person = person();
    let (own, home) = (person.path(), person.home.clone());
    person.program("src/project/node_modules/.bin/claude", PLANTED);
    person.program("src/project/claude", PLANTED);
    for entry in ["./node_modules/.bin", "node_modules/.bin", "", "."] {
        person.plants(&format!("{entry}:{own}"), "PLANTED\n");
    }
    // The line has no option that would give it the login.
    for said in person.by_path(&format!("node_modules/.bin:{own}"), &[], &["claude", SEEN]) {
        let (by_path, by_option) = ("another claude runs by its path", "--agent claude");
        assert!(
            said.stderr.contains(by_path) && !said.stderr.contains(by_option),
            "{said}"
        );
    }
    // Nor for a program of another project's sandbox.
    person.program("src/other/node_modules/.bin/claude", PLANTED);
    let other = format!("{home}/src/other/node_modules/.bin");
    for said in person.by_path(
        &format!("{other}:{own}"),
        &["--read", &other],
        &["claude", SEEN],
    ) {
        let (by_path, by_option) = ("another claude runs by its path", "--agent claude");
        assert!(
            said.stderr.contains(by_path) && !said.stderr.contains(by_option),
            "{said}"
        );
    }
    person.does("mv .local/bin/claude kept; ln -s ~/src/project/claude .local/bin/claude");
    for said in person.by_path(&own, &[], &["claude", SEEN]) {
        let (by_path, by_option) = ("another claude runs by its path", "--agent claude");
        assert!(
            said.stderr.contains(by_path) && !said.stderr.contains(by_option),
            "{said}"
        );
    }
    person.does("mv kept .local/bin/claude");
    // Where nothing is found before.
    person.does("rm .local/bin/claude");
    for entry in ["node_modules/.bin", "."] {
        person.plants(&format!("{own}:{entry}"), "PLANTED\n");
    }
    person.program(".local/bin/claude", AGENT);
    // A sandbox that still runs there could put one before it at any time.
    person.does("rm src/project/claude src/project/node_modules/.bin/claude");
    let project = &person.project;
    for entry in [
        &format!("{project}/node_modules/.bin"),
        &format!("{project}/none/.bin"),
        &format!("{home}/src/none"),
        "./node_modules/.bin",
    ] {
        person.plants(&format!("{entry}:{own}"), "");
    }
    // Nor does one count that is nowhere, of which the runtime says only that.
    let [_, alone] = person.by_path("/usr/bin:/bin", &[], &["claude", SEEN]);
    assert_eq!(
        (alone.code, alone.stderr.lines().count()),
        (127, 1),
        "{alone}"
    );
    let [_, dry] = person.by_path("/usr/bin:/bin", &["--dry-run"], &["claude", SEEN]);
    let shown = dry.ok();
    assert!(
        !shown.contains("api.anthropic.com") && !shown.contains("your login"),
        "{shown}"
    );
    // The control: what comes after it does not matter, nor what only the user writes. No shell searches PATH here.
    let perl = "#!/usr/bin/perl\nexec '/bin/bash', '-c', $ARGV[0];\n";
    person.program(".local/bin/claude", perl);
    for path in [
        format!("{own}:./node_modules/.bin:"),
        format!("{home}/.cargo/bin:{home}/none/bin:{own}"),
    ] {
        person.gets(&path, "token-of-claude");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_no_interpreter_of_a_project_gets_a_login() {
    let _docker = Docker::connect();
    let person = person();
    let own = person.path();
    let bin = format!("{}/node_modules/.bin", person.project);
    let runner = "#!/bin/bash\necho PLANTED; exec bash -c \"$2\"\n";
    person.program("src/project/node_modules/.bin/runner", runner);
    for (line, path) in [
        ("/usr/bin/env runner", format!("./node_modules/.bin:{own}")),
        ("/usr/bin/env runner", format!("{own}:node_modules/.bin")),
        ("/usr/bin/env -S -u X runner", format!("{own}:{bin}")),
        ("/usr/bin/env -S X=1 runner", format!("{own}:{bin}")),
        ("/usr/bin/env -S runner", format!("{own}:{bin}")),
        ("node_modules/.bin/runner", own.clone()),
    ] {
        person.program(".local/bin/claude", &format!("#!{line}\n"));
        person.plants(&path, "PLANTED\n");
    }
    // The control: an interpreter of an installer's.
    person.program(".local/bin/runner", runner);
    for line in ["/usr/bin/env runner", "/usr/bin/env -S runner"] {
        person.program(".local/bin/claude", &format!("#!{line}\n"));
        for finished in person.by_path(&own, &[], &["claude", SEEN]) {
            assert_eq!(finished.ok(), "PLANTED\ntoken-of-claude", "{line}");
        }
    }
}

/// The script of pnpm for a program starts `node`, that of a user may start `npx`.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_no_script_whose_programs_may_be_the_projects_gets_a_login() {
    let _docker = Docker::connect();
    let person = person();
    let own = person.path();
    let project = &person.project;
    person.program("src/project/node_modules/.bin/runner", PLANTED);
    for shell in ["/bin/sh", "/usr/bin/env bash", "/usr/bin/env -S dash"] {
        let script = format!("#!{shell}\nexec runner \"$@\"\n");
        person.program(".local/bin/claude", &script);
        for entry in [
            "./node_modules/.bin",
            &format!("{project}/node_modules/.bin"),
        ] {
            person.plants(&format!("{own}:{entry}"), "PLANTED\n");
        }
    }
    // The control: its program is the user's.
    person.program(".local/bin/runner", PLANTED);
    person.gets(&own, "PLANTED\ntoken-of-claude");
}

/// Each takes the project's program of its name, as Volta does if package.json names its package.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_no_shim_gets_a_login_by_its_name() {
    let _docker = Docker::connect();
    let person = person();
    let (own, home) = (person.path(), person.home.clone());
    person.does("rm .local/bin/claude");
    person.program("src/project/node_modules/.bin/claude", PLANTED);
    let package = r#"{"dependencies":{"claude":"1","runner":"1"}}"#;
    person.file("src/project/package.json", package);
    let shim = "#!/bin/bash\nname=${0##*/}\ngrep -q $name package.json && exec node_modules/.bin/$name \"$@\"\n";
    person.program(".volta/bin/volta-shim", shim);
    person.program(".local/bin/mise", shim);
    person.program(".asdf/shims/claude", shim);
    person.program(".pyenv/shims/claude", shim);
    person.does(
        "ln -s volta-shim .volta/bin/claude; mkdir -p .local/share/mise/shims; \
         ln -s ../../../bin/mise .local/share/mise/shims/claude",
    );
    for bin in [
        ".volta/bin",
        ".asdf/shims",
        ".pyenv/shims",
        ".local/share/mise/shims",
    ] {
        person.plants(&format!("{home}/{bin}:{own}"), "PLANTED\n");
    }
    // Nor the program that it is for.
    let runner = "#!/bin/bash\necho PLANTED; exec bash -c \"$2\"\n";
    person.program("src/project/node_modules/.bin/runner", runner);
    person.program(".asdf/shims/runner", shim);
    person.program(".local/bin/claude", "#!/usr/bin/env runner\n");
    person.plants(&format!("{own}:{home}/.asdf/shims"), "PLANTED\n");
    // The control: the program behind a shim.
    let image = ".volta/tools/image/packages/claude/bin";
    person.program(&format!("{image}/claude"), AGENT);
    let path = format!("{home}/{image}:{home}/.volta/bin:/usr/bin:/bin");
    person.gets(&path, "token-of-claude");
}

/// Many variables name code that programs run before their own.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_variables_of_a_project_are_beside_no_login() {
    let _docker = Docker::connect();
    let person = person();
    let file = person.file("src/project/.env", "BASH_ENV=./x.sh\n");
    person.file("src/project/x.sh", "echo PLANTED\n");
    let calls = |walls: &str, more: &[&str]| {
        let options = [&["--walls", walls, "--env-file", ".env"], more].concat();
        person.by_path(&person.path(), &options, &["claude", SEEN])
    };
    for walls in WALLS {
        for finished in calls(walls, &[]) {
            assert!(!finished.stdout.contains("token-of"), "{walls}: {finished}");
            let said = &finished.stderr;
            assert!(
                said.contains("agent claude is not chosen by the command's name")
                    && said.contains("`agentbox trust`"),
                "{walls}: {said}"
            );
        }
        // The control: they are there for a user who names the agent.
        for finished in calls(walls, &["--agent", "claude"]) {
            assert_eq!(
                finished.ok(),
                "PLANTED\nPLANTED\ntoken-of-claude",
                "{walls}"
            );
        }
    }
    person.agentbox(&["trust", "--yes", &file]).ok();
    for finished in calls("namespaces", &[]) {
        assert_eq!(finished.ok(), "PLANTED\nPLANTED\ntoken-of-claude");
    }
}

/// What an agent has in its home has no say in which program of its name runs.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_an_agents_own_directory_has_the_users_program() {
    let _docker = Docker::connect();
    let person = person();
    let plant = format!(
        "mkdir -p ~/.claude/local; printf '{}' >~/.claude/local/claude; chmod 755 ~/.claude/local/claude",
        PLANTED.replace('\n', "\\n")
    );
    let [_, planted] = person.by_path(&person.path(), &[], &["claude", &plant]);
    planted.ok();
    let genuine = "#!/bin/bash\necho GENUINE; exec bash -c \"$1\"\n";
    person.program(".claude/local/claude", genuine);
    let path = format!("{}/.claude/local:/usr/bin:/bin", person.home);
    for policy in ["standard", "permissive"] {
        for finished in person.by_path(&path, &["--policy", policy], &["claude", SEEN]) {
            assert_eq!(finished.ok(), "GENUINE\ntoken-of-claude", "{policy}");
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_a_withheld_login_is_in_no_home_that_had_it() {
    let _docker = Docker::connect();
    let person = person();
    let node = NodeDir::new();
    node.file("policies/narrow.toml", "base = \"permissive\"\n");
    let text = format!(
        "ceiling = \"narrow\"\npolicy-dir = \"{}\"\n",
        node.policies()
    );
    let config = node.file("node.toml", &text);
    let calls = |options: &[&str], command: &[&str]| {
        let words = [&["--config", &config, "wrap"], options, &["--"], command].concat();
        [person.sudo(&[]), person.alone(&[&program()])].map(|mut way| {
            way.env("PATH", person.path()).args(&words);
            finish(&mut way)
        })
    };
    // The control, which leaves a copy of it.
    for finished in person.agent_calls(&[], &["claude", SEEN]) {
        assert_eq!(finished.ok(), "token-of-claude");
    }
    let look = format!("grep -rs token-of ~/.claude; {SEEN}");
    for walls in WALLS {
        for finished in calls(&["--walls", walls], &["claude", &look]) {
            assert!(!finished.stdout.contains("token-of"), "{walls}: {finished}");
            let why = "the ceiling narrow (set by the node's file) does not have \".claude/.credentials.json\"";
            assert!(finished.stderr.contains(why), "{walls}: {finished}");
            assert!(!finished.stderr.contains("your login"), "{finished}");
        }
        for finished in calls(&["--walls", walls, "--dry-run"], &["claude"]) {
            let shown = finished.ok();
            assert!(!shown.contains("your login"), "{walls}: {shown}");
        }
        // Nor one that was made inside, which cannot stay.
        let make = "echo made-inside >~/.claude/.credentials.json; mv ~/.claude/x ~/.claude/.credentials.json; true";
        for finished in calls(&["--walls", walls], &["claude", make]) {
            finished.ok();
        }
        for finished in calls(&["--walls", walls], &["claude", SEEN]) {
            assert!(
                !finished.stdout.contains("made-inside"),
                "{walls}: {finished}"
            );
        }
    }
    // Without the ceiling it is there as before.
    for finished in person.agent_calls(&[], &["claude", SEEN]) {
        assert_eq!(finished.ok(), "token-of-claude");
    }
}

/// Settings are copied, and no search hides what is in them.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_settings_bring_no_credentials_along() {
    let _docker = Docker::connect();
    let person = person();
    let key =
        "-----BEGIN OPENSSH PRIVATE KEY-----\ntoken-of-key\n-----END OPENSSH PRIVATE KEY-----\n";
    for (name, text) in [
        (".netrc", "machine x password token-of-netrc"),
        (".aws/credentials", "token-of-aws"),
        ("id_ed25519", key),
        ("SKILL.md", "how to deploy"),
    ] {
        person.file(&format!(".claude/skills/deploy/{name}"), text);
    }
    let server = "[mcp_servers.a.env]\nKEY = \"token-of-server\"\n";
    person.file(".codex/config.toml", server);
    person.file(".codex/AGENTS.md", "be brief");
    let look = "grep -rs token-of ~/.claude/skills ~/.codex/config.toml; cat ~/.claude/skills/deploy/SKILL.md ~/.codex/AGENTS.md";
    // The control: without walls they are read.
    assert_eq!(person.does(look).matches("token-of").count(), 4);
    for walls in WALLS {
        let look = "grep -rs token-of ~/.claude/skills; cat ~/.claude/skills/deploy/SKILL.md";
        for finished in person.agent_calls(&["--walls", walls], &["claude", look]) {
            let said = finished.stderr.clone();
            assert_eq!(finished.ok(), "how to deploy", "{walls}");
            for name in [".netrc", ".aws", "id_ed25519"] {
                assert!(said.contains(name), "{walls} {name}: {said}");
            }
        }
        // Keys of servers are the agent's own.
        let look = "grep -o token-of-server ~/.codex/config.toml";
        for finished in person.agent_calls(&["--walls", walls], &["codex", look]) {
            assert_eq!(finished.ok(), "token-of-server\n", "{walls}");
        }
    }
    // Where a ceiling withholds the login it withholds them.
    let node = NodeDir::new();
    node.file("policies/narrow.toml", "base = \"permissive\"\n");
    let text = format!(
        "ceiling = \"narrow\"\npolicy-dir = \"{}\"\n",
        node.policies()
    );
    let config = node.file("node.toml", &text);
    let look = "grep -rs token-of ~/.codex; cat ~/.codex/AGENTS.md";
    for mut way in [person.sudo(&[]), person.alone(&[&program()])] {
        let words = ["--config", &config, "wrap", "--", "codex", look];
        way.env("PATH", person.path()).args(words);
        let finished = finish(&mut way);
        assert!(
            finished
                .stderr
                .contains("\"config.toml\", which can hold keys"),
            "{finished}"
        );
        assert_eq!(finished.ok(), "be brief");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_a_login_that_is_removed_outside_is_removed_inside() {
    let _docker = Docker::connect();
    let person = person();
    let renew = "cat ~/.claude/.credentials.json; echo renewed >~/.claude/.credentials.json";
    let [first, second] = person.agent_calls(&[], &["claude", renew]);
    assert_eq!(first.ok(), "token-of-claude");
    assert_eq!(second.ok(), "renewed\n");
    person.does("rm .claude/.credentials.json");
    for finished in person.agent_calls(&[], &["claude", &format!("{SEEN}; true")]) {
        assert!(!finished.stdout.contains("renewed"), "{finished}");
        assert!(finished.stderr.contains("no login of yours"), "{finished}");
    }
    // The control: one that was made inside stays, and is told.
    let [_, alone] =
        person.agent_calls(&[], &["claude", "echo inside >~/.claude/.credentials.json"]);
    alone.ok();
    for finished in person.agent_calls(&[], &["claude", SEEN]) {
        assert!(
            finished
                .stderr
                .contains("the login that was made in its sandboxes"),
            "{finished}"
        );
        assert_eq!(finished.ok(), "inside\n");
    }
}

/// The user's git reaches a repository in an agent's home or in kept caches by `..`: a submodule of a commit that was fetched.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_no_repository_in_an_agents_home_or_a_kept_cache_runs_a_program() {
    let _docker = Docker::connect();
    let person = person();
    person.does("mkdir -p .npm/_cacache .local/state");
    // The rig's root is an overlay, which cannot be another overlay's upper layer.
    let state = format!("{}/.local/state", person.home);
    let owner = format!("mode=700,uid={},gid={}", person.uid, person.gid);
    run("mount", &["-t", "tmpfs", "-o", &owner, "tmpfs", &state]).ok();
    let make = |at: &str| {
        format!(
            "git init -q {at} && git -C {at} -c user.name=a -c user.email=a@b commit -q --allow-empty -m one && \
             git -C {at} config core.fsmonitor 'touch ~/ran; false' && echo {{}} >{at}/.mcp.json"
        )
    };
    let work = format!(
        "{}; {}",
        make("~/.claude/evil"),
        make("~/.npm/_cacache/evil")
    );
    for at in [
        format!("{state}/agentbox/.agentbox-agents/claude/.claude/evil"),
        format!("{state}/agentbox/caches/*/*/*/upper/evil"),
    ] {
        let status = format!(
            "rm -f ~/ran; for at in {at}; do test -e $at/.mcp.json; git -C $at status; done"
        );
        for finished in person.agent_calls(&["--keep-caches"], &["claude", &work]) {
            let said = finished.stderr.clone();
            finished.ok();
            assert!(!said.contains("core.fsmonitor"), "{said}");
            person.does(&status);
            assert_eq!(person.does("test ! -e ~/ran && echo no"), "no\n", "{at}");
        }
        // The control.
        person.does(&format!(
            "for at in {at}; do git -C $at config core.fsmonitor 'touch ~/ran; false'; git -C $at status; done"
        ));
        person.does("rm ~/ran");
    }
    run("umount", &["--lazy", &state]).ok();
}
