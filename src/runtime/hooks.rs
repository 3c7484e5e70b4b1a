//! Hooks (runtime-spec 1.2, config.md "POSIX-platform Hooks"): programs of the engine's that run at six moments of a
//! container's life, with the container's state on standard input.
//!
//! | hook | namespaces | moment | a failure |
//! |---|---|---|---|
//! | prestart, createRuntime | the runtime's | `create`: mounts made, root not yet entered | ends `create` |
//! | createContainer | the container's | right after | ends `create` |
//! | startContainer | the container's, behind the walls | `start`, last before the program | ends `start` and the container |
//! | poststart | the runtime's | `start`, once the program runs | ends `start` and the container |
//! | poststop | the runtime's | `delete`, once everything else is gone | is a warning |
//!
//! libcontainer would tell them of its own bundle, run poststart before the program, and give up a deletion over a
//! failing poststop. It therefore gets at most two hooks, which are this program ([`Job`]): it has no other place for
//! what must happen before pivot_root.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use oci_spec::runtime::{Hook, HookBuilder, Hooks};
use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};

use crate::cgroup::systemd_v1;
use crate::enforce::program;
use crate::runtime::RuntimeError;
use crate::sys::deadline::Halt;

/// The first argument that makes this program run the hooks of a [`Job`].
pub const VERB: &str = "run-hooks";

/// What is shown of a failed hook's output, bytes from its end.
const SHOWN: u64 = 2048;

/// Seconds that a hook in the container may take that says nothing of it.
const WITHOUT_TIMEOUT: u64 = 600;

/// The last byte of a [`Job`] while its hooks run, and while they do not.
const RUNNING: u8 = b'\n';
const IDLE: u8 = b' ';

/// A moment of a container's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// `create`, in the runtime's namespaces; deprecated, and what Docker uses up to version 27.
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

impl When {
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

    const ALL: [Self; 6] = [
        Self::Prestart,
        Self::CreateRuntime,
        Self::CreateContainer,
        Self::StartContainer,
        Self::Poststart,
        Self::Poststop,
    ];
}

/// A hook that did not do its work. The words are runc's.
#[derive(Debug, thiserror::Error)]
#[error("error running {when} hook #{index}: {why}")]
pub struct HookError {
    when: &'static str,
    index: usize,
    why: String,
}

/// What a hook is told of the container: the specification's state, with the bundle as the engine named it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Told {
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

