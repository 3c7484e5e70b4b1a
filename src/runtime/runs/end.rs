//! The end of a run: its files, its last lines and its receipt, once its container is deleted.

use super::receipt::RECEIPT;
use super::{RunDir, RunLifetime, events, node_log, others};
use crate::audit::{self, Event};
use crate::runtime::state::record::Record;
use crate::runtime::state::store::ContainerPaths;
use crate::sidecar::{self, SidecarRecord};

/// The runtime's log in a run's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeLog {
    /// It does not exist.
    Missing,
    /// It goes on.
    Open,
    /// It has the line of the deletion.
    Complete,
}

/// What is left to do for a run whose container is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndStep {
    /// Nothing: it leaves no log.
    Nothing,
    /// The files, the last lines and the receipt.
    Everything,
    /// The receipt, if it is missing: a failed deletion is tried again. After their last line the files must not change.
    Receipt,
}

impl EndStep {
    fn of(lifetime: RunLifetime, log: NodeLog) -> Self {
        match (lifetime, log) {
            (RunLifetime::GoesWithContainer, _) | (_, NodeLog::Missing) => Self::Nothing,
            (RunLifetime::Stays, NodeLog::Open) => Self::Everything,
            (RunLifetime::Stays, NodeLog::Complete) => Self::Receipt,
        }
    }
}

impl RunDir {
    /// Ends the run of a deleted container: saves its files, writes its last lines with the ends of the other logs and
    /// the hashes of the other files, and its receipt.
    pub fn end(&self, place: &ContainerPaths, record: Option<&Record>, limits: Vec<Event>) {
        match EndStep::of(self.kept, self.node_log()) {
            EndStep::Nothing => {}
            EndStep::Receipt => {
                if let Some(key) = self.signs(place).filter(|_| !self.file(RECEIPT).exists()) {
                    self.sign(place, &key);
                }
            }
            EndStep::Everything => self.end_log(place, record, limits),
        }
    }

    fn node_log(&self) -> NodeLog {
        if !self.file(audit::NODE).exists() {
            return NodeLog::Missing;
        }
        match self.is_over() {
            true => NodeLog::Complete,
            false => NodeLog::Open,
        }
    }

    fn end_log(&self, place: &ContainerPaths, record: Option<&Record>, limits: Vec<Event>) {
        if let Some(record) = record {
            self.keep(record);
        }
        if let Err(error) = self.keep_filter(place) {
            let why = crate::log::chain(&error);
            log::warn!("keep the filter with the log: {why}");
        }
        let key = self.signs(place);
        let heads = others(record).map(|name| node_log::head(&self.file(name), name));
        let mut last = limits;
        let id = key.as_ref().map(|key| key.public().id());
        last.push(events::deleted(heads.collect(), self.hashes(), id));
        self.note(last);
        if let Some(key) = key {
            self.sign(place, &key);
        }
    }

    /// Logs that the init process has ended, as this process saw it, unless its warden has logged it. The container's sidecar
    /// logs its counts first.
    pub fn note_exit(&self, sidecar: Option<&SidecarRecord>, status: i32) {
        if let Some(sidecar) = sidecar {
            sidecar::await_end(sidecar);
        }
        let is_noted = self.parsed().is_ok_and(|logs| logs.exit().is_some());
        if !is_noted {
            self.note(vec![events::ended(status)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::RunStart;
    use super::*;
    use crate::audit::{Context, EventDetail, LifeState};
    use crate::probe::TestDir;

    #[test]
    fn a_run_is_ended_once_and_only_its_receipt_is_made_up_for() {
        use RunLifetime::{GoesWithContainer, Stays};
        for (lifetime, log, step) in [
            (GoesWithContainer, NodeLog::Missing, EndStep::Nothing),
            (GoesWithContainer, NodeLog::Open, EndStep::Nothing),
            (GoesWithContainer, NodeLog::Complete, EndStep::Nothing),
            (Stays, NodeLog::Missing, EndStep::Nothing),
            (Stays, NodeLog::Open, EndStep::Everything),
            (Stays, NodeLog::Complete, EndStep::Receipt),
        ] {
            assert_eq!(EndStep::of(lifetime, log), step, "{lifetime:?} {log:?}");
        }
    }

    #[test]
    fn a_log_is_complete_with_the_line_of_the_deletion() {
        let dir = TestDir::unique();
        let run = RunDir {
            dir: dir.0.clone(),
            kept: RunLifetime::Stays,
        };
        assert_eq!(run.node_log(), NodeLog::Missing);
        let record = Record::bare("c1");
        let first = RunStart {
            context: Context::default(),
            events: vec![node_log::life(EventDetail::life(LifeState::Created))],
            record: &record,
        };
        run.begin_log(&first).unwrap();
        assert_eq!(run.node_log(), NodeLog::Open);
        run.note_life(LifeState::Started);
        assert_eq!(run.node_log(), NodeLog::Open);
        run.note(vec![events::deleted(Vec::new(), Default::default(), None)]);
        assert_eq!(run.node_log(), NodeLog::Complete);
        // No verb writes after it.
        run.note_life(LifeState::Started);
        assert_eq!(run.node_log(), NodeLog::Complete);
    }
}
