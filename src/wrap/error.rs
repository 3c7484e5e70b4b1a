//! Why a command is not wrapped, and the exit status of one that was not executed.

use std::path::{Path, PathBuf};

use crate::cli::OWN_FAILURE;
use crate::plan::PlanError;
use crate::policy::typed_path;
use crate::runtime::{FailureKind, RuntimeError};

/// Why `wrap` refuses a command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WrapRefusal {
    /// `--policy unconfined`
    #[error("`wrap` needs a policy with walls: choose one with --policy")]
    NoPolicy,
    /// A directory that contains agentbox's records of the caller's containers, or lies in them.
    #[error(
        "{path:?} cannot be mounted: agentbox keeps its records in {records:?}; choose another directory"
    )]
    HoldsRecords {
        /// The directory.
        path: PathBuf,
        /// Where the records are.
        records: PathBuf,
    },
    /// /tmp or the like as a writable directory.
    #[error(
        "{0:?} cannot be made writable: it holds other programs' temporary files; choose a directory \
         below it"
    )]
    HoldsTemporary(PathBuf),
    /// A writable directory where OpenSSH's agents have their sockets.
    #[error(
        "{0:?} cannot be made writable: ssh-* there is for sockets of SSH agents, which later runs obey; choose \
         another directory"
    )]
    HoldsAgents(PathBuf),
    /// A writable directory that contains the user's settings.
    #[error(
        "{path:?} cannot be made writable: {own:?} decides about later runs; choose another directory, or \
         set filesystem.workspace=read-only"
    )]
    HoldsSettings {
        /// The directory.
        path: PathBuf,
        /// The user's settings, or the list of files that they trust.
        own: PathBuf,
    },
    /// A writable directory in which programs or settings of agents lie that run outside of sandboxes, or which lies in one.
    #[error(
        "{path:?} cannot be made writable: programs and settings in {own:?} run outside of sandboxes; choose another directory, or set \
         filesystem.workspace=read-only"
    )]
    HoldsPrograms {
        /// The directory.
        path: PathBuf,
        /// Where the programs are.
        own: PathBuf,
    },
    /// A directory that an agent outside obeys by a variable, and that the command could make.
    #[error(
        "{path:?} could be made by the command, and {variable} lets agents outside obey it: unset {variable}, or make it (mkdir -p), and it \
         is hidden"
    )]
    ObeyedByVariable {
        /// The directory.
        path: PathBuf,
        /// The variable.
        variable: String,
    },
    /// `--name`
    #[error(
        "--name {0:?} is not valid: use 1 to 200 letters, digits, `_`, `+`, `-` and `.`, beginning with a letter or digit"
    )]
    Name(String),
    /// `--name` of a running sandbox.
    #[error(
        "--name {0} belongs to a running sandbox: choose another, or end it with `agentbox kill {0} KILL`"
    )]
    NameTaken(String),
    /// `--name` in the form of engines' ids.
    #[error(
        "--name {0} looks like an engine's container id: choose one with a letter after f, or another character"
    )]
    NameLikeId(String),
    /// `--name` of another container: verbs would act on the sandbox in its place.
    #[error("--name {0} is the name of another container, {1}: choose another")]
    NameOfOther(String, String),
    /// A workspace that is part of the system, such as one below /usr.
    #[error("the workspace {0:?} is part of the system: choose a project directory")]
    SystemDirectory(PathBuf),
    /// A home directory as the workspace.
    #[error("the workspace {0:?} is a home directory: cd into a project directory")]
    Home(PathBuf),
    /// A file as the workspace.
    #[error("the workspace {0:?} is not a directory: choose a project directory")]
    NoDirectory(PathBuf),
    /// A workspace whose path config.json cannot hold.
    #[error(
        "the workspace {0:?} has a path that is not UTF-8, which config.json cannot hold: rename it"
    )]
    NoText(PathBuf),
    /// A workspace that the user cannot read.
    #[error(
        "the workspace {0:?} cannot be read by {1}, who runs the command: {2}; choose another directory"
    )]
    NotYours(PathBuf, String, std::io::Error),
    /// SUDO_UID or the like is not a user of this node.
    #[error("{0}={1} is not a user of this node: unset {0} to run the command as root")]
    Nobody(&'static str, String),
    /// Two of these variables name different users.
    #[error("{0} and {1} name different users: unset one of them")]
    TwoPeople(&'static str, &'static str),
    /// The kernel refuses an overlay over another user namespace's directory with mounts in it.
    #[error(
        "policy {policy} cannot show {home:?} with {mount:?} mounted in it without root: unmount it, use `sudo agentbox wrap`, or \
         --policy standard with --read PATH"
    )]
    MountInHome {
        /// The policy.
        policy: String,
        /// The home.
        home: PathBuf,
        /// A mount of the node in it.
        mount: PathBuf,
    },
    /// `--read` or the like
    #[error("{0} {1:?}: {2}")]
    Named(&'static str, PathBuf, String),
    /// The command is a link to a path that is not visible.
    #[error(
        "the command {}, which is not mounted: {}",
        link(name, found, real),
        way_to(real, by.as_deref())
    )]
    Hidden {
        /// The name, as requested.
        name: String,
        /// The program, or the interpreter of the script.
        found: PathBuf,
        /// Where its links lead.
        real: PathBuf,
        /// What leads there, if a sandbox could have written that.
        by: Option<PathBuf>,
    },
    /// A virtual environment on PATH without its Python.
    #[error(
        "the virtual environment {venv:?} on PATH needs {hidden:?}, which is not mounted, so the system's Python would run: {}, or remove it from PATH",
        way_to(hidden, by.as_deref())
    )]
    Venv {
        /// The environment.
        venv: PathBuf,
        /// What is missing.
        hidden: PathBuf,
        /// The environment, if a sandbox could have written it.
        by: Option<PathBuf>,
    },
    /// A project's settings that changed since they were trusted.
    #[error(
        "the settings {path:?} {why}: run `agentbox trust {}` to review them, with --remove to ignore them",
        typed_path(directory)
    )]
    SettingsChanged {
        /// The file.
        path: PathBuf,
        /// Its directory.
        directory: PathBuf,
        /// What happened.
        why: String,
    },
    /// A project's settings that are gone since they were trusted.
    #[error(
        "the settings {path:?} that you trusted are gone: restore them, or run `agentbox trust --remove {}` to go on without",
        typed_path(directory)
    )]
    SettingsGone {
        /// The file.
        path: PathBuf,
        /// Its directory.
        directory: PathBuf,
    },
    /// The directory of trusted settings is another user's: `HOME` leads there.
    #[error("{0:?}, where your trusted settings are, cannot be entered: set HOME to your own")]
    HomeClosed(PathBuf),
    /// No settings to review.
    #[error("there is no {0:?} to review: make it first; docs/wrap.md has its keys")]
    NoSettings(PathBuf),
    /// A policy file that a sandboxed command could have written.
    #[error(
        "the policy file {path:?} {why}: run `agentbox trust {}` to review it, or keep it in ~/.config/agentbox, where no sandbox \
         can write",
        typed_path(path)
    )]
    NotTrusted {
        /// The file, without links.
        path: PathBuf,
        /// What is known about its content.
        why: &'static str,
    },
    /// `--config` of `wrap`, or a file that it names.
    #[error(
        "{0:?}, a file of --config, lies where a sandbox could write it: keep it in /etc/agentbox or \
         ~/.config/agentbox"
    )]
    ConfigNotClosed(PathBuf),
    /// `--summary`
    #[error("--summary {path:?} cannot be written: {why}")]
    Summary {
        /// As given.
        path: PathBuf,
        /// The kernel's error.
        why: std::io::Error,
    },
    /// A request that these walls cannot enforce.
    #[error("`--walls landlock` cannot enforce this: {0}")]
    NotByLandlock(String),
    /// `--ssh-agent`, or keys that the policy lists.
    #[error("--ssh-agent: {0}")]
    SshAgent(String),
    /// `--connect`, or a unix socket that the policy lists.
    #[error("--connect {socket}: {why}")]
    Socket {
        /// As given.
        socket: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// An agent cannot have what it is given.
    #[error("agent {name}: {why}; --agent none runs it without")]
    Agent {
        /// The agent.
        name: String,
        /// What is wrong, and what to do.
        why: String,
    },
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
    /// A file of the user that others can write, or that is no file.
    #[error("{path:?} {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
}

