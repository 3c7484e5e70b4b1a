//! The last report of `agentbox verify` about a running container: saved with its run, its hash in the log.

use std::fs::File;

use rustix::fs::FlockOperation;

use super::node_log::life;
use super::{RunDir, RunLifetime};
use crate::audit::{self, EventDetail, Log, LogLine, hash};
use crate::runtime::RuntimeError;
use crate::runtime::files::{patiently, write_whole};

/// In a run's directory.
pub const VERIFIED: &str = "verify.json";
/// How often to retry while another `verify` of this container saves its report.
const TRIES: u32 = 100;

/// The result of a report of `verify`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifySummary {
    /// The result in a word.
    pub result: String,
    /// The number of attempts that a wall refused.
    pub held: u64,
    /// Names of the attempts that succeeded.
    pub not_held: Vec<String>,
    /// Names of the attempts that could not be made.
    pub not_tried: Vec<String>,
}

impl RunDir {
    /// Saves a report in place of the previous one, with a line in the log. A failure is a warning: the caller gets the
    /// report in any case.
    pub fn keep_verified(&self, report: &str, summary: VerifySummary) {
        if let Err(error) = self.write_verified(report, summary) {
            let why = crate::log::chain(&error);
            log::warn!("keep the report of `verify` with the log: {why}");
        }
    }

    fn write_verified(&self, report: &str, summary: VerifySummary) -> Result<(), RuntimeError> {
        let VerifySummary {
            result,
            held,
            not_held,
            not_tried,
        } = summary;
        let line = life(EventDetail::Verified {
            result: result.into(),
            held,
            not_held: not_held.into_iter().map(Into::into).collect(),
            not_tried: not_tried.into_iter().map(Into::into).collect(),
            report: hash(report.as_bytes()).into(),
        });
        let mut held = None;
        if self.kept == RunLifetime::Stays {
            // The lock keeps file and last line together: no other process writes between the two.
            held = Some(lock(self)?);
            write_whole(&self.file(VERIFIED), report.as_bytes())?;
        }
        self.note(vec![line]);
        drop(held);
        Ok(())
    }
}

/// Held until the value is dropped.
fn lock(run: &RunDir) -> Result<File, RuntimeError> {
    let failed = || RuntimeError::io(format!("lock {:?}", run.dir()));
    let dir = File::open(run.dir()).map_err(failed())?;
    let take = || rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive);
    patiently(TRIES, take).map_err(failed())?;
    Ok(dir)
}

/// The last line about a report, with the report's hash. Only the runtime's log counts: another log could have been
/// written by a broken process.
pub fn last(logs: &[Log]) -> Option<(&LogLine, &str)> {
    let node = logs.iter().find(|log| log.file == audit::NODE)?;
    node.lines
        .iter()
        .rev()
        .find_map(|line| match &line.event.what {
            EventDetail::Verified { report, .. } => Some((line, report.as_str())),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::read::Logs;
    use super::*;
    use crate::audit::{Chain, Context, LifeState};

    fn log(file: &str, events: Vec<EventDetail>) -> Log {
        let mut chain = Chain::default();
        let mut text = Vec::new();
        for what in events {
            let line = chain.render("2026-01-02T03:04:05.678Z", &Context::default(), &life(what));
            chain.commit(&line);
            text.extend(line);
        }
        Log::parse(file, &text)
    }

    fn said() -> Vec<EventDetail> {
        let verified = EventDetail::Verified {
            result: "held".into(),
            held: 1,
            not_held: Vec::new(),
            not_tried: Vec::new(),
            report: hash(b"{}").into(),
        };
        let ended = EventDetail::Container {
            state: LifeState::Ended,
            exit: Some(0),
            signal: None,
            logs: Vec::new(),
            command: None,
            kept: BTreeMap::new(),
            receipt_by: None,
        };
        vec![verified, ended]
    }

    #[test]
    fn a_broken_sidecar_cannot_fake_verifys_result_or_the_end_of_the_run() {
        for (file, is_believed) in [(audit::NODE, true), (audit::SIDECAR, false)] {
            let logs = Logs {
                logs: vec![log(file, said())],
                ..Logs::default()
            };
            assert!(logs.faults().is_empty(), "{:?}", logs.faults());
            assert_eq!(last(&logs.logs).is_some(), is_believed, "{file}");
            assert_eq!(logs.exit().is_some(), is_believed, "{file}");
        }
        let logs = vec![log(audit::WARDEN, said())];
        assert_eq!(last(&logs), None);
    }
}
