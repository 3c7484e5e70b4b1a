//! The sidecar's log: [`crate::audit`]'s lines, written to a descriptor that the runtime opened.
//!
//! A full disk loses lines, which are counted: no caller waits, and the hash chain stays valid. An action that may not
//! happen without its line ([`Journal::admits`], [`Journal::record`]) does not happen.

use std::io::Write;
use std::os::fd::OwnedFd;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::inside::DenialFile;
use crate::audit::quota::{self, Amounts};
use crate::audit::{Chain, Class, Context, DenialNotice, Event, EventDetail, Quotas};

/// The room on the disk that is reserved behind the log before an action that waits for its line: all that the forms of
/// a class take for lines with their counts.
const RESERVED: u64 = quota::WAITING;
/// The room that any other line leaves free besides: longer than the relay's lines are.
const OTHER_LINE: u64 = 4 << 10;
/// Most bytes of one reservation, for the filter.
pub(super) const MOST_RESERVED: u64 = RESERVED + OTHER_LINE;

/// The log of one sandbox.
#[derive(Debug)]
pub(super) struct Journal {
    file: std::fs::File,
    /// The bytes in it.
    length: u64,
    context: Context,
    chain: Chain,
    quotas: Quotas,
    /// The rest of a line that was written in part. It is written before anything else.
    unwritten: Vec<u8>,
    /// Events whose line was lost to a full disk.
    unwritable: u64,
    /// The class whose lines may use the reserved room, if any was reserved.
    reserved_for: Option<Class>,
    /// The file that shows the container its denials.
    inside: Option<DenialFile>,
}

