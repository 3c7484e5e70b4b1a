//! `agentbox wrap -- claude`: the agents here are scripts of their names, which run what they are told.
//!
//! F38: a login is read in its own agent's sandbox alone, nothing that an agent writes for later is obeyed outside of sandboxes, and no
//! program of a project gets a login by its name.

use std::path::Path;
use std::process::Command;

use super::NodeDir;
use super::account::Account;
use crate::command::{Finished, finish};
use crate::direct::program;
use crate::docker::Docker;

/// What a script that stands for an agent does.
pub const AGENT: &str = "#!/bin/bash\nexec bash -c \"$1\"\n";
pub const SEEN: &str = "cat ~/.claude/.credentials.json";
/// Both kinds of walls.
pub const WALLS: [&str; 2] = ["namespaces", "landlock"];

/// Somebody who uses Claude Code and Codex, both logged in.
pub fn person() -> Account {
    let person = Account::new();
    for name in ["claude", "codex", "gemini", "opencode", "qwen", "aider"] {
        person.program(&format!(".local/bin/{name}"), AGENT);
    }
    for (name, content) in [
        (".claude/.credentials.json", "token-of-claude"),
        (".claude/settings.json", "{}"),
        (".claude/commands/fix.md", "fix it"),
        (".claude/projects/other/history.jsonl", "other-project"),
        (
            ".claude.json",
            r#"{"hasCompletedOnboarding":true,"mcpServers":{"a":{"env":{"KEY":"server-key"}}}}"#,
        ),
        (".codex/auth.json", "token-of-codex"),
        (".codex/config.toml", "model = \"m\""),
    ] {
        person.file(name, content);
    }
    person.does("chmod 600 .claude/.credentials.json .codex/auth.json .claude.json");
    person
}

impl Account {
    pub fn path(&self) -> String {
        format!("{}/.local/bin:/usr/bin:/bin", self.home)
    }

    /// `agentbox wrap OPTIONS -- COMMAND` by sudo and as the user, with the PATH of a login.
    pub fn agent_calls(&self, options: &[&str], command: &[&str]) -> [Finished; 2] {
        self.by_path(&self.path(), options, command)
    }

    /// The same with this PATH, which sudo keeps.
    pub fn by_path(&self, path: &str, options: &[&str], command: &[&str]) -> [Finished; 2] {
        let words = [&["wrap"], options, &["--"], command].concat();
        [self.sudo(&[]), self.alone(&[&program()])].map(|mut way| {
            way.env("PATH", path).args(&words);
            finish(&mut way)
        })
    }

