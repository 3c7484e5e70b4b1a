//! PURE. Lines that hold each other: each has the hash of the one before.
//!
//! A line that is changed, taken out or put in breaks the chain at the next one. Lines that are cut off at the end break it
//! where somebody holds the head: the runtime's last line has the heads of the other files.

use std::collections::BTreeMap;

use ring::digest::{SHA256, digest};
use serde::Serialize;

use super::{Context, Event, EventDetail, LifeState, SCHEMA, Verdict, WallName};
use crate::policy::escape_json;

/// What stands in the place of a hash where no line is before.
pub const NONE: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The end of a log, to which the next line is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    seq: u64,
    prev: String,
}

/// SHA-256 in hexadecimal digits; of a line without its end, where it is for a chain.
pub fn hash(bytes: &[u8]) -> String {
    hexadecimal(digest(&SHA256, bytes).as_ref())
}

/// Bytes in hexadecimal digits.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // A String takes everything.
        let _always = write!(text, "{byte:02x}");
    }
    text
}

/// What stands in a [`template`] where the time and the reason go.
const NO_TIME: &str = "\"time\":\"\"";
const NO_REASON: &str = "\"reason\":\"\"";
/// And where a status goes.
const NO_EXIT: &str = "\"exit\":0";

/// The only line of a log whose writer is to need neither much code nor much memory: all but its time and its reason.
pub fn template(context: &Context, event: Event) -> Vec<u8> {
    let event = Event {
        reason: Some(String::new()),
        ..event.plain()
    };
    Chain::default().render("", context, &event)
}

/// The template of the first process's end, whose status is not known yet.
pub fn template_of_exit(context: &Context) -> Vec<u8> {
    let what = EventDetail::Container {
        state: LifeState::Ended,
        exit: Some(0),
        signal: None,
        logs: Vec::new(),
        command: None,
        kept: BTreeMap::new(),
        receipt_by: None,
    };
    let event = Event::new(WallName::Life, Verdict::Ended, what);
    Chain::default().render("", context, &event.plain())
}

/// A [`template`] with its time and its reason, which are to be plain ASCII without quotes and backslashes. In a string of JSON
/// each quote has a backslash before it, so that no text in the template is taken for the places of these two.
pub fn fill(template: &str, time: &str, reason: &str) -> String {
    filled(
        template,
        time,
        NO_REASON,
        &format!("\"reason\":\"{reason}\""),
    )
}

/// A [`template`] of a process's end with its time and its status.
pub fn fill_exit(template: &str, time: &str, status: i32) -> String {
    filled(template, time, NO_EXIT, &format!("\"exit\":{status}"))
}

fn filled(template: &str, time: &str, place: &str, content: &str) -> String {
    template
        .replacen(NO_TIME, &format!("\"time\":\"{time}\""), 1)
        .replacen(place, content, 1)
}

/// A [`super::LogLine`] whose fields are borrowed, for writing it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BorrowedLine<'a> {
    schema: &'static str,
    seq: u64,
    time: &'a str,
    #[serde(flatten)]
    context: &'a Context,
    #[serde(flatten)]
    event: &'a Event,
    prev: &'a str,
}

impl Default for Chain {
    fn default() -> Self {
        Self {
            seq: 0,
            prev: NONE.to_owned(),
        }
    }
}

impl Chain {
    /// After these lines; `last` is the last of them, without its end.
    pub fn after(seq: u64, last: &[u8]) -> Self {
        Self {
            seq,
            prev: hash(last),
        }
    }

    /// The number of the last line; 0 where there is none.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The hash of the last line.
    pub fn head(&self) -> &str {
        &self.prev
    }

    /// The next line, with its end. It is no part of the chain before it is [committed](Self::commit). Texts of the event are
    /// to be [plain](Event::plain) already.
    pub fn render(&self, time: &str, context: &Context, event: &Event) -> Vec<u8> {
        let written = BorrowedLine {
            schema: SCHEMA,
            seq: self.seq + 1,
            time,
            context,
            event,
            prev: &self.prev,
        };
        // These types always have a JSON form, in which no control character is left.
        serde_json::to_string(&written)
            .map(|line| escape_json(&line) + "\n")
            .unwrap_or_default()
            .into_bytes()
    }

    /// Takes a rendered line in.
    pub fn commit(&mut self, line: &[u8]) {
        self.seq += 1;
        self.prev = hash(line.strip_suffix(b"\n").unwrap_or(line));
    }
}
