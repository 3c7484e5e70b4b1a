//! PURE. Decides which events become lines at once, which are folded into one line with a count, and which are only
//! counted.
//!
//! A container cannot hide an action behind frequent ones:
//! - The first event of a form is a line at once. Equal ones are folded: a line with their count comes after two
//!   seconds, then after twice as long each time, and at the end.
//! - New forms per second are limited, by class and by host; each honeytoken's first line is not.
//! - Each class has a share of the file that no other class can use up.
//! - Omitted events are counted by class, and the count is a line.

use std::collections::{BTreeMap, BTreeSet};

use super::cause::KnownCause;
use super::class::Class;
use super::event::{Actor, Event, Verdict};
pub use super::fold::Amounts;
use super::fold::{FIRST_MS, Fold, form, of_process};
use super::rate::{Bucket, Rate};
use super::what::EventDetail;
use crate::rules::closed::is_closed;

/// Most bytes of one file. The limit at which a write would kill the sidecar is higher.
pub const MOST_BYTES: u64 = 4 << 20;
/// Bytes reserved for each class.
const SHARE: u64 = 128 << 10;
/// Bytes of each class for lines that count omitted events. Their gap doubles: 64 lines take more years than any run
/// has.
const COUNTS: u64 = 64 << 10;
/// New forms of a class in a burst, and each second after it.
const OF_CLASS: Rate = Rate {
    burst: 100,
    second: 10,
};
/// New forms of one host in a class. Without it, a scan of one host's ports takes the whole burst of its class, and the
/// next host that is denied has no line: `a_flood_of_one_class_or_host_hides_no_other` fails.
const OF_HOST: Rate = Rate {
    burst: 40,
    second: 2,
};
/// The room that a line must have before an action that waits for it. Signatures have lines of at most about 1.6 KiB.
const ROOM: u64 = 2 << 10;
/// Most bytes that all waiting lines of a class take, with one event more.
pub const WAITING: u64 = (MOST_FORMS as u64 + 2) * ROOM;
/// Most remembered forms and hosts of a class.
const MOST_FORMS: usize = 96;
const MOST_HOSTS: usize = 128;
/// Most system calls whose first denial is always a line at once; more than are ever denied.
const MOST_CALLS: usize = 512;
/// The same for hosts where clouds serve credentials, and for honeytokens.
const MOST_CLOSED: usize = 64;

/// A class's use of its quota.
#[derive(Debug)]
struct ClassUse {
    bucket: Bucket,
    hosts: BTreeMap<String, Bucket>,
    forms: BTreeMap<Event, Fold>,
    /// System calls, hosts where clouds serve credentials, and honeytokens, that had their first line.
    firsts: BTreeSet<String>,
    bytes: u64,
    /// Omitted events that no line has counted yet.
    left_out: u64,
    /// The gap between two lines with their number, and the time of the next.
    counts_gap_ms: u64,
    counts_due_ms: u64,
    counts_bytes: u64,
}

/// The quotas of one file.
#[derive(Debug)]
pub struct Quotas {
    classes: BTreeMap<Class, ClassUse>,
    /// Free bytes beyond the shares.
    pool: u64,
    left_out_ever: u64,
    /// The earliest time at which a line is due.
    due_ms: Option<u64>,
}

impl Default for Quotas {
    fn default() -> Self {
        let used = || ClassUse {
            bucket: Bucket::full(OF_CLASS, 0),
            hosts: BTreeMap::new(),
            forms: BTreeMap::new(),
            firsts: BTreeSet::new(),
            bytes: 0,
            left_out: 0,
            counts_gap_ms: FIRST_MS,
            counts_due_ms: 0,
            counts_bytes: 0,
        };
        let shares = (SHARE + COUNTS) * Class::ALL.len() as u64;
        Self {
            classes: Class::ALL.map(|class| (class, used())).into(),
            pool: MOST_BYTES.saturating_sub(shares),
            left_out_ever: 0,
            due_ms: None,
        }
    }
}

impl Quotas {
    /// Events that are only counted.
    pub fn left_out(&self) -> u64 {
        self.left_out_ever
    }

