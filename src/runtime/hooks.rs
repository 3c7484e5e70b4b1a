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
//! libcontainer would give them its own bundle, run poststart before the program, and give up a deletion when a
//! poststop hook fails. It therefore gets at most two hooks, both of which are this program ([`CreateHooks`]).
//! libcontainer has no other place for work before pivot_root.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use oci_spec::runtime::{Hook, HookBuilder, Hooks, Spec};
use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};

use crate::cgroup::systemd_v1;
use crate::enforce::hooks::HookError;
use crate::enforce::hooks::HookMoment;
use crate::enforce::hooks::HookState;
use crate::enforce::hooks::PreparedHooks;
use crate::enforce::hooks::SHOWN;
use crate::enforce::hooks::WITHOUT_TIMEOUT;
use crate::enforce::hooks::run;
use crate::enforce::process;
use crate::runtime::error::{HooksError, RuntimeError};
use crate::runtime::state::record::Record;
use crate::sys::deadline::Halt;
use crate::sys::open_files::{self, OpenFilesLimit};

/// The first argument that makes this program run the hooks of a [`CreateHooks`].
pub const VERB: &str = "run-hooks";

/// The last byte of a [`CreateHooks`] while its hooks run, and while they do not.
const RUNNING: u8 = b'\n';
const IDLE: u8 = b' ';

/// Refuses hooks that could not be run as written (config.md: `path` is absolute, `timeout` greater than zero).
pub fn check(hooks: &Hooks) -> Result<(), RuntimeError> {
    for when in HookMoment::ALL {
        for hook in when.of(hooks) {
            let why = if !hook.path().is_absolute() {
                "its path is not absolute"
            } else if hook.timeout().is_some_and(|t| t <= 0) {
                "its timeout is not greater than zero"
            } else {
                continue;
            };
            let (when, path) = (when.name(), hook.path().clone());
            return Err(HooksError::Hook { when, path, why }.into());
        }
    }
    Ok(())
}

/// The environment of a hook in the runtime's namespaces that gives none. The specification is silent. Without a policy
/// it is the runtime's, as in runc and crun, because hooks may rely on it. Under a policy it is empty.
pub fn default_env(record: &Record) -> Vec<String> {
    env_of_hooks(record, std::env::vars_os())
}

fn env_of_hooks(
    record: &Record,
    runtimes: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<String> {
    let all = runtimes.filter(|_| record.plan().is_none());
    let text = |(name, value): (OsString, OsString)| {
        Some(format!("{}={}", name.to_str()?, value.to_str()?))
    };
    all.filter_map(text).collect()
}

/// Runs every poststop hook; one that fails is a warning (runtime.md "Lifecycle", step 13).
pub fn poststop(hooks: &Hooks, told: &HookState, env: &[String]) {
    let when = HookMoment::Poststop;
    match PreparedHooks::new(when, hooks, told, None) {
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

/// The hooks of `create`, in a file that libcontainer's two calls of this program inherit, and to which they append
/// errors. No path is used: a process in a user namespace could not open it.
pub struct CreateHooks {
    file: File,
    length: u64,
    runtime: bool,
    container: bool,
    inside: Duration,
}

/// The longest time that hooks may take, by their own timeouts.
fn time_of(hooks: &[Hook]) -> Duration {
    let seconds = |hook: &Hook| hook.timeout().and_then(|s| u64::try_from(s).ok());
    let each = hooks
        .iter()
        .map(|hook| Duration::from_secs(seconds(hook).unwrap_or(WITHOUT_TIMEOUT)));
    each.fold(Duration::ZERO, Duration::saturating_add)
}

#[derive(Serialize, Deserialize)]
struct WrittenHooks {
    hooks: Hooks,
    told: HookState,
    rootfs: PathBuf,
    env: Vec<String>,
    /// The `tasks` file of the runtime's own cgroup: the caller is in the container's ([`crate::cgroup::systemd_v1`]).
    home: Option<PathBuf>,
    /// The limits of descriptors for hooks of the runtime, if the runtime has others.
    runtime_files: Option<OpenFilesLimit>,
    /// And for hooks in the container: the container's, else the runtime's.
    container_files: Option<OpenFilesLimit>,
}

impl CreateHooks {
    /// Writes the hooks to a file; `None` if there are none. `env` as for [`run`].
    pub fn new(
        spec: &Spec,
        told: &HookState,
        rootfs: &Path,
        env: Vec<String>,
    ) -> Result<Option<Self>, RuntimeError> {
        let Some(hooks) = spec.hooks() else {
            return Ok(None);
        };
        let any = |list: &[HookMoment]| list.iter().any(|w| !w.of(hooks).is_empty());
        let runtime = any(&[HookMoment::Prestart, HookMoment::CreateRuntime]);
        let container = any(&[HookMoment::CreateContainer]);
        if !runtime && !container {
            return Ok(None);
        }
        let written = WrittenHooks {
            hooks: hooks.clone(),
            told: told.clone(),
            rootfs: rootfs.to_owned(),
            env,
            home: systemd_v1::home()?,
            runtime_files: open_files::of_programs(),
            container_files: process::open_files(spec).or_else(open_files::of_programs),
        };
        let step = "write down the hooks of create";
        let mut text = serde_json::to_vec(&written).map_err(HooksError::NotWritten)?;
        // JSON may end with white space.
        text.push(IDLE);
        // Inherited on purpose. Its number is above those of --preserve-fds, which are all in use, so the container's
        // process closes it at execve like every other.
        let file = rustix::fs::memfd_create("agentbox-hooks", MemfdFlags::empty())
            .map_err(RuntimeError::io(step))?;
        let mut file = File::from(file);
        file.write_all(&text).map_err(RuntimeError::io(step))?;
        Ok(Some(Self {
            file,
            length: text.len() as u64,
            runtime,
            container,
            inside: time_of(HookMoment::CreateContainer.of(hooks)),
        }))
    }

    /// The hooks for libcontainer.
    pub fn stand_in(&self) -> Hooks {
        let call = |when: HookMoment| {
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
        hooks.set_prestart(self.runtime.then(|| call(HookMoment::Prestart)));
        hooks.set_create_container(self.container.then(|| call(HookMoment::CreateContainer)));
        hooks
    }

    /// How much longer `create` may take for hooks in the container.
    pub fn time_inside(&self) -> Duration {
        self.inside
    }

    /// Stops `create`'s clock while hooks run outside of the container: they are the node's, and only their timeouts
    /// limit them.
    pub fn halt(&self) -> Halt<'_> {
        Halt {
            file: self.file.as_fd(),
            offset: i64::try_from(self.length).unwrap_or(i64::MAX) - 1,
            byte: RUNNING,
        }
    }

    /// The failure of a hook, if any.
    pub fn failure(&self) -> Option<HooksError> {
        let mut text = vec![0; 2 * SHOWN as usize];
        let length = rustix::io::pread(&self.file, &mut text, self.length).ok()?;
        let text = String::from_utf8_lossy(&text[..length]).into_owned();
        (!text.is_empty()).then_some(HooksError::Failed(text))
    }
}

/// `agentbox run-hooks FD LENGTH MOMENT`: libcontainer calls it in place of the hooks of `create`.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(2);
    let mut number = || arguments.next()?.parse::<u64>().ok();
    let (Some(fd), Some(length)) = (number(), number()) else {
        return ExitCode::FAILURE;
    };
    let inherited = i32::try_from(fd)
        .ok()
        .and_then(crate::sys::process::borrow_inherited);
    let Some(Ok(file)) = inherited.map(|fd| fd.try_clone_to_owned()) else {
        return ExitCode::FAILURE;
    };
    let side = match arguments.next().as_deref() == Some(HookMoment::CreateContainer.name()) {
        true => HookSide::Container,
        false => HookSide::Runtime,
    };
    // Not in the container: a process that shares its pids could stop this one, and the clock with it.
    let mark = |byte| match side {
        HookSide::Container => Ok(()),
        HookSide::Runtime => rustix::io::pwrite(&file, &[byte], length.saturating_sub(1)).map(drop),
    };
    let served = mark(RUNNING)
        .map_err(|e| e.to_string())
        .and_then(|()| serve(&file, length, side));
    if let Err(error) = mark(IDLE) {
        log::debug!("hooks are done: {error}");
    }
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let written = rustix::io::pwrite(&file, why.as_bytes(), length);
            ExitCode::from(if written.is_ok() { 1 } else { 2 })
        }
    }
}

