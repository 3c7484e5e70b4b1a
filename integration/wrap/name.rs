//! `--name`, messages at a terminal without root's rights, and variables that are passed on by default.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use super::account::Account;
use super::shell::Shell;
use crate::command::{await_that, finish};
use crate::direct::program;
use crate::docker::{Docker, runtime};

/// A `wrap` whose command waits for a line.
fn start(mut wrap: Command) -> Child {
    let stdio = wrap.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = stdio.spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.as_mut().unwrap());
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

fn end(mut child: Child) {
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// How a user calls: makes a command from these words.
type Caller<'a> = &'a dyn Fn(&[&str]) -> Command;

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_name_finds_only_the_users_own_runs() {
    let _docker = Docker::connect();
    let person = Account::new();
    let program = program();
    let name = format!("box.{}", person.uid);
    let waits = [
        "wrap",
        "--name",
        &name,
        "--",
        "sh",
        "-c",
        "echo ready; read -r line",
    ];
    let by_sudo = |words: &[&str]| person.sudo(words);
    let alone = |words: &[&str]| person.alone(&[&[program.as_str()], words].concat());
    let callers: [Caller<'_>; 2] = [&by_sudo, &alone];
    for caller in callers {
        let call = |words: &[&str]| finish(&mut caller(words));
        let child = start(caller(&waits));
        let list = call(&["list", "-q"]).ok();
        assert!(list.lines().any(|line| line == name), "{list}");
        for verb in ["network", "explain", "state"] {
            call(&[verb, &name]).ok();
        }
        assert_eq!(call(&["exec", &name, "echo", "within"]).ok(), "within\n");
        let taken = call(&["wrap", "--name", &name, "--", "echo", "ran"]).failed();
        assert!(
            taken.contains(&name) && taken.contains("belongs to a running sandbox"),
            "{taken}"
        );
        // The first one has not ended: its command still waits.
        end(child);
        // A run that ended frees the name, even after a signal from outside.
        let mut child = start(caller(&waits));
        call(&["kill", &name, "KILL"]).ok();
        assert_eq!(child.wait().unwrap().code(), Some(137));
        let mut killed = start(caller(&waits));
        killed.kill().unwrap();
        killed.wait().unwrap();
        // The kernel ends the sandbox of a killed `wrap` a moment later.
        await_that("its name is free", || {
            call(&["wrap", "--name", &name, "--", "true"]).code == 0
        });
        end(start(caller(&waits)));
        for bad in ["", ".turn", "../x", "a/b", "-x", "a b", &"x".repeat(201)] {
            let option = format!("--name={bad}");
            let said = call(&["wrap", &option, "--", "echo", "ran"]);
            assert_ne!(said.code, 0, "{bad}: {said}");
            assert!(!said.stdout.contains("ran"), "{bad}: {said}");
        }
        let said = call(&[
            "wrap", "--walls", "landlock", "--name", &name, "--", "echo", "ran",
        ]);
        assert!(said.failed().contains("--name"));
    }
}

/// Former fault: the 403 named an `update` that could not work, as nothing listens on the rule's port.
#[test]
#[ignore = "needs the rig: hack/test"]
fn the_commands_that_a_403_names_work_when_pasted() {
    const CONNECT: &str = "p=${HTTP_PROXY##*:}; exec 3<>/dev/tcp/127.0.0.1/${p%/}; \
        printf 'CONNECT files.example.org:%s HTTP/1.1\\r\\n\\r\\n' $0 >&3; cat <&3";
    let _docker = Docker::connect();
    let person = Account::new();
    let program = program();
    let name = format!("cure.{}", person.uid);
    let call = |words: &[&str]| {
        let all = [&[program.as_str()], words].concat();
        finish(&mut person.alone(&all))
    };
    let child = start(person.alone(&[
        program.as_str(),
        "wrap",
        "--name",
        &name,
        "--allow",
        "listed.example.org",
        "--",
        "bash",
        "-c",
        "echo ready; read -r line",
    ]));
    let answer = |port: &str| call(&["exec", &name, "bash", "-c", CONNECT, port]).stdout;
    let denied = answer("8080");
    assert!(denied.contains("403 "), "{denied}");
    let again = "start it again with --allow files.example.org:8080\"";
    assert!(
        denied.contains(again) && !denied.contains("agentbox update"),
        "{denied}"
    );
    let add = "files.example.org:8080";
    let refused = call(&["update", &name, "--network-add", add]).failed();
    assert!(
        refused.contains("start it again with --allow files.example.org:8080\n"),
        "{refused}"
    );
    let refused = call(&[
        "update",
        &name,
        "--network-add",
        "GET https://b.example.org/x",
    ])
    .failed();
    assert!(
        refused.contains("port 80, ")
            && refused.contains("--allow 'GET https://b.example.org/x'\n"),
        "{refused}"
    );
    let audit = call(&["audit", &name]).ok();
    let hint = format!("to allow it: --allow {add}, when the command is started");
    assert!(audit.contains(&hint), "{audit}");
    // Port 443 has a listener.
    let denied = answer("443");
    let update = denied.split('`').nth(1).expect(&denied);
    let words: Vec<&str> = update.split(' ').skip(1).collect();
    assert_eq!(words[..2], ["update", &name], "{denied}");
    call(&words).ok();
    let rules = call(&["network", &name]).ok();
    assert!(rules.contains("  files.example.org\n"), "{rules}");
    end(child);
}

/// F48: the verbs and proofs of root's for another container must not be about a sandbox that a user named after it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f48_a_sandboxs_name_takes_over_no_other_container() {
    let docker = Docker::connect();
    let person = Account::new();
    let call = |words: &[&str]| finish(&mut person.sudo(words));
    let refused = |name: &str, why: &str| {
        let said = call(&["wrap", "--name", name, "--", "echo", "ran"]).failed();
        assert!(said.contains(why) && !said.contains("ran\n"), "{said}");
    };
    let container = docker.start(&[runtime(), "test-workloads"], &["sleep", "300"]);
    let id = container.inspect("{{.Id}}");
    let id = id.trim();
    refused(&container.name, "is the name of another container");
    refused(id, "looks like an engine's container id");
    refused(&id[..12], "looks like an engine's container id");

    // The sandbox was there before the container with its name.
    let name = format!("both.{}", person.uid);
    let waits = ["--", "sh", "-c", "echo ready; read -r line"];
    let wrap = [&["wrap", "--name", &name][..], &waits].concat();
    let child = start(person.sudo(&wrap));
    // The control: alone it answers to its name.
    assert_eq!(call(&["exec", &name, "echo", "in"]).ok(), "in\n");
    docker.call(&["rename", &container.name, &name]).ok();
    for verb in ["state", "audit", "verify", "suggest", "kill"] {
        let said = call(&[verb, &name]).failed();
        assert!(
            said.contains("matches several") && said.contains(id),
            "{verb}: {said}"
        );
    }
    let said = call(&["exec", &name, "echo", "in"]).failed();
    assert!(said.contains("matches several"), "{said}");
    call(&["state", id]).ok();
    call(&["--root", "/run/agentbox/containers", "state", &name]).ok();
    end(child);
    // Only the container is left to name, and the runs of both.
    assert!(call(&["state", &name]).ok().contains(id));
    docker.call(&["rename", &name, &container.name]).ok();
}

/// F48: the same for containers that were deleted.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f48_a_sandboxs_name_hides_no_deleted_containers_log() {
    let docker = Docker::connect();
    let person = Account::new();
    let call = |words: &[&str]| finish(&mut person.sudo(words));
    let container = docker.start(&[runtime(), "test-workloads"], &["sleep", "300"]);
    let (id, name) = (container.inspect("{{.Id}}"), container.name.clone());
    drop(container);
    // The control.
    assert!(call(&["audit", &name]).ok().contains(&id[..12]));
    call(&["wrap", "--name", &name, "--", "true"]).ok();
    for verb in ["audit", "suggest", "receipt"] {
        let said = call(&[verb, &name]).failed();
        assert!(said.contains("matches several"), "{verb}: {said}");
        assert!(
            said.contains(&id[..12]) && said.contains("docker"),
            "{said}"
        );
    }
    let said = call(&["audit", &name]).failed();
    let start = said
        .split(" is ")
        .next()
        .unwrap()
        .rsplit(' ')
        .next()
        .unwrap();
    assert!(call(&["audit", start]).ok().contains(&name), "{start}");
    assert!(call(&["audit", id.trim()]).ok().contains(&id[..12]));
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_says_once_at_a_terminal_that_no_limit_holds_without_root() {
    let _docker = Docker::connect();
    let person = Account::new();
    let mut shell = Shell::new(&person.project);
    let wrap = format!("{} {} wrap", person.typed(), program());
    let line = "limits of memory, processors and processes are not enforced";
    for (command, said) in [
        (format!("{wrap} --quiet -- echo ran"), 0),
        (format!("{wrap} -- echo ran 2>/dev/null"), 0),
        (format!("{wrap} -- echo ran 2>&1 | cat"), 0),
        (format!("{wrap} -- echo ran"), 1),
        // Once is enough.
        (format!("{wrap} -- echo ran"), 0),
        // The control: root has limits.
        (format!("{} wrap -- echo ran", program()), 0),
    ] {
        let seen = shell.ask(&command);
        assert_eq!(seen.matches(line).count(), said, "{command}: {seen}");
        assert!(seen.contains("ran\n"), "{command}: {seen}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_passes_on_what_programs_ask_of_a_terminal_and_no_token() {
    let _docker = Docker::connect();
    let person = Account::new();
    let passed = [
        "CI",
        "NO_COLOR",
        "FORCE_COLOR",
        "EDITOR",
        "VISUAL",
        "COLORTERM",
        "TERM_PROGRAM",
    ];
    let kept = [
        "CI_JOB_TOKEN",
        "GITHUB_TOKEN",
        "TERM_SESSION_ID",
        "GIT_ASKPASS",
    ];
    let program = program();
    let mut wrap = person.alone(&[&program, "wrap", "--", "env"]);
    for name in passed.iter().chain(&kept) {
        wrap.env(name, "of-the-caller");
    }
    let seen = finish(&mut wrap).ok();
    let has = |name: &str| {
        seen.lines()
            .any(|line| line == format!("{name}=of-the-caller"))
    };
    assert!(passed.iter().all(|name| has(name)), "{seen}");
    assert!(!kept.iter().any(|name| has(name)), "{seen}");
}
