//! C1, M5c: `wrap` judges directories of PATH like an engine's mounts, and never makes a whole home writable.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use crate::command::Finished;
use crate::direct::{Scratch, program, with_env};
use crate::docker::Docker;

const SECRET: &str = "the-secret-of-the-node";

/// A user with a project, and an ordinary directory of PATH with a program that prints `here`.
struct Person {
    _docker: Docker,
    scratch: Scratch,
    home: String,
    source: String,
    tools: String,
}

impl Person {
    fn new() -> Self {
        let docker = Docker::connect();
        let scratch = Scratch::new();
        let said = scratch.file("home/.local/bin/said", "#!/bin/sh\necho here\n");
        fs::set_permissions(&said, fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            _docker: docker,
            home: scratch.path("home"),
            source: scratch.dir("p1/src"),
            tools: scratch.path("home/.local/bin"),
            scratch,
        }
    }

    /// Runs `agentbox ARGUMENTS...` in the project's sources, with these directories added to PATH.
    fn agentbox(&self, paths: &[&str], arguments: &[&str]) -> Finished {
        let node = std::env::var("PATH").unwrap();
        let path = [&[node.as_str(), self.tools.as_str()], paths]
            .concat()
            .join(":");
        let env = [("HOME", self.home.as_str()), ("PATH", path.as_str())];
        with_env(&program(), arguments, &self.source, &env)
    }

    /// The output of a script with these directories on PATH. Checks that the ordinary directory still works.
    #[track_caller]
    fn sees(&self, policy: &str, paths: &[&str], script: &str) -> String {
        let script = format!("said && {{ {script}; }} 2>&1; true");
        let command = ["wrap", "--policy", policy, "--", "sh", "-c", &script];
        let seen = self.agentbox(paths, &command).ok();
        assert!(seen.starts_with("here\n"), "{policy} {paths:?}: {seen}");
        seen
    }

    /// The line of `explain` about a directory.
    #[track_caller]
    fn explained(&self, policy: &str, path: &str) -> String {
        let text = self
            .agentbox(&[path], &["explain", "--policy", policy])
            .ok();
        let line = text
            .lines()
            .find(|l| l.contains("not mounted") && l.contains(path));
        line.unwrap_or_else(|| panic!("{path}: {text}")).to_owned()
    }
}

/// Connects to a socket.
fn connect(path: &str) -> String {
    format!(
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{path}\"); print(\"connected\")'"
    )
}

const CLOSED: [&str; 2] = ["strict", "standard"];