/// In whose namespaces hooks run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HookSide {
    Runtime,
    Container,
}

fn serve(file: &OwnedFd, length: u64, side: HookSide) -> Result<(), String> {
    let text = |e: &dyn std::error::Error| crate::log::chain(e);
    // The hooks get only their standard descriptors.
    crate::sys::process::close_on_exec_from(3).map_err(|e| text(&e))?;
    let mut json = vec![0; usize::try_from(length).map_err(|e| text(&e))?];
    let read = rustix::io::pread(file.as_fd(), &mut json, 0).map_err(|e| text(&e))?;
    let written: WrittenHooks = serde_json::from_slice(&json[..read]).map_err(|e| text(&e))?;
    let files = match side {
        HookSide::Runtime => written.runtime_files,
        HookSide::Container => written.container_files,
    };
    files
        .map_or(Ok(()), OpenFilesLimit::set)
        .map_err(|e| text(&e))?;
    let run = |when, pid, env: &[String], cwd: &Path| {
        run(when, &written.hooks, &written.told, pid, env, Some(cwd)).map_err(|e| text(&e))
    };
    if side == HookSide::Container {
        // The caller is the container's init process: its pid as the container sees it.
        let pid = rustix::process::getppid().map(rustix::process::Pid::as_raw_pid);
        return run(HookMoment::CreateContainer, pid, &[], &written.rootfs);
    }
    if let Some(tasks) = &written.home {
        std::fs::write(tasks, "0").map_err(|e| format!("leave the container's cgroup: {e}"))?;
    }
    let mut state = String::new();
    std::io::stdin()
        .read_to_string(&mut state)
        .map_err(|e| text(&e))?;
    let state: serde_json::Value = serde_json::from_str(&state).map_err(|e| text(&e))?;
    let pid = state["pid"].as_i64().and_then(|p| i32::try_from(p).ok());
    run(
        HookMoment::Prestart,
        pid,
        &written.env,
        &written.told.bundle,
    )?;
    run(
        HookMoment::CreateRuntime,
        pid,
        &written.env,
        &written.told.bundle,
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;
    use crate::plan::tests::sample;

    #[test]
    fn hooks_get_the_runtimes_environment_only_without_a_policy() {
        let env = |record: &Record| {
            let odd = OsString::from_vec(vec![0xff]);
            let all = [("A".into(), "1".into()), ("B".into(), odd)];
            env_of_hooks(record, all.into_iter())
        };
        assert_eq!(env(&Record::bare("c1")), ["A=1"]);
        assert_eq!(env(&Record::with_plan("c1", sample())), [""; 0]);
    }
}
