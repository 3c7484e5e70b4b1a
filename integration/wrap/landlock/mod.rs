//! `agentbox wrap --walls landlock`: each attack fails, and succeeds in the control without walls.

mod files;
mod lingering;
mod network;
mod others;
mod places;
mod refused;
mod servers;
mod terminals;

use std::collections::BTreeMap;
use std::process::Command;

use crate::command::{Finished, finish};
use crate::direct::{Scratch, program};
use crate::docker::Docker;
use crate::wrap::account::Account;

/// The beginning of every attack script: `attempt` prints one line per attack.
const PRELUDE: &str = r"
import ctypes, errno, fcntl, os, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def syscall(*args):
    result = libc.syscall(*args)
    if result < 0:
        raise OSError(ctypes.get_errno(), 'syscall')
    return result
def attempt(name, action):
    try:
        result = action()
        print(name, 'done' if result is None else 'done', flush=True)
    except OSError as error:
        word = errno.errorcode.get(error.errno, 'timeout')
        print(name, word, flush=True)
";

/// The user alone, the user behind sudo, and root.
const CALLERS: [&str; 3] = ["alone", "sudo", "root"];

/// `agentbox WORDS` in the account's project.
fn called(person: &Account, by: &str, words: &[&str]) -> Command {
    let program = program();
    match by {
        "alone" => person.alone(&[&[program.as_str()], words].concat()),
        "sudo" => person.sudo(words),
        _ => {
            let mut root = Command::new(program);
            root.args(words).current_dir(&person.project);
            root
        }
    }
}

/// A project, with private files beside it.
struct Place {
    _docker: Docker,
    scratch: Scratch,
    project: String,
    policy: Option<String>,
}

impl Place {
    fn new() -> Self {
        Self::by(Docker::connect())
    }

    fn by(docker: Docker) -> Self {
        let scratch = Scratch::new();
        Self {
            _docker: docker,
            project: scratch.dir("home/project"),
            scratch,
            policy: None,
        }
    }

    /// Runs `agentbox wrap --walls landlock -- COMMAND` in the project.
    fn command(&self, command: &[&str]) -> Command {
        let mut wrap = Command::new(program());
        let policy = self.policy.as_deref().unwrap_or("standard");
        wrap.args(["wrap", "--walls", "landlock", "--policy", policy, "--"]);
        wrap.args(command).current_dir(&self.project);
        wrap.env("HOME", self.scratch.path("home"));
        wrap
    }

    fn wrap(&self, command: &[&str]) -> Finished {
        finish(&mut self.command(command))
    }

    fn shell(&self, script: &str) -> Finished {
        self.wrap(&["bash", "-c", script])
    }

    /// The results of each attempt behind the walls, and of the same without them.
    fn attempts(&self, script: &str) -> Outcomes {
        let script = format!("{PRELUDE}{script}");
        let walled = self.wrap(&["python3", "-c", &script]).ok();
        let mut control = Command::new("python3");
        control.args(["-c", &script]).current_dir(&self.project);
        let control = finish(&mut control).ok();
        Outcomes {
            walled: outcomes(&walled),
            control: outcomes(&control),
        }
    }
}

fn outcomes(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    lines
        .map(|(name, word)| (name.to_owned(), word.to_owned()))
        .collect()
}

/// The results of attempts.
struct Outcomes {
    walled: BTreeMap<String, String>,
    control: BTreeMap<String, String>,
}

impl Outcomes {
    /// Checks `count` attempts: each failed with one of these words, and succeeded in the control.
    #[track_caller]
    fn all_fail_with(&self, words: &[&str], count: usize) {
        assert_eq!(self.walled.len(), count, "{:?}", self.walled);
        for (name, word) in &self.walled {
            assert!(words.contains(&word.as_str()), "{name}: {:?}", self.walled);
            let control = self.control.get(name);
            assert_eq!(
                control.map(String::as_str),
                Some("done"),
                "{name}: {:?}",
                self.control
            );
        }
    }
}
