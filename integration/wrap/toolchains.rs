//! A program that runs from the home runs behind the walls too, with each installer's real layout.

use std::process::Command;

use super::account::Account;
use crate::command::{Finished, finish};
use crate::direct::program;
use crate::docker::Docker;

const POLICIES: [&str; 3] = ["strict", "standard", "permissive"];
const SYSTEM: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// An installer: its files in the home, its PATH directories, a command, and the command's output.
struct Tool {
    name: &'static str,
    install: &'static str,
    path: &'static str,
    command: &'static str,
    says: &'static str,
}

/// Writes an executable script: `script PATH TEXT`.
const SCRIPT: &str = "set -e; script() { mkdir -p \"$(dirname \"$1\")\"; printf '%s\\n' \"$2\" >\"$1\"; chmod 755 \"$1\"; }; ";

const TOOLS: &[Tool] = &[
    Tool {
        name: "nvm",
        install: "d=~/.nvm/versions/node/v22.1.0; script $d/lib/node_modules/npm/bin/npm-cli.js $'#!/usr/bin/env own-node\\necho nvm'; \
                  script $d/bin/own-node $'#!/bin/sh\\nexec sh \"$@\"'; ln -s ../lib/node_modules/npm/bin/npm-cli.js $d/bin/npm",
        path: "~/.nvm/versions/node/v22.1.0/bin",
        command: "npm",
        says: "nvm",
    },
    Tool {
        name: "npm prefix",
        install: "d=~/.npm-global; script $d/lib/node_modules/x/cli.js $'#!/bin/sh\\ncat ~/.npm-global/lib/node_modules/x/data'; \
                  echo prefix >$d/lib/node_modules/x/data; mkdir $d/bin; ln -s ../lib/node_modules/x/cli.js $d/bin/x",
        path: "~/.npm-global/bin",
        command: "x",
        says: "prefix",
    },
    Tool {
        name: "claude",
        install: "script ~/.local/share/claude/versions/2.0.1 $'#!/bin/sh\\necho claude'; mkdir -p ~/.local/bin; \
                  ln -s ~/.local/share/claude/versions/2.0.1 ~/.local/bin/claude",
        path: "~/.local/bin",
        command: "claude",
        says: "claude",
    },
    Tool {
        name: "venv outside of the project",
        install: "python3 -m venv --without-pip ~/envs/work; echo 'x = \"venv\"' >$(echo ~/envs/work/lib/python3*/site-packages)/mine.py",
        path: "~/envs/work/bin",
        command: "python3 -c 'import mine, sys; print(mine.x, sys.prefix != sys.base_prefix)'",
        says: "venv True",
    },
    Tool {
        name: "pipx",
        install: "v=~/.local/share/pipx/venvs/tool; python3 -m venv --without-pip $v; \
                  script $v/bin/tool \"#!$v/bin/python\"$'\\nimport sys\\nprint(\"pipx\", sys.prefix.endswith(\"tool\"))'; \
                  mkdir -p ~/.local/bin; ln -s $v/bin/tool ~/.local/bin/tool",
        path: "~/.local/bin",
        command: "tool",
        says: "pipx True",
    },
    Tool {
        name: "a venv in the project with uv's Python",
        install: "b=~/.local/share/uv/python/cpython-3.12-linux/bin; script $b/python3.12 $'#!/bin/sh\\necho uv'; \
                  v=~/src/project/.venv; mkdir -p $v/bin; ln -s $b/python3.12 $v/bin/python; ln -s python $v/bin/python3; \
                  printf 'home = %s\\nuv = 0.5\\n' $b >$v/pyvenv.cfg",
        path: "~/src/project/.venv/bin",
        command: "python3",
        says: "uv",
    },
    Tool {
        name: "asdf",
        install: "script ~/.asdf/installs/foo/1/bin/foo $'#!/bin/sh\\necho asdf'; script ~/.asdf/bin/asdf $'#!/bin/sh\\nshift 2; exec ~/.asdf/installs/foo/$(cut -d\" \" -f2 ~/.tool-versions)/bin/foo'; \
                  script ~/.asdf/shims/foo $'#!/usr/bin/env bash\\nexec ~/.asdf/bin/asdf exec foo \"$@\"'; echo 'foo 1' >~/.tool-versions",
        path: "~/.asdf/shims",
        command: "foo",
        says: "asdf",
    },
    Tool {
        name: "sdkman",
        install: "script ~/.sdkman/candidates/java/21/bin/java $'#!/bin/sh\\ncat ~/.sdkman/candidates/java/current/release'; \
                  echo sdk >~/.sdkman/candidates/java/21/release; ln -s 21 ~/.sdkman/candidates/java/current",
        path: "~/.sdkman/candidates/java/current/bin",
        command: "java",
        says: "sdk",
    },
    Tool {
        name: "fnm",
        install: "script ~/.local/share/fnm/node-versions/v20/installation/bin/fnode $'#!/bin/sh\\necho fnm'; \
                  mkdir -p ~/.local/state/fnm_multishells; ln -s ~/.local/share/fnm/node-versions/v20/installation ~/.local/state/fnm_multishells/1_2",
        path: "~/.local/state/fnm_multishells/1_2/bin",
        command: "fnode",
        says: "fnm",
    },
    Tool {
        name: "volta",
        install: "script ~/.volta/tools/image/node/20/bin/vnode $'#!/bin/sh\\necho volta'; script ~/.volta/bin/volta-shim $'#!/bin/sh\\nexec ~/.volta/tools/image/node/20/bin/vnode'; \
                  ln -s volta-shim ~/.volta/bin/vnode",
        path: "~/.volta/bin",
        command: "vnode",
        says: "volta",
    },
    Tool {
        name: "pyenv",
        install: "script ~/.pyenv/versions/3.11.1/bin/own-python $'#!/bin/sh\\necho pyenv'; \
                  script ~/.pyenv/shims/own-python $'#!/usr/bin/env bash\\nexec ~/.pyenv/versions/$(cat ~/.pyenv/version)/bin/own-python'; echo 3.11.1 >~/.pyenv/version",
        path: "~/.pyenv/shims",
        command: "own-python",
        says: "pyenv",
    },
    Tool {
        name: "mise",
        install: "script ~/.local/share/mise/installs/tool/1/bin/mtool $'#!/bin/sh\\necho mise'",
        path: "~/.local/share/mise/installs/tool/1/bin",
        command: "mtool",
        says: "mise",
    },
    Tool {
        name: "rustup",
        install: "script ~/.rustup/toolchains/stable/bin/own-cargo $'#!/bin/sh\\necho rust'; script ~/.cargo/bin/rustup $'#!/bin/sh\\nexec ~/.rustup/toolchains/stable/bin/own-cargo'; \
                  ln -s rustup ~/.cargo/bin/own-cargo; echo token >~/.cargo/credentials.toml",
        path: "~/.cargo/bin",
        command: "own-cargo; cat ~/.cargo/credentials.toml 2>/dev/null; touch ~/.cargo/registry",
        says: "rust",
    },
    Tool {
        name: "bun",
        install: "script ~/.bun/install/global/node_modules/y/cli.js $'#!/bin/sh\\necho bun'; mkdir -p ~/.bun/bin; ln -s ../install/global/node_modules/y/cli.js ~/.bun/bin/y",
        path: "~/.bun/bin",
        command: "y",
        says: "bun",
    },
    Tool {
        name: "conda",
        install: "script ~/miniconda3/envs/e/bin/ctool $'#!/bin/sh\\ncat ~/miniconda3/envs/e/conda-meta/history'; mkdir -p ~/miniconda3/envs/e/conda-meta; echo conda >~/miniconda3/envs/e/conda-meta/history",
        path: "~/miniconda3/envs/e/bin",
        command: "ctool",
        says: "conda",
    },
    Tool {
        name: "a Go of one's own",
        install: "script ~/sdk/go1.22/bin/own-go $'#!/bin/sh\\ncat ~/sdk/go1.22/VERSION'; mkdir ~/sdk/go1.22/lib; echo go >~/sdk/go1.22/VERSION; script ~/go/bin/gopls 'true'",
        path: "~/sdk/go1.22/bin:~/go/bin",
        command: "own-go",
        says: "go",
    },
];