#[test]
#[ignore = "needs the rig: hack/test"]
fn c1_a_link_that_an_agent_left_on_path_leads_nowhere() {
    let person = Person::new();
    let bin = person.scratch.path("p1/.venv/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(format!("{bin}/tool"), "ordinary").unwrap();
    // The control: a project's directory is visible as long as it is a real directory.
    for policy in CLOSED {
        let seen = person.sees(policy, &[&bin], &format!("cat {bin}/tool"));
        assert!(seen.contains("ordinary"), "{policy}: {seen}");
    }
    let socket = format!("/run/review-wrap-{}.sock", std::process::id());
    let _listener = UnixListener::bind(&socket).unwrap();
    let name = socket.strip_prefix("/run/").unwrap();
    let script = format!(
        "cat {bin}/shadow {bin}/secret; echo \"[$(ls -A {bin})]\"; {}",
        connect(&format!("{bin}/{name}"))
    );
    let secret = person.scratch.file("other/secret", SECRET);
    let other = secret.strip_suffix("/secret").unwrap();
    fs::remove_dir_all(&bin).unwrap();
    // The decision about more targets has a unit test in `src/wrap/layout.rs`.
    for target in ["/run", "/etc", other] {
        symlink(target, &bin).unwrap();
        for policy in CLOSED {
            let seen = person.sees(policy, &[&bin], &script);
            for word in ["connected", "root:", SECRET] {
                assert!(!seen.contains(word), "{policy} {target}: {word}: {seen}");
            }
            assert!(seen.contains("[]\n"), "{policy} {target}: {seen}");
            person.explained(policy, &bin);
        }
        // The control: outside of the walls the link leads there.
        assert_eq!(fs::read_link(&bin).unwrap().to_str(), Some(target));
        fs::remove_file(&bin).unwrap();
    }
    // One level up: a link in place of the parent of PATH's entry.
    fs::remove_dir(person.scratch.path("p1/.venv")).unwrap();
    fs::create_dir(format!("{other}/bin")).unwrap();
    fs::write(format!("{other}/bin/secret"), SECRET).unwrap();
    symlink(other, person.scratch.path("p1/.venv")).unwrap();
    for policy in CLOSED {
        let seen = person.sees(policy, &[&bin], &format!("cat {bin}/secret"));
        assert!(!seen.contains(SECRET), "{policy}: {seen}");
        let why = person.explained(policy, &bin);
        assert!(why.contains("link"), "{why}");
    }
    fs::remove_file(person.scratch.path("p1/.venv")).unwrap();
    fs::remove_file(socket).unwrap();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn c1_what_no_policy_lets_in_is_not_let_in_by_path() {
    let person = Person::new();
    let key = person.scratch.file("home/.ssh/id", SECRET);
    let ssh = person.scratch.path("home/.ssh");
    let home = person.home.clone();
    let socket = format!("/run/review-path-{}.sock", std::process::id());
    let _listener = UnixListener::bind(&socket).unwrap();
    person.scratch.file("home/plain", SECRET);
    let script = format!("cat {key} {home}/plain; {}", connect(&socket));
    let dotted = format!("{}/../../.ssh", person.tools);
    // The decision about more directories has a unit test in `src/wrap/layout.rs`.
    for path in [ssh.as_str(), "/run", &dotted] {
        for policy in CLOSED {
            let seen = person.sees(policy, &[path], &script);
            assert!(!seen.contains(SECRET), "{policy} {path}: {seen}");
            assert!(!seen.contains("connected"), "{policy} {path}: {seen}");
            person.explained(policy, path);
        }
    }
    fs::remove_file(socket).unwrap();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn c1_credentials_and_sockets_in_a_directory_of_path_are_masked() {
    let person = Person::new();
    person.scratch.file("tools/.aws/credentials", SECRET);
    person.scratch.file("tools/a/b/c/.npmrc", SECRET);
    person.scratch.file("tools/word", "a program's");
    let tools = person.scratch.path("tools");
    let socket = person.scratch.path("tools/a/s");
    let _listener = UnixListener::bind(&socket).unwrap();
    let script = format!(
        "cat {tools}/word {tools}/.aws/credentials {tools}/a/b/c/.npmrc; {}; touch {tools}/new",
        connect(&socket)
    );
    for policy in CLOSED {
        let seen = person.sees(policy, &[&tools], &script);
        assert!(seen.contains("a program's"), "{policy}: {seen}");
        assert!(!seen.contains(SECRET), "{policy}: {seen}");
        assert!(!seen.contains("connected"), "{policy}: {seen}");
        assert!(seen.contains("Read-only"), "{policy}: {seen}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_whole_home_is_no_workspace_of_wrap() {
    let person = Person::new();
    for policy in ["strict", "standard", "permissive"] {
        for workspace in [person.home.as_str(), "/root"] {
            let options = ["wrap", "--policy", policy, "--workspace", workspace];
            let command = [&options[..], &["--", "true"]].concat();
            let refused = person.agentbox(&[], &command).failed();
            assert!(refused.contains("is a home directory"), "{refused}");
            assert!(refused.contains("cd into a project"), "{refused}");
        }
        // The control: a project in the home.
        let project = person.scratch.dir("home/project");
        let options = ["wrap", "--policy", policy, "--workspace", &project];
        let command = [&options[..], &["--", "touch", "x"]].concat();
        person.agentbox(&[], &command).ok();
        fs::remove_file(format!("{project}/x")).unwrap();
    }
}
