//! What only the kernel counts: attempts by address, and limits that were reached. The runtime opened the files, for
//! the container's namespace and cgroup; the sidecar reads them from time to time, and at the end.
//!
//! A number that has grown gets a log line: the first soon after the container's start, later ones within half a
//! minute. If it keeps growing, lines become rarer and rarer.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::audit::kernel::by_address;
use crate::audit::{ConnectionKind, CountedLimit, Event};
use crate::cgroup::oom;
use crate::egress::tried;
use crate::network::counters;
use crate::policy::Tool;

/// From the start to the first look. Then the time between two looks doubles.
const FIRST: Duration = Duration::from_secs(5);
/// The longest time between two looks.
const MOST_DELAY: Duration = Duration::from_secs(30);
/// The longest time between two lines of a growing number.
const MOST_GAP: Duration = Duration::from_secs(3600);
/// The longest file is snmp6, with about five thousand bytes.
const MOST_BYTES: usize = 16 << 10;

/// The kind of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountKind {
    /// Attempts to reach an IPv4 address without a route: snmp.
    Unrouted,
    /// The same for IPv6: snmp6.
    UnroutedV6,
    /// Attempts on ports without a listener, in namespaces where every address is local: snmp.
    Unanswered,
    /// The others of these: snmp6.
    UnansweredV6,
    /// Hits of a limit, with the policy's value: its count, and its value.
    Limit(CountedLimit, Option<u64>),
}

impl CountKind {
    /// The number of files for this kind.
    pub(super) fn files(self) -> usize {
        match self {
            Self::Limit(..) => 2,
            Self::Unrouted | Self::UnroutedV6 | Self::Unanswered | Self::UnansweredV6 => 1,
        }
    }

    fn read(self, text: &str) -> Option<u64> {
        match self {
            Self::Unrouted => counters::unrouted(text),
            Self::UnroutedV6 => counters::unrouted_v6(text),
            Self::Unanswered => counters::unanswered(text),
            Self::UnansweredV6 => counters::unanswered_v6(text),
            Self::Limit(CountedLimit::Memory, _) => oom::killed(text),
            Self::Limit(CountedLimit::Pids, _) => oom::forks_refused(text),
        }
    }

    fn via(self) -> Option<ConnectionKind> {
        match self {
            Self::Unrouted | Self::UnroutedV6 => Some(ConnectionKind::Unrouted),
            Self::Unanswered | Self::UnansweredV6 => Some(ConnectionKind::Unanswered),
            Self::Limit(..) => None,
        }
    }
}

/// Attempts that were heard from the kernel: each has a log line, or is in the count of one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct HeardAttempts {
    /// Connections, and datagrams of IPv4.
    pub unanswered: u64,
    /// Datagrams of IPv6.
    pub unanswered_v6: u64,
}

impl HeardAttempts {
    fn of(self, kind: CountKind) -> u64 {
        match kind {
            CountKind::Unanswered => self.unanswered,
            CountKind::UnansweredV6 => self.unanswered_v6,
            CountKind::Unrouted | CountKind::UnroutedV6 | CountKind::Limit(..) => 0,
        }
    }
}

/// A kernel counter, with its open files.
#[derive(Debug)]
pub struct KernelCount {
    /// Its kind.
    pub of: CountKind,
    /// As many as its kind has.
    pub files: Vec<OwnedFd>,
}

#[derive(Debug)]
struct Counter {
    of: CountKind,
    files: Vec<File>,
    /// The count that log lines already cover.
    told: u64,
    /// Attempts of `verify` that are still expected, and whether it started since the last look.
    excused: u64,
    is_fresh: bool,
    /// The earliest time of the next line, and the gap after it.
    next_line: Option<Instant>,
    gap: Duration,
}

/// All counters of one container.
#[derive(Debug)]
pub(super) struct KernelCounts {
    all: Vec<Counter>,
    /// The tool whose words the events use.
    tool: Tool,
    next_look: Instant,
    delay: Duration,
}

impl KernelCounts {
    /// The namespace and the cgroup are new, so all numbers start at 0.
    pub fn new(counts: Vec<KernelCount>, tool: Tool, now: Instant) -> Self {
        let all = counts.into_iter().map(|count| Counter {
            of: count.of,
            files: count.files.into_iter().map(File::from).collect(),
            told: 0,
            excused: 0,
            is_fresh: false,
            next_line: None,
            gap: FIRST,
        });
        Self {
            all: all.collect(),
            tool,
            next_look: now + FIRST,
            delay: FIRST,
        }
    }

