//! Compares a run's files with those that its log and its receipt name.

use std::collections::BTreeMap;
use std::path::Path;

use super::files::{self, Content};
use super::receipt::{RECEIPT, kept_receipt, key};
use super::verified::VERIFIED;
use super::{FILTER, RUN, RunDir};
use crate::audit::receipt::{Statement, Subject};
use crate::audit::whole::Stage;
use crate::audit::{EventDetail, LOGS, Log, LogFault, LogLine, NODE, PlainText, hash};
use crate::runtime::RuntimeError;
use crate::runtime::state::record;
use crate::text::escape;

/// Files of a run whose hashes its last line has. `verify.json` has lines of its own.
const BESIDES_LOGS: [&str; 2] = [record::FILE, FILTER];

/// Differences between a finished run and its receipt, if it has one. This also shows a change of the last line.
pub(super) fn faults(run: &RunDir) -> Result<Vec<LogFault>, RuntimeError> {
    let envelope = match kept_receipt(run) {
        Ok(None) => return Ok(Vec::new()),
        Ok(Some(envelope)) => envelope,
        Err(error) => return Ok(vec![fault(RECEIPT, crate::log::chain(&error))]),
    };
    // A removed or unusable key signs nothing; the payload is compared all the same.
    let payload = match key() {
        Ok(Some(key)) => envelope.payload_by(&key.public()).map_err(|why| {
            format!("{why}, or this node's key was replaced after the run: use `receipt verify` with the earlier public key")
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
    /// The hashes of its files other than logs.
    pub(super) fn hashes(&self) -> BTreeMap<PlainText, PlainText> {
        let hashed = BESIDES_LOGS.into_iter().filter_map(|name| {
            // Anything but a regular file is not the run's, and `audit` reports it.
            match files::read(&self.file(name)) {
                Ok(Content::Bytes(content)) => Some((name.into(), hash(&content).into())),
                Ok(Content::Absent | Content::Foreign(_)) | Err(_) => None,
            }
        });
        hashed.collect()
    }
}

/// Differences between a finished run and its log, also without a receipt: the record, the filter, and the receipt
/// itself.
pub(super) fn unlike_log(run: &RunDir, logs: &[Log]) -> Vec<LogFault> {
    let Some(signed) = LoggedFiles::of(logs) else {
        return Vec::new();
    };
    let mut faults = signed.unlike(&run.hashes());
    if signed.has_receipt && !run.file(RECEIPT).exists() {
        let why =
            "it is missing, and the log says that it was signed when the container was deleted";
        faults.push(fault(RECEIPT, why.to_owned()));
    }
    faults
}

/// The files that a finished run has by its log.
struct LoggedFiles<'a> {
    /// Their hashes.
    hashes: &'a BTreeMap<PlainText, PlainText>,
    /// Whether a receipt was signed.
    has_receipt: bool,
}

impl<'a> LoggedFiles<'a> {
    /// By the last line that has the record's hash, whatever was appended to it; `None` in a run that is not finished.
    fn of(logs: &'a [Log]) -> Option<Self> {
        let node = logs.iter().find(|log| log.file == NODE)?;
        let mut lines = node.lines.iter().rev();
        lines.find_map(|line| match &line.event.what {
            EventDetail::Container {
                kept, receipt_by, ..
            } if kept.contains_key(record::FILE) => Some(Self {
                hashes: kept,
                has_receipt: receipt_by.is_some(),
            }),
            _ => None,
        })
    }

    /// The differences of these files, by their hashes.
    fn unlike(&self, found: &BTreeMap<PlainText, PlainText>) -> Vec<LogFault> {
        let unlike = BESIDES_LOGS.into_iter().filter_map(|name| {
            let why = match (self.hashes.get(name), found.get(name)) {
                (kept, found) if kept == found => return None,
                (Some(_), None) => "it is missing, and the log has its hash",
                (None, _) => "the log has no hash of it: it was added since",
                (Some(_), Some(_)) => {
                    "its hash is not the one that the log has: it was changed since"
                }
            };
            Some(fault(name, why.to_owned()))
        });
        unlike.collect()
    }
}

/// Log lines of another container, or of another run of the same container: the directory was filled with another run's
/// files.
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
        // A log of an earlier version does not have it.
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
    /// It is unchanged.
    Same,
    /// The log of a container that existed when it was signed has more lines now, and the receipt's lines are
    /// unchanged.
    Longer,
    /// It has changed, is too short, or is longer although its container was gone.
    Changed,
    /// It is missing.
    Missing,
    /// It was added later.
    Added,
    /// It is not a regular file, or longer than any file of a run.
    Foreign,
}

impl FileState {
    /// Whether this is consistent with the receipt.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Same | Self::Longer)
    }

    /// For people.
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

/// Compares a statement's files with those of a directory: all names that a run can have, in the statement or not. A
/// subject that is not a file of a run, such as an image, is left out.
pub fn compare(
    statement: &Statement,
    dir: &Path,
) -> Result<Vec<(String, FileState)>, RuntimeError> {
    let subject = |name: &str| statement.subject.iter().find(|s| s.name == name);
    // The record is signed when the container is gone; nothing is written after that.
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
        let found = files::read(&dir.join(name))?;
        let signed = SignedLines { lines, may_grow };
        let state = state(subject(name), &found, signed);
        all.extend(state.map(|state| ((*name).to_owned(), state)));
    }
    Ok(all)
}

/// The signed number of lines of a log; `may_grow` also has it if lines may have come since. None for other files.
#[derive(Clone, Copy)]
struct SignedLines {
    lines: Option<u64>,
    may_grow: Option<u64>,
}

