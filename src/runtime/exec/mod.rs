//! `exec`: another process in a running container, behind the same walls.
//!
//! [`exec`] checks and refuses; [`start`] lists the steps. What they make is in [`Execution`], which removes it when
//! dropped: it is not needed once the process has executed its program, or cannot.

pub mod error;
mod execution;
mod files;
mod noted;
mod process;
mod refused;
mod requested;
mod streams;
mod sub_cgroup;
mod target;
pub mod time;
pub mod timed;

use std::os::fd::OwnedFd;

use oci_spec::runtime::Process;

use super::error::RuntimeError;
use crate::audit::Actor;
use crate::cli;
use crate::plan::ExecTime;
use crate::runtime::foreground::relay;
use crate::runtime::foreground::tty;
use crate::runtime::input::descriptors::StandardStreams;
use crate::runtime::launch::Streams;
use crate::runtime::state::store::ContainerPaths;
use execution::{ExecInherited, Execution};
use streams::ExecStreams;
use target::ExecTarget;

pub use noted::NotedProcess;

/// A process that `exec` started.
pub struct ExecProcess {
    /// Its pid; a child of this process.
    pub pid: i32,
    /// The terminal to relay, if it has one and no console socket was given.
    pub terminal: Option<tty::TerminalListener>,
    /// Pipes to relay, if it has no terminal.
    pub relay: Option<relay::Relay>,
    /// For the log line when it ends.
    pub noted: NotedProcess,
    /// How long it may run.
    pub limit: Option<ExecTime>,
}

impl ExecProcess {
    /// Why its time has ended it, once it has ended.
    pub fn ended_by(&self, place: &ContainerPaths) -> Option<String> {
        self.limit.and_then(|_| timed::take_ended(place, self.pid))
    }
}

/// Starts a process in a running container and returns once it has executed its program.
pub fn exec(place: &ContainerPaths, args: &cli::Exec) -> Result<ExecProcess, RuntimeError> {
    let (target, process) = judged(place, args, None, StandardStreams::Callers)?;
    // From here on there is something to remove, which each value does when it is dropped.
    let mut opened = ExecStreams::new(place, args, &target, &process)?;
    let noted = NotedProcess::new(place, &process, None);
    let execution = Execution::begin(place, args, &target, None)?;
    let pid = started(execution, process, opened.streams(), &noted)?;
    let limit = target.record.plan().and_then(|plan| plan.exec_time);
    Ok(ExecProcess {
        limit,
        pid,
        terminal: opened.listener,
        relay: opened.relay,
        noted,
    })
}

/// Starts a process of this actor in a running container with these streams. Returns its pid, a child of this process,
/// once it has executed its program.
pub fn exec_by(
    by: Actor,
    place: &ContainerPaths,
    args: &cli::Exec,
    streams: Streams<'_>,
) -> Result<i32, RuntimeError> {
    let (target, process) = judged(place, args, Some(by), streams.standard())?;
    let noted = NotedProcess::new(place, &process, Some(by));
    let execution = Execution::begin(place, args, &target, Some(by))?;
    started(execution, process, streams, &noted)
}

/// Everything that can be refused by looking. Nothing has been made.
fn judged(
    place: &ContainerPaths,
    args: &cli::Exec,
    by: Option<Actor>,
    standard: StandardStreams,
) -> Result<(ExecTarget, Process), RuntimeError> {
    // The container first, under its lock, which is released at once: later steps wait for a process that others in the
    // container can delay.
    let target = ExecTarget::look(place, args)?;
    let process = requested::within_limits(args, &target)?;
    let noted = |error: &RuntimeError| {
        NotedProcess::new(place, &process, by).refused(&crate::log::chain(error));
    };
    refused::check(args, &target, &process, standard).inspect_err(noted)?;
    Ok((target, process))
}

fn started(
    execution: Execution<'_>,
    process: Process,
    streams: Streams<'_>,
    noted: &NotedProcess,
) -> Result<i32, RuntimeError> {
    let args = execution.args;
    let started = start(execution, process, streams);
    let (pid, line) = started.inspect_err(|error| noted.refused(&crate::log::chain(error)))?;
    // Last: the caller learns of a running process.
    execution::announce(args, pid)?;
    noted.began(pid);
    if let Some(line) = line {
        noted.entrust(pid, &line);
    }
    Ok(pid)
}

/// The steps. Returns the process's pid, and the connection on which the sidecar hears of it.
fn start(
    mut execution: Execution<'_>,
    mut process: Process,
    mut streams: Streams<'_>,
) -> Result<(i32, Option<OwnedFd>), RuntimeError> {
    // What the walls need comes first: if it is gone, nothing is made.
    let init = execution.living_init()?;
    let filter = execution.read_filter()?;
    let cgroup = execution.open_cgroup(init)?;
    let (report, reports) = execution.make_report_pipe()?;
    // After the pipe, through which the agent's child reports errors.
    let way = execution.open_listener_way(filter.as_ref())?;
    let joining = execution.open_user_namespace(init, &mut process)?;
    let inherited = ExecInherited {
        filter,
        way,
        report,
        joining,
        keep_newlines: streams.relayed,
        program: std::mem::take(&mut streams.program),
    };
    let executor = execution.executor(&mut process, inherited)?;
    // Last: it keeps this process busy until the new process has executed its program.
    let pid = execution.run(streams, executor, &cgroup, process, &reports)?;
    Ok((pid, execution.take_line()))
}

/// The arguments of `agentbox exec OPTIONS c1 true`, for tests.
#[cfg(test)]
fn arguments(options: &str) -> cli::Exec {
    use clap::Parser as _;
    let words = ["agentbox", "exec"].into_iter();
    let words = words
        .chain(options.split_whitespace())
        .chain(["c1", "true"]);
    match cli::Cli::try_parse_from(words).unwrap().verb {
        Some(cli::Verb::Exec(args)) => *args,
        other => panic!("{other:?}"),
    }
}
