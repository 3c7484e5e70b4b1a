//! SHELL. The steps of an installation or a removal: their words, their diff in a dry run, and their effect.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{Access, AtFlags, CWD};

use super::TargetSystem;
use super::daemon;
use super::diff;
use super::error::InstallError;
use super::files::{self, NewContent, TextFile};
use crate::engines::daemon::DOCKER_SOCKET;
use crate::sys::program;
use crate::text::bounded;

/// A reload took 0.6 s when measured; a busy node may need more.
const DOCKER_WITHIN: Duration = Duration::from_secs(10);

/// All steps, and remarks for the caller.
#[derive(Debug, Default)]
pub struct InstallPlan {
    /// In order.
    pub steps: Vec<InstallStep>,
    /// Files that stay as they are, with the reasons.
    pub notes: Vec<String>,
    /// What the caller should do afterwards.
    pub afterwards: Vec<String>,
}

/// One step.
#[derive(Debug)]
pub struct InstallStep {
    /// What it does, in the imperative.
    pub words: String,
    effect: StepEffect,
}

#[derive(Debug)]
enum StepEffect {
    /// Change or remove a text file.
    Text(TextChange),
    /// Write this program to a file.
    Program { path: PathBuf, mode: u32 },
    /// Remove a file, whatever its content.
    Remove(PathBuf),
    /// Remove a directory if it is empty.
    RemoveDirectory(PathBuf),
    /// Run a program of the system.
    Run(SystemCommand),
}

#[derive(Debug)]
struct TextChange {
    path: PathBuf,
    /// The path in the target system.
    shown: String,
    before: Option<TextFile>,
    after: Option<String>,
    mode: u32,
    judged_by: Judge,
}

/// The check of a new file before it replaces the old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judge {
    /// No check.
    None,
    /// `containerd config dump`
    Containerd,
}

/// A program of the system that makes a service read its new configuration.
#[derive(Debug)]
pub enum SystemCommand {
    /// dockerd reads its file.
    Docker {
        /// The way to tell it.
        reload: DockerReload,
        /// Wait until it lists this program as the runtime.
        runtime: Option<PathBuf>,
    },
    /// `apparmor_parser --replace` or `--remove`
    AppArmor(&'static str, PathBuf),
}

/// How dockerd is told to read its file.
#[derive(Debug, Clone, Copy)]
pub enum DockerReload {
    /// `systemctl reload docker`
    Systemctl,
    /// SIGHUP, where it runs without systemd.
    Signal(rustix::process::Pid),
}

impl InstallPlan {
    /// Refuses if a directory in which a step would make or remove a file cannot be written.
    ///
    /// # Errors
    /// Such a directory, before any step.
    pub fn check_directories(&self) -> Result<(), InstallError> {
        for step in &self.steps {
            let path = match &step.effect {
                StepEffect::Text(change) => &change.path,
                StepEffect::Program { path, .. } | StepEffect::Remove(path) => path,
                StepEffect::RemoveDirectory(_) | StepEffect::Run(_) => continue,
            };
            let mut above = path.ancestors().skip(1);
            let Some(directory) = above.find(|above| above.exists()) else {
                continue;
            };
            rustix::fs::accessat(CWD, directory, Access::WRITE_OK, AtFlags::EACCESS)
                .map_err(|error| InstallError::NotWritable(directory.to_owned(), error.into()))?;
        }
        Ok(())
    }

    fn push(&mut self, words: String, effect: StepEffect) {
        self.steps.push(InstallStep { words, effect });
    }

    /// Adds a step that writes a text file.
    pub(super) fn write(&mut self, words: String, change: NewText<'_>) {
        let NewText {
            system,
            path,
            before,
            text,
            mode,
            judged_by,
        } = change;
        let change = TextChange {
            path: system.real(path),
            shown: path.to_owned(),
            mode: before.as_ref().map_or(mode, |file| file.mode),
            before,
            after: Some(text),
            judged_by,
        };
        self.push(words, StepEffect::Text(change));
    }

    /// Adds a step that writes this program to a path.
    pub(super) fn program(&mut self, words: String, path: PathBuf) {
        self.push(words, StepEffect::Program { path, mode: 0o755 });
    }

    /// Adds a step that removes a file.
    pub(super) fn remove(&mut self, words: String, path: PathBuf) {
        self.push(words, StepEffect::Remove(path));
    }

    /// Adds a step that removes a directory if it is empty.
    pub(super) fn remove_directory(&mut self, words: String, path: PathBuf) {
        self.push(words, StepEffect::RemoveDirectory(path));
    }