impl Told {
    /// The state as JSON. `pid` is the first process's, in the namespace of the hook.
    fn json(&self, when: When, pid: Option<i32>) -> serde_json::Value {
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

/// Refuses hooks that could not be run as written (config.md: `path` is absolute, `timeout` greater than zero).
pub fn check(hooks: &Hooks) -> Result<(), RuntimeError> {
    for when in When::ALL {
        for hook in when.of(hooks) {
            let why = if !hook.path().is_absolute() {
                "its path is not absolute"
            } else if hook.timeout().is_some_and(|t| t <= 0) {
                "its timeout is not greater than zero"
            } else {
                continue;
            };
            let (when, path) = (when.name(), hook.path());
            return Err(RuntimeError::Unsupported(format!(
                "{when} hook {path:?}: {why}"
            )));
        }
    }
    Ok(())
}

/// Hooks of one moment with all descriptors that they need, so that they can be run where none can be made any more.
pub struct Ready<'a> {
    when: When,
    hooks: Vec<(&'a Hook, File, File)>,
}

impl<'a> Ready<'a> {
    /// Writes the state for each hook.
    pub fn new(
        when: When,
        hooks: &'a Hooks,
        told: &Told,
        pid: Option<i32>,
    ) -> Result<Self, HookError> {
        let failed = |index, error: std::io::Error| HookError {
            when: when.name(),
            index,
            why: error.to_string(),
        };
        let state = told.json(when, pid).to_string();
        let list = when.of(hooks).iter().enumerate();
        let prepare = |(index, hook): (usize, &'a Hook)| {
            let input = file(state.as_bytes()).map_err(|e| failed(index, e))?;
            let output = file(&[]).map_err(|e| failed(index, e))?;
            Ok((hook, input, output))
        };
        Ok(Self {
            when,
            hooks: list.map(prepare).collect::<Result<_, HookError>>()?,
        })
    }

    /// Runs them in order, up to the first failure. `env` is for those that name no environment.
    pub fn run(self, env: &[String], cwd: Option<&Path>) -> Result<(), HookError> {
        let when = self.when;
        self.each(env, cwd)
            .find_map(|(index, result)| Some((index, result.err()?)))
            .map_or(Ok(()), |(index, why)| {
                let when = when.name();
                Err(HookError { when, index, why })
            })
    }

    /// Runs each as it is asked for.
    fn each(
        self,
        env: &[String],
        cwd: Option<&Path>,
    ) -> impl Iterator<Item = (usize, Result<(), String>)> {
        let hooks = self.hooks.into_iter().enumerate();
        hooks.map(move |(index, (hook, input, output))| {
            (index, run_one(hook, input, output, env, cwd))
        })
    }
}

/// A file in memory with this content, to be read from its beginning. Not a pipe: neither side ever waits for the other,
/// and a hook that leaves something running in the background does not hold the runtime.
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
    hook: &Hook,
    input: File,
    output: File,
    env: &[String],
    cwd: Option<&Path>,
) -> Result<(), String> {
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
    let copy = || output.try_clone().map_err(|e| e.to_string());
    command.stdin(input).stdout(copy()?).stderr(copy()?);
    let mut child = command
        .spawn()
        .map_err(|e| format!("fork/exec {}: {}", path.display(), reason(&e)))?;
    match wait(&mut child, hook.timeout()) {
        Ok(Some(status)) if status.success() => Ok(()),
        Ok(Some(status)) => Err(format!("{}{}", words(status), shown(output))),
        Ok(None) => Err(format!(
            "hook ran past specified timeout of {}s",
            hook.timeout().unwrap_or_default()
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// Waits for a hook; kills it after its time, seconds, and says `None`. Looks in short steps, because the container's
/// own filter may deny what could wait with a limit (startContainer).
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
    rustix::io::Errno::from_io_error(error).map_or_else(|| error.to_string(), program::words)
}

fn words(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("signal: {}", signal_words(signal)),
        None => format!("exit status {}", status.code().unwrap_or_default()),
    }
}

/// The end of what a hook wrote.
fn shown(mut output: File) -> String {
    let mut text = Vec::new();
    let length = output.seek(SeekFrom::End(0)).unwrap_or_default();
    let start = SeekFrom::Start(length.saturating_sub(SHOWN));
    if output.seek(start).is_err() || output.take(SHOWN).read_to_end(&mut text).is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&text);
    match text.trim() {
        "" => String::new(),
        text => format!(", output: {text}"),
    }
}

/// Runs the hooks of a moment. `env` is for those that name no environment.
pub fn run(
    when: When,
    hooks: &Hooks,
    told: &Told,
    pid: Option<i32>,
    env: &[String],
    cwd: Option<&Path>,
) -> Result<(), HookError> {
    Ready::new(when, hooks, told, pid)?.run(env, cwd)
}

/// The environment of a hook in the runtime's namespaces that names none. The specification is silent; without a policy
/// it is the runtime's, as runc and crun have it and hooks may rely on. Under a policy nothing reaches a program unasked.
pub fn default_env(policy: bool) -> Vec<String> {
    let all = std::env::vars_os().filter(|_| !policy);
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some(format!("{}={}", name.to_str()?, value.to_str()?))
    };
    all.filter_map(text).collect()
}

/// A signal as Go says it, and therefore runc.
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

/// Runs every poststop hook; one that fails is a warning (runtime.md "Lifecycle", step 13).
pub fn poststop(hooks: &Hooks, told: &Told, env: &[String]) {
    let when = When::Poststop;
    match Ready::new(when, hooks, told, None) {
        Ok(ready) => ready
            .each(env, None)
            .filter_map(|(index, result)| Some((index, result.err()?)))
            .for_each(|(index, why)| {
                let when = when.name();
                log::warn!("{}", HookError { when, index, why });
            }),
        Err(error) => log::warn!("{error}"),
    }
}

/// Whether what the first process reported is that a startContainer hook failed.
pub fn is_start_failure(report: &str) -> bool {
    let name = When::StartContainer.name();
    report.starts_with(&format!("error running {name} hook #"))
}

/// The hooks of `create`, in a file that libcontainer's two calls of this program inherit, and to whose end they write
/// what went wrong. Not a path: a process in a user namespace could not open it.
pub struct Job {
    file: File,
    length: u64,
    runtime: bool,
    container: bool,
    inside: Duration,
}

/// The most that hooks take, as they say themselves.
fn time_of(hooks: &[Hook]) -> Duration {
    let seconds = |hook: &Hook| hook.timeout().and_then(|s| u64::try_from(s).ok());
    let each = hooks
        .iter()
        .map(|hook| Duration::from_secs(seconds(hook).unwrap_or(WITHOUT_TIMEOUT)));
    each.fold(Duration::ZERO, Duration::saturating_add)
}

#[derive(Serialize, Deserialize)]
struct Work {
    hooks: Hooks,
    told: Told,
    rootfs: PathBuf,
    env: Vec<String>,
    /// The `tasks` file of the runtime's own cgroup: the caller is in the container's ([`crate::cgroup::systemd_v1`]).
    home: Option<PathBuf>,
}

impl Job {
    /// Writes down what is to be run; `None` if nothing is. `env` as for [`run`].
    pub fn new(
        hooks: &Hooks,
        told: &Told,
        rootfs: &Path,
        env: Vec<String>,
    ) -> Result<Option<Self>, RuntimeError> {
        let any = |list: &[When]| list.iter().any(|w| !w.of(hooks).is_empty());
        let runtime = any(&[When::Prestart, When::CreateRuntime]);
        let container = any(&[When::CreateContainer]);
        if !runtime && !container {
            return Ok(None);
        }
        let work = Work {
            hooks: hooks.clone(),
            told: told.clone(),
            rootfs: rootfs.to_owned(),
            env,
            home: systemd_v1::home()?,
        };
        let step = "write down the hooks of create";
        let mut text = serde_json::to_vec(&work)
            .map_err(|e| RuntimeError::Unsupported(format!("{step}: {e}")))?;
        // JSON may end in white space.
        text.push(IDLE);
        // Inherited on purpose. Its number is above those of --preserve-fds, which are all in use, so that the
        // container's process closes it at execve like every other.
        let file = rustix::fs::memfd_create("agentbox-hooks", MemfdFlags::empty())
            .map_err(RuntimeError::io(step))?;
        let mut file = File::from(file);
        file.write_all(&text).map_err(RuntimeError::io(step))?;
        Ok(Some(Self {
            file,
            length: text.len() as u64,
            runtime,
            container,
            inside: time_of(When::CreateContainer.of(hooks)),
        }))
    }

