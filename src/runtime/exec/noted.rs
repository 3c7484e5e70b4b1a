//! The log lines of an exec process.

use oci_spec::runtime::Process;

use crate::audit::{Actor, Event, EventDetail, ProcessState, Verdict, WallName};
use crate::runtime::runs::RunDir;
use crate::runtime::state::store::ContainerPaths;

/// What the log says of an exec process.
#[derive(Debug)]
pub struct NotedProcess {
    run: RunDir,
    arguments: Vec<String>,
    uid: u32,
    gid: u32,
    by: Option<Actor>,
}

impl NotedProcess {
    /// For a process that is about to start.
    pub(super) fn new(place: &ContainerPaths, process: &Process, by: Option<Actor>) -> Self {
        Self {
            run: RunDir::of(place),
            arguments: process.args().clone().unwrap_or_default(),
            uid: process.user().uid(),
            gid: process.user().gid(),
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
            reason: Some(why.to_owned()),
            ..self.event(ProcessState::Refused, Verdict::Failed, None)
        }]);
    }

    /// It has ended, with this status.
    pub fn ended(&self, status: i32) {
        self.run.note(vec![self.event(
            ProcessState::Ended,
            Verdict::Ended,
            Some(status),
        )]);
    }

    fn event(&self, state: ProcessState, verdict: Verdict, exit: Option<i32>) -> Event {
        let what = EventDetail::Process {
            state,
            arguments: self.arguments.clone(),
            cut: Vec::new(),
            uid: self.uid,
            gid: self.gid,
            exit,
        };
        Event {
            by: self.by,
            ..Event::new(WallName::Life, verdict, what)
        }
    }
}