    /// Adds a step that runs a program of the system.
    pub(super) fn run(&mut self, words: String, command: SystemCommand) {
        self.push(words, StepEffect::Run(command));
    }
}

/// A text file to write.
pub(super) struct NewText<'a> {
    pub system: &'a TargetSystem,
    /// The path in that system.
    pub path: &'a str,
    pub before: Option<TextFile>,
    pub text: String,
    /// The mode of a new file; an existing one keeps its own.
    pub mode: u32,
    pub judged_by: Judge,
}

impl InstallStep {
    /// The change of a text file as a unified diff; `None` for other steps.
    pub fn diff(&self) -> Option<String> {
        let StepEffect::Text(change) = &self.effect else {
            return None;
        };
        let before = change.before.as_ref().map_or("", |file| file.text.as_str());
        let after = change.after.as_deref().unwrap_or_default();
        let name = |side: &str, there: bool| match there {
            true => format!("{side}{}", change.shown),
            false => "/dev/null".to_owned(),
        };
        let names = [
            name("a", change.before.is_some()),
            name("b", change.after.is_some()),
        ];
        Some(diff::unified([before, after], &names))
    }

    /// Makes the change.
    ///
    /// # Errors
    /// It failed: the file is as before.
    pub fn apply(&self) -> Result<(), InstallError> {
        match &self.effect {
            StepEffect::Text(change) => change.apply(),
            StepEffect::Program { path, mode } => {
                let own = "/proc/self/exe";
                let bytes = fs::read(own).map_err(InstallError::io("read this program"))?;
                let content = NewContent {
                    bytes: &bytes,
                    mode: *mode,
                    owner: None,
                };
                files::write(path, &content, |_| Ok(()))
            }
            StepEffect::Remove(path) => files::remove(path),
            StepEffect::RemoveDirectory(path) => {
                // A directory with other files stays.
                let _stays = fs::remove_dir(path);
                Ok(())
            }
            StepEffect::Run(command) => {
                // The file is written; the service reads it at its next start.
                if let Err(error) = command.run() {
                    log::warn!("{}", crate::log::chain(&error));
                }
                Ok(())
            }
        }
    }
}

impl TextChange {
    fn apply(&self) -> Result<(), InstallError> {
        if files::read(&self.path)? != self.before {
            return Err(InstallError::Changed(self.path.clone()));
        }
        let Some(after) = &self.after else {
            return files::remove(&self.path);
        };
        let content = NewContent {
            bytes: after.as_bytes(),
            mode: self.mode,
            owner: self.before.as_ref().map(|file| file.owner),
        };
        files::write(&self.path, &content, |new| match self.judged_by {
            Judge::None => Ok(()),
            Judge::Containerd => ask_containerd(new, &self.path),
        })
    }
}

/// Asks containerd about a file, if it is installed.
fn ask_containerd(new: &Path, path: &Path) -> Result<(), InstallError> {
    let Ok(containerd) = program::find("containerd") else {
        return Ok(());
    };
    let mut command = program::command(&containerd, &[]);
    command.arg("--config").arg(new).args(["config", "dump"]);
    let answer = command
        .output()
        .map_err(InstallError::io("run containerd config dump"))?;
    if answer.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&answer.stderr);
    Err(InstallError::Containerd {
        path: path.to_owned(),
        said: bounded(said.trim(), 300),
    })
}

impl SystemCommand {
    fn run(&self) -> Result<(), InstallError> {
        match self {
            Self::Docker { reload, runtime } => {
                reload.run()?;
                // dockerd reads its file after the reload has returned.
                let is_listed = runtime.as_ref().is_none_or(|runtime| {
                    daemon::await_runtime(Path::new(DOCKER_SOCKET), runtime, DOCKER_WITHIN)
                });
                match is_listed {
                    true => Ok(()),
                    false => Err(InstallError::NotListed(DOCKER_WITHIN.as_secs())),
                }
            }
            Self::AppArmor(option, path) => run("apparmor_parser", |command| {
                command.arg(option).arg(path);
            }),
        }
    }
}

impl DockerReload {
    fn run(self) -> Result<(), InstallError> {
        match self {
            Self::Systemctl => run("systemctl", |command| {
                command.args(["reload", "docker"]);
            }),
            Self::Signal(pid) => rustix::process::kill_process(pid, rustix::process::Signal::HUP)
                .map_err(|error| InstallError::io("signal dockerd")(error.into())),
        }
    }
}

fn run(name: &str, arguments: impl FnOnce(&mut Command)) -> Result<(), InstallError> {
    let step = || InstallError::io(format!("run {name}"));
    let program = program::find(name).map_err(step())?;
    let mut command = program::command(&program, &[]);
    arguments(&mut command);
    let answer = command.output().map_err(step())?;
    match answer.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&answer.stderr);
            let said = format!("{}: {}", answer.status, bounded(said.trim(), 300));
            Err(step()(std::io::Error::other(said)))
        }
    }
}
