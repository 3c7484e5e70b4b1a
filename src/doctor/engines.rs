//! SHELL. The engines of this node: whether each has the runtime, and whether its program can run.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::daemon;
use super::registered::{self, ContainerdEntry, HandlerEntry, ImportedFiles};
use crate::install;
use crate::log;
use crate::runtime::RuntimeError;
use crate::runtime::input::bundle::{open_regular, read_open};
use crate::runtime::unprivileged;
use crate::sys::program;

/// podman's files, lowest priority first (containers.conf(5)).
const PODMAN: [&str; 2] = [
    "/usr/share/containers/containers.conf",
    "/etc/containers/containers.conf",
];
/// The directories of more of them, by name.
const PODMAN_MORE: &str = "/etc/containers/containers.conf.d";

/// A program that an engine executes as the runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredProgram {
    /// Its path, as the engine has it.
    pub path: PathBuf,
    /// What is there.
    pub state: ProgramState,
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramState {
    /// A program that only root can change.
    Usable,
    /// Users besides root can change it.
    OpenToOthers,
    /// Nothing.
    Absent,
    /// No file that can be executed.
    NotExecutable,
    /// The engine looks for it along its own PATH.
    NotAbsolute,
    /// It cannot be looked at, and why.
    Unknown(String),
}

/// An engine that is here. An error is why it is not known what the engine has.
pub enum EngineFacts {
    /// Docker.
    Docker(Result<DockerFacts, String>),
    /// containerd for pods, if it has the handler.
    Containerd(Result<Option<HandlerFacts>, String>),
    /// podman: its runtime, if it has one.
    Podman(Result<Option<RegisteredProgram>, String>),
}

/// Docker's answer.
pub struct DockerFacts {
    /// Its version.
    pub version: String,
    /// Its runtime, if it has one.
    pub runtime: Option<RegisteredProgram>,
}

/// A handler of containerd.
pub struct HandlerFacts {
    /// What it executes; `None` is runc.
    pub program: Option<RegisteredProgram>,
    /// Whether annotations reach it.
    pub passes_annotations: bool,
}

/// The engines that are here.
pub fn read() -> Vec<EngineFacts> {
    let mut found = Vec::new();
    let socket = Path::new(daemon::SOCKET);
    if socket.exists() || program::find("dockerd").is_ok() {
        let info = daemon::info(socket).map(|info| DockerFacts {
            version: info.version,
            runtime: info.runtime.map(look),
        });
        found.push(EngineFacts::Docker(info.map_err(|error| error.to_string())));
    }
    found.extend(containerd());
    if program::find("podman").is_ok() {
        let texts = podman_texts().map_err(|error| log::chain(&error));
        let paths = texts.and_then(|texts| registered::podman(&texts));
        let program = paths.map(|paths| {
            // podman takes the first that is there.
            let mut paths = paths?.into_iter().peekable();
            let first = paths.peek().cloned().unwrap_or_default();
            Some(look(paths.find(|path| path.is_file()).unwrap_or(first)))
        });
        found.push(EngineFacts::Podman(program));
    }
    found
}

/// Nothing where containerd has no configuration, or serves no pods.
fn containerd() -> Option<EngineFacts> {
    // `install` decides whether root's programs should obey the file.
    let main = install::containerd_config().transpose()?;
    let main = main.map_err(|error| log::chain(&error));
    let texts = main.and_then(|main| containerd_texts(main).map_err(|error| log::chain(&error)));
    let entry = match texts {
        Ok(texts) => registered::containerd(&texts),
        Err(why) => return Some(EngineFacts::Containerd(Err(why))),
    };
    let handler = |entry: HandlerEntry| HandlerFacts {
        program: entry.program.map(look),
        passes_annotations: entry.passes_annotations,
    };
    match entry {
        ContainerdEntry::NoPods => None,
        ContainerdEntry::Absent => Some(EngineFacts::Containerd(Ok(None))),
        ContainerdEntry::Handler(entry) => Some(EngineFacts::Containerd(Ok(Some(handler(entry))))),
    }
}

