//! The log lines of an exec process.

use std::os::fd::{AsFd, OwnedFd};

use oci_spec::runtime::Process;
use rustix::process::PidfdFlags;

use crate::audit::{Actor, Event, EventDetail, LoggedCommand, ProcessState, Verdict, WallName};
use crate::policy::Field;
use crate::runtime::runs::RunDir;
use crate::runtime::state::store::ContainerPaths;
use crate::sidecar::calls::line;

/// What the log says of an exec process.
#[derive(Debug)]
pub struct NotedProcess {
    run: RunDir,
    command: LoggedCommand,
    by: Option<Actor>,
}

impl NotedProcess {
    /// For a process that is about to start.
    pub(super) fn new(place: &ContainerPaths, process: &Process, by: Option<Actor>) -> Self {
        Self {
            run: RunDir::of(place),
            command: LoggedCommand::of(
                process.args().clone().unwrap_or_default(),
                process.user().uid(),
                process.user().gid(),
            ),
            by,
        }
    }

    /// It has executed its program, under this pid of the node.
    pub(super) fn began(&self, pid: i32) {
        self.run.note(vec![Event {
            pid: Some(pid),
            ..self.event(ProcessState::Began, Verdict::Noted, None)
        }]);
    }

    /// It could not be started.
    pub(super) fn refused(&self, why: &str) {
        self.run.note(vec![Event {
            reason: Some(why.into()),
            ..self.event(ProcessState::Refused, Verdict::Failed, None)
        }]);
    }

    /// Hands it to the container's sidecar, which writes the line of its end: the engine reaps it. What fails costs that line.
    pub(super) fn entrust(&self, pid: i32, line: &OwnedFd) {
        let ended = Event {
            pid: Some(pid),
            ..self.event(ProcessState::Ended, Verdict::Ended, None)
        };
        // A child of this process, so the number is its own.
        let told = rustix::process::Pid::from_raw(pid)
            .ok_or_else(|| std::io::ErrorKind::InvalidInput.into())
            .and_then(|pid| Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?))
            .and_then(|process| line::name(line.as_fd(), process.as_fd(), ended));
        if let Err(error) = told {
            log::debug!("the log will lack the end of process {pid}: {error}");
        }
    }

    /// It has ended with this status, by its time limit for this reason.
    pub fn ended(&self, status: i32, by_time: Option<&str>) {
        let field = by_time.map(|_| Field::TimeExec.to_string());
        self.run.note(vec![Event {
            cause: field.map(Into::into),
            reason: by_time.map(Into::into),
            ..self.event(ProcessState::Ended, Verdict::Ended, Some(status))
        }]);
    }

    fn event(&self, state: ProcessState, verdict: Verdict, exit: Option<i32>) -> Event {
        let what = EventDetail::process(state, self.command.clone(), exit);
        Event {
            by: self.by,
            ..Event::new(WallName::Life, verdict, what)
        }
    }
}