/// The tool's directories, and the system's.
fn path_of(person: &Account, path: &str) -> String {
    format!("{}:{SYSTEM}", path.replace('~', &person.home))
}

/// `wrap` with this PATH, kept by sudo.
fn wrapped(person: &Account, path: &str, arguments: &[&str]) -> Finished {
    let mut command = person.sudo(&[&["wrap"], arguments].concat());
    command.env("PATH", path);
    finish(&mut command)
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_runs_programs_of_the_home_however_they_were_installed() {
    let _docker = Docker::connect();
    for tool in TOOLS {
        let person = Account::new();
        person.does(&format!("{SCRIPT}{}", tool.install));
        let path = path_of(&person, tool.path);
        // The control: it runs without walls.
        let script = format!("export PATH='{path}'; cd ~/src/project; {}", tool.command);
        let expected = person.does(&script.replace("; cat ~/.cargo/credentials.toml", ""));
        assert_eq!(expected.trim(), tool.says, "{}", tool.name);
        person.does("rm -f ~/.cargo/registry");
        for policy in POLICIES {
            let seen = wrapped(
                &person,
                &path,
                &["--policy", policy, "--", "bash", "-c", tool.command],
            );
            assert_eq!(seen.ok().trim(), tool.says, "{} by {policy}", tool.name);
            // Directly, without a shell in between.
            let words = tool.command.split([';', ' ']).next().unwrap();
            if words != "python3" {
                let seen = wrapped(&person, &path, &["--policy", policy, "--", words]).ok();
                assert_eq!(seen.trim(), tool.says, "{} by {policy}", tool.name);
            }
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_passes_on_what_names_a_toolchain_that_is_shown() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.does("mkdir -p ~/.nvm/versions/node/v1/bin ~/secret");
    let home = &person.home;
    let called = |value: &str| {
        let mut command = Command::new(program());
        command.args([
            "wrap",
            "--",
            "bash",
            "-c",
            "echo ${NVM_DIR-unset} ${AWS_SECRET-unset}",
        ]);
        command.env("PATH", path_of(&person, "~/.nvm/versions/node/v1/bin"));
        command
            .env("HOME", home)
            .env("NVM_DIR", value)
            .env("AWS_SECRET", "x");
        command.current_dir(&person.project);
        finish(&mut command).ok()
    };
    assert_eq!(
        called(&format!("{home}/.nvm")),
        format!("{home}/.nvm unset\n")
    );
    for not_shown in [
        format!("{home}/secret"),
        "/none".to_owned(),
        "x y".to_owned(),
    ] {
        assert_eq!(called(&not_shown), "unset unset\n", "{not_shown}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_says_which_link_leads_where_and_takes_no_other_program_for_it() {
    let _docker = Docker::connect();
    let person = Account::new();
    // A link into a directory that no rule names, for a program that the system has too.
    person.program("builds/out/python3", "#!/bin/sh\necho own");
    person.does("mkdir -p ~/.local/bin; ln -s ~/builds/out/python3 ~/.local/bin/python3");
    let path = path_of(&person, "~/.local/bin");
    let builds = format!("{}/builds/out", person.home);
    for policy in ["strict", "standard"] {
        let policy = ["--policy", policy];
        let refused = wrapped(&person, &path, &[&policy[..], &["--", "python3"]].concat()).failed();
        for word in [
            format!("{builds}/python3"),
            format!("--read {builds}"),
            ".local/bin/python3".to_owned(),
        ] {
            assert!(refused.contains(&word), "{word}: {refused}");
        }
        let cured = [&policy[..], &["--read", &builds, "--", "python3"]].concat();
        assert_eq!(wrapped(&person, &path, &cured).ok(), "own\n");
    }
    // A script whose interpreter is not visible.
    person.program("builds/x", "#!/bin/sh\n. \"$1\"");
    let script = format!("#!{}/builds/x\necho by-x", person.home);
    person.program(".local/bin/script", &script);
    let refused = wrapped(&person, &path, &["--", "script"]).failed();
    assert!(refused.contains("builds/x"), "{refused}");
}

/// A virtual environment must not silently use the system's Python.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_refuses_a_virtual_environment_whose_python_is_not_shown() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.program("pythons/own/bin/python3", "#!/bin/sh\necho own");
    person.does(
        "v=~/src/project/.venv; mkdir -p $v/bin; ln -s ~/pythons/own/bin/python3 $v/bin/python3; \
         echo \"home = $HOME/pythons/own/bin\" >$v/pyvenv.cfg",
    );
    let path = path_of(&person, "~/src/project/.venv/bin");
    let python = ["bash", "-c", "python3 -c 1"];
    let refused = wrapped(&person, &path, &[&["--"], &python[..]].concat()).failed();
    assert!(
        refused.contains("pythons/own/bin") && refused.contains("--read"),
        "{refused}"
    );
    let read = format!("{}/pythons/own/bin", person.home);
    let cured = [&["--read", &read, "--"], &python[..]].concat();
    assert_eq!(wrapped(&person, &path, &cured).ok(), "own\n");
    // The control: with the system's PATH alone, the system's Python runs, which is not the requested one.
    wrapped(&person, SYSTEM, &[&["--"], &python[..]].concat()).ok();
}

/// Files that an agent may have written are not followed into the rest of the home.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_follows_an_agents_venv_and_links_into_no_other_directory() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.file("diary/bin/secret", "the-secret-of-the-node");
    person.does("mkdir -p ~/diary/lib ~/.local/bin; ln -s ~/diary/bin/secret ~/.local/bin/secret");
    person.does(
        "mkdir -p ~/old/bin; rmdir ~/old/bin; ln -s ~/diary ~/old/x; ln -s ~/diary/bin ~/old/bin",
    );
    person.program(
        ".local/bin/tool",
        &format!("#!{}/diary/bin/secret\n", person.home),
    );
    let script = "cat ~/diary/bin/secret ~/old/bin/secret ~/.local/bin/secret; true";
    let path = path_of(&person, "~/.local/bin:~/old/bin:~/old/x/bin");
    for policy in ["strict", "standard"] {
        let seen = wrapped(
            &person,
            &path,
            &["--policy", policy, "--", "bash", "-c", script],
        );
        assert!(!seen.stdout.contains("the-secret"), "{policy}: {seen}");
        assert_eq!(seen.code, 0, "{seen}");
    }
    // An agent's pyvenv.cfg: refused, and nothing becomes visible.
    person.does(
        "v=~/src/project/.venv; mkdir -p $v/bin; echo \"home = $HOME/diary/bin\" >$v/pyvenv.cfg",
    );
    let path = path_of(&person, "~/src/project/.venv/bin");
    let seen = wrapped(&person, &path, &["--", "bash", "-c", script]);
    assert!(!seen.to_string().contains("the-secret"), "{seen}");
    // The control.
    assert!(person.does("cat ~/old/bin/secret").contains("the-secret"));
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_takes_two_thousand_entries_of_path() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.program(".local/bin/mine", "#!/bin/sh\necho mine");
    let mut entries: Vec<String> = (0..2000).map(|n| format!("/none/{n}")).collect();
    entries.extend([
        String::new(),
        ".".to_owned(),
        "relative".to_owned(),
        "/usr/bin/../bin".to_owned(),
    ]);
    entries.push(format!("{}/.local/bin", person.home));
    entries.push(SYSTEM.to_owned());
    let seen = wrapped(&person, &entries.join(":"), &["--", "mine"]);
    assert_eq!(seen.ok(), "mine\n");
}
