//! SHELL. The engines of this node: whether each has the runtime, and whether its program can run.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::registered::{self, ContainerdEntry, HandlerEntry, ImportedFiles};
use crate::engines::daemon::{CONTAINERD_CONFIG, DOCKER_SOCKET, PODMAN_CONFIG, PODMAN_MORE};
use crate::install;
use crate::log;
use crate::runtime::RuntimeError;
use crate::runtime::input::bundle::{open_regular, read_open};
use crate::runtime::unprivileged;
use crate::sys::program;
use crate::text::shown;

/// A program that an engine executes as the runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredProgram {
    /// Its path in the engine's configuration.
    pub path: PathBuf,
    /// The state of the file there.
    pub state: ProgramState,
}

/// The state of a program's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramState {
    /// A program that only root can change.
    Usable,
    /// The same, with other content than this program.
    Another,
    /// Users besides root can change it.
    OpenToOthers,
    /// There is no file.
    Absent,
    /// It is not an executable file.
    NotExecutable,
    /// The path is relative: the engine searches its own PATH.
    NotAbsolute,
    /// It cannot be read, for this reason.
    Unknown(String),
}

/// An installed engine. An error is the reason why its configuration is unknown.
pub enum EngineFacts {
    /// Docker.
    Docker(Result<DockerFacts, String>),
    /// containerd for pods, with the handler if it has one.
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
    /// The program that it executes; `None` means runc.
    pub program: Option<RegisteredProgram>,
    /// Whether annotations reach it.
    pub passes_annotations: bool,
}

/// Finds the engines of this node.
pub fn read() -> Vec<EngineFacts> {
    let mut found = Vec::new();
    let socket = Path::new(DOCKER_SOCKET);
    if socket.exists() || program::find("dockerd").is_ok() {
        let info = install::daemon::info(socket).map(|info| DockerFacts {
            version: info.version,
            runtime: info.runtime.map(look),
        });
        found.push(EngineFacts::Docker(
            info.map_err(|error| log::chain(&error)),
        ));
    }
    found.extend(containerd());
    if program::find("podman").is_ok() {
        let texts = podman_texts().map_err(|error| log::chain(&error));
        let paths = texts.and_then(|texts| registered::podman(&texts));
        let program = paths.map(|paths| {
            // podman takes the first one that exists.
            let mut paths = paths?.into_iter().peekable();
            let first = paths.peek().cloned().unwrap_or_default();
            Some(look(paths.find(|path| path.is_file()).unwrap_or(first)))
        });
        found.push(EngineFacts::Podman(program));
    }
    found
}

/// `None` if containerd has no configuration or serves no pods.
fn containerd() -> Option<EngineFacts> {
    // `install` also checks whether root's programs may trust the file.
    let main = install::containerd_config().transpose()?;
    let main = main.map_err(|error| log::chain(&error));
    let texts = main.and_then(containerd_texts);
    let entry = match texts.and_then(|texts| registered::containerd(&texts)) {
        Ok(entry) => entry,
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

/// The main file and the files that it imports.
///
/// # Errors
/// A file is unreadable, or it is not known which files are imported.
fn containerd_texts(main: String) -> Result<Vec<String>, String> {
    let failed = |error| log::chain(&error);
    let main_file = Path::new(CONTAINERD_CONFIG);
    let directory = main_file.parent().unwrap_or(main_file);
    let mut files = Vec::new();
    for imported in registered::imports(&main, directory)? {
        match imported {
            ImportedFiles::One(path) => files.push(path),
            ImportedFiles::Matching(directory, pattern) => {
                let all = all_of(&directory).map_err(failed)?;
                files.extend(
                    all.into_iter()
                        .filter(|path| ImportedFiles::has(&pattern, path)),
                );
            }
            ImportedFiles::Unknown(pattern) => {
                return Err(format!(
                    "it imports {}, which doctor does not follow: look there",
                    shown(&pattern)
                ));
            }
        }
    }
    let mut texts = vec![main];
    for path in files {
        let found = text(&path).map_err(failed)?;
        // containerd 2 follows them too.
        if found.as_deref().is_some_and(|text| {
            registered::imports(text, directory).is_ok_and(|all| !all.is_empty())
        }) {
            return Err(format!(
                "{path:?} has imports of its own, which doctor does not follow: look there"
            ));
        }
        texts.extend(found);
    }
    Ok(texts)
}

fn podman_texts() -> Result<Vec<String>, RuntimeError> {
    let mut files: Vec<PathBuf> = PODMAN_CONFIG.iter().map(PathBuf::from).collect();
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

/// The files of a directory with this extension, by name.
fn named(directory: &Path, extension: &str) -> Result<Vec<PathBuf>, RuntimeError> {
    let mut paths = all_of(directory)?;
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    Ok(paths)
}

/// The files of a directory, by name; none if the directory is missing.
fn all_of(directory: &Path) -> Result<Vec<PathBuf>, RuntimeError> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(RuntimeError::io(format!("read {directory:?}"))(error)),
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

/// A file's text; `None` if it is missing.
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

/// Checks the program at a path.
fn look(path: PathBuf) -> RegisteredProgram {
    let state = match (program::only_roots(&path), path.metadata()) {
        _ if !path.is_absolute() => ProgramState::NotAbsolute,
        (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => ProgramState::Absent,
        (_, Err(error)) => ProgramState::Unknown(error.to_string()),
        (_, Ok(found)) if !found.is_file() || found.permissions().mode() & 0o111 == 0 => {
            ProgramState::NotExecutable
        }
        (None, Ok(_)) => ProgramState::OpenToOthers,
        (Some(_), Ok(_)) if install::is_another(&path) => ProgramState::Another,
        (Some(_), Ok(_)) => ProgramState::Usable,
    };
    RegisteredProgram { path, state }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registered_path_is_judged_by_the_file_there() {
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
        assert_eq!(look(shell).state, ProgramState::Another);
        let own = std::env::current_exe().unwrap();
        let is_another = |path| crate::install::is_another(path);
        assert!(!is_another(&own) && is_another(Path::new("/proc/self/../../bin/sh")));
        // A copy, a copy with another end, and a script that may start this program.
        let copy = base.join("copy");
        std::fs::copy(&own, &copy).unwrap();
        assert!(!is_another(&copy));
        let mut bytes = std::fs::read(&copy).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&copy, bytes).unwrap();
        assert!(is_another(&copy));
        std::fs::write(&copy, "#!/bin/sh\nexec agentbox \"$@\"\n").unwrap();
        assert!(!is_another(&copy));
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn files_of_a_directory_are_read_in_order_of_names() {
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