    /// What libcontainer gets to run.
    pub fn stand_in(&self) -> Hooks {
        let call = |when: When| {
            let args = ["agentbox", VERB, &self.file.as_raw_fd().to_string()].map(str::to_owned);
            let args: Vec<String> = args
                .into_iter()
                .chain([self.length.to_string(), when.name().to_owned()])
                .collect();
            let hook = HookBuilder::default().path("/proc/self/exe").args(args);
            vec![hook.build().expect("all fields of a hook are set")]
        };
        let mut hooks = Hooks::default();
        #[allow(deprecated)] // libcontainer runs both lists at the same moment.
        hooks.set_prestart(self.runtime.then(|| call(When::Prestart)));
        hooks.set_create_container(self.container.then(|| call(When::CreateContainer)));
        hooks
    }

    /// How much longer `create` may take for hooks in the container.
    pub fn time_inside(&self) -> Duration {
        self.inside
    }

    /// While hooks run outside of the container the time that `create` may take stands still: they are the node's own, and
    /// how long they take is theirs and their timeouts' to say.
    pub fn halt(&self) -> Halt<'_> {
        Halt {
            file: self.file.as_fd(),
            offset: i64::try_from(self.length).unwrap_or(i64::MAX) - 1,
            byte: RUNNING,
        }
    }