/// The state of a file. None if there is none, as signed.
fn state(subject: Option<&Subject>, found: &Content, signed: SignedLines) -> Option<FileState> {
    Some(match (subject, found) {
        (None, Content::Absent) => return None,
        (Some(_), Content::Absent) => FileState::Missing,
        (_, Content::Foreign(_)) => FileState::Foreign,
        (Some(subject), Content::Bytes(content)) => held(subject, content, signed.may_grow),
        // A log that did not exist had no line.
        (None, Content::Bytes(content)) if content.is_empty() && signed.lines.is_some() => {
            return None;
        }
        (None, Content::Bytes(_)) if signed.may_grow.is_some() => FileState::Longer,
        (None, Content::Bytes(_)) => FileState::Added,
    })
}

/// `lines`: the signed number of lines of a log that may have grown since.
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
    use crate::audit::{Chain, Context, Event, LifeState, Verdict, WallName};

    fn hashes(pairs: &[(&str, &str)]) -> BTreeMap<PlainText, PlainText> {
        let pairs = pairs.iter();
        pairs.map(|(k, v)| ((*k).into(), (*v).into())).collect()
    }

    /// A log with a line about each of these sets of files, the last one with a receipt.
    fn log(file: &str, all: &[&[(&str, &str)]]) -> Log {
        let mut chain = Chain::default();
        let mut text = Vec::new();
        for (at, pairs) in all.iter().enumerate() {
            let mut what = EventDetail::life(LifeState::Deleted);
            if let EventDetail::Container {
                kept, receipt_by, ..
            } = &mut what
            {
                *kept = hashes(pairs);
                *receipt_by = (at + 1 == all.len()).then(|| "key".into());
            }
            let event = Event::new(WallName::Life, Verdict::Allowed, what);
            let line = chain.render("2026-01-02T03:04:05.678Z", &Context::default(), &event);
            chain.commit(&line);
            text.extend(line);
        }
        Log::parse(file, &text)
    }

    #[test]
    fn a_file_of_an_ended_run_is_missing_added_or_changed_by_its_log() {
        let logged: &[(&str, &str)] = &[(record::FILE, "a"), (FILTER, "b")];
        let (missing, added, changed) = (
            "it is missing, and the log has its hash",
            "the log has no hash of it: it was added since",
            "its hash is not the one that the log has: it was changed since",
        );
        let logs = [log(NODE, &[logged])];
        let signed = LoggedFiles::of(&logs).unwrap();
        assert!(signed.has_receipt);
        for (found, expected) in [
            (logged, vec![]),
            (&[(record::FILE, "a")], vec![(FILTER, missing)]),
            (&[(FILTER, "b")], vec![(record::FILE, missing)]),
            (
                &[(record::FILE, "x"), (FILTER, "b")],
                vec![(record::FILE, changed)],
            ),
            (
                &[(record::FILE, "b"), (FILTER, "a")],
                vec![(record::FILE, changed), (FILTER, changed)],
            ),
            (&[], vec![(record::FILE, missing), (FILTER, missing)]),
        ] {
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(name, why)| fault(name, why.to_owned()))
                .collect();
            assert_eq!(signed.unlike(&hashes(found)), expected, "{found:?}");
        }
        // A run without a filter logs none.
        let logs = [log(NODE, &[&[(record::FILE, "a")]])];
        let signed = LoggedFiles::of(&logs).unwrap();
        assert_eq!(signed.unlike(&hashes(&[(record::FILE, "a")])), []);
        assert_eq!(
            signed.unlike(&hashes(logged)),
            [fault(FILTER, added.to_owned())]
        );
    }

    #[test]
    fn the_last_line_of_the_nodes_log_that_has_the_record_counts() {
        let (first, last): (&[_], &[_]) = (&[(record::FILE, "a")], &[(record::FILE, "b")]);
        let without: &[_] = &[("plan", "p")];
        let of = |logs: &[Log]| {
            LoggedFiles::of(logs).map(|signed| (signed.hashes.clone(), signed.has_receipt))
        };
        assert_eq!(of(&[log(NODE, &[first, last])]), Some((hashes(last), true)));
        // A later line that hides it does not count, nor does its receipt.
        assert_eq!(
            of(&[log(NODE, &[last, without])]),
            Some((hashes(last), false))
        );
        // The container exists, or the line is in a log that the sidecar writes.
        for logs in [
            vec![],
            vec![log(NODE, &[without])],
            vec![log("warden.jsonl", &[last])],
        ] {
            assert_eq!(of(&logs), None);
        }
    }

    #[test]
    fn a_longer_log_is_told_from_a_changed_one() {
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

    #[test]
    fn a_file_that_was_not_signed_is_added_unless_a_log_begins_later() {
        let (gone, there) = (
            SignedLines {
                lines: Some(0),
                may_grow: None,
            },
            SignedLines {
                lines: Some(0),
                may_grow: Some(0),
            },
        );
        let no_log = SignedLines {
            lines: None,
            may_grow: None,
        };
        let bytes = |text: &str| Content::Bytes(text.as_bytes().to_vec());
        for (found, signed, expected) in [
            (Content::Absent, gone, None),
            (bytes(""), gone, None),
            (bytes("a\n"), gone, Some(FileState::Added)),
            (bytes("a\n"), there, Some(FileState::Longer)),
            (bytes(""), no_log, Some(FileState::Added)),
            (Content::Foreign("a FIFO"), there, Some(FileState::Foreign)),
        ] {
            assert_eq!(state(None, &found, signed), expected);
        }
        let subject = Subject::of("node.jsonl", b"a\n");
        let state = |found: &Content| state(Some(&subject), found, gone);
        assert_eq!(state(&Content::Absent), Some(FileState::Missing));
        assert_eq!(state(&bytes("a\n")), Some(FileState::Same));
        assert_eq!(state(&bytes("b\n")), Some(FileState::Changed));
    }
}
