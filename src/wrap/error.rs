//! Why a command is not wrapped, and the exit status of one that was not executed.

use std::path::PathBuf;

use crate::cli::OWN_FAILURE;
use crate::runtime::{Failed, RuntimeError};

/// Why a command is not wrapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WrapRefused {
    /// `--policy unconfined`
    #[error("`wrap` without walls is the command itself: choose a policy with --policy")]
    NoPolicy,
    /// A directory with the records of the caller's own containers.
    #[error(
        "{path:?} is not shown to the command, since agentbox keeps its records in {records:?}: choose another directory"
    )]
    HoldsRecords {
        /// The directory.
        path: PathBuf,
        /// Where the records are.
        records: PathBuf,
    },
    /// /tmp and its like, to be written.
    #[error(
        "{0:?} is not given to the command to write, since it holds the temporary files of all programs, other runs of agentbox among \
         them: choose a directory in it"
    )]
    HoldsTemporary(PathBuf),
    /// A directory to be written with the person's settings in it.
    #[error(
        "{path:?} is not given to the command to write, since {own:?} says what the next command may do: choose another directory, or \
         let the policy's filesystem.workspace be read-only"
    )]
    HoldsSettings {
        /// The directory.
        path: PathBuf,
        /// The person's settings, or what they trust.
        own: PathBuf,
    },
    /// `--name`
    #[error(
        "--name {0:?} is no name: it begins with a letter or digit, and has letters, digits, `_`, `+`, `-` and `.`, at most 200"
    )]
    Name(String),
    /// `--name` of a sandbox that runs.
    #[error(
        "--name {0} is taken by a sandbox that runs (`agentbox list` shows it, `agentbox kill {0} KILL` ends it): choose another"
    )]
    NameTaken(String),
    /// A workspace below /usr, say.
    #[error("the workspace {0:?} is part of the system: choose a project's directory")]
    SystemDirectory(PathBuf),
    /// A workspace with everything that somebody has.
    #[error(
        "the workspace {0:?} is a whole home directory, all of which would be written: cd into a project's directory"
    )]
    Home(PathBuf),
    /// A file as the workspace.
    #[error("the workspace {0:?} is no directory: choose a project's directory")]
    NoDirectory(PathBuf),
    /// A workspace whose path no specification of a container can hold.
    #[error(
        "the workspace {0:?} has bytes in its path that are no UTF-8 text, which the specification of a container cannot hold: rename it"
    )]
    NoText(PathBuf),
    /// A workspace that the person cannot read.
    #[error(
        "the workspace {0:?} cannot be read by {1}, as whom the command runs: {2}: choose a directory of theirs"
    )]
    NotYours(PathBuf, String, std::io::Error),
    /// SUDO_UID and its like name nobody.
    #[error(
        "{0}={1} names nobody on this node, so nobody can tell as whom the command is to run: unset {0} to run it as root"
    )]
    Nobody(&'static str, String),
    /// Two of them name different people.
    #[error("{0} and {1} name different people: unset the one that is not meant")]
    TwoPeople(&'static str, &'static str),
    /// The kernel lets nobody lay an overlay over a directory of another user namespace's with mounts in it.
    #[error(
        "policy {policy} shows all of {home:?}, in which {mount:?} is mounted, and without root's rights the kernel lays no overlay over \
         both: unmount it, run `sudo agentbox wrap`, or take --policy standard and name what is needed with --read"
    )]
    MountInHome {
        /// The policy.
        policy: String,
        /// The home.
        home: PathBuf,
        /// A mount of the node in it.
        mount: PathBuf,
    },
    /// `--read` and its like
    #[error("{0} {1:?}: {2}")]
    Named(&'static str, PathBuf, String),
    /// The command leads out of what is shown.
    #[error(
        "the command {name:?} is {found:?} and leads to {real:?}, which is not shown to it: add --read {}",
        real.parent().unwrap_or(real).display()
    )]
    Hidden {
        /// As it was asked for.
        name: String,
        /// The program, or the interpreter of the script.
        found: PathBuf,
        /// Where its links lead.
        real: PathBuf,
    },
    /// A virtual environment on PATH without its Python.
    #[error(
        "the virtual environment {venv:?} on PATH needs {hidden:?}, which is not shown, and without it the system's Python would run: add --read {}, or take it from PATH",
        hidden.parent().unwrap_or(hidden).display()
    )]
    Venv {
        /// The environment.
        venv: PathBuf,
        /// What is missing.
        hidden: PathBuf,
    },
    /// A project's settings that somebody wrote anew.
    #[error(
        "the settings {path:?} {why}, and without them the run could lack walls that they ask for: `agentbox trust {}` shows them and asks, and with --remove it forgets them",
        directory.display()
    )]
    SettingsChanged {
        /// The file.
        path: PathBuf,
        /// Where it lies.
        directory: PathBuf,
        /// What happened.
        why: String,
    },
    /// A policy file that a command can have written.
    #[error(
        "the policy file {path:?} {why}: `agentbox trust {}` shows it and asks, or keep it in ~/.config/agentbox, where no sandbox \
         writes",
        path.display()
    )]
    NotTrusted {
        /// The file, without links.
        path: PathBuf,
        /// What is known of its content.
        why: &'static str,
    },
    /// `--config` of `wrap`, or what it names.
    #[error(
        "{0:?}, which --config names or which its file names, lies where a command may write: keep it in /etc/agentbox or in \
         ~/.config/agentbox"
    )]
    ConfigNotClosed(PathBuf),
    /// `--summary`
    #[error("--summary {path:?} cannot be written: {why}")]
    Summary {
        /// As given.
        path: PathBuf,
        /// The kernel's word.
        why: std::io::Error,
    },
    /// What these walls do not hold.
    #[error("`--walls landlock` cannot hold this: {0}")]
    NotByLandlock(String),
    /// `--env`
    #[error("--env {0:?} is not NAME=VALUE or NAME")]
    Env(String),
    /// A variable that the run sets itself.
    #[error("the variable {name} cannot be passed on (--env, --env-file): {why}")]
    Taken {
        /// The variable.
        name: String,
        /// What sets it, and what to do.
        why: &'static str,
    },
    /// A line of an `--env-file`.
    #[error("--env-file {path:?}, line {line}: {why}")]
    EnvFile {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it. Never the line itself, which may hold a secret.
        why: &'static str,
    },
    /// A file of the person's that is not theirs alone, or no file.
    #[error("{path:?} {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
}

/// A shell's status for a program that was not executed: 127 where there is none, else 126; 125 for other errors, which are `wrap`'s own.
pub fn status_of(error: &anyhow::Error) -> i32 {
    let mut errors = error.chain().filter_map(|e| e.downcast_ref());
    let failed = errors.find_map(|error| match error {
        RuntimeError::Init(report) => Some(report.failed),
        _ => None,
    });
    match failed {
        Some(Failed::NoProgram) => 127,
        Some(Failed::Program) => 126,
        Some(Failed::Hook | Failed::Step) | None => OWN_FAILURE.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Report;

    #[test]
    fn a_program_that_cannot_be_executed_has_a_shells_status() {
        let status = |failed| {
            let text = "exec: \"x\": no such file or directory".to_owned();
            status_of(&RuntimeError::Init(Report { failed, text }).into())
        };
        assert_eq!(status(Failed::NoProgram), 127);
        assert_eq!(status(Failed::Program), 126);
        assert_eq!(status(Failed::Step), 125);
        assert_eq!(status_of(&anyhow::anyhow!("exec: \"x\"")), 125);
    }
}