    /// What went wrong, if something did.
    pub fn failure(&self) -> Option<String> {
        let mut text = vec![0; 2 * SHOWN as usize];
        let length = rustix::io::pread(&self.file, &mut text, self.length).ok()?;
        let text = String::from_utf8_lossy(&text[..length]).into_owned();
        (!text.is_empty()).then_some(text)
    }
}

/// `agentbox run-hooks FD LENGTH MOMENT`: what libcontainer calls in place of the hooks of `create`.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(2);
    let mut number = || arguments.next()?.parse::<u64>().ok();
    let (Some(fd), Some(length)) = (number(), number()) else {
        return ExitCode::FAILURE;
    };
    let inherited = i32::try_from(fd)
        .ok()
        .and_then(crate::sys::process::borrow_inherited);
    let Some(Ok(job)) = inherited.map(|fd| fd.try_clone_to_owned()) else {
        return ExitCode::FAILURE;
    };
    let in_container = arguments.next().as_deref() == Some(When::CreateContainer.name());
    // Not in the container: whoever shares its processes could stop this one, and the time with it.
    let mark = |byte| match in_container {
        true => Ok(()),
        false => rustix::io::pwrite(&job, &[byte], length.saturating_sub(1)).map(drop),
    };
    let served = mark(RUNNING)
        .map_err(|e| e.to_string())
        .and_then(|()| serve(&job, length, in_container));
    if let Err(error) = mark(IDLE) {
        log::debug!("hooks are done: {error}");
    }
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let written = rustix::io::pwrite(&job, why.as_bytes(), length);
            ExitCode::from(if written.is_ok() { 1 } else { 2 })
        }
    }
}

fn serve(job: &OwnedFd, length: u64, in_container: bool) -> Result<(), String> {
    let text = |e: &dyn std::error::Error| crate::log::chain(e);
    // The hooks themselves get nothing but their standard descriptors.
    crate::sys::process::close_on_exec_from(3).map_err(|e| text(&e))?;
    let mut work = vec![0; usize::try_from(length).map_err(|e| text(&e))?];
    let read = rustix::io::pread(job.as_fd(), &mut work, 0).map_err(|e| text(&e))?;
    let work: Work = serde_json::from_slice(&work[..read]).map_err(|e| text(&e))?;
    let run = |when, pid, env: &[String], cwd: &Path| {
        run(when, &work.hooks, &work.told, pid, env, Some(cwd)).map_err(|e| text(&e))
    };
    if in_container {
        // The caller is the container's first process: its number as the container sees it.
        let pid = rustix::process::getppid().map(rustix::process::Pid::as_raw_pid);
        return run(When::CreateContainer, pid, &[], &work.rootfs);
    }
    if let Some(tasks) = &work.home {
        std::fs::write(tasks, "0").map_err(|e| format!("leave the container's cgroup: {e}"))?;
    }
    let mut state = String::new();
    std::io::stdin()
        .read_to_string(&mut state)
        .map_err(|e| text(&e))?;
    let state: serde_json::Value = serde_json::from_str(&state).map_err(|e| text(&e))?;
    let pid = state["pid"].as_i64().and_then(|p| i32::try_from(p).ok());
    run(When::Prestart, pid, &work.env, &work.told.bundle)?;
    run(When::CreateRuntime, pid, &work.env, &work.told.bundle)
}
