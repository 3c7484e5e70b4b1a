//! Runs hooks (runtime-spec 1.2, config.md "POSIX-platform Hooks") in the listed order, each with the container's state
//! on standard input, limited by its timeout.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use oci_spec::runtime::{Hook, Hooks};
use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};

use super::error;
use crate::sys::file_size;
use crate::sys::open_files;

/// How much of the end of a failed hook's output is shown, in bytes.
pub const SHOWN: u64 = 2048;

/// Timeout of a hook in the container that gives none, in seconds.
pub const WITHOUT_TIMEOUT: u64 = 600;

/// A moment of a container's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookMoment {
    /// `create`, in the runtime's namespaces; deprecated. Docker uses it up to version 27.
    Prestart,
    /// `create`, in the runtime's namespaces.
    CreateRuntime,
    /// `create`, in the container's namespaces.
    CreateContainer,
    /// `start`, in the container's namespaces.
    StartContainer,
    /// `start`, in the runtime's namespaces.
    Poststart,
    /// `delete`, in the runtime's namespaces.
    Poststop,
}

impl HookMoment {
    /// The specification's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prestart => "prestart",
            Self::CreateRuntime => "createRuntime",
            Self::CreateContainer => "createContainer",
            Self::StartContainer => "startContainer",
            Self::Poststart => "poststart",
            Self::Poststop => "poststop",
        }
    }

    /// The container's status at that moment.
    fn status(self) -> &'static str {
        match self {
            Self::Prestart | Self::CreateRuntime | Self::CreateContainer => "creating",
            Self::StartContainer => "created",
            Self::Poststart => "running",
            Self::Poststop => "stopped",
        }
    }

    /// The hooks for it, in the order in which they run.
    pub fn of(self, hooks: &Hooks) -> &[Hook] {
        #[allow(deprecated)] // Docker 20.10 to 27 still use prestart.
        let list = match self {
            Self::Prestart => hooks.prestart(),
            Self::CreateRuntime => hooks.create_runtime(),
            Self::CreateContainer => hooks.create_container(),
            Self::StartContainer => hooks.start_container(),
            Self::Poststart => hooks.poststart(),
            Self::Poststop => hooks.poststop(),
        };
        list.as_deref().unwrap_or_default()
    }

    /// In the order of a container's life.
    pub const ALL: [Self; 6] = [
        Self::Prestart,
        Self::CreateRuntime,
        Self::CreateContainer,
        Self::StartContainer,
        Self::Poststart,
        Self::Poststop,
    ];
}

/// A hook failed. The words are runc's.
#[derive(Debug, thiserror::Error)]
#[error("error running {when} hook #{index}: {why}")]
pub struct HookError {
    pub(crate) when: &'static str,
    pub(crate) index: usize,
    pub(crate) why: HookFailure,
}

/// Why a hook failed. The words are Go's, and therefore runc's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HookFailure {
    /// A system call for it failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// Its program was not executed.
    #[error("fork/exec {}: {}", path.display(), reason(error))]
    NotStarted {
        /// The program.
        path: PathBuf,
        /// The errno.
        error: std::io::Error,
    },
    /// It ended with an error.
    #[error("{}{}", words(*status), shown(output))]
    Ended {
        /// How.
        status: ExitStatus,
        /// The end of its output.
        output: String,
    },
    /// It was killed after its timeout.
    #[error("hook ran past specified timeout of {seconds}s")]
    TimedOut {
        /// Its timeout in the spec.
        seconds: i64,
    },
}

/// The container's state for hooks, as in the specification; with the bundle as the engine named it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookState {
    /// Version of the specification that the bundle was written for.
    pub oci_version: String,
    /// The container's id.
    pub id: String,
    /// The bundle as the engine named it.
    pub bundle: PathBuf,
    /// The bundle's annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl HookState {
    /// The state as JSON. `pid` is the init process's, in the namespace of the hook.
    fn json(&self, when: HookMoment, pid: Option<i32>) -> serde_json::Value {
        let mut state = serde_json::json!({
            "ociVersion": self.oci_version,
            "id": self.id,
            "status": when.status(),
            "bundle": self.bundle,
        });
        if let Some(pid) = pid {
            state["pid"] = pid.into();
        }
        if !self.annotations.is_empty() {
            state["annotations"] = serde_json::json!(self.annotations);
        }
        state
    }
}

/// Hooks of one moment with all descriptors that they need, for a process that cannot make any more.
pub struct PreparedHooks<'a> {
    when: HookMoment,
    hooks: Vec<PreparedHook<'a>>,
}

/// One of them.
struct PreparedHook<'a> {
    hook: &'a Hook,
    /// The container's state, its standard input.
    input: File,
    /// Takes what it prints.
    output: File,
}

impl<'a> PreparedHooks<'a> {
    /// Writes the state for each hook.
    pub fn new(
        when: HookMoment,
        hooks: &'a Hooks,
        told: &HookState,
        pid: Option<i32>,
    ) -> Result<Self, HookError> {
        let failed = |index, error: std::io::Error| HookError {
            when: when.name(),
            index,
            why: error.into(),
        };
        let state = told.json(when, pid).to_string();
        let list = when.of(hooks).iter().enumerate();
        let prepare = |(index, hook): (usize, &'a Hook)| {
            let input = file(state.as_bytes()).map_err(|e| failed(index, e))?;
            let output = file(&[]).map_err(|e| failed(index, e))?;
            Ok(PreparedHook {
                hook,
                input,
                output,
            })
        };
        Ok(Self {
            when,
            hooks: list.map(prepare).collect::<Result<_, HookError>>()?,
        })
    }