impl Journal {
    /// For a new file.
    pub fn new(file: OwnedFd, context: Context) -> Self {
        Self {
            file: file.into(),
            length: 0,
            context,
            chain: Chain::default(),
            quotas: Quotas::default(),
            unwritten: Vec::new(),
            unwritable: 0,
            reserved_for: None,
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
        self.take(event, now_ms);
    }

    /// Whether an event would be in a line if it came now. To be asked before an action that may not happen without.
    pub fn admits(&mut self, event: &Event, now_ms: u64) -> bool {
        self.put();
        self.reserved_for = Some(Class::of(event));
        self.unwritten.is_empty() && self.quotas.admits(event, now_ms) && self.reserve(RESERVED)
    }

    /// Takes an event as [`Self::write`] does, and says whether it is in the file: in a line of its own, or as one more of
    /// a line that is there. If not, the action may not happen.
    pub fn record(&mut self, event: Event, now_ms: u64) -> bool {
        self.put();
        if !self.unwritten.is_empty() {
            return false;
        }
        let lost = self.lost();
        self.take(event.clone(), now_ms);
        let is_recorded = self.unwritten.is_empty() && self.lost() == lost;
        if !is_recorded {
            self.quotas.forget(event);
        }
        is_recorded
    }

    /// Reserves room on the disk, so that lines which wait can be written even if others fill it. `false`: it is full. Some file
    /// systems cannot; there the next line that is lost ends all such actions.
    fn reserve(&self, bytes: u64) -> bool {
        match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, self.length, bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NODEV | Errno::NOSYS) => true,
            Err(_) => false,
        }
    }

    fn take(&mut self, event: Event, now_ms: u64) {
        for event in self.quotas.take(event, now_ms) {
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
        let takes_reserved = self
            .reserved_for
            .is_none_or(|class| class == Class::of(event));
        let has_room = takes_reserved || self.reserve(MOST_RESERVED);
        if !self.unwritten.is_empty() || !has_room {
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
                Ok(length) => {
                    drop(self.unwritten.drain(..length));
                    let more = u64::try_from(length).unwrap_or(u64::MAX);
                    self.length = self.length.saturating_add(more);
                }
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
    use std::collections::BTreeMap;
    use std::io::{Read, Seek};

    fn refused(host: &str, port: u16) -> Event {
        let what = EventDetail::attempt(ConnectionKind::Http, host, Some(port));
        Event {
            reason: Some("no rule names \u{9b}it\u{202e}".into()),
            ..Event::new(WallName::Network, Verdict::Denied, what)
        }
    }

    /// The file's text after these events at these times.
    fn text(events: impl IntoIterator<Item = (u64, Event)>) -> String {
        let fd = rustix::fs::memfd_create("journal", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(fd);
        let context = Context {
            container: "c1".into(),
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

    /// A signature for a message.
    fn signature(namespace: &str) -> Event {
        let what = EventDetail::Signature {
            key: format!("SHA256:{}", "k".repeat(43)).into(),
            user: None,
            server: None,
            session: None,
            namespace: Some(namespace.into()),
        };
        Event::new(WallName::Keys, Verdict::Allowed, what)
    }

    /// Asks for an action and does it, as the relay to the SSH agent does.
    fn acts(journal: &mut Journal, event: Event, now: u64) -> bool {
        journal.admits(&event, now) && journal.record(event, now)
    }

    fn log_of(file: &mut std::fs::File) -> Log {
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        Log::parse("x", text.as_bytes())
    }

    fn namespaces(log: &Log) -> BTreeMap<String, u64> {
        let mut all: BTreeMap<String, u64> = BTreeMap::new();
        for line in &log.lines {
            if line.event.verdict == Verdict::Allowed
                && let EventDetail::Signature {
                    namespace: Some(namespace),
                    ..
                } = &line.event.what
            {
                *all.entry(namespace.to_string()).or_default() += line.event.times();
            }
        }
        all
    }

    /// New forms faster than they get lines, and until the quota is used up.
    #[test]
    fn an_action_that_needs_a_line_never_happens_without_one() {
        let fd = rustix::fs::memfd_create("journal", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(fd);
        let context = Context::default();
        let mut journal = Journal::new(file.try_clone().unwrap().into(), context);
        let mut done: BTreeMap<String, u64> = BTreeMap::new();
        let mut refused = 0;
        // Each form comes twice, later ones faster than the bucket has tokens.
        for n in 0..12_000_u64 {
            let now = n * 20;
            let namespace = format!("{}{}", n / 2, "n".repeat(240));
            match acts(&mut journal, signature(&namespace), now) {
                true => *done.entry(namespace).or_default() += 1,
                false => refused += 1,
            }
            journal.flush(now);
        }
        journal.close();
        let log = log_of(&mut file);
        assert!(log.faults.is_empty(), "{:?}", log.faults);
        assert_eq!(namespaces(&log), done);
        // The control: both the rate and the room ended.
        let happened: u64 = done.values().sum();
        assert!(happened > 1_000 && refused > 1_000, "{happened} {refused}");
        let last = format!("5999{}", "n".repeat(240));
        assert!(!done.contains_key(&last), "the room was not used up");
    }

    /// Another class uses up what all share, while signatures of a known form wait for the line with their count.
    #[test]
    fn no_other_class_takes_the_room_of_what_was_handed_out() {
        let fd = rustix::fs::memfd_create("journal", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(fd);
        let mut journal = Journal::new(file.try_clone().unwrap().into(), Context::default());
        let mut done: BTreeMap<String, u64> = BTreeMap::new();
        let mut act = |journal: &mut Journal, namespace: &str, now| {
            if acts(journal, signature(namespace), now) {
                *done.entry(namespace.to_owned()).or_default() += 1;
            }
        };
        // The own share of signatures is used up.
        for n in 0..1_000_u64 {
            act(&mut journal, &format!("{n}{}", "n".repeat(240)), n * 200);
        }
        let denied = |n: u64| Event {
            verdict: Verdict::Denied,
            reason: Some("r".repeat(200).into()),
            ..signature(&format!("{n}{}", "d".repeat(240)))
        };
        // Equal signatures wait, longer each time, while denied requests take all that is left.
        for n in 0..40_000_u64 {
            let now = 200_000 + n * 100;
            act(&mut journal, "git", now);
            journal.write(denied(n), now);
            journal.flush(now);
        }
        assert!(journal.lost() > 1_000, "the control: the room was used up");
        journal.close();
        assert_eq!(namespaces(&log_of(&mut file)), done);
    }

    /// Attack c: the disk of the log is full.
    #[test]
    fn a_full_disk_ends_actions_that_need_a_line() {
        let full = std::fs::OpenOptions::new().append(true).open("/dev/full");
        let mut journal = Journal::new(full.unwrap().into(), Context::default());
        for now in 0..5 {
            assert!(!acts(&mut journal, signature("git"), now), "{now}");
        }
        // One that fills up: nothing grows any more, and what was there stays.
        let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("journal", flags).unwrap();
        let mut file = std::fs::File::from(fd);
        let mut journal = Journal::new(file.try_clone().unwrap().into(), Context::default());
        assert!(acts(&mut journal, signature("git"), 0));
        assert!(acts(&mut journal, signature("git"), 1));
        rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::GROW).unwrap();
        assert!(!acts(&mut journal, signature("file"), 2), "a new form");
        assert!(!acts(&mut journal, signature("git"), 3), "a known form");
        let log = log_of(&mut file);
        assert!(log.faults.is_empty(), "{:?}", log.faults);
        assert_eq!(namespaces(&log), [("git".to_owned(), 1)].into());
    }

    /// A line that is lost is no line that equal events could join.
    #[test]
    fn an_event_whose_line_was_lost_is_not_joined() {
        let full = std::fs::OpenOptions::new().append(true).open("/dev/full");
        let mut journal = Journal::new(full.unwrap().into(), Context::default());
        assert!(!journal.record(signature("git"), 0));
        // The disk has room again.
        let fd = rustix::fs::memfd_create("journal", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(fd);
        journal.file = file.try_clone().unwrap();
        assert!(journal.record(signature("git"), 1));
        let lines = namespaces(&log_of(&mut file));
        // The first one's line was written late: the log may say too much, never too little.
        assert_eq!(lines, [("git".to_owned(), 2)].into());
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
