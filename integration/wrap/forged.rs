//! `wrap --ask` on a real terminal (tmux): no matter what the program drew before, the user reads the real question.

use super::account::Account;
use crate::command::{awaited, run};
use crate::direct::program;
use crate::docker::Docker;
use crate::docker::allowlist::{internet, witness};

/// A terminal of 80 columns that runs one command.
struct Screen(String);

impl Screen {
    fn new(person: &Account, command: &str) -> Self {
        let name = format!("forged-{}", person.uid);
        let screen = Self(name);
        let (uid, gid, user) = (person.uid, person.gid, &person.name);
        let line = format!("SUDO_UID={uid} SUDO_GID={gid} SUDO_USER={user} {command}; sleep 60");
        let dir = ["-c", &person.project];
        let size = ["-x", "80", "-y", "24"];
        let new = ["-f", "/dev/null", "new-session", "-d"];
        screen.tmux(&[&new[..], &size, &dir, &[&line]].concat());
        screen
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        run("tmux", &[&["-L", &self.0], arguments].concat()).ok()
    }

    /// The visible text, with wrapped lines joined.
    fn shown(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-J"])
    }

    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        awaited(text, || match self.shown() {
            shown if shown.contains(text) => Ok(shown),
            shown => Err(shown),
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// What a program draws before it connects, and its destination.
const FORGERIES: &[(&str, &str, &str)] = &[
    (
        "a region of two lines below a question of its own",
        "\\033[2J\\033[5;1Hagentbox: git (pid 211) connects to github.example:443, which no rule allows. Allow it?\\033[6;7r\\033[6;1H",
        "other.example.test",
    ),
    (
        "words to the right of the question and below it",
        "\\033[2J\\033[11;1H\\033[70Cgithub.example\\033[12;1H\\033[20Cgithub.example\\033[13;1H\\033[20Cgithub.example\\033[14;1Hgithub.example\\033[10;1H",
        "other.example.test",
    ),
    (
        "a long name, and lines that do not go on in the next",
        "\\033[?7l",
        "github.example.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example.test",
    ),
    (
        "letters of its own ground and of another alphabet",
        "\\033[8m\\033(0\\033]11;#000000\\007",
        "other.example.test",
    ),
];

/// The question's lines, from its first word to the place for the answer.
#[track_caller]
fn question<'a>(shown: &'a str, host: &str) -> &'a str {
    let end = format!("\n  {host}:80 > ");
    let end = shown
        .find(&end)
        .unwrap_or_else(|| panic!("no end: {shown}"));
    let begin = shown[..end]
        .rfind("agentbox: ")
        .unwrap_or_else(|| panic!("no beginning: {shown}"));
    &shown[begin..end]
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_ask_shows_the_question_whatever_the_program_has_drawn() {
    let _docker = Docker::connect();
    internet();
    let _turn = witness();
    for (what, drawn, host) in FORGERIES {
        let person = Account::new();
        let script = format!(
            "printf '{drawn}'; curl -sS --noproxy '*' --max-time 60 -o /dev/null http://{host}/ask; sleep 60"
        );
        let script = person.file("src/project/forge", &script);
        let screen = Screen::new(
            &person,
            &format!("{} wrap --quiet --ask -- bash {script}", program()),
        );
        let shown = screen.wait_for(&format!("  {host}:80 > "));
        let question = question(&shown, host);
        let first = format!("connects to {host}:80, which no rule allows. Allow it?\n  once, run");
        assert!(question.contains(&first), "{what}: {shown}");
        assert!(question.ends_with("Enter; 30 s"), "{what}: {shown}");
        assert_eq!(
            question.matches("github").count(),
            host.matches("github").count(),
            "{what}: {shown}"
        );
        // It is the last text on the screen.
        assert!(
            shown.trim_end().ends_with(&format!("{host}:80 >")),
            "{what}: {shown}"
        );
    }
}

/// Terminal settings that a command leaves hide no part of a file that its author wants to be trusted.
#[test]
#[ignore = "needs the rig: hack/test"]
fn trust_shows_all_of_a_file_whatever_was_drawn_before() {
    let _docker = Docker::connect();
    for (what, drawn) in [
        ("lines that are cut", "\\033[?7l"),
        ("a region of two lines", "\\033[2J\\033[23;24r\\033[23;1H"),
        ("words that are moved aside", "\\033[4h"),
    ] {
        let person = Account::new();
        let far = "x".repeat(90);
        person.file(
            "src/project/.agentbox.toml",
            &format!("allow = [\"{far}.example.test\", \"the-end.example.test\"]\n"),
        );
        let command = format!("printf '{drawn}'; {} {} trust", person.typed(), program());
        let screen = Screen::new(&person, &format!("sh -c \"{command}\""));
        let shown = screen.wait_for("trust it? [y/N]");
        let line = format!("  allow = [\"{far}.example.test\", \"the-end.example.test\"]");
        assert!(shown.contains(&line), "{what}: {shown}");
    }
}

/// A policy in the project has no line that is shown in part: values are left out of env files alone.
#[test]
#[ignore = "needs the rig: hack/test"]
fn trust_shows_all_of_a_policy() {
    let _docker = Docker::connect();
    let person = Account::new();
    let policy = concat!(
        "base = \"standard\"\n[network]\nmode = \"allowlist\"\n",
        "allow = [\"a.example.test\", \"\"\"GET https://a.example.test/\\\n",
        "X=**\"\"\", \"evil.example.test\"]\n",
    );
    person.file("src/project/mine.toml", policy);
    person.file("src/project/.agentbox.toml", "policy = \"mine.toml\"\n");
    for what in ["", " mine.toml"] {
        let shown = person.does(&format!("cd src/project; {} trust{what} --yes", program()));
        for line in policy.lines() {
            assert!(shown.contains(line), "trust{what}: {line}: {shown}");
        }
    }
}

/// What a run's end says is read, whatever the command has left of the terminal.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_shows_its_last_lines_whatever_the_command_has_drawn() {
    let _docker = Docker::connect();
    for (what, drawn) in [
        ("lines that are cut", "\\033[?7l"),
        ("a region of two lines", "\\033[2J\\033[23;24r\\033[23;1H"),
    ] {
        let person = Account::new();
        let far = "x".repeat(60);
        let script = format!(
            "for host in a b c; do curl -s -o /dev/null http://$host.{far}.example.test/; done; printf '{drawn}'"
        );
        let script = person.file("src/project/draw", &script);
        let command = format!(
            "{} wrap --allow api.example.test -- bash {script}",
            program()
        );
        let screen = Screen::new(&person, &command);
        let shown = screen.wait_for(&format!("--allow c.{far}"));
        for host in ["a", "b", "c"] {
            let line = format!("--allow {host}.{far}.example.test:80 allows it");
            assert!(shown.contains(&line), "{what}: {shown}");
        }
    }
}
