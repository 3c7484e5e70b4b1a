//! PURE. Parses the text of a log into events, and reports its faults.

use std::fmt;

use super::chain::NONE;
use super::chain::hash;
use super::event::LogLine;
use super::event::SCHEMA;
use super::life::LogHead;
use super::whole::no_line;

/// A log that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    /// The file's name.
    pub file: String,
    /// The lines that are understood.
    pub lines: Vec<LogLine>,
    /// Faults, in the order of the lines.
    pub faults: Vec<LogFault>,
    /// Its end.
    pub head: Option<LogHead>,
}

/// A fault in a log: the file, the line and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFault {
    /// The file's name.
    pub file: String,
    /// The line, from 1; 0 for the file itself.
    pub line: u64,
    /// In words.
    pub why: String,
}

impl fmt::Display for LogFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.why),
            line => write!(f, "{}, line {line}: {}", self.file, self.why),
        }
    }
}

impl Log {
    /// Reads a whole file.
    pub fn parse(file: &str, text: &[u8]) -> Self {
        let mut log = Self {
            file: file.to_owned(),
            ..Self::default()
        };
        let (mut prev, mut number) = (NONE.to_owned(), 0);
        let mut rest = text;
        while !rest.is_empty() {
            number += 1;
            let end = rest.iter().position(|byte| *byte == b'\n');
            let line = &rest[..end.unwrap_or(rest.len())];
            rest = &rest[end.map_or(rest.len(), |end| end + 1)..];
            if end.is_none() {
                log.fault(number, "it is cut: its writer was stopped, the disk was full, or the file's end was removed");
                break;
            }
            log.take(line, number, &prev);
            prev = hash(line);
            log.head = Some(LogHead {
                file: file.into(),
                seq: number,
                head: prev.clone().into(),
            });
        }
        log
    }

    fn take(&mut self, line: &[u8], number: u64, prev: &str) {
        let parsed: LogLine = match serde_json::from_slice(line) {
            Ok(parsed) => parsed,
            Err(error) => return self.fault(number, &format!("it is not an event: {error}")),
        };
        if parsed.schema != SCHEMA {
            let words = format!(
                "its form is {:?}, and this program knows {SCHEMA}",
                parsed.schema
            );
            self.fault(number, &words);
        }
        if parsed.prev != prev {
            self.fault(
                number,
                "the chain is broken: the line before was changed, removed or added",
            );
        } else if parsed.seq != number {
            self.fault(number, &format!("it has the number {}", parsed.seq));
        }
        self.lines.push(parsed);
    }

    /// A log whose file cannot be read.
    pub fn unread(file: &str, why: &str) -> Self {
        let mut log = Self::parse(file, b"");
        log.fault(0, why);
        log
    }

    /// The same, with the container in the file's name.
    pub fn of(mut self, container: &str) -> Self {
        self.file = format!("{container}/{}", self.file);
        for fault in &mut self.faults {
            fault.file.clone_from(&self.file);
        }
        self
    }

    /// Compares its end with the one that another file has recorded.
    pub fn check_head(&mut self, kept: &LogHead) {
        let found = self.head.clone().unwrap_or_else(|| no_line(&self.file));
        if found != *kept {
            self.fault(
                found.seq,
                &format!(
                    "the log ended with line {} when the container was deleted, and that line's hash was {}: lines were removed, \
                     changed or added since",
                    kept.seq, kept.head
                ),
            );
        }
    }

    pub(super) fn fault(&mut self, line: u64, why: &str) {
        self.faults.push(LogFault {
            file: self.file.clone(),
            line,
            why: why.to_owned(),
        });
    }
}
