//! SHELL. The steps of an installation or a removal: what each says, shows in a dry run, and does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use similar::TextDiff;

use super::files::{self, NewContent, TextFile};
use super::{InstallError, TargetSystem};
use crate::policy::bounded;
use crate::sys::program;

/// All steps, and what there is to say besides.
#[derive(Debug, Default)]
pub struct InstallPlan {
    /// In order.
    pub steps: Vec<InstallStep>,
    /// What is left as it is, and why.
    pub notes: Vec<String>,
    /// What the caller is to do afterwards.
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
    /// A text file gets another content, or goes.
    Text(TextChange),
    /// A file gets the content of this program.
    Program { path: PathBuf, mode: u32 },
    /// A file goes, whatever it holds.
    Remove(PathBuf),
    /// A directory goes, if it is empty.
    RemoveDirectory(PathBuf),
    /// A program of the system is run.
    Run(SystemCommand),
}

#[derive(Debug)]
struct TextChange {
    path: PathBuf,
    /// The path in the system that is changed.
    shown: String,
    before: Option<TextFile>,
    after: Option<String>,
    mode: u32,
    judged_by: Judge,
}

/// Who looks at a new file before it takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judge {
    /// Nobody.
    None,
    /// `containerd config dump`
    Containerd,
}

/// A program of the system that makes a service know its new configuration.
#[derive(Debug)]
pub enum SystemCommand {
    /// `systemctl reload docker`
    ReloadDocker,
    /// SIGHUP for dockerd, where it runs without systemd.
    SignalDocker(rustix::process::Pid),
    /// `apparmor_parser --replace` or `--remove`
    AppArmor(&'static str, PathBuf),
}

impl InstallPlan {
    fn push(&mut self, words: String, effect: StepEffect) {
        self.steps.push(InstallStep { words, effect });
    }

    /// A text file is written.
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

    /// This program is written to a path.
    pub(super) fn program(&mut self, words: String, path: PathBuf) {
        self.push(words, StepEffect::Program { path, mode: 0o755 });
    }

    /// A file goes.
    pub(super) fn remove(&mut self, words: String, path: PathBuf) {
        self.push(words, StepEffect::Remove(path));
    }

    /// A directory goes if it is empty.
    pub(super) fn remove_directory(&mut self, words: String, path: PathBuf) {
        self.push(words, StepEffect::RemoveDirectory(path));
    }

    /// A program of the system is run.
    pub(super) fn run(&mut self, words: String, command: SystemCommand) {
        self.push(words, StepEffect::Run(command));
    }
}

/// A text file that is to be written.
pub(super) struct NewText<'a> {
    pub system: &'a TargetSystem,
    /// In that system.
    pub path: &'a str,
    pub before: Option<TextFile>,
    pub text: String,
    /// Of a new one; one that is there keeps its own.
    pub mode: u32,
    pub judged_by: Judge,
}

impl InstallStep {
    /// What changes in a text file, as a unified diff; nothing for other steps.
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
        let diff = TextDiff::from_lines(before, after);
        let mut shown = diff.unified_diff();
        shown.header(
            &name("a", change.before.is_some()),
            &name("b", change.after.is_some()),
        );
        Some(shown.to_string())
    }

    /// Does it.
    ///
    /// # Errors
    /// It was not done: the file is as before.
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
                // With something else in it, it stays.
                let _stays = fs::remove_dir(path);
                Ok(())
            }
            StepEffect::Run(command) => {
                // The file is right, and the service's next start reads it.
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

/// What containerd says of a file, where it is installed.
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
            Self::ReloadDocker => run("systemctl", |command| {
                command.args(["reload", "docker"]);
            }),
            Self::SignalDocker(pid) => {
                rustix::process::kill_process(*pid, rustix::process::Signal::HUP)
                    .map_err(|error| InstallError::io("signal dockerd")(error.into()))
            }
            Self::AppArmor(option, path) => run("apparmor_parser", |command| {
                command.arg(option).arg(path);
            }),
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