    /// When to call [`Self::due`] next; `None` if no line waits.
    pub fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// Adds an event. Returns the events that become lines now, usually none or one.
    pub fn take(&mut self, event: Event, now_ms: u64) -> Vec<Event> {
        let class = Class::of(&event);
        // A writer may have counted some itself.
        let (times, pid) = (event.times(), event.pid);
        let (form, amounts) = form(event);
        let Some(used) = self.classes.get_mut(&class) else {
            return Vec::new();
        };
        if let Some(fold) = used.forms.get_mut(&form) {
            let forgotten = fold.is_forgotten(now_ms);
            fold.add(times, amounts, now_ms);
            if forgotten {
                fold.restart();
                return vec![of_process(fold.line(&form, now_ms), pid)];
            }
            let due = fold.due_ms;
            self.is_due(due);
            return Vec::new();
        }
        if !used.may_be_new(&form, now_ms) {
            if used.left_out == 0 {
                used.counts_due_ms = used.counts_due_ms.max(now_ms.saturating_add(FIRST_MS));
            }
            used.left_out = used.left_out.saturating_add(times);
            self.left_out_ever = self.left_out_ever.saturating_add(times);
            let due = used.counts_due_ms;
            self.is_due(due);
            return Vec::new();
        }
        let mut lines: Vec<Event> = used.make_room(now_ms).into_iter().collect();
        let mut fold = Fold::new(now_ms);
        fold.add(times, amounts, now_ms);
        lines.push(of_process(fold.line(&form, now_ms), pid));
        used.forms.insert(form, fold);
        lines
    }

    /// Whether an event would be in a line if it came now, for an action that may not happen without one. The lines of
    /// equal events that wait have their room too.
    pub fn admits(&mut self, event: &Event, now_ms: u64) -> bool {
        let (form, _) = form(event.clone());
        let Some(used) = self.classes.get_mut(&Class::of(event)) else {
            return false;
        };
        if used.of_waiting() > SHARE.saturating_sub(used.bytes).saturating_add(self.pool) {
            return false;
        }
        used.bucket.refill(OF_CLASS, now_ms);
        used.forms.contains_key(&form) || used.bucket.tokens >= 1000
    }

    /// Forgets the form of an event whose line was lost: the next one needs a line of its own.
    pub fn forget(&mut self, event: Event) {
        let class = Class::of(&event);
        if let Some(used) = self.classes.get_mut(&class) {
            used.forms.remove(&form(event).0);
        }
    }

    /// Counts one more event of a known form without making or copying anything, for frequent events. `form` must be
    /// [plain](Event::plain), without `pid` and `count`, and with zeros for the amounts that it has. `false`: not
    /// counted, because it may become a line; call [`Self::take`].
    pub fn again(&mut self, form: &Event, amounts: Amounts, now_ms: u64) -> bool {
        let used = self.classes.get_mut(&Class::of(form));
        let Some(fold) = used.and_then(|used| used.forms.get_mut(form)) else {
            return false;
        };
        if fold.is_forgotten(now_ms) {
            return false;
        }
        fold.add(1, amounts, now_ms);
        let due = fold.due_ms;
        self.is_due(due);
        true
    }

    /// The lines that are due by now.
    pub fn due(&mut self, now_ms: u64) -> Vec<Event> {
        self.collect(Some(now_ms))
    }

    /// All waiting lines, when the writer ends.
    pub fn rest(&mut self) -> Vec<Event> {
        self.collect(None)
    }

    /// Whether a line of this length still fits; counts its bytes. An event that does not fit is omitted.
    pub fn spend(&mut self, event: &Event, bytes: usize) -> bool {
        let class = Class::of(event);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let kept = match class {
            Class::Signatures => 0,
            _ => self.reserved_bytes(),
        };
        let Some(used) = self.classes.get_mut(&class) else {
            return false;
        };
        if let EventDetail::LeftOut { events, .. } = event.what {
            let fits = used.counts_bytes.saturating_add(bytes) <= COUNTS;
            match fits {
                true => used.counts_bytes += bytes,
                false => used.left_out = used.left_out.saturating_add(events),
            }
            return fits;
        }
        let over = used.bytes.saturating_add(bytes).saturating_sub(SHARE);
        let of_pool = over.min(bytes);
        if of_pool > 0 && of_pool.saturating_add(kept) > self.pool {
            used.left_out = used.left_out.saturating_add(event.times());
            self.left_out_ever = self.left_out_ever.saturating_add(event.times());
            let due = used.counts_due_ms;
            self.is_due(due);
            return false;
        }
        used.bytes = used.bytes.saturating_add(bytes);
        self.pool = self.pool.saturating_sub(of_pool);
        true
    }

    /// The bytes of the pool that no other class takes: signatures are handed out, and lines with their counts wait.
    fn reserved_bytes(&self) -> u64 {
        let used = self.classes.get(&Class::Signatures);
        used.filter(|used| !used.forms.is_empty())
            .map_or(0, |used| {
                used.of_waiting()
                    .saturating_sub(SHARE.saturating_sub(used.bytes))
            })
    }

