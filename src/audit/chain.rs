//! PURE. Log lines in a hash chain: each has the hash of the line before.
//!
//! A changed, removed or inserted line breaks the chain at the next line. Lines cut off at the end are noticed by the
//! head, if it is kept elsewhere: the runtime's last line has the heads of the other files.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use serde::Serialize;

use super::event::SCHEMA;
use super::event::{Context, Event, Verdict, WallName};
use super::life::LifeState;
use super::what::EventDetail;
use crate::text::escape_json;

/// The hash in the first line, which has no line before it.
pub const NONE: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The end of a log, to which the next line is appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    seq: u64,
    prev: String,
}

/// SHA-256 in hexadecimal digits. For a chain, of a line without its line end.
pub fn hash(bytes: &[u8]) -> String {
    HEXLOWER.encode(digest(&SHA256, bytes).as_ref())
}

/// Placeholders of the time and the reason in a [`template`].
const NO_TIME: &str = "\"time\":\"\"";
const NO_REASON: &str = "\"reason\":\"\"";
/// The placeholder of a status.
const NO_EXIT: &str = "\"exit\":0";

/// A line without its time and its reason, for a writer that needs little code and memory. It is its log's only line.
pub fn template(context: &Context, event: Event) -> Vec<u8> {
    let event = Event {
        reason: Some("".into()),
        ..event
    };
    Chain::default().render("", context, &event)
}

/// The template for the end of the init process, whose status is not known yet.
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
    Chain::default().render("", context, &event)
}

/// A line that is complete but for its time: the text before and after the time. It is its log's only line.
pub fn around_time(context: &Context, event: Event) -> Option<[String; 2]> {
    let line = Chain::default().render("", context, &event);
    let line = String::from_utf8(line).ok()?;
    let (before, after) = line.split_once(NO_TIME)?;
    Some([format!("{before}\"time\":\""), format!("\"{after}")])
}

/// Fills in a [`template`]'s time and reason, which must be plain ASCII without quotes and backslashes. In a JSON
/// string each quote has a backslash before it, so that no text in the template is mistaken for a placeholder.
pub fn fill(template: &str, time: &str, reason: &str) -> String {
    filled(
        template,
        time,
        NO_REASON,
        &format!("\"reason\":\"{reason}\""),
    )
}

/// Fills in the time and the status of the template of an end.
pub fn fill_exit(template: &str, time: &str, status: i32) -> String {
    filled(template, time, NO_EXIT, &format!("\"exit\":{status}"))
}

fn filled(template: &str, time: &str, place: &str, content: &str) -> String {
    template
        .replacen(NO_TIME, &format!("\"time\":\"{time}\""), 1)
        .replacen(place, content, 1)
}

/// A [`super::LogLine`] with borrowed fields, for writing.
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
    /// Continues a log of `seq` lines; `last` is the last one, without its line end.
    pub fn after(seq: u64, last: &[u8]) -> Self {
        Self {
            seq,
            prev: hash(last),
        }
    }

    /// The number of the last line; 0 if there is none.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The hash of the last line.
    pub fn head(&self) -> &str {
        &self.prev
    }

    /// The next line, with its line end. It joins the chain only when it is [committed](Self::commit). The event's
    /// texts must already be [plain](Event::plain).
    pub fn render(&self, time: &str, context: &Context, event: &Event) -> Vec<u8> {
        let written = BorrowedLine {
            schema: SCHEMA,
            seq: self.seq + 1,
            time,
            context,
            event,
            prev: &self.prev,
        };
        // These types always have a JSON form; control characters are escaped.
        serde_json::to_string(&written)
            .map(|line| escape_json(&line) + "\n")
            .unwrap_or_default()
            .into_bytes()
    }

    /// Adds a rendered line to the chain.
    pub fn commit(&mut self, line: &[u8]) {
        self.seq += 1;
        self.prev = hash(line.strip_suffix(b"\n").unwrap_or(line));
    }
}
