//! What of a receipt still holds: the files of a run against those that were signed.

use std::collections::BTreeMap;
use std::path::Path;

use super::files::{self, Content};
use super::receipt::{RECEIPT, kept, key};
use super::verified::VERIFIED;
use super::{FILTER, RUN, RunDir};
use crate::audit::whole::Stage;
use crate::audit::{EventDetail, LOGS, Log, LogFault, LogLine, NODE, hash};
use crate::policy::escape;
use crate::receipt::{Statement, Subject};
use crate::runtime::RuntimeError;
use crate::runtime::state::record;

/// Files of a run that its last line has the hash of. `verify.json` has lines of its own.
const BESIDES_LOGS: [&str; 2] = [record::FILE, FILTER];

/// Where the files of a run that is over are not those of its receipt, if it has one: this also tells of a change of the last line.
pub(super) fn faults(run: &RunDir) -> Result<Vec<LogFault>, RuntimeError> {
    let envelope = match kept(run) {
        Ok(None) => return Ok(Vec::new()),
        Ok(Some(envelope)) => envelope,
        Err(error) => return Ok(vec![fault(RECEIPT, crate::log::chain(&error))]),
    };
    // A key that was removed or cannot be used signs nothing, and the payload is compared all the same.
    let payload = match key() {
        Ok(Some(key)) => envelope.payload_by(&key.public()).map_err(|why| {
            format!("{why}, or this node's key was made anew after the run; `receipt verify` takes the earlier public key")
        }),
        Ok(None) | Err(_) => envelope.payload_of_anybody().map_err(|why| why.to_string()),
    };
    let statement =
        payload.and_then(|payload| Statement::parse(&payload).map_err(|error| error.to_string()));
    let statement = match statement {
        Ok(statement) => statement,
        Err(why) => return Ok(vec![fault(RECEIPT, why)]),
    };
    if statement.predicate.run != run.name() {
        let why = format!(
            "it is the receipt of the run {}",
            escape(&statement.predicate.run)
        );
        return Ok(vec![fault(RECEIPT, why)]);
    }
    let compared = compare(&statement, run.dir())?.into_iter();
    let differ = compared.filter(|(_, held)| !held.is_good());
    Ok(differ
        .map(|(name, held)| fault(&name, format!("by the run's receipt: {}", held.words())))
        .collect())
}

impl RunDir {
    /// The hashes of its files besides the logs.
    pub(super) fn hashes(&self) -> BTreeMap<String, String> {
        let hashed = BESIDES_LOGS.into_iter().filter_map(|name| {
            // What is no file is none of the run's, and `audit` says so.
            match files::read(&self.file(name)) {
                Ok(Content::Bytes(content)) => Some((name.to_owned(), hash(&content))),
                Ok(Content::Absent | Content::Foreign(_)) | Err(_) => None,
            }
        });
        hashed.collect()
    }
}

/// Where a run that is over has other files than its log says, without a receipt too: the record, the filter, and the receipt itself.
pub(super) fn unlike_log(run: &RunDir, logs: &[Log]) -> Vec<LogFault> {
    let node = logs.iter().find(|log| log.file == NODE);
    let lines = node.into_iter().flat_map(|node| node.lines.iter().rev());
    let mut ends = lines.filter_map(|line| match &line.event.what {
        EventDetail::Container {
            kept, receipt_by, ..
        } => kept
            .contains_key(record::FILE)
            .then_some((kept, receipt_by)),
        _ => None,
    });
    // Whatever was written behind it.
    let Some((kept, receipt_by)) = ends.next() else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    let found = run.hashes();
    for name in BESIDES_LOGS {
        let why = match (kept.get(name), found.get(name)) {
            (kept, found) if kept == found => continue,
            (Some(_), None) => "it is missing, and the log has its hash",
            (None, _) => "the log has no hash of it: it was added since",
            (Some(_), Some(_)) => "its hash is not the one that the log has: it was changed since",
        };
        faults.push(fault(name, why.to_owned()));
    }
    if receipt_by.is_some() && !run.file(RECEIPT).exists() {
        let why =
            "it is missing, and the log says that it was signed when the container was deleted";
        faults.push(fault(RECEIPT, why.to_owned()));
    }
    faults
}

/// Where the lines of a run's own logs are of another container than its directory, or of another run of that: it was filled with
/// another run's files.
pub(super) fn foreign(run: &RunDir, logs: &[Log]) -> Vec<LogFault> {
    let own = run.whose().container;
    let is_foreign = |line: &&LogLine| line.context.container != own;
    let of_log = |log: &Log| {
        let line = log.lines.iter().find(is_foreign)?;
        let why = format!(
            "it is of container {}, and the run of another one",
            line.context.container
        );
        Some(LogFault {
            line: line.seq,
            ..fault(&log.file, why)
        })
    };
    let mut faults: Vec<LogFault> = logs.iter().filter_map(of_log).collect();
    let node = logs.iter().find(|log| log.file == NODE);
    if let Some(first) = node.and_then(|node| node.lines.first())
        && let EventDetail::Container { kept, .. } = &first.event.what
        // A log of an earlier version does not say it.
        && let Some(begun) = kept.get(RUN)
        && *begun != hash(run.name().as_bytes())
    {
        let why = "it is the log of another run".to_owned();
        faults.push(LogFault {
            line: first.seq,
            ..fault(NODE, why)
        });
    }
    faults
}

