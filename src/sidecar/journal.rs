//! The sidecar's log: [`crate::audit`]'s lines, written to a descriptor that the runtime opened.
//!
//! A full disk loses lines, which are counted, and has no other effect: no caller waits, and the hash chain stays
//! valid.

use std::io::Write;
use std::os::fd::OwnedFd;

use super::inside::DenialFile;
use crate::audit::quota::Amounts;
use crate::audit::{Chain, Context, DenialNotice, Event, EventDetail, Quotas};

/// The log of one sandbox.
#[derive(Debug)]
pub(super) struct Journal {
    file: std::fs::File,
    context: Context,
    chain: Chain,
    quotas: Quotas,
    /// The rest of a line that was written in part. It is written before anything else.
    unwritten: Vec<u8>,
    /// Events whose line was lost to a full disk.
    unwritable: u64,
    /// The file that shows the container its denials.
    inside: Option<DenialFile>,
}

impl Journal {
    /// For a new file.
    pub fn new(file: OwnedFd, context: Context) -> Self {
        Self {
            file: file.into(),
            context,
            chain: Chain::default(),
            quotas: Quotas::default(),
            unwritten: Vec::new(),
            unwritable: 0,
            inside: None,
        }
    }

    /// The same, but denials are also shown inside.
    pub fn showing(self, inside: Option<DenialFile>) -> Self {
        Self { inside, ..self }
    }

    /// Shows the container a denial.
    pub fn show(&mut self, refused: &DenialNotice, now_ms: u64) {
        if let Some(inside) = &mut self.inside {
            inside.take(refused, 1, now_ms);
        }
    }

    /// The network's denials, if the container may know them.
    pub fn shown(&self) -> Option<String> {
        self.inside.as_ref().map(DenialFile::of_the_network)
    }

    /// Events that have no line, only a count.
    pub fn lost(&self) -> u64 {
        self.quotas.left_out().saturating_add(self.unwritable)
    }

    /// When to call [`Self::flush`] next, by the clock of [`Self::write`]; `None`: nothing waits.
    pub fn due_ms(&self) -> Option<u64> {
        let shown = self.inside.as_ref().and_then(DenialFile::due_ms);
        self.quotas.due_ms().into_iter().chain(shown).min()
    }

    /// Takes an event: writes it now, folds it with similar events, or counts it if there are too many.
    pub fn write(&mut self, event: Event, now_ms: u64) {
        if let Some(inside) = &mut self.inside {
            inside.hear(&event, now_ms);
        }
        self.take(event.plain(), now_ms);
    }

    fn take(&mut self, plain: Event, now_ms: u64) {
        for event in self.quotas.take(plain, now_ms) {
            self.line(&event);
        }
    }

    /// The same for a frequent event that is no denial: `form` is the common part of its kind ([`Quotas::again`]).
    pub fn write_again(&mut self, form: &Event, amounts: Amounts, now_ms: u64) {
        if self.quotas.again(form, amounts, now_ms) {
            return;
        }
        let mut event = form.clone();
        if let EventDetail::Connection { sent, received, .. } = &mut event.what {
            (*sent, *received) = amounts;
        }
        self.take(event, now_ms);
    }

    /// Writes the lines that are due.
    pub fn flush(&mut self, now_ms: u64) {
        if let Some(inside) = &mut self.inside {
            inside.flush(now_ms);
        }
        for event in self.quotas.due(now_ms) {
            self.line(&event);
        }
    }

    /// Writes everything that waits, at the sidecar's end.
    pub fn close(&mut self) {
        // Twice, because the first pass may add the count of events that were left out.
        for _ in 0..2 {
            for event in self.quotas.rest() {
                self.line(&event);
            }
        }
    }

    fn line(&mut self, event: &Event) {
        self.put();
        if !self.unwritten.is_empty() {
            self.unwritable = self.unwritable.saturating_add(event.times());
            return;
        }
        let time = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        let line = self.chain.render(&time, &self.context, event);
        if self.quotas.spend(event, line.len()) {
            self.chain.commit(&line);
            self.unwritten = line;
            self.put();
        }
    }