    /// The sums of all that the user has of agents.
    fn sums(&self) -> String {
        self.does(
            "find ~/.claude ~/.claude.json ~/.codex | sort | xargs ls -ld --time-style=full-iso; \
                   find ~/.claude ~/.claude.json ~/.codex -type f | sort | xargs md5sum",
        )
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_an_agent_has_its_login_and_history_and_changes_nothing_outside() {
    let _docker = Docker::connect();
    let work = "set -e; cd ~/.claude; cat .credentials.json settings.json commands/fix.md; cat $CLAUDE_CONFIG_DIR/.claude.json; \
        echo run >>history; wc -l <history; test ! -e projects; \
        echo evil >settings.json; echo '#!evil' >commands/hook.sh; echo refreshed >.new; mv .new .credentials.json; \
        cat ~/.codex/auth.json ~/.claude.json 2>/dev/null || true; find ~/.local/state/agentbox -mindepth 1 2>/dev/null || true";
    for walls in WALLS {
        for policy in ["standard", "permissive"] {
            let person = person();
            let before = person.sums();
            for (run, finished) in (1..)
                .zip(person.agent_calls(&["--walls", walls, "--policy", policy], &["claude", work]))
            {
                let said = finished.stderr.clone();
                let shown = finished.ok();
                // The second run has what the first one left: its own login and settings.
                let expected = match run {
                    1 => "token-of-claude{}fix it{\"hasCompletedOnboarding\":true}1\n",
                    _ => "refreshed\nevil\nfix it{\"hasCompletedOnboarding\":true}2\n",
                };
                // Under `permissive` the home is the user's.
                assert!(
                    shown.starts_with(expected),
                    "{walls} {policy} {run}: {shown}"
                );
                assert!(
                    !shown.contains("token-of-codex")
                        && !shown.contains("server-key")
                        && !shown.contains(".local"),
                    "{walls} {policy}: {shown}"
                );
                assert!(
                    said.contains("agent claude (by the command's name): hosts @anthropic;"),
                    "{said}"
                );
                assert!(said.contains(".claude/.credentials.json"), "{said}");
                assert_eq!(person.sums(), before, "{walls} {policy}");
            }
            // The control: without walls the same words change all of it.
            person.does("cd ~/.claude; echo refreshed >.new; mv .new .credentials.json");
            assert_ne!(person.sums(), before);
            // A new login of the user's takes the place of the agent's own.
            person.does("cd ~/.claude; echo newer >.credentials.json; chmod 600 .credentials.json");
            for finished in
                person.agent_calls(&["--walls", walls, "--policy", policy], &["claude", SEEN])
            {
                assert_eq!(finished.ok(), "newer\n", "{walls} {policy}");
            }
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_a_login_is_seen_by_its_own_agent_alone() {
    let _docker = Docker::connect();
    let person = person();
    for walls in WALLS {
        for policy in ["strict", "standard", "permissive"] {
            let options = ["--walls", walls, "--policy", policy];
            let home = &person.home;
            let look = format!(
                "cat ~/.claude/.credentials.json ~/.codex/auth.json {home}/.claude/.credentials.json; grep -rs token- ~ {home} /tmp"
            );
            for command in [
                &["bash", "-c", &look][..],
                &["codex", SEEN],
                &["claude", "cat ~/.codex/auth.json"],
            ] {
                for finished in person.agent_calls(&options, command) {
                    assert!(
                        !finished.stdout.contains("token-of"),
                        "{options:?} {command:?}: {finished}"
                    );
                }
            }
            // Nor by a program that says so.
            let none = [&options[..], &["--agent", "none"]].concat();
            for finished in person.agent_calls(&none, &["claude", SEEN]) {
                assert!(!finished.stdout.contains("token-of"), "{finished}");
            }
            // The control: by its option every policy gives it.
            let named = [&options[..], &["--agent", "claude"]].concat();
            for finished in person.agent_calls(&named, &["bash", "-c", SEEN]) {
                assert_eq!(finished.ok(), "token-of-claude", "{options:?}");
            }
        }
    }
    // The strictest policy opens no host by a name.
    for finished in person.agent_calls(&["--policy", "strict", "--dry-run"], &["claude"]) {
        let said = finished.stderr.clone();
        assert!(
            said.contains("policy strict gives no login by a name"),
            "{said}"
        );
        assert!(!finished.ok().contains("api.anthropic.com"));
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_a_program_that_a_sandbox_can_have_written_gets_no_login_by_its_name() {
    let _docker = Docker::connect();
    let person = person();
    let bin = format!("{}/node_modules/.bin", person.project);
    let elsewhere = format!("{}/src/other", person.home);
    // A project brings its own, or an interpreter for the user's.
    person.program("src/project/node_modules/.bin/claude", AGENT);
    person.program("src/other/claude", AGENT);
    person.program(".local/bin/opencode", "#!/usr/bin/env runner\n");
    let runner = "#!/bin/bash\nexec bash -c \"$2\"\n";
    person.program("src/project/node_modules/.bin/runner", runner);
    person.file(".local/share/opencode/auth.json", "token-of-opencode");
    let calls = |path: &str, options: &[&str], command: &[&str]| {
        let path = format!("{path}:{}", person.path());
        let variable = format!("PATH={path}");
        let words = [&["wrap", "-e", &variable], options, &["--"], command].concat();
        [person.sudo(&[]), person.alone(&[&program()])].map(|mut way| {
            way.env("PATH", &path).args(&words);
            finish(&mut way)
        })
    };
    let planted = [
        (
            bin.as_str(),
            vec!["claude", SEEN],
            "node_modules/.bin/claude",
        ),
        (
            bin.as_str(),
            vec!["./node_modules/.bin/claude", SEEN],
            "node_modules/.bin/claude",
        ),
        (
            bin.as_str(),
            vec!["opencode", "cat ~/.local/share/opencode/auth.json"],
            "node_modules/.bin/runner",
        ),
        (elsewhere.as_str(), vec!["claude", SEEN], "src/other/claude"),
    ];
    for (path, command, named) in &planted {
        let name = if command[0] == "opencode" {
            "opencode"
        } else {
            "claude"
        };
        for finished in calls(path, &["--read", path], command) {
            assert!(!finished.stdout.contains("token-of"), "{finished}");
            let refused = format!("agent {name} is not chosen by the command's name");
            assert!(
                finished.stderr.contains(&refused) && finished.stderr.contains(named),
                "{finished}"
            );
        }
        // The control: named by the user it is given.
        for finished in calls(path, &["--read", path, "--agent", name], command) {
            assert_eq!(finished.ok(), format!("token-of-{name}"), "{command:?}");
        }
    }
    // Settings of a project choose none until they are trusted.
    person.file("src/project/.agentbox.toml", "agent = \"claude\"\n");
    let [_, alone] = person.agent_calls(&[], &["bash", "-c", SEEN]);
    alone.failed();
    person.agentbox(&["trust", "--yes"]).ok();
    let [_, alone] = person.agent_calls(&[], &["bash", "-c", SEEN]);
    assert_eq!(alone.ok(), "token-of-claude");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_a_nodes_ceiling_limits_logins_and_hosts() {
    let _docker = Docker::connect();
    let person = person();
    let node = NodeDir::new();
    node.file("policies/narrow.toml", "base = \"permissive\"\n");
    node.file(
        "policies/agents.toml",
        "base = \"permissive\"\n[filesystem]\ncredentials = [\".claude/.credentials.json\"]\n",
    );
    node.file(
        "policies/github.toml",
        "base = \"permissive\"\n[network]\nallow = [\"github.com\"]\nlimit = []\n",
    );
    let wrap = |ceiling: &str, command: &[&str]| {
        let text = format!(
            "ceiling = \"{ceiling}\"\npolicy-dir = \"{}\"\n",
            node.policies()
        );
        let config = node.file(&format!("{ceiling}-node.toml"), &text);
        let words = [&["--config", &config, "wrap", "--"], command].concat();
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        [person.sudo(&[]), person.alone(&[&program()])].map(|mut way| {
            way.env("PATH", person.path()).args(&words);
            finish(&mut way)
        })
    };
    for finished in wrap("narrow", &["claude", SEEN]) {
        assert!(!finished.stdout.contains("token-of"), "{finished}");
        let why = "the ceiling narrow (set by the node's file) does not have \".claude/.credentials.json\"";
        assert!(finished.stderr.contains(why), "{finished}");
    }
    for finished in wrap("strict", &["claude", SEEN]) {
        assert!(!finished.stdout.contains("token-of"), "{finished}");
    }
    for finished in wrap("github", &["claude", "true"]) {
        let said = finished.failed();
        assert!(
            said.contains("--agent claude") && said.contains("the ceiling github"),
            "{said}"
        );
        // The name alone has brought it.
        assert!(said.contains("--agent none runs it without"), "{said}");
    }
    // The control: what the ceiling lists is given.
    for finished in wrap("agents", &["claude", SEEN]) {
        assert_eq!(finished.ok(), "token-of-claude");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_only_the_users_own_login_file_is_copied() {
    let _docker = Docker::connect();
    let person = person();
    let other = person.file("notes", "secret");
    let refused = |make: &str, word: &str| {
        person.does(make);
        for finished in person.agent_calls(&[], &["claude", SEEN]) {
            assert!(!finished.stdout.contains("secret"), "{finished}");
            let said = finished.failed();
            assert!(
                said.contains(word) && said.contains("--agent none"),
                "{word}: {said}"
            );
        }
        for finished in person.agent_calls(&["--agent", "none"], &["claude", "true"]) {
            finished.ok();
        }
    };
    refused(
        &format!("cd ~/.claude && ln -sf {other} .credentials.json"),
        "is a link",
    );
    refused(
        "cd ~/.claude && rm .credentials.json && echo secret >.credentials.json && chmod 666 .credentials.json",
        "chmod go-w",
    );
    refused(
        "cd ~/.claude && rm .credentials.json && mkfifo .credentials.json",
        "is no file",
    );
    person.does("cd ~/.claude && rm .credentials.json");
    let login = format!("{}/.claude/.credentials.json", person.home);
    // Root's alone.
    std::fs::write(&login, "secret").unwrap();
    refused("true", "another user's");
    std::fs::remove_file(&login).unwrap();
    // A link on the way that a sandbox may have made.
    person.does(
        "mkdir -p src/other && mv .claude src/other/real && ln -s real src/other/link && \
         ln -s src/other/link .claude",
    );
    refused(
        "echo secret >.claude/.credentials.json; chmod 600 .claude/.credentials.json",
        "a command could have made",
    );
    // The control.
    person.does("rm .claude && mv src/other/real .claude && echo mine >.claude/.credentials.json && chmod 600 .claude/.credentials.json");
    for finished in person.agent_calls(&[], &["claude", SEEN]) {
        assert_eq!(finished.ok(), "mine\n");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_what_an_agent_leaves_in_its_home_leads_no_copy_elsewhere() {
    let _docker = Docker::connect();
    let person = person();
    person.file("src/project/kept", "kept");
    let plants = |script: &str| {
        let mut planting = person.alone(&[&program(), "wrap", "--", "claude", script]);
        planting.env("PATH", person.path());
        finish(&mut planting).ok();
    };
    plants(
        "cd ~/.claude; ln -sf ~/src/project/kept .credentials.json; ln -sf ~/src/project/kept settings.json",
    );
    person.does("cd ~/.claude; echo newer >.credentials.json; chmod 600 .credentials.json; echo newer >settings.json");
    let look = "cd ~/.claude; cat .credentials.json settings.json; ! test -L .credentials.json -o -L settings.json";
    for finished in person.agent_calls(&[], &["claude", look]) {
        assert_eq!(finished.ok(), "newer\nnewer\n");
    }
    plants("cd ~/.claude; rm -r commands; ln -s ~/src/project commands");
    // A directory that is a link now is not written through, and the reason is told.
    person.does("cd ~/.claude; echo new >commands/fix.md");
    for finished in person.agent_calls(&[], &["claude", "true"]) {
        let said = finished.failed();
        assert!(
            said.contains("commands/fix.md") && said.contains("remove what is in its place"),
            "{said}"
        );
    }
    assert_eq!(
        person.does("cat src/project/kept; ls src/project"),
        "keptkept\n"
    );
    let own = format!(
        "{}/.local/state/agentbox/.agentbox-agents/claude",
        person.home
    );
    // The control: an ordinary copy would have followed it.
    person.does(&format!(
        "cp .claude/commands/fix.md {own}/.claude/commands/; test -e src/project/fix.md"
    ));
    assert_eq!(person.does(&format!("stat -c %a {own}")), "700\n");
    // No option lets a sandbox write there.
    for option in ["--write", "--workspace"] {
        for finished in person.agent_calls(&[option, &own], &["bash", "-c", "true"]) {
            finished.failed();
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_explains_and_logs_what_an_agent_is_given() {
    let _docker = Docker::connect();
    let person = person();
    for finished in person.agent_calls(&["--dry-run"], &["claude"]) {
        let shown = finished.ok();
        for word in [
            "api.anthropic.com",
            "--agent claude",
            ".claude/.credentials.json",
            "agents/claude",
        ] {
            assert!(shown.contains(word), "{word}: {shown}");
        }
    }
    // Nothing was copied for it.
    person.does(
        "test ! -e ~/.local/state/agentbox/.agentbox-agents/claude/.claude/.credentials.json",
    );
    let [_, alone] = person.agent_calls(&["--name", "given"], &["claude", SEEN]);
    alone.ok();
    let log = person
        .agentbox(&["audit", "given", "--format", "json"])
        .ok();
    let line = log
        .lines()
        .find(|line| line.contains("\"agent\""))
        .expect(&log);
    assert!(
        line.contains("allowed") && line.contains(".claude/.credentials.json"),
        "{line}"
    );
    assert!(!log.contains("token-of-claude"), "{log}");
    // Its own sandbox is told, where no option switches it off.
    let option = "--dangerously-bypass-approvals-and-sandbox";
    for finished in person.agent_calls(&[], &["codex", "true"]) {
        assert!(finished.stderr.contains(option), "{finished}");
    }
    for finished in person.agent_calls(&[], &["codex", "true", option]) {
        assert!(!finished.stderr.contains(option), "{finished}");
    }
}

/// The model of each agent of the page, by the name that its program connects to.
const MODELS: [(&str, &str); 4] = [
    ("claude", "api.anthropic.com"),
    ("codex", "api.openai.com"),
    ("gemini", "generativelanguage.googleapis.com"),
    ("opencode", "api.anthropic.com"),
];

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_takes_every_command_of_the_page_on_agents_and_lets_its_model_be_reached() {
    let _docker = Docker::connect();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/wrap.md");
    let text = std::fs::read_to_string(page).unwrap();
    let block = text
        .split("```sh agents\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let person = person();
    let commands: Vec<&str> = block.lines().collect();
    assert_eq!(commands.len(), MODELS.len());
    for (line, (name, model)) in commands.into_iter().zip(MODELS) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..2], ["agentbox", "wrap"]);
        assert!(words.contains(&name), "{line}");
        let dry = |more: &[&str]| {
            let words = [&["wrap", "--dry-run"], more, &words[2..]].concat();
            let mut command: Command = person.alone(&[&program()]);
            command.env("PATH", person.path()).args(&words);
            finish(&mut command).ok()
        };
        assert!(dry(&[]).contains(model), "{line}");
        // Without the agent, and what the line allows besides, it is not among what is reached.
        if !words.contains(&"--allow") {
            assert!(!dry(&["--agent", "none"]).contains(model), "{line}");
        }
    }
}
