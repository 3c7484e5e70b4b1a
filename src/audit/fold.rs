//! PURE. Equal events, which are folded into one line with their count.

use super::event::Event;
use super::what::EventDetail;

/// From an event to the first line that counts equal ones, and the longest gap between two such lines.
pub(super) const FIRST_MS: u64 = 2_000;
const LONGEST_MS: u64 = 3_600_000;
/// After this long without one, an event counts as a first one again.
const FORGOTTEN_MS: u64 = 60_000;

/// Sent and received bytes of a connection, if known.
pub type Amounts = (Option<u64>, Option<u64>);

/// The state of a form.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fold {
    /// Events since its last line.
    pub pending: u64,
    sent: u64,
    received: u64,
    gap_ms: u64,
    pub due_ms: u64,
    pub last_ms: u64,
}

/// Only a line of one event names its process.
pub(super) fn of_process(line: Event, pid: Option<i32>) -> Event {
    Event {
        pid: pid.filter(|_| line.count.is_none()),
        ..line
    }
}

/// Splits an event into its form, which equal events share, and its amounts.
pub(super) fn form(mut event: Event) -> (Event, Amounts) {
    event.pid = None;
    event.count = None;
    let mut amounts = (None, None);
    if let EventDetail::Connection { sent, received, .. } = &mut event.what {
        // A form with amounts keeps them as zeros, so that its lines have them too.
        amounts = (*sent, *received);
        *sent = sent.map(|_| 0);
        *received = received.map(|_| 0);
    }
    (event, amounts)
}

impl Fold {
    pub fn new(now_ms: u64) -> Self {
        Self {
            pending: 0,
            sent: 0,
            received: 0,
            gap_ms: FIRST_MS,
            due_ms: now_ms,
            last_ms: now_ms,
        }
    }

    /// Makes the next gap the shortest again.
    pub fn restart(&mut self) {
        self.gap_ms = FIRST_MS;
    }

    /// Whether the next event counts as a first one again.
    pub fn is_forgotten(&self, now_ms: u64) -> bool {
        self.pending == 0 && now_ms.saturating_sub(self.last_ms) > FORGOTTEN_MS
    }

    pub fn add(&mut self, times: u64, (sent, received): Amounts, now_ms: u64) {
        if self.pending == 0 {
            self.due_ms = self.due_ms.max(now_ms.saturating_add(FIRST_MS));
        }
        self.pending = self.pending.saturating_add(times);
        self.sent = self.sent.saturating_add(sent.unwrap_or(0));
        self.received = self.received.saturating_add(received.unwrap_or(0));
        self.last_ms = now_ms;
    }

    /// The line of the pending events, which it clears.
    pub fn line(&mut self, form: &Event, now_ms: u64) -> Event {
        let mut event = form.clone();
        let count = std::mem::take(&mut self.pending);
        event.count = (count > 1).then_some(count);
        if let EventDetail::Connection { sent, received, .. } = &mut event.what {
            *sent = sent.map(|_| std::mem::take(&mut self.sent));
            *received = received.map(|_| std::mem::take(&mut self.received));
        }
        self.due_ms = now_ms.saturating_add(self.gap_ms);
        self.gap_ms = (self.gap_ms * 2).min(LONGEST_MS);
        event
    }
}
