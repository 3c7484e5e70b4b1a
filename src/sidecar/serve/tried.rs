//! Attempts of `verify`, told from the workload's by the ports that the runtime sends over the control socket.

use std::cell::{Cell, RefCell};

use crate::audit::Actor;
use crate::egress::tried::{TRIED_WITHIN, TriedPorts};

/// How long the ports count, in milliseconds: a second longer than one `verify` tries, even if it dies.
pub(super) const COUNT_WITHIN_MS: u64 = TRIED_WITHIN.as_secs() * 1000 + 1000;

/// The attempts that `verify` announced, and the actor whose attempt the sidecar handles now.
#[derive(Debug, Default)]
pub(super) struct VerifyAttempts {
    pub from: RefCell<TriedPorts>,
    pub until_ms: Cell<u64>,
    by: Cell<Option<Actor>>,
}

impl VerifyAttempts {
    /// The actor of the current events, if it is not the workload.
    pub fn by(&self) -> Option<Actor> {
        self.by.get()
    }

    /// Runs `act`, whose events are this actor's.
    pub fn on_behalf<T>(&self, by: Option<Actor>, act: impl FnOnce() -> T) -> T {
        let before = self.by.replace(by);
        let done = act();
        self.by.set(before);
        done
    }

    /// Whether the ports no longer count.
    pub fn is_late(&self, now_ms: u64) -> bool {
        now_ms >= self.until_ms.get()
    }
}
