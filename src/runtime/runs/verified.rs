//! The last report of `agentbox verify` about a running container: kept with its run, and hashed into the log.

use std::fs::File;
use std::time::Duration;

use rustix::fs::FlockOperation;

use super::node_log::life;
use super::{Kept, Run};
use crate::audit::{Line, What, hash};
use crate::runtime::RuntimeError;
use crate::runtime::state::record::write_whole;

/// In the directory of a run.
pub const VERIFIED: &str = "verify.json";
/// How often, and how long in between, it is asked whether another `verify` of this container has written its own.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(5);

/// What a report comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// In a word.
    pub result: String,
    /// Attempts that a wall held off.
    pub held: u64,
    /// Names of those that succeeded.
    pub not_held: Vec<String>,
    /// Names of those that could not be made.
    pub not_tried: Vec<String>,
}

impl Run {
    /// Keeps a report in the place of the one before, with a line in the log. What cannot be kept is a warning: the report is told to
    /// the caller in any case.
    pub fn keep_verified(&self, report: &str, summary: Summary) {
        if let Err(error) = self.write_verified(report, summary) {
            let why = crate::log::chain(&error);
            log::warn!("keep the report of `verify` with the log: {why}");
        }
    }

    fn write_verified(&self, report: &str, summary: Summary) -> Result<(), RuntimeError> {
        let Summary {
            result,
            held,
            not_held,
            not_tried,
        } = summary;
        let line = life(What::Verified {
            result,
            held,
            not_held,
            not_tried,
            report: hash(report.as_bytes()),
        });
        if self.kept == Kept::Stays {
            // The last file is that of the last line.
            let _lock = lock(self)?;
            write_whole(&self.file(VERIFIED), report.as_bytes())?;
            self.note(vec![line]);
        } else {
            self.note(vec![line]);
        }
        Ok(())
    }
}

/// Held until the value goes.
fn lock(run: &Run) -> Result<File, RuntimeError> {
    let failed = || RuntimeError::io(format!("lock {:?}", run.dir()));
    let dir = File::open(run.dir()).map_err(failed())?;
    for _ in 0..TRIES {
        match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(dir),
            Err(rustix::io::Errno::AGAIN) => std::thread::sleep(PAUSE),
            Err(error) => return Err(failed()(error.into())),
        }
    }
    Err(failed()(rustix::io::Errno::AGAIN.into()))
}

/// The last line about a report, with the report's hash.
pub fn last<'a>(lines: impl DoubleEndedIterator<Item = &'a Line>) -> Option<(&'a Line, &'a str)> {
    lines.rev().find_map(|line| match &line.event.what {
        What::Verified { report, .. } => Some((line, report.as_str())),
        _ => None,
    })
}