    /// When to look next; `None`: never.
    pub fn next_look(&self) -> Option<Instant> {
        (!self.all.is_empty()).then_some(self.next_look)
    }

    /// `verifies` processes of `verify` have started: their attempts by address are not the container's. One that is
    /// killed before it tries hides as many attempts of the container, until the look after the next.
    pub fn excuse(&mut self, verifies: u64) {
        for counter in &mut self.all {
            let each = match counter.of {
                CountKind::Unrouted => tried::BY_ADDRESS,
                CountKind::UnroutedV6 => tried::BY_ADDRESS_6,
                CountKind::Unanswered | CountKind::UnansweredV6 | CountKind::Limit(..) => 0,
            };
            counter.is_fresh |= verifies > 0;
            counter.excused = counter
                .excused
                .saturating_add(each.saturating_mul(verifies));
        }
    }

    /// The events to write, if it is time to look. `hear` returns the heard attempts. It runs after the kernel's
    /// numbers are read, so that no attempt in between is reported twice.
    pub fn look(&mut self, now: Instant, hear: impl FnOnce() -> HeardAttempts) -> Vec<Event> {
        if now < self.next_look {
            return Vec::new();
        }
        self.delay = (self.delay * 2).min(MOST_DELAY);
        self.next_look = now + self.delay;
        let due = |counter: &Counter| counter.next_line.is_none_or(|next| next <= now);
        self.tell(due, hear, |counter| {
            counter.next_line = Some(now + counter.gap);
            counter.gap = (counter.gap * 2).min(MOST_GAP);
        })
    }

    /// The numbers without a line so far, when the container has ended.
    pub fn rest(&mut self, hear: impl FnOnce() -> HeardAttempts) -> Vec<Event> {
        self.tell(|_| true, hear, |_| ())
    }

    fn tell(
        &mut self,
        is_due: impl Fn(&Counter) -> bool,
        hear: impl FnOnce() -> HeardAttempts,
        told: impl Fn(&mut Counter),
    ) -> Vec<Event> {
        let counts: Vec<Option<u64>> = self
            .all
            .iter()
            .map(|counter| is_due(counter).then(|| counter.count()).flatten())
            .collect();
        let heard = hear();
        let mut events = Vec::new();
        for (counter, count) in self.all.iter_mut().zip(counts) {
            let event =
                count.and_then(|count| counter.tell(count, heard.of(counter.of), self.tool));
            if let Some(event) = event {
                told(counter);
                events.push(event);
            }
        }
        events
    }
}

impl Counter {
    /// The kernel's number.
    fn count(&self) -> Option<u64> {
        self.of.read(&read(self.files.first()?)?)
    }

    /// `heard` of them have their own lines.
    fn tell(&mut self, count: u64, heard: u64, tool: Tool) -> Option<Event> {
        let count = count.saturating_sub(heard);
        let grown = count.saturating_sub(self.told);
        let excused = grown.min(self.excused);
        let new = grown - excused;
        self.excused = match self.is_fresh {
            true => self.excused - excused,
            // `verify` has tried by now, or never will.
            false => 0,
        };
        self.is_fresh = false;
        self.told = self.told.max(count);
        if new == 0 {
            return None;
        }
        match (self.of, self.of.via()) {
            (_, Some(via)) => Some(by_address(new, via, tool)),
            (CountKind::Limit(limit, bound), None) => {
                let value = self.files.get(1).and_then(read);
                let value = value.and_then(|text| oom::limit(&text));
                Some(limit.reached(count, value, bound, tool))
            }
            (_, None) => None,
        }
    }
}