/// A shell's status for a program that was not executed: 127 if there is none, else 126. `wrap`'s own errors are 125.
pub fn status_of(error: &anyhow::Error) -> i32 {
    let mut errors = error.chain().filter_map(|e| e.downcast_ref());
    let failed = errors.find_map(|error| match error {
        RuntimeError::Init(report) => Some(report.failed),
        _ => None,
    });
    match failed {
        Some(FailureKind::NoProgram) => 127,
        Some(FailureKind::Program) => 126,
        Some(FailureKind::Hook | FailureKind::Step) | None => OWN_FAILURE.into(),
    }
}

/// Whether an error says that the directory is none which a run may have as its workspace.
pub fn is_of_workspace(error: &anyhow::Error) -> bool {
    let is_refused = |refusal: &WrapRefusal| {
        matches!(
            refusal,
            WrapRefusal::SystemDirectory(_)
                | WrapRefusal::Home(_)
                | WrapRefusal::NoText(_)
                | WrapRefusal::NotYours(..)
                | WrapRefusal::HoldsRecords { .. }
                | WrapRefusal::HoldsTemporary(_)
                | WrapRefusal::HoldsAgents(_)
                | WrapRefusal::HoldsPrograms { .. }
        )
    };
    error.chain().any(|cause| {
        let planned = match cause.downcast_ref() {
            Some(RuntimeError::Plan(error)) => Some(error),
            _ => cause.downcast_ref(),
        };
        cause.downcast_ref().is_some_and(is_refused)
            || matches!(planned, Some(PlanError::WorkspaceRefused { .. }))
    })
}