fn fault(file: &str, why: String) -> LogFault {
    LogFault {
        file: file.to_owned(),
        line: 0,
        why,
    }
}

/// The state of a file that a receipt names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileState {
    /// It is what it was.
    Same,
    /// A log of a container that was there when it was signed has more lines now, and those of the receipt are what they were.
    Longer,
    /// It is another, too short, or longer although its container was gone.
    Changed,
    /// It is not there.
    Missing,
    /// It was not there.
    Added,
    /// It is no regular file, or longer than any file of a run.
    Foreign,
}

impl FileState {
    /// Whether nothing speaks against the receipt.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Same | Self::Longer)
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Same => "as they were signed",
            Self::Longer => "as they were signed, with more lines since",
            Self::Changed => "CHANGED since they were signed",
            Self::Missing => "MISSING",
            Self::Added => "ADDED since the others were signed",
            Self::Foreign => "NO FILE that a run has",
        }
    }
}

/// Compares a statement's files with those of a directory. All names that a run has are looked at, whether the statement has them or
/// not; a subject that is no file of a run, such as an image, is left out.
pub fn compare(
    statement: &Statement,
    dir: &Path,
) -> Result<Vec<(String, FileState)>, RuntimeError> {
    let subject = |name: &str| statement.subject.iter().find(|s| s.name == name);
    // The record is signed when the container is gone, and then nothing is written any more.
    let stage = match subject(record::FILE) {
        Some(_) => Stage::Gone,
        None => Stage::There,
    };
    let others: &[&str] = match stage {
        Stage::Gone => &[record::FILE, FILTER, VERIFIED],
        Stage::There => &[],
    };
    let mut all = Vec::new();
    for name in LOGS.iter().chain(others) {
        let lines = LOGS.contains(name).then(|| {
            let mut parts = statement.predicate.log.iter();
            parts
                .find(|log| log.end.file == *name)
                .map_or(0, |log| log.end.seq)
        });
        let may_grow = lines.filter(|_| stage == Stage::There);
        let held = match (subject(name), files::read(&dir.join(name))?) {
            (None, Content::Absent) => continue,
            (Some(_), Content::Absent) => FileState::Missing,
            (_, Content::Foreign(_)) => FileState::Foreign,
            (Some(subject), Content::Bytes(content)) => held(subject, &content, may_grow),
            // A log that was not there had no line.
            (None, Content::Bytes(content)) if content.is_empty() && lines.is_some() => continue,
            (None, Content::Bytes(_)) if may_grow.is_some() => FileState::Longer,
            (None, Content::Bytes(_)) => FileState::Added,
        };
        all.push(((*name).to_owned(), held));
    }
    Ok(all)
}

/// `lines` are those that were signed of a log that may have more by now.
fn held(subject: &Subject, content: &[u8], lines: Option<u64>) -> FileState {
    let is_it = |content: &[u8]| Subject::of(&subject.name, content) == *subject;
    if is_it(content) {
        return FileState::Same;
    }
    let lines = lines.and_then(|lines| usize::try_from(lines).ok());
    let ends = content
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n');
    let mut ends = std::iter::once(0).chain(ends.map(|(at, _)| at + 1));
    let end = lines.and_then(|lines| ends.nth(lines));
    match end {
        Some(end) if is_it(&content[..end]) => FileState::Longer,
        _ => FileState::Changed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_grew_is_told_from_one_that_was_changed() {
        let subject = Subject::of("node.jsonl", b"a\nb\n");
        let held = |content: &[u8]| held(&subject, content, Some(2));
        assert_eq!(held(b"a\nb\n"), FileState::Same);
        assert_eq!(held(b"a\nb\nc\n"), FileState::Longer);
        for changed in [&b"a\n"[..], b"a\nx\n", b"a\nb", b"", b"x\na\nb\n"] {
            assert_eq!(held(changed), FileState::Changed, "{changed:?}");
        }
        assert_eq!(
            super::held(&subject, b"a\nb\nc\n", None),
            FileState::Changed
        );
        let empty = Subject::of("warden.jsonl", b"");
        assert_eq!(super::held(&empty, b"a\n", Some(0)), FileState::Longer);
        assert_eq!(super::held(&empty, b"a\n", None), FileState::Changed);
    }
}