    /// Runs them in order, up to the first failure. `env` is for hooks without an environment.
    pub fn run(self, env: &[String], cwd: Option<&Path>) -> Result<(), HookError> {
        let when = self.when;
        self.each(env, cwd)
            .find_map(|(index, result)| Some((index, result.err()?)))
            .map_or(Ok(()), |(index, why)| {
                let when = when.name();
                Err(HookError { when, index, why })
            })
    }

    /// Runs each hook when the iterator reaches it.
    pub(crate) fn each(
        self,
        env: &[String],
        cwd: Option<&Path>,
    ) -> impl Iterator<Item = (usize, Result<(), HookFailure>)> {
        let hooks = self.hooks.into_iter().enumerate();
        hooks.map(move |(index, prepared)| (index, run_one(prepared, env, cwd)))
    }
}

/// A file in memory with this content. A pipe could block one side, and a hook's background process would keep the
/// runtime waiting.
fn file(content: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create(
        "agentbox-hook",
        MemfdFlags::CLOEXEC,
    )?);
    file.write_all(content)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

fn run_one(
    prepared: PreparedHook<'_>,
    env: &[String],
    cwd: Option<&Path>,
) -> Result<(), HookFailure> {
    let PreparedHook {
        hook,
        input,
        output,
    } = prepared;
    let path = hook.path();
    let args = hook.args().as_deref().unwrap_or_default();
    let mut command = Command::new(path);
    match args.split_first() {
        Some((name, rest)) => command.arg0(name).args(rest),
        None => &mut command,
    };
    let env = hook.env().as_deref().unwrap_or(env);
    let pairs = env.iter().filter_map(|e| e.split_once('='));
    command.env_clear().envs(pairs);
    if let Some(cwd) = cwd {
        command.current_dir(cwd);
    }
    command.stdin(input);
    command
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?);
    let mut child = file_size::limit(open_files::limit(&mut command))
        .spawn()
        .map_err(|error| HookFailure::NotStarted {
            path: path.clone(),
            error,
        })?;
    match wait(&mut child, hook.timeout())? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(HookFailure::Ended {
            status,
            output: end_of(output),
        }),
        None => Err(HookFailure::TimedOut {
            seconds: hook.timeout().unwrap_or_default(),
        }),
    }
}

/// Waits for a hook; after its timeout in seconds, kills it and returns `None`. Polls, because the container's own
/// filter may deny waits with a limit (startContainer).
fn wait(child: &mut Child, limit: Option<i64>) -> std::io::Result<Option<ExitStatus>> {
    let Some(limit) = limit.and_then(|s| u64::try_from(s).ok()) else {
        return child.wait().map(Some);
    };
    let end = Instant::now() + Duration::from_secs(limit.min(1 << 30));
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// Go's words for an error, which engines look for.
fn reason(error: &std::io::Error) -> String {
    rustix::io::Errno::from_io_error(error).map_or_else(|| error.to_string(), error::words)
}

fn words(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("signal: {}", signal_words(signal)),
        None => format!("exit status {}", status.code().unwrap_or_default()),
    }
}

/// The end of a hook's output.
fn end_of(mut output: File) -> String {
    let mut text = Vec::new();
    let length = output.seek(SeekFrom::End(0)).unwrap_or_default();
    let start = SeekFrom::Start(length.saturating_sub(SHOWN));
    if output.seek(start).is_err() || output.take(SHOWN).read_to_end(&mut text).is_err() {
        return String::new();
    }
    String::from_utf8_lossy(&text).trim().to_owned()
}

fn shown(output: &str) -> String {
    match output {
        "" => String::new(),
        text => format!(", output: {text}"),
    }
}

/// Runs the hooks of a moment. `env` is for hooks without an environment.
pub fn run(
    when: HookMoment,
    hooks: &Hooks,
    told: &HookState,
    pid: Option<i32>,
    env: &[String],
    cwd: Option<&Path>,
) -> Result<(), HookError> {
    PreparedHooks::new(when, hooks, told, pid)?.run(env, cwd)
}

/// A signal in Go's words, and therefore runc's.
fn signal_words(signal: i32) -> String {
    let words = match signal {
        libc::SIGSYS => "bad system call",
        libc::SIGKILL => "killed",
        libc::SIGTERM => "terminated",
        libc::SIGSEGV => "segmentation fault",
        libc::SIGABRT => "aborted",
        other => return other.to_string(),
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hooks see the statuses of the specification (runtime.md, "Lifecycle"), and no pid where there is none.
    #[test]
    fn a_hook_is_told_the_state_of_its_moment() {
        let told = HookState {
            oci_version: "1.0.2".to_owned(),
            id: "a".to_owned(),
            bundle: "/b".into(),
            annotations: BTreeMap::new(),
        };
        for (when, name, status) in [
            (HookMoment::Prestart, "prestart", "creating"),
            (HookMoment::CreateRuntime, "createRuntime", "creating"),
            (HookMoment::CreateContainer, "createContainer", "creating"),
            (HookMoment::StartContainer, "startContainer", "created"),
            (HookMoment::Poststart, "poststart", "running"),
            (HookMoment::Poststop, "poststop", "stopped"),
        ] {
            let path = format!("/hooks/{name}");
            let hooks: Hooks =
                serde_json::from_value(serde_json::json!({ name: [{"path": path}] })).unwrap();
            let of: Vec<_> = HookMoment::ALL
                .into_iter()
                .filter(|moment| !moment.of(&hooks).is_empty())
                .collect();
            assert_eq!(of, [when]);
            assert_eq!(when.name(), name);
            let state = told.json(when, Some(4));
            assert_eq!(
                (&state["status"], &state["pid"]),
                (&status.into(), &4.into())
            );
            assert!(state.get("annotations").is_none());
            assert!(told.json(when, None).get("pid").is_none());
        }
    }
}
