//! `run` and `wrap`: create, start, wait, delete, in one process.

mod answer;
pub mod ended;
pub mod error;
pub mod job;
pub mod notify;
pub mod prompt;
pub mod relay;
mod rivals;
pub mod shown_input;
mod signatures;
pub mod tty;
pub mod wait;

use std::collections::BTreeSet;
use std::path::Path;

use crate::cli::{self, GlobalOptions};
use crate::enforce::program::ContainerProgram;
use crate::policy::ProxyUrl;
use crate::runtime::RuntimeError;
use crate::runtime::create::{self, CreatedContainer, WrapParts};
use crate::runtime::delete::{self, DeleteScope};
use crate::runtime::foreground::ended::ChildExit;
use crate::runtime::foreground::job::Job;
use crate::runtime::foreground::notify::ReadinessRelay;
use crate::runtime::foreground::prompt::{Keep, Prompts};
use crate::runtime::foreground::relay::{CallersTerminals, Relay, Stdio};
use crate::runtime::foreground::signatures::SignatureDesk;
use crate::runtime::foreground::wait::Foreground;
use crate::runtime::input::bundle::Bundle;
use crate::runtime::launch::{RunRetention, Streams};
use crate::runtime::network::listeners::ListenerWatch;
use crate::runtime::runs::RunDir;
use crate::runtime::start;
use crate::runtime::state::store::ContainerPaths;
use crate::runtime::user_relay::{self, Signer, UserAgent, UserSockets};
use crate::sidecar::SidecarRecord;
use crate::sidecar::user_relay::UserRelay;

/// Whether the caller waits for the container, and deletes it afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMode {
    /// Return as soon as it runs.
    Detach,
    /// Wait for its end, keep its state.
    Keep,
    /// Wait for its end, delete it.
    Delete,
}

/// What the init process is.
#[derive(Debug)]
pub enum FrontProcess {
    /// The program, as with every container.
    Program,
    /// One of ours, so that the program behaves as it would without a pid namespace ([`crate::enforce::leader`]). It executes this.
    Reaper(ContainerProgram),
}

/// What the caller does while the container runs.
pub struct Attendance<'a> {
    /// Looks at what the container leaves, before deletion.
    pub before_deletion: &'a mut dyn FnMut(&ContainerPaths, Option<&SidecarRecord>),
    /// If the user is asked about waiting connections: keeps an answer for later runs.
    pub keep: Option<Keep>,
    /// The user's SSH agent, if the workload may sign.
    pub agent: Option<UserAgent>,
    /// Unix sockets of databases that the user names.
    pub sockets: Option<UserSockets>,
    /// The upstream proxy of the user's environment.
    pub proxy: Option<&'a ProxyUrl>,
    /// Gets the ports of servers that listened to the end.
    pub servers: Option<&'a mut BTreeSet<u16>>,
}

/// What the container gets in place of the caller's streams, and what relays them.
fn standard_streams(
    args: &cli::Create,
    afterwards: RunMode,
    console: Option<&Path>,
) -> Result<(Stdio, Option<Relay>), RuntimeError> {
    if afterwards == RunMode::Detach && args.pid_file.is_none() {
        relay::keep_the_parents("`run --detach`")?;
    }
    if afterwards == RunMode::Detach || console.is_some() {
        return Ok(Default::default());
    }
    let (stdio, relay) = relay::pipes(CallersTerminals::Replaced)?;
    Ok((stdio, Some(relay)))
}