    fn put(&mut self) {
        while !self.unwritten.is_empty() {
            match self.file.write(&self.unwritten) {
                Ok(0) => return,
                Ok(length) => drop(self.unwritten.drain(..length)),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                // A full disk must have no other effect.
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Actor, ConnectionKind, Log, Verdict, WallName};
    use std::io::{Read, Seek};

    fn refused(host: &str, port: u16) -> Event {
        let what = EventDetail::attempt(ConnectionKind::Http, host, Some(port));
        Event {
            reason: Some("no rule names \u{9b}it\u{202e}".to_owned()),
            ..Event::new(WallName::Network, Verdict::Denied, what)
        }
    }

    /// The file's text after these events at these times.
    fn text(events: impl IntoIterator<Item = (u64, Event)>) -> String {
        let fd = rustix::fs::memfd_create("journal", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(fd);
        let context = Context {
            container: "c1".to_owned(),
            ..Context::default()
        };
        let mut journal = Journal::new(file.try_clone().unwrap().into(), context);
        for (now, event) in events {
            journal.flush(now);
            journal.write(event, now);
        }
        journal.close();
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_line_is_one_line_and_harmless_also_for_who_reads_its_strings() {
        let text = text([(0, refused("evil.test\n\u{1b}[2J", 443))]);
        assert!(text.trim_end().chars().all(|c| (' '..='~').contains(&c)));
        let log = Log::parse("x", text.as_bytes());
        assert_eq!((log.lines.len(), log.faults.len()), (1, 0));
        assert_eq!(
            log.lines[0].event.what.host(),
            Some("evil.test\\n\\u{1b}[2J")
        );
        let reason = log.lines[0].event.reason.clone().unwrap();
        assert!(reason.chars().all(|c| (' '..='~').contains(&c)), "{reason}");
    }

    #[test]
    fn the_chain_holds_over_floods_of_each_form_and_the_file_is_bounded() {
        let many = (0..40_000_u32).map(|n| {
            let host = format!("h{}.test", n % 7_000);
            (u64::from(n) * 100, refused(&host, 443))
        });
        let text = text(many);
        assert!(text.len() <= 4 << 20, "{}", text.len());
        let log = Log::parse("x", text.as_bytes());
        assert!(log.faults.is_empty(), "{:?}", log.faults);
        let told: u64 = log
            .lines
            .iter()
            .map(|line| match line.event.what {
                EventDetail::LeftOut { events, .. } => events,
                _ => line.event.times(),
            })
            .sum();
        assert_eq!(told, 40_000, "each event is in a line or counted");
    }

    #[test]
    fn attempts_of_verify_are_not_folded_with_the_workloads_and_take_no_room_from_them() {
        let by_verify = |event: Event| Event {
            by: Some(Actor::Verify),
            ..event
        };
        // More forms than a class remembers, or has at once.
        let flood = (0..400).map(|n| (0, by_verify(refused(&format!("v{n}.test"), 443))));
        let own = [
            (0, by_verify(refused("a.test", 443))),
            (0, refused("a.test", 443)),
            (0, refused("b.test", 443)),
        ];
        let text = text(flood.chain(own));
        let log = Log::parse("x", text.as_bytes());
        assert!(log.faults.is_empty(), "{:?}", log.faults);
        let others = log.lines.iter().filter(|line| !line.event.is_verifys());
        let others: Vec<_> = others
            .map(|line| {
                (
                    line.event.what.host().unwrap_or_default(),
                    line.event.times(),
                )
            })
            .collect();
        assert_eq!(others, [("a.test", 1), ("b.test", 1)]);
        let verifys = log.lines.iter().filter(|line| line.event.is_verifys());
        let told: u64 = verifys
            .map(|line| match line.event.what {
                EventDetail::LeftOut { events, .. } => events,
                _ => line.event.times(),
            })
            .sum();
        assert_eq!(told, 401);
    }
}
