//! F38: the directories of agents outside, and the homes that they have for sandboxes: no other sandbox reads a login there, and none
//! leaves anything that runs outside later.

use super::account::Account;
use super::agents::{AGENT, SEEN, WALLS, person};
use crate::command::{Finished, finish};
use crate::direct::program;
use crate::docker::Docker;

impl Account {
    /// `agentbox wrap OPTIONS -- COMMAND` as the user, in this directory, with a variable of theirs.
    pub fn with(
        &self,
        (name, value): (&str, &str),
        directory: &str,
        options: &[&str],
        command: &[&str],
    ) -> Finished {
        let program = program();
        let words = [&[program.as_str(), "wrap"], options, &["--"], command].concat();
        let mut call = self.alone(&words);
        call.env("PATH", self.path()).env(name, value);
        call.current_dir(directory);
        finish(&mut call)
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_no_link_leads_an_agents_home_elsewhere() {
    let _docker = Docker::connect();
    let (person, other) = (person(), Account::new());
    let (home, project) = (&person.home, &person.project);
    person.does("mkdir -p src/other own");
    let evil = "echo EVIL >~/.claude/settings.json";
    // A sandbox plants a directory for the state of a later run.
    let plant = format!(
        "mkdir -p st/agentbox/.agentbox-agents; ln -s {home} st/agentbox/.agentbox-agents/claude; \
         mkdir two; ln -s {home}/.claude two/agentbox"
    );
    person.agentbox(&["wrap", "--", "bash", "-c", &plant]).ok();
    // So does another user, who also makes a directory that others write.
    let shared = format!("/tmp/shared-{}", other.name);
    other.does(&format!(
        "mkdir -p {shared}/agentbox/.agentbox-agents {shared}/open; chmod 777 {shared}/open; \
         ln -s {home} {shared}/agentbox/.agentbox-agents/claude"
    ));
    let directory = format!("{home}/src/other");
    for state in [
        format!("{project}/st"),
        format!("{project}/two"),
        shared.clone(),
        format!("{shared}/open"),
    ] {
        for walls in WALLS {
            let variable = ("XDG_STATE_HOME", state.as_str());
            let command = ["claude", evil];
            let finished = person.with(variable, &directory, &["--walls", walls], &command);
            let said = finished.failed();
            assert!(
                said.contains("is not used") && said.contains("--agent none"),
                "{said}"
            );
            assert_eq!(person.does("cat .claude/settings.json"), "{}");
        }
    }
    // The control: a directory of the user's, and what such a link does outside.
    let own = format!("{home}/own");
    person
        .with(("XDG_STATE_HOME", &own), &directory, &[], &["claude", evil])
        .ok();
    assert_eq!(
        person.does("cat own/agentbox/.agentbox-agents/claude/.claude/settings.json"),
        "EVIL\n"
    );
    assert_eq!(
        person.does("cat src/project/st/agentbox/.agentbox-agents/claude/.claude/settings.json"),
        "{}"
    );
    std::fs::remove_dir_all(shared).unwrap();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_homes_for_sandboxes_are_hidden_wherever_a_variable_puts_them() {
    let _docker = Docker::connect();
    let person = person();
    person.file(".local/share/opencode/auth.json", "token-of-opencode");
    person.does("chmod 600 .local/share/opencode/auth.json");
    let state = format!("{}/mystate", person.home);
    person.does("mkdir mystate");
    let named = ("XDG_STATE_HOME", state.as_str());
    for agent in ["claude", "opencode"] {
        person
            .with(named, &person.project, &[], &[agent, "true"])
            .ok();
    }
    // The control: they are there, and the user reads them.
    let look = format!("find {state} -type f | xargs -r cat");
    assert_eq!(person.does(&look).matches("token-of").count(), 2);
    let inside = format!("{look}; echo EVIL >{state}/agentbox/.agentbox-agents/x; true");
    for walls in WALLS {
        for variable in [named, ("UNUSED", "")] {
            for (options, directory) in [
                (&["--policy", "permissive"][..], &person.project),
                (&["--read", &state], &person.project),
                (&["--write", &state], &person.project),
                (&[], &state),
                (&["--set", "filesystem.workspace=read-only"], &state),
            ] {
                let options = [&["--walls", walls], options].concat();
                let finished = person.with(variable, directory, &options, &["bash", "-c", &inside]);
                assert!(
                    !finished.stdout.contains("token-of"),
                    "{options:?} {finished}"
                );
                person.does(&format!("test ! -e {state}/agentbox/.agentbox-agents/x"));
            }
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_directories_of_agents_and_installers_are_never_written() {
    let _docker = Docker::connect();
    let person = person();
    person.does(
        "mkdir -p .claude/skills/mine .local/share/claude go/bin bin src/free .local/share/chezmoi",
    );
    let home = &person.home;
    for below in [
        ".claude",
        ".claude/skills/mine",
        ".codex",
        ".local/bin",
        ".local/share",
        ".local/share/claude",
        "go",
        "bin",
    ] {
        let path = format!("{home}/{below}");
        for walls in WALLS {
            for option in ["--workspace", "--write"] {
                let options = ["--walls", walls, option, &path];
                for finished in person.agent_calls(&options, &["bash", "-c", "echo ran"]) {
                    assert_eq!(finished.stdout, "", "{options:?}");
                    let said = finished.failed();
                    assert!(
                        said.contains("run outside of sandboxes"),
                        "{options:?}: {said}"
                    );
                }
            }
        }
    }
    // The control: other directories are, and a program that a run leaves there is none that an installer has put there.
    for below in ["src/free", ".local/share/chezmoi"] {
        let directory = format!("{home}/{below}");
        let make = format!(
            "printf '{}' >claude; chmod 755 claude",
            AGENT.replace('\n', "\\n")
        );
        person
            .with(("UNUSED", ""), &directory, &[], &["bash", "-c", &make])
            .ok();
        let path = format!("{directory}:/usr/bin:/bin");
        let finished = person.with(
            ("PATH", &path),
            &person.project,
            &["--read", &directory],
            &["claude", SEEN],
        );
        assert!(!finished.stdout.contains("token-of"), "{finished}");
        assert!(
            finished
                .stderr
                .contains("is not chosen by the command's name"),
            "{finished}"
        );
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_an_agents_directory_that_a_variable_names_is_no_others() {
    let _docker = Docker::connect();
    let person = person();
    let project = person.project.clone();
    person.does("cp -r .claude cfg; cp -r .claude src/project/cc; chmod 600 */.credentials.json src/project/cc/.credentials.json");
    let within = format!("{project}/cc");
    let named = ("CLAUDE_CONFIG_DIR", within.as_str());
    let evil = "cat cc/.credentials.json; echo EVIL >cc/settings.json; echo EVIL >cc/new; true";
    for agent in ["claude", "codex"] {
        let finished = person.with(named, &project, &[], &[agent, evil]);
        assert!(!finished.stdout.contains("token-of-claude"), "{finished}");
        assert!(
            finished
                .stderr
                .contains("CLAUDE_CONFIG_DIR names, is hidden"),
            "{finished}"
        );
        assert_eq!(
            person.does("cat src/project/cc/settings.json; ls src/project/cc | grep new || true"),
            "{}"
        );
        // No rule of Landlock hides a part of what is written.
        person
            .with(named, &project, &["--walls", "landlock"], &[agent, evil])
            .failed();
    }
    // Nor by another directory in its place, or one that is not there yet.
    person.does("mkdir -p src/project/deep; cp -r cfg src/project/deep/cc");
    let deep = format!("{project}/deep/cc");
    let replace = "mv deep old; mkdir -p deep/cc; echo EVIL >deep/cc/settings.json; true";
    person
        .with(
            ("CLAUDE_CONFIG_DIR", &deep),
            &project,
            &[],
            &["bash", "-c", replace],
        )
        .ok();
    assert_eq!(person.does("cat src/project/deep/cc/settings.json"), "{}");
    let missing = format!("{project}/none");
    let make = "mkdir none; echo EVIL >none/settings.json";
    person
        .with(
            ("CLAUDE_CONFIG_DIR", &missing),
            &project,
            &[],
            &["bash", "-c", make],
        )
        .failed();
    // The agent has its login where it is in sandboxes.
    assert_eq!(
        person.with(named, &project, &[], &["claude", SEEN]).ok(),
        "token-of-claude"
    );
    let cfg = format!("{}/cfg", person.home);
    let named = ("CLAUDE_CONFIG_DIR", cfg.as_str());
    let look = format!("cat {cfg}/.credentials.json; true");
    for walls in WALLS {
        for options in [&["--policy", "permissive"][..], &["--read", &cfg]] {
            let options = [&["--walls", walls], options].concat();
            let finished = person.with(named, &project, &options, &["codex", &look]);
            assert!(
                !finished.stdout.contains("token-of-claude"),
                "{options:?}: {finished}"
            );
        }
        // It is never written as a whole.
        let said = person
            .with(named, &cfg, &["--walls", walls], &["bash", "-c", "true"])
            .failed();
        assert!(said.contains("run outside of sandboxes"), "{said}");
    }
    // The control: by the usual name alone the rest of it is the user's, and readable.
    let look = format!("cat {cfg}/settings.json");
    let finished = person.with(
        named,
        &project,
        &["--policy", "permissive"],
        &["codex", &look],
    );
    assert_eq!(finished.ok(), "{}");
}

/// The error spoke of a link of the home and of an option that nobody had typed.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_refused_place_that_holds_an_agents_directory_is_refused_by_its_option() {
    let _docker = Docker::connect();
    let person = person();
    let above = std::path::Path::new(&person.home).parent().unwrap();
    for place in ["/", above.to_str().unwrap(), person.home.as_str()] {
        for option in ["--write", "--read"] {
            let said = person
                .agentbox(&["wrap", option, place, "--", "true"])
                .failed();
            let named = format!("{option} \"{place}\": ");
            assert!(
                said.contains(&named) && !said.contains("is hidden"),
                "{said}"
            );
        }
    }
}

/// The variable that puts an agent's directory elsewhere is none of this shell's, of sudo's or of an editor's.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_a_login_in_any_directory_is_hidden_without_its_variable() {
    let _docker = Docker::connect();
    let person = person();
    let home = &person.home;
    for name in [
        "cfg/.credentials.json",
        "qwen/oauth_creds.json",
        "aider/oauth-keys.env",
    ] {
        person.file(name, "token-of-variable");
    }
    person.file("cfg/settings.json", "shown\n");
    let look = format!(
        "cat {home}/cfg/settings.json; grep -rs token-of {home}/cfg {home}/qwen {home}/aider; true"
    );
    // The control: without walls they are read.
    assert_eq!(person.does(&look).matches("token-of").count(), 3);
    for walls in WALLS {
        for options in [
            &["--policy", "permissive"][..],
            &[
                "--read",
                &format!("{home}/cfg"),
                "--read",
                &format!("{home}/qwen"),
            ],
        ] {
            let options = [&["--walls", walls], options].concat();
            for agent in ["codex", "bash"] {
                let command = match agent {
                    "bash" => &["bash", "-c", &look][..],
                    _ => &[agent, &look],
                };
                for finished in person.agent_calls(&options, command) {
                    assert_eq!(finished.ok(), "shown\n", "{options:?} {agent}");
                }
            }
        }
    }
}

/// Agents keep logins of MCP servers beside their own.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_logins_of_servers_are_in_no_sandbox() {
    let _docker = Docker::connect();
    let person = person();
    for name in [
        ".codex/.credentials.json",
        ".gemini/a2a-oauth-tokens.json",
        ".gemini/mcp-oauth-tokens.json",
        ".qwen/mcp-oauth-tokens.json",
        ".local/share/opencode/mcp-auth.json",
        "data/opencode/mcp-auth.json",
    ] {
        person.file(name, "token-of-server");
    }
    let home = &person.home;
    let look = format!(
        "grep -rhs token-of-server ~/.codex ~/.gemini ~/.qwen ~/.local/share/opencode {home}/data \
         {home}/.codex {home}/.gemini {home}/.qwen {home}/.local/share/opencode; true"
    );
    // The control: without walls they are read, each by two names but one.
    assert_eq!(person.does(&look).matches("token-of").count(), 11);
    let data = format!("{home}/data");
    let named = ("XDG_DATA_HOME", data.as_str());
    for walls in WALLS {
        for policy in ["standard", "permissive"] {
            let options = ["--walls", walls, "--policy", policy];
            for command in [
                &["bash", "-c", &look][..],
                &["codex", &look],
                &["gemini", &look],
            ] {
                let finished = person.with(named, &person.project, &options, command);
                assert_eq!(finished.ok(), "", "{walls} {policy} {command:?}");
            }
        }
    }
}

/// A private and a company's account of one agent.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_profiles_of_an_agent_share_no_login() {
    let _docker = Docker::connect();
    let person = person();
    let home = person.home.clone();
    person.file("cfg/.credentials.json", "token-of-cfg");
    person.file("cfg/commands/work.md", "work");
    person.does("chmod 600 cfg/.credentials.json; ln -s .claude usual");
    let run = |directory: &str, walls: &str, script: &str| {
        let named = format!("{home}/{directory}");
        let named = ("CLAUDE_CONFIG_DIR", named.as_str());
        let script = format!("cd ~/.claude; {script}");
        let finished = person.with(
            named,
            &person.project,
            &["--walls", walls],
            &["claude", &script],
        );
        finished.ok()
    };
    for (round, walls) in WALLS.into_iter().enumerate() {
        let renew = "cat .credentials.json; echo -n renewed >.credentials.json; ls commands";
        let first = if round == 0 {
            "token-of-cfg"
        } else {
            "renewed"
        };
        assert_eq!(
            run("cfg", walls, renew),
            format!("{first}work.md\n"),
            "{walls}"
        );
        for usual in [".claude", "usual"] {
            let seen = run(
                usual,
                walls,
                "cat .credentials.json; ls commands; touch made",
            );
            assert_eq!(seen, "token-of-claudefix.md\n", "{walls} {usual}");
        }
        // The control: each finds its own again.
        assert_eq!(
            run("cfg", walls, "cat .credentials.json; ls"),
            "renewedcommands\n"
        );
        assert!(run(".claude", walls, "ls").contains("made"), "{walls}");
    }
}

/// What another user may have written would be the agent's instructions.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_settings_of_other_users_are_not_copied() {
    let _docker = Docker::connect();
    let (person, other) = (person(), Account::new());
    for name in ["others", "teams", "everybodys", "own"] {
        person.file(&format!(".claude/commands/{name}.md"), name);
    }
    let path = |name: &str| format!("{}/.claude/commands/{name}.md", person.home);
    std::os::unix::fs::chown(path("others"), Some(other.uid), None).unwrap();
    std::os::unix::fs::chown(path("teams"), None, Some(person.team)).unwrap();
    person.does("cd .claude/commands; chmod 664 teams.md own.md; chmod 666 everybodys.md");
    for walls in WALLS {
        let look = "cd ~/.claude/commands; ls";
        for finished in person.agent_calls(&["--walls", walls], &["claude", look]) {
            assert_eq!(finished.ok(), "fix.md\nown.md\n", "{walls}");
        }
    }
}

/// A variable of direnv's or nix' that puts an agent's directory into the project.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_a_missing_directory_of_an_agent_is_refused_with_what_to_do() {
    let _docker = Docker::connect();
    let person = person();
    let data = format!("{}/.data", person.project);
    let named = ("XDG_DATA_HOME", data.as_str());
    let plant = "mkdir -p .data/opencode; echo EVIL >.data/opencode/planted; echo ran";
    let run = || person.with(named, &person.project, &[], &["bash", "-c", plant]);
    let said = run().failed();
    assert!(
        said.contains("unset XDG_DATA_HOME") && said.contains("mkdir -p"),
        "{said}"
    );
    // With the directory all but that is as ever.
    person.does(&format!("mkdir -p {data}/opencode"));
    assert_eq!(run().ok(), "ran\n");
    person.does(&format!("test ! -e {data}/opencode/planted"));
}

/// direnv's `dotenv` and mise load what a sandbox wrote: another account's login would read all that the agent does.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f38_a_directory_that_a_sandbox_may_have_named_gives_no_login() {
    let _docker = Docker::connect();
    let person = person();
    let project = person.project.clone();
    person.does("mkdir other; echo token-of-other >other/auth.json; chmod 600 other/auth.json");
    let other = format!("{}/other", person.home);
    let named = ("CODEX_HOME", other.as_str());
    let seen = "cat ~/.codex/auth.json";
    let line = format!("CODEX_HOME={other}");
    // The control: the user's own choice, also in a file that no sandbox writes.
    person.file("src/project/.envrc", &line);
    let finished = person.with(named, &project, &[], &["codex", seen]);
    assert_eq!(finished.ok(), "token-of-other\n");
    for file in [".env", "ci.env"] {
        person.file(&format!("src/project/{file}"), &line);
        let finished = person.with(named, &project, &[], &["codex", seen]).failed();
        let says = format!("{project}/{file}\" may name it too, which a sandbox may have written");
        assert!(finished.contains(&says), "{finished}");
        person.does(&format!("rm src/project/{file}"));
    }
}