/// Runs a container; returns its end unless it is detached.
pub fn run(
    global: &GlobalOptions,
    args: &cli::Create,
    wrapped: WrapParts<'_>,
    afterwards: RunMode,
    front: FrontProcess,
    attendance: Attendance<'_>,
) -> Result<Option<ChildExit>, RuntimeError> {
    let listener = listener(args, afterwards)?;
    let console = args
        .console_socket
        .as_deref()
        .or_else(|| listener.as_ref().map(tty::TerminalListener::path));
    let relayed = afterwards != RunMode::Detach && args.console_socket.is_none();
    let (stdio, relay) = standard_streams(args, afterwards, console)?;
    let (leader, job, program) = match front {
        FrontProcess::Program => Default::default(),
        FrontProcess::Reaper(program) => {
            Job::new().map(|(leader, job)| (leader, Some(job), program))?
        }
    };
    let streams = Streams {
        console,
        stdio,
        relayed,
        leader,
        program,
        leaves: RunRetention::Run,
    };
    let CreatedContainer {
        place,
        lock,
        mut record,
    } = create::create(global, args, streams, wrapped)?;
    let sidecar = record.sidecar.clone();
    let init = record.init.ok_or(RuntimeError::NotRunning);
    let started = init.and_then(|init| {
        let waits = afterwards != RunMode::Detach;
        let mut foreground = waits.then(|| Foreground::new(init.pid)).transpose()?;
        let notify = ReadinessRelay::listen(&place, init)?;
        let signer = user_relay::sign(&place, &record, init, attendance.agent.as_ref())?;
        let sockets = user_relay::connect(&place, &record, init, attendance.sockets.as_ref())?;
        if let (Some(foreground), Some(_)) = (&mut foreground, &attendance.servers) {
            foreground.watch = Some(ListenerWatch::beside(record.plan(), init.pid));
        }
        start::start_recorded(global, &place, lock, &mut record, attendance.proxy)?;
        if waits {
            RunDir::of(&place).prune_beside(&record);
        }
        let mut prompts = attendance.keep.and_then(|keep| Prompts::new(record, keep));
        let signer = signer.map(|signer| confirmed(signer, prompts.as_mut(), attendance.agent));
        Ok((foreground, notify, (prompts, [signer, sockets])))
    });
    let status = started.and_then(|(foreground, notify, (prompts, relays))| match foreground {
        Some(mut foreground) => {
            let _end_after_the_container = relays;
            foreground.prompts = prompts;
            foreground.notify = notify;
            foreground.job = job;
            foreground.relay = relay;
            wait(foreground, listener, attendance.servers).map(Some)
        }
        None => match notify {
            Some(notify) => notify.wait().map(|()| None),
            None => Ok(None),
        },
    });
    if let Ok(Some(ended)) = &status {
        RunDir::of(&place).note_exit(sidecar.as_ref(), ended.code);
    }
    if !(status.is_ok() && matches!(afterwards, RunMode::Detach | RunMode::Keep)) {
        (attendance.before_deletion)(&place, sidecar.as_ref());
        delete::delete(&place, DeleteScope::Any)?;
    }
    status
}

fn wait(
    mut foreground: Foreground,
    listener: Option<tty::TerminalListener>,
    servers: Option<&mut BTreeSet<u16>>,
) -> Result<ChildExit, RuntimeError> {
    let ended = foreground.wait(listener.map(tty::TerminalListener::receive).transpose()?);
    if let (Some(servers), Some(watch)) = (servers, &foreground.watch) {
        *servers = watch.lasting().clone();
    }
    ended
}

/// Lets the user confirm signatures at the terminal. Without one the line closes here, and nothing signs that they are to
/// confirm.
fn confirmed(signer: Signer, prompts: Option<&mut Prompts>, agent: Option<UserAgent>) -> UserRelay {
    let Signer { relay, questions } = signer;
    if let (Some(prompts), Some(line), Some(agent)) = (prompts, questions, agent) {
        prompts.confirm(SignatureDesk::new(line, agent.comments));
    }
    relay
}

/// A socket for the terminal of a foreground container.
fn listener(
    args: &cli::Create,
    afterwards: RunMode,
) -> Result<Option<tty::TerminalListener>, RuntimeError> {
    if args.console_socket.is_some() || afterwards == RunMode::Detach {
        return Ok(None);
    }
    let bundle = Bundle::read(&args.bundle)?;
    let terminal = bundle
        .spec
        .process()
        .as_ref()
        .and_then(|p| p.terminal())
        .unwrap_or(false);
    if terminal {
        tty::TerminalListener::private().map(Some)
    } else {
        Ok(None)
    }
}
