//! What of a receipt still holds: the files of a run against those that were signed.

use std::path::Path;

use super::files::{self, Content};
use super::receipt::{RECEIPT, kept, key};
use super::verified::VERIFIED;
use super::{FILTER, Run};
use crate::audit::whole::Stage;
use crate::audit::{Fault, LOGS};
use crate::receipt::{Statement, Subject};
use crate::runtime::RuntimeError;
use crate::runtime::state::record;

/// Where the files of a run that is over are not those of its receipt, if it has one: this also tells of a change of the last line.
pub(super) fn faults(run: &Run) -> Result<Vec<Fault>, RuntimeError> {
    let fault = |file: &str, why: String| Fault {
        file: file.to_owned(),
        line: 0,
        why,
    };
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
    let compared = compare(&statement, run.dir())?.into_iter();
    let differ = compared.filter(|(_, held)| !held.is_good());
    Ok(differ
        .map(|(name, held)| fault(&name, format!("by the run's receipt: {}", held.words())))
        .collect())
}

/// What became of a file that a receipt is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
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

impl Held {
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
pub fn compare(statement: &Statement, dir: &Path) -> Result<Vec<(String, Held)>, RuntimeError> {
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
            (Some(_), Content::Absent) => Held::Missing,
            (_, Content::Foreign(_)) => Held::Foreign,
            (Some(subject), Content::Bytes(content)) => held(subject, &content, may_grow),
            // A log that was not there had no line.
            (None, Content::Bytes(content)) if content.is_empty() && lines.is_some() => continue,
            (None, Content::Bytes(_)) if may_grow.is_some() => Held::Longer,
            (None, Content::Bytes(_)) => Held::Added,
        };
        all.push(((*name).to_owned(), held));
    }
    Ok(all)
}

/// `lines` are those that were signed of a log that may have more by now.
fn held(subject: &Subject, content: &[u8], lines: Option<u64>) -> Held {
    let is_it = |content: &[u8]| Subject::of(&subject.name, content) == *subject;
    if is_it(content) {
        return Held::Same;
    }
    let lines = lines.and_then(|lines| usize::try_from(lines).ok());
    let ends = content
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n');
    let mut ends = std::iter::once(0).chain(ends.map(|(at, _)| at + 1));
    let end = lines.and_then(|lines| ends.nth(lines));
    match end {
        Some(end) if is_it(&content[..end]) => Held::Longer,
        _ => Held::Changed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_grew_is_told_from_one_that_was_changed() {
        let subject = Subject::of("node.jsonl", b"a\nb\n");
        let held = |content: &[u8]| held(&subject, content, Some(2));
        assert_eq!(held(b"a\nb\n"), Held::Same);
        assert_eq!(held(b"a\nb\nc\n"), Held::Longer);
        for changed in [&b"a\n"[..], b"a\nx\n", b"a\nb", b"", b"x\na\nb\n"] {
            assert_eq!(held(changed), Held::Changed, "{changed:?}");
        }
        assert_eq!(super::held(&subject, b"a\nb\nc\n", None), Held::Changed);
        let empty = Subject::of("warden.jsonl", b"");
        assert_eq!(super::held(&empty, b"a\n", Some(0)), Held::Longer);
        assert_eq!(super::held(&empty, b"a\n", None), Held::Changed);
    }
}