/// `None` if the cgroup is gone.
fn read(file: &File) -> Option<String> {
    let mut text = vec![0; MOST_BYTES];
    let mut length = 0;
    // The kernel returns such a file in pages.
    while length < text.len() {
        match file.read_at(&mut text[length..], length as u64).ok()? {
            0 => break,
            more => length += more,
        }
    }
    text.truncate(length);
    String::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, SeekFrom, Write};

    use super::*;

    fn file(text: &str) -> File {
        let fd = rustix::fs::memfd_create("count", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(fd);
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn set(mut file: &File, text: &str) {
        file.seek(SeekFrom::Start(0)).unwrap();
        file.set_len(0).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn count(of: CountKind, files: &[&File]) -> KernelCount {
        let files = files.iter().map(|file| file.try_clone().unwrap().into());
        KernelCount {
            of,
            files: files.collect(),
        }
    }

    fn snmp(count: u64) -> String {
        format!("Ip: Forwarding OutNoRoutes\nIp: 2 {count}\n")
    }

    fn nothing() -> HeardAttempts {
        HeardAttempts::default()
    }

    #[test]
    fn attempts_with_a_line_are_not_counted_again() {
        let tcp = |count| format!("Tcp: AttemptFails\nTcp: {count}\nUdp: NoPorts\nUdp: 0\n");
        let source = file(&tcp(0));
        let start = Instant::now();
        let mut counts = KernelCounts::new(
            vec![count(CountKind::Unanswered, &[&source])],
            Tool::Wrap,
            start,
        );
        let heard = |unanswered| {
            move || HeardAttempts {
                unanswered,
                ..HeardAttempts::default()
            }
        };
        set(&source, &tcp(5));
        // One more attempt was heard than the kernel had counted.
        assert_eq!(counts.look(counts.next_look().unwrap(), heard(6)), []);
        set(&source, &tcp(9));
        let told = counts.look(counts.next_look().unwrap(), heard(7));
        assert_eq!(told.iter().map(Event::times).sum::<u64>(), 2);
        assert_eq!(counts.rest(heard(7)), []);
    }

    /// Former fault: an attempt by address left no line.
    #[test]
    fn attempts_by_address_are_logged_soon_and_all_of_them_at_the_end() {
        let source = file(&snmp(0));
        let mut now = Instant::now();
        let mut counts = KernelCounts::new(
            vec![count(CountKind::Unrouted, &[&source])],
            Tool::Wrap,
            now,
        );
        assert_eq!(counts.look(now + FIRST, nothing), []);
        let (mut told, mut lines) = (0, 0);
        for n in 1..=2_000 {
            set(&source, &snmp(n * 3));
            now = counts.next_look().unwrap();
            for event in counts.look(now, nothing) {
                assert_eq!(event.cause, Some("by-address".into()));
                (told, lines) = (told + event.times(), lines + 1);
            }
            assert!(
                n > 1 || told == 3,
                "the first has its line at the next look"
            );
        }
        // Half a minute each: about seventeen hours.
        assert!((10..40).contains(&lines), "{lines}");
        told += counts.rest(nothing).iter().map(Event::times).sum::<u64>();
        assert_eq!(told, 6_000);
        assert_eq!(counts.rest(nothing), []);
    }

    #[test]
    fn attempts_of_verify_are_not_counted_for_the_container() {
        let source = file(&snmp(0));
        let start = Instant::now();
        let mut counts = KernelCounts::new(
            vec![count(CountKind::Unrouted, &[&source])],
            Tool::Wrap,
            start,
        );
        counts.excuse(1);
        set(&source, &snmp(1));
        assert_eq!(counts.look(counts.next_look().unwrap(), nothing), []);
        // The second attempt of `verify`, and three of the container.
        set(&source, &snmp(5));
        let told = counts.look(counts.next_look().unwrap(), nothing);
        assert_eq!(told.iter().map(Event::times).sum::<u64>(), 3);
        set(&source, &snmp(6));
        let rest: u64 = counts.rest(nothing).iter().map(Event::times).sum();
        assert_eq!(rest, 1);
        // A `verify` that was killed before it tried excuses nothing for long.
        counts.excuse(5);
        for _ in 0..2 {
            assert_eq!(counts.look(counts.next_look().unwrap(), nothing), []);
        }
        set(&source, &snmp(8));
        let told: u64 = counts.rest(nothing).iter().map(Event::times).sum();
        assert_eq!(told, 2);
    }

    /// Former fault: a limit was logged only at the end, without its value.
    #[test]
    fn a_limit_is_logged_with_its_value_when_it_is_reached() {
        let (events, limit) = (file("max 0\n"), file("64\n"));
        let of = CountKind::Limit(CountedLimit::Pids, Some(64));
        let start = Instant::now();
        let mut counts = KernelCounts::new(vec![count(of, &[&events, &limit])], Tool::Wrap, start);
        assert_eq!(counts.look(start + FIRST, nothing), []);
        set(&events, "max 17\n");
        let told = counts.look(counts.next_look().unwrap(), nothing);
        assert_eq!(
            told,
            [CountedLimit::Pids.reached(17, Some(64), Some(64), Tool::Wrap)]
        );
        assert_eq!(counts.rest(nothing), []);
    }

    #[test]
    fn without_counters_there_is_no_timer() {
        let now = Instant::now();
        assert_eq!(
            KernelCounts::new(Vec::new(), Tool::Wrap, now).next_look(),
            None
        );
        let empty = file("");
        let mut counts = KernelCounts::new(
            vec![count(CountKind::UnroutedV6, &[&empty])],
            Tool::Wrap,
            now,
        );
        assert_eq!(counts.look(now + MOST_GAP, nothing), []);
    }
}
