//! The sidecar's log: [`crate::audit`]'s lines, written to a descriptor that the runtime opened.
//!
//! A disk that is full costs lines, which are counted, and nothing else: no caller waits, and the chain of hashes holds.

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
    /// The rest of a line that the disk did not take as a whole. Nothing is written before it.
    unwritten: Vec<u8>,
    /// Events whose line the disk did not take.
    unwritable: u64,
    /// What the container itself is shown.
    inside: Option<DenialFile>,
}

impl Journal {
    /// Of a new file.
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

    /// The same, and refusals are shown inside.
    pub fn showing(self, inside: Option<DenialFile>) -> Self {
        Self { inside, ..self }
    }

    /// Shows the container a refusal, in its own words for it.
    pub fn show(&mut self, refused: &DenialNotice, now_ms: u64) {
        if let Some(inside) = &mut self.inside {
            inside.take(refused, 1, now_ms);
        }
    }

    /// What the network refused, where the container may know.
    pub fn shown(&self) -> Option<String> {
        self.inside.as_ref().map(DenialFile::of_the_network)
    }

    /// Events of which no line says anything but their number.
    pub fn lost(&self) -> u64 {
        self.quotas.left_out().saturating_add(self.unwritable)
    }

    /// When [`Self::flush`] is to be called next, by the clock of [`Self::write`]; `None`: nothing waits.
    pub fn due_ms(&self) -> Option<u64> {
        let shown = self.inside.as_ref().and_then(DenialFile::due_ms);
        self.quotas.due_ms().into_iter().chain(shown).min()
    }

    /// Takes an event in: writes it down now, or with those like it later, or counts it where there are too many.
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

    /// The same of an event that comes often and is no refusal: `form` is what all of its kind have in common ([`Quotas::again`]).
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

    /// Writes all that waits: the sidecar ends.
    pub fn close(&mut self) {
        // Once more for the count of those that had no place.
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
                // A full disk: nothing else may suffer from it.
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

    /// Writes what happens at these times; the file's text.
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
    fn what_verify_tries_is_not_folded_with_what_the_workload_does_and_takes_no_place_from_it() {
        let by_verify = |event: Event| Event {
            by: Some(Actor::Verify),
            ..event
        };
        // More forms than a class remembers or has at once.
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
