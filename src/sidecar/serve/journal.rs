//! The violation log: one JSON line for each refusal and for each failure of an allowed connection. Lines in a second
//! and in all are bounded, and a line has the number of those left out.

use std::io::Write;
use std::os::fd::OwnedFd;

use serde::Serialize;

/// Bytes in all. RLIMIT_FSIZE, above which a write would kill, is higher.
const MOST_BYTES: u64 = 768 << 10;
/// Lines in a burst, and lines a second after it.
const BURST: u64 = 100;
const PER_SECOND: u64 = 10;
/// The longest host and reason that are written down.
const LONGEST: usize = 256;

/// How somebody tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Via {
    /// A DNS question.
    Dns,
    /// A direct connection, without the proxy.
    Transparent,
    /// HTTP CONNECT or an http:// request to the proxy.
    Http,
    /// SOCKS5.
    Socks,
    /// A connection from outside to a port that leads in; the host is its own.
    Inbound,
    /// Connections from outside that nobody answered; no host is known.
    Outside,
    /// The socket of the runtime's verbs.
    Control,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    /// The wall refused.
    Denied,
    /// It was allowed, and the network had no answer.
    Failed,
}

/// A refusal, or a failure.
#[derive(Debug)]
pub(super) struct Event<'a> {
    pub via: Via,
    pub outcome: Outcome,
    pub host: &'a str,
    pub port: Option<u16>,
    pub why: &'a str,
}

#[derive(Serialize)]
struct LogLine<'a> {
    time: String,
    wall: &'static str,
    verdict: Outcome,
    via: Via,
    #[serde(skip_serializing_if = "String::is_empty")]
    host: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    reason: &'a str,
}

#[derive(Serialize)]
struct LeftOut {
    time: String,
    wall: &'static str,
    left_out: u64,
    reason: &'static str,
}

/// The log of one sandbox.
#[derive(Debug)]
pub(super) struct Journal {
    file: std::fs::File,
    written: u64,
    /// Lines that may be written now, in thousandths.
    tokens: u64,
    refilled_ms: u64,
    left_out: u64,
    /// Of the whole time, those of [`Self::left_out`] included.
    left_out_ever: u64,
    full: bool,
}

impl Journal {
    pub fn new(file: OwnedFd) -> Self {
        Self {
            file: file.into(),
            written: 0,
            tokens: BURST * 1000,
            refilled_ms: 0,
            left_out: 0,
            left_out_ever: 0,
            full: false,
        }
    }

    /// Events that were not written down.
    pub fn lost(&self) -> u64 {
        self.left_out_ever
    }

    fn leave_out(&mut self) {
        self.left_out = self.left_out.saturating_add(1);
        self.left_out_ever = self.left_out_ever.saturating_add(1);
    }

    /// Writes an event, or counts it where there are too many.
    pub fn write(&mut self, event: &Event<'_>, now_ms: u64) {
        let elapsed = now_ms.saturating_sub(self.refilled_ms);
        self.tokens = (self
            .tokens
            .saturating_add(elapsed.saturating_mul(PER_SECOND)))
        .min(BURST * 1000);
        self.refilled_ms = now_ms;
        if self.full || self.tokens < 1000 {
            self.leave_out();
            return;
        }
        self.tokens -= 1000;
        if self.left_out > 0 {
            let note = LeftOut {
                time: time(),
                wall: "network",
                left_out: std::mem::take(&mut self.left_out),
                reason: "too many in a short time",
            };
            self.line(&note);
        }
        let host: String = event.host.chars().take(LONGEST).collect();
        self.line(&LogLine {
            time: time(),
            wall: "network",
            verdict: event.outcome,
            via: event.via,
            host: host.escape_default().to_string(),
            port: event.port,
            reason: event.why.get(..LONGEST).unwrap_or(event.why),
        });
    }

    fn line(&mut self, line: &impl Serialize) {
        // These types always have a JSON form.
        let Ok(line) = serde_json::to_string(line) else {
            return;
        };
        let bytes = (crate::policy::escape_json(&line) + "\n").into_bytes();
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if self.written.saturating_add(length) > MOST_BYTES {
            self.full = true;
            self.leave_out();
            let last = LeftOut {
                time: time(),
                wall: "network",
                left_out: 0,
                reason: "this log is full; what follows is only counted",
            };
            if let Ok(mut bytes) = serde_json::to_vec(&last) {
                bytes.push(b'\n');
                self.put(&bytes);
            }
            return;
        }
        self.put(&bytes);
        self.written += length;
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.file.write_all(bytes).is_err() {
            // A full disk: nothing else may suffer from it.
            self.leave_out();
        }
    }
}

fn time() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};

    fn event() -> Event<'static> {
        Event {
            via: Via::Dns,
            outcome: Outcome::Denied,
            host: "evil.test\n\u{1b}[2J",
            port: Some(443),
            why: "no rule names \u{9b}it\u{202e}",
        }
    }

    fn run(events: impl IntoIterator<Item = u64>) -> Vec<serde_json::Value> {
        let text = text(events);
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    }

    fn text(events: impl IntoIterator<Item = u64>) -> String {
        let mut file = tempfile();
        let mut journal = Journal::new(file.try_clone().unwrap().into());
        for now in events {
            journal.write(&event(), now);
        }
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    }

    fn tempfile() -> std::fs::File {
        let fd = rustix::fs::memfd_create("journal", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        fd.into()
    }

    #[test]
    fn writes_one_escaped_line() {
        assert!(
            text([0])
                .trim_end()
                .chars()
                .all(|c| (' '..='~').contains(&c))
        );
        let lines = run([0]);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["host"], "evil.test\\n\\u{1b}[2J");
        assert_eq!(lines[0]["port"], 443);
        assert_eq!(lines[0]["via"], "dns");
    }

    #[test]
    fn a_flood_is_bounded_and_says_what_it_left_out() {
        let lines = run(std::iter::repeat_n(0, 1000).chain([5000]));
        assert_eq!(lines.len(), usize::try_from(BURST).unwrap() + 2);
        assert_eq!(lines[lines.len() - 2]["left_out"], 900);
    }

    #[test]
    fn the_file_is_bounded() {
        let lines = run((0..20_000).map(|i| i * 1000));
        let last = lines.last().unwrap();
        assert!(last["reason"].as_str().unwrap().contains("full"));
        assert!(lines.len() < 10_000);
    }
}
