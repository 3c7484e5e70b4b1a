//! The relay's log, and the pace of what it serves.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::audit::Event;
use crate::sidecar::journal::Journal;

/// After five seconds without a request a burst of this length costs nothing.
const BURST: Duration = Duration::from_secs(5);

/// What all connections share.
pub(super) struct RelayLog {
    journal: RefCell<Journal>,
    /// A line of the log is due earlier than before.
    due: Notify,
    began: Instant,
    /// When the time of all requests so far is paid.
    paid: Cell<Instant>,
}

impl RelayLog {
    pub fn new(journal: Journal) -> Self {
        let now = Instant::now();
        Self {
            journal: RefCell::new(journal),
            due: Notify::new(),
            began: now,
            paid: Cell::new(now),
        }
    }

    /// Waits as long as the rate of requests requires, of which this one costs so much time: a flood costs the node little.
    pub async fn pace(&self, cost: Duration) {
        let now = Instant::now();
        let earliest = now.checked_sub(BURST).unwrap_or(self.began);
        let paid = self.paid.get().max(earliest) + cost;
        self.paid.set(paid);
        if paid > now {
            tokio::time::sleep_until(paid).await;
        }
    }

    fn milliseconds(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub fn write(&self, event: Event) {
        let now = self.milliseconds();
        self.journal.borrow_mut().write(event, now);
        self.due.notify_one();
    }

    /// Whether the log would take a line now ([`Journal::admits`]).
    pub fn admits(&self, event: &Event) -> bool {
        let now = self.milliseconds();
        self.journal.borrow_mut().admits(event, now)
    }

    /// Writes a line, and says whether it is there ([`Journal::record`]).
    pub fn record(&self, event: Event) -> bool {
        let now = self.milliseconds();
        let is_recorded = self.journal.borrow_mut().record(event, now);
        self.due.notify_one();
        is_recorded
    }

    /// Writes the last lines.
    pub fn close(&self) {
        self.journal.borrow_mut().close();
    }
}

/// Writes the log's lines when they are due. Without a due line it sleeps.
pub(super) async fn keep(log: Rc<RelayLog>) {
    loop {
        let due = log.journal.borrow().due_ms();
        let earlier = log.due.notified();
        let Some(due) = due else {
            earlier.await;
            continue;
        };
        let left = Duration::from_millis(due.saturating_sub(log.milliseconds()));
        if tokio::time::timeout(left, earlier).await.is_err() {
            let now = log.milliseconds();
            log.journal.borrow_mut().flush(now);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs::File;
    use std::io::{Read, Seek};

    use super::*;
    use crate::audit::Log;

    /// A log's file.
    pub fn memory() -> File {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        File::from(rustix::fs::memfd_create("log", flags).unwrap())
    }

    /// The lines of a log, none of which is damaged.
    pub fn lines(mut file: File) -> Vec<Event> {
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        let log = Log::parse("x", text.as_bytes());
        assert!(log.faults.is_empty(), "{:?}", log.faults);
        log.lines.into_iter().map(|line| line.event).collect()
    }
}
