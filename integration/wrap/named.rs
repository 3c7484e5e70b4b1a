//! `--read`, `--write`, `--hide`.

use std::path::Path;

use super::account::Account;
use crate::direct::{Scratch, program};
use crate::docker::Docker;

const POLICIES: [&str; 3] = ["strict", "standard", "permissive"];

/// What is protected is not mounted over what hides it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_hides_what_it_protects_and_nothing_is_planted_there() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.does("cd src/project && git init -q && mkdir .vscode && echo '{}' >.vscode/tasks.json");
    let script = "ls -A $1; echo EVIL >$1/planted; mv $1 moved; rm -rf moved; true";
    for hidden in [".git", ".git/hooks", ".vscode"] {
        let seen = person.wrap(&["--hide", hidden], &script.replace("$1", hidden));
        assert_eq!(
            (seen.code, seen.stdout.as_str()),
            (0, ""),
            "{hidden}: {seen}"
        );
        let planted = format!("cd src/project; find {hidden}/planted 2>/dev/null; true");
        assert_eq!(person.does(&planted), "", "{hidden}");
    }
    person.does("cd src/project && git fsck && cat .git/HEAD .vscode/tasks.json");
}

/// A name of an old archive in another encoding: config.json cannot have it, and masked another path.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_hides_what_it_can_name_or_refuses() {
    let _docker = Docker::connect();
    let person = Account::new();
    let odd = "mkdir -p src/project && cd src/project && mkdir $'priv\\xe9' && echo the-secret >$'priv\\xe9/k'";
    person.does(odd);
    for walls in ["namespaces", "landlock"] {
        let wrap = format!("cd src/project; {} wrap --walls {walls}", program());
        let hidden = person.tries(&format!(
            "{wrap} --hide $'priv\\xe9' -- sh -c 'cat priv*/k'"
        ));
        assert_eq!(hidden.code, 125, "{hidden}");
        assert!(hidden.stderr.contains("rename it"), "{hidden}");
        let control = person.tries(&format!("{wrap} -- sh -c 'cat priv*/k'"));
        assert!(control.stdout.contains("the-secret"), "{control}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_reads_writes_and_hides_what_is_named() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.file("data/in/table", "a table");
    person.file("data/in/.aws/credentials", "the-secret-of-the-node");
    person.file("out/old", "old");
    let scratch = Scratch::new();
    let elsewhere = scratch.file("shared/file", "elsewhere");
    let (read, write) = (
        format!("{}/data/in", person.home),
        format!("{}/out", person.home),
    );
    let script = "cat ~/data/in/table ~/data/in/.aws/credentials; touch ~/data/in/new; cat ~/out/old; echo new >~/out/new; \
                  echo \"[$(cat hidden)]\"; ls -A private; ls -A ~/data; cat \"$1\"; true";
    for policy in POLICIES {
        person.file("src/project/hidden", "the-secret-of-the-node");
        person.file("src/project/private/x", "the-secret-of-the-node");
        let options = [
            "wrap", "--policy", policy, "--read", &read, "--read", &elsewhere, "--write", &write,
            "--hide", "hidden", "--hide", "private", "--", "bash", "-c", script, "-", &elsewhere,
        ];
        let seen = crate::command::finish(&mut person.sudo(&options));
        assert_eq!(seen.code, 0, "{policy}: {seen}");
        assert_eq!(
            seen.stdout, "a tableold[]\nin\nelsewhere",
            "{policy}: {seen}"
        );
        assert!(!seen.to_string().contains("the-secret"), "{policy}: {seen}");
        assert!(!Path::new(&format!("{read}/new")).exists());
        assert_eq!(
            person.does("stat -c %U ~/out/new; rm ~/out/new"),
            format!("{}\n", person.name)
        );
        // The control: without the options the directories are not there, and the hidden file is.
        let plain = person.wrap_by(policy, "cat ~/data/in/table ~/out/old; cat hidden");
        assert!(plain.stdout.contains("the-secret"), "{policy}: {plain}");
        assert_eq!(
            plain.stdout.contains("a table"),
            policy == "permissive",
            "{policy}: {plain}"
        );
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_refuses_what_is_named_and_cannot_be_given() {
    let _docker = Docker::connect();
    let (person, other) = (Account::new(), Account::new());
    person.file(".ssh/id", "the-secret-of-the-node");
    other.file("private/notes", "the-secret-of-the-node");
    other.does("chmod 700 ~");
    let (ssh, home) = (format!("{}/.ssh", person.home), person.home.clone());
    let private = format!("{}/private", other.home);
    person.does("ln -s ~/.ssh ~/innocent; ln -s / ~/src/project/root");
    let innocent = format!("{home}/innocent");
    for (option, path) in [
        ("--read", ssh.as_str()),
        ("--read", &innocent),
        ("--read", &home),
        ("--read", "/home"),
        ("--read", "/"),
        ("--read", "/etc/shadow"),
        ("--read", "/run"),
        ("--read", "/none/such"),
        ("--read", &private),
        ("--read", "root"),
        ("--write", "/usr/local"),
        ("--write", &ssh),
        ("--write", &home),
        ("--write", "/"),
        ("--write", "/etc"),
        ("--write", &private),
        ("--hide", "/none/such"),
        ("--hide", "."),
        ("--hide", &home),
        ("--write", "/proc/sys"),
        ("--read", "/dev/sda"),
        ("--write", "/var/lib/docker"),
    ] {
        let refused = person.wrap(&[option, path], "true").failed();
        assert!(!refused.contains("the-secret"), "{refused}");
        assert_eq!(refused.lines().count(), 1, "{option} {path}: {refused}");
        assert!(refused.contains(path), "{option} {path}: {refused}");
    }
    // The control.
    person
        .wrap(
            &["--read", "/usr/share", "--hide", "/usr/share/doc"],
            "true",
        )
        .ok();
}

/// Named paths extend the policy, but never beyond the node's ceiling.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_names_nothing_beyond_the_ceiling() {
    let _docker = Docker::connect();
    let person = Account::new();
    let data = person.file("data/table", "a table");
    let out = person.file("out/old", "old");
    let node = super::NodeDir::new();
    let policies = node.policies();
    let listed = format!("base = \"standard\"\nfilesystem.write = [\"{out}\"]\n");
    node.file("policies/listed.toml", &listed);
    let wrap = |ceiling: &str, options: &[&str]| {
        let config =
            format!("ceiling = \"{ceiling}\"\ndefault = \"strict\"\npolicy-dir = \"{policies}\"\n");
        let config = node.file(&format!("{ceiling}-node.toml"), &config);
        let words = [&["--config", &config, "wrap"], options, &["--", "true"]].concat();
        crate::command::finish(&mut person.sudo(&words))
    };
    let (read, write) = (["--read", data.as_str()], ["--write", out.as_str()]);
    // The control: paths within the ceiling are granted, even under the strictest policy.
    wrap("permissive", &[read, write].concat()).ok();
    wrap("standard", &read).ok();
    wrap("listed", &write).ok();
    for (ceiling, named) in [
        ("strict", read),
        ("strict", write),
        ("standard", write),
        ("listed", ["--write", data.as_str()]),
    ] {
        let said = wrap(ceiling, &named).failed();
        let ceiling = format!("the ceiling {ceiling}");
        assert!(said.contains(&ceiling) && said.contains(named[0]), "{said}");
    }
    // Hiding needs no permission.
    person.file("src/project/hidden", "x");
    wrap("strict", &["--hide", "hidden"]).ok();
}

/// Paths in the workspace are visible anyway.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_read_of_a_path_in_the_workspace_makes_it_read_only() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.file("src/project/data/table", "a table");
    let script = "cat data/table; touch data/new || echo refused; mv data other || echo stays; touch beside && echo written";
    // The control.
    let shown = person.wrap(&[], "touch data/new && rm data/new && echo written");
    assert_eq!(shown.ok(), "written\n");
    let alone = |options: &[&str]| {
        let words = [&["wrap"], options, &["--", "bash", "-c", script]].concat();
        person.agentbox(&words)
    };
    let options = ["--read", "data"];
    for finished in [person.wrap(&options, script), alone(&options)] {
        assert_eq!(
            finished.stdout, "a tablerefused\nstays\nwritten\n",
            "{finished}"
        );
    }
    let refused = alone(&["--walls", "landlock", "--read", "data"]).failed();
    assert!(refused.contains("it lies in the workspace"), "{refused}");
    let refused = alone(&["--read", "."]).failed();
    assert!(
        refused.contains("filesystem.workspace=read-only"),
        "{refused}"
    );
}

/// A path of both options is an error, so that neither wins silently.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_refuses_to_write_what_is_to_be_read() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.file("data/in/table", "a table");
    let data = format!("{}/data", person.home);
    let within = format!("{data}/in");
    let wrap = |read: &str, write: &str| {
        let script = "touch ~/data/in/new; touch ~/data/new; true";
        let options = [
            "wrap",
            "--policy",
            "permissive",
            "--read",
            read,
            "--write",
            write,
        ];
        let command = ["--", "bash", "-c", script];
        let line: Vec<&str> = options.into_iter().chain(command).collect();
        crate::command::finish(&mut person.sudo(&line))
    };
    let is_there = |name: &str| Path::new(&format!("{data}/{name}")).exists();
    for read in [&data, &within] {
        let seen = wrap(read, &data);
        assert_ne!(seen.code, 0, "{seen}");
        assert!(seen.stderr.contains("leave one of the two out"), "{seen}");
        assert!(!is_there("in/new") && !is_there("new"), "{seen}");
    }
    // The control: one directory of a `--read` path is writable, and nothing beside it.
    let seen = wrap(&data, &within);
    assert_eq!(seen.code, 0, "{seen}");
    assert!(is_there("in/new") && !is_there("new"), "{seen}");
}
