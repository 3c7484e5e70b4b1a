//! The last report of `agentbox verify` about a running container: kept with its run, and hashed into the log.

use std::fs::File;

use rustix::fs::FlockOperation;

use super::node_log::{life, patiently};
use super::{RunDir, RunLifetime};
use crate::audit::{self, EventDetail, Log, LogLine, hash};
use crate::runtime::RuntimeError;
use crate::runtime::state::record::write_whole;

/// In the directory of a run.
pub const VERIFIED: &str = "verify.json";
/// How often it is asked whether another `verify` of this container has written its own.
const TRIES: u32 = 100;

/// The result of a report of `verify`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifySummary {
    /// In a word.
    pub result: String,
    /// Attempts that a wall held off.
    pub held: u64,
    /// Names of those that succeeded.
    pub not_held: Vec<String>,
    /// Names of those that could not be made.
    pub not_tried: Vec<String>,
}

impl RunDir {
    /// Keeps a report in the place of the one before, with a line in the log. What cannot be kept is a warning: the report is told to
    /// the caller in any case.
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
            result,
            held,
            not_held,
            not_tried,
            report: hash(report.as_bytes()),
        });
        let mut held = None;
        if self.kept == RunLifetime::Stays {
            // The last file is that of the last line, so that nobody else writes between the two.
            held = Some(lock(self)?);
            write_whole(&self.file(VERIFIED), report.as_bytes())?;
        }
        self.note(vec![line]);
        drop(held);
        Ok(())
    }
}

/// Held until the value goes.
fn lock(run: &RunDir) -> Result<File, RuntimeError> {
    let failed = || RuntimeError::io(format!("lock {:?}", run.dir()));
    let dir = File::open(run.dir()).map_err(failed())?;
    let take = || rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive);
    patiently(TRIES, take).map_err(failed())?;
    Ok(dir)
}

/// The last line about a report, with the report's hash. `verify` writes into the runtime's log; the same words in another log are
/// those of a process that may be broken.
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
            result: "held".to_owned(),
            held: 1,
            not_held: Vec::new(),
            not_tried: Vec::new(),
            report: hash(b"{}"),
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
    fn a_broken_sidecar_says_neither_what_verify_found_nor_how_the_run_ended() {
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