    fn is_due(&mut self, at_ms: u64) {
        self.due_ms = Some(self.due_ms.map_or(at_ms, |due| due.min(at_ms)));
    }

    fn collect(&mut self, now_ms: Option<u64>) -> Vec<Event> {
        let mut lines = Vec::new();
        let mut next: Option<u64> = None;
        for (class, used) in &mut self.classes {
            for (form, fold) in &mut used.forms {
                if fold.pending == 0 {
                    continue;
                }
                if now_ms.is_none_or(|now| fold.due_ms <= now) {
                    lines.push(fold.line(form, now_ms.unwrap_or(fold.last_ms)));
                } else {
                    next = Some(next.map_or(fold.due_ms, |due| due.min(fold.due_ms)));
                }
            }
            if used.left_out == 0 {
                continue;
            }
            if now_ms.is_none_or(|now| used.counts_due_ms <= now) {
                lines.push(used.count(*class, now_ms.unwrap_or_default()));
            } else {
                next = Some(next.map_or(used.counts_due_ms, |due| due.min(used.counts_due_ms)));
            }
        }
        self.due_ms = next;
        lines
    }
}

impl ClassUse {
    /// The bytes that the waiting lines take, with one event more: its line, and one with its count.
    fn of_waiting(&self) -> u64 {
        let waiting = self.forms.values().filter(|fold| fold.pending > 0);
        let lines = u64::try_from(waiting.count() + 2).unwrap_or(u64::MAX);
        lines.saturating_mul(ROOM)
    }

    /// Whether a form may have its first line now.
    fn may_be_new(&mut self, form: &Event, now_ms: u64) -> bool {
        // Neither may a hundred harmless calls hide the dangerous one, nor a scan the attempt at credentials.
        let first = match &form.what {
            EventDetail::Syscall { name, .. } => Some((name.to_string(), MOST_CALLS)),
            EventDetail::Connection { host, .. } if is_of_clouds(host) => {
                Some((host.to_string(), MOST_CLOSED))
            }
            // A honeytoken, which the reason names.
            _ if form.has_cause(KnownCause::Honey) => form
                .reason
                .as_ref()
                .map(|why| (why.to_string(), MOST_CLOSED)),
            _ => None,
        };
        if let Some((first, most)) = first
            && self.firsts.len() < most
            && self.firsts.insert(first)
        {
            return true;
        }
        self.bucket.refill(OF_CLASS, now_ms);
        if self.bucket.tokens < 1000 {
            return false;
        }
        let host_may = match form.what.host() {
            Some(host) => {
                if !self.hosts.contains_key(host) && self.hosts.len() >= MOST_HOSTS {
                    // A full bucket is like a new one.
                    self.hosts.retain(|_, bucket| {
                        bucket.refill(OF_HOST, now_ms);
                        bucket.tokens < OF_HOST.burst * 1000
                    });
                    while self.hosts.len() >= MOST_HOSTS {
                        self.hosts.pop_first();
                    }
                }
                let bucket = self
                    .hosts
                    .entry(host.to_owned())
                    .or_insert_with(|| Bucket::full(OF_HOST, now_ms));
                bucket.refill(OF_HOST, now_ms);
                bucket.take()
            }
            None => true,
        };
        host_may && self.bucket.take()
    }

    /// The line that counts omitted events.
    fn count(&mut self, class: Class, now_ms: u64) -> Event {
        let what = EventDetail::LeftOut {
            of: class.as_str().into(),
            events: std::mem::take(&mut self.left_out),
        };
        self.counts_due_ms = now_ms.saturating_add(self.counts_gap_ms);
        self.counts_gap_ms = self.counts_gap_ms.saturating_mul(2);
        Event {
            by: (class == Class::Verify).then_some(Actor::Verify),
            reason: Some("too many events: they are counted without lines".into()),
            ..Event::new(class.wall(), Verdict::Noted, what)
        }
    }

    /// Forgets the oldest form if there are too many. Returns its line if it has pending events.
    fn make_room(&mut self, now_ms: u64) -> Option<Event> {
        if self.forms.len() < MOST_FORMS {
            return None;
        }
        let oldest = self.forms.iter().min_by_key(|(_, fold)| fold.last_ms);
        let form = oldest.map(|(form, _)| form.clone())?;
        let mut fold = self.forms.remove(&form)?;
        (fold.pending > 0).then(|| fold.line(&form, now_ms))
    }
}

/// Whether clouds serve credentials at this address.
fn is_of_clouds(host: &str) -> bool {
    host.parse().is_ok_and(is_closed)
}