/// The main file and what it imports.
fn containerd_texts(main: String) -> Result<Vec<String>, RuntimeError> {
    let mut files = Vec::new();
    for imported in registered::imports(&main) {
        match imported {
            ImportedFiles::One(path) => files.push(path),
            ImportedFiles::Directory(path) => files.extend(named(&path, "toml")?),
        }
    }
    let mut texts = vec![main];
    for path in files {
        texts.extend(text(&path)?);
    }
    Ok(texts)
}

fn podman_texts() -> Result<Vec<String>, RuntimeError> {
    let mut files: Vec<PathBuf> = PODMAN.iter().map(PathBuf::from).collect();
    files.extend(named(Path::new(PODMAN_MORE), "conf")?);
    if unprivileged::uid() != 0 {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        let home = || variable("HOME").map(|home| home.join(".config"));
        if let Some(config) = variable("XDG_CONFIG_HOME").or_else(home) {
            let own = config.join("containers");
            files.push(own.join("containers.conf"));
            files.extend(named(&own.join("containers.conf.d"), "conf")?);
        }
    }
    let mut texts = Vec::new();
    for path in files {
        texts.extend(text(&path)?);
    }
    Ok(texts)
}

/// The files of a directory with this extension, by name; none where there is no directory.
fn named(directory: &Path, extension: &str) -> Result<Vec<PathBuf>, RuntimeError> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(RuntimeError::io(format!("read {directory:?}"))(error)),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    paths.sort();
    Ok(paths)
}

/// A file's text; `None` where it is missing.
fn text(path: &Path) -> Result<Option<String>, RuntimeError> {
    let bytes = match open_regular(path) {
        Ok(file) => read_open(file, path)?,
        Err(RuntimeError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Looks at the program of a path.
fn look(path: PathBuf) -> RegisteredProgram {
    let state = match (program::only_roots(&path), path.metadata()) {
        _ if !path.is_absolute() => ProgramState::NotAbsolute,
        (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => ProgramState::Absent,
        (_, Err(error)) => ProgramState::Unknown(error.to_string()),
        (_, Ok(found)) if !found.is_file() || found.permissions().mode() & 0o111 == 0 => {
            ProgramState::NotExecutable
        }
        (None, Ok(_)) => ProgramState::OpenToOthers,
        (Some(_), Ok(_)) => ProgramState::Usable,
    };
    RegisteredProgram { path, state }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registered_path_is_judged_by_what_is_there() {
        let base = std::env::temp_dir().join(format!("agentbox-look-{}", std::process::id()));
        std::fs::create_dir_all(&base).unwrap();
        let file = |name: &str, mode: u32| {
            let path = base.join(name);
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            look(path).state
        };
        assert_eq!(file("open", 0o777), ProgramState::OpenToOthers);
        assert_eq!(file("plain", 0o644), ProgramState::NotExecutable);
        assert_eq!(look(base.join("gone")).state, ProgramState::Absent);
        assert_eq!(look(base.clone()).state, ProgramState::NotExecutable);
        assert_eq!(look("agentbox".into()).state, ProgramState::NotAbsolute);
        assert_eq!(look(PathBuf::new()).state, ProgramState::NotAbsolute);
        let shell = program::find("sh").unwrap();
        assert_eq!(look(shell).state, ProgramState::Usable);
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn files_of_a_directory_come_by_name() {
        let base = std::env::temp_dir().join(format!("agentbox-named-{}", std::process::id()));
        std::fs::create_dir_all(&base).unwrap();
        for name in ["b.conf", "a.conf", "c.txt"] {
            std::fs::write(base.join(name), name).unwrap();
        }
        let found = named(&base, "conf").unwrap();
        assert_eq!(found, [base.join("a.conf"), base.join("b.conf")]);
        assert_eq!(text(&found[0]).unwrap().as_deref(), Some("a.conf"));
        assert_eq!(text(&base.join("gone")).unwrap(), None);
        assert!(named(&base.join("gone"), "conf").unwrap().is_empty());
        std::fs::remove_dir_all(base).unwrap();
    }
}
