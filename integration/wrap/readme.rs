//! The commands print what the README shows.

use super::account::Account;
use crate::direct::program;

/// The commands of the README's `console wrap` blocks, each with the output that the README shows.
fn commands() -> Vec<(String, Vec<String>)> {
    let text = include_str!("../../README.md");
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for block in text.split("```console wrap\n").skip(1) {
        for line in block.split("```").next().unwrap().lines() {
            match line.strip_prefix("$ ") {
                Some(command) => found.push((command.to_owned(), Vec::new())),
                None => found.last_mut().unwrap().1.push(line.to_owned()),
            }
        }
    }
    found
}

/// Whether the output matches; a line `...` matches the rest.
fn is_shown(seen: &str, shown: &[String]) -> bool {
    let mut lines = seen.lines();
    for line in shown {
        if line == "..." {
            return true;
        }
        if lines.next() != Some(line) {
            return false;
        }
    }
    lines.next().is_none()
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_prints_what_the_readme_shows() {
    let person = Account::new();
    person.file(".ssh/id_ed25519", "no real key");
    let commands = commands();
    assert!(commands.len() >= 3, "{commands:?}");
    for (command, shown) in commands {
        let seen = person.tries(&format!(
            "agentbox() {{ {} \"$@\"; }}; cd ~/src/project; {{ {command}; }} 2>&1",
            program()
        ));
        let text = seen.stdout.replace(&person.home, "/home/alice");
        assert!(
            is_shown(&text, &shown),
            "{command}\n{text}\nis not\n{shown:#?}"
        );
        // The control: the file is there without walls.
        if command.contains("id_ed25519") {
            assert_eq!(person.does("cat ~/.ssh/id_ed25519"), "no real key");
        }
    }
}