/// A command, its program if that has another path, and where its links lead if there are any.
fn link(name: &str, found: &Path, real: &Path) -> String {
    match found == real {
        true if Path::new(name) == real => format!("is {name:?}"),
        true => format!("{name:?} is {real:?}"),
        false => format!("{name:?} is {found:?}, a link to {real:?}"),
    }
}

/// How to show a file. What a sandbox could have written names no directory to paste: it may lead to any of the user's.
fn way_to(hidden: &Path, by: Option<&Path>) -> String {
    match by {
        None => format!(
            "add --read {}",
            typed_path(hidden.parent().unwrap_or(hidden))
        ),
        Some(by) => format!(
            "a sandbox could have written {by:?}, which leads there; if you made it so, show its directory by --read"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::FailureReport;

    #[test]
    fn a_command_that_is_not_visible_is_called_a_link_only_if_it_is_one() {
        let said = |name: &str, found: &str, real: &str| {
            let (name, found, real) = (name.to_owned(), found.into(), real.into());
            let by = None;
            WrapRefusal::Hidden {
                name,
                found,
                real,
                by,
            }
            .to_string()
        };
        let rest = "which is not mounted: add --read /o";
        for (name, found, begins) in [
            ("/o/tool", "/o/tool", "is \"/o/tool\""),
            ("tool", "/o/tool", "\"tool\" is \"/o/tool\""),
            (
                "tool",
                "/usr/bin/tool",
                "\"tool\" is \"/usr/bin/tool\", a link to \"/o/tool\"",
            ),
        ] {
            let said = said(name, found, "/o/tool");
            assert_eq!(said, format!("the command {begins}, {rest}"));
        }
    }

    #[test]
    fn a_program_that_cannot_be_executed_has_a_shells_status() {
        let status = |failed| {
            let text = "exec: \"x\": no such file or directory".to_owned();
            status_of(&RuntimeError::Init(FailureReport { failed, text }).into())
        };
        assert_eq!(status(FailureKind::NoProgram), 127);
        assert_eq!(status(FailureKind::Program), 126);
        assert_eq!(status(FailureKind::Step), 125);
        assert_eq!(status_of(&anyhow::anyhow!("exec: \"x\"")), 125);
    }
}
