//! Budgets: limits on a container's network use in all ways together.

use serde::{Deserialize, Serialize};

/// The most that one container's connections may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Budget {
    /// Connections at once.
    pub connections: u32,
    /// New connections in a minute.
    pub connections_per_minute: u32,
    /// Bytes sent in the container's life.
    pub upload_bytes: u64,
    /// Different names resolved in the container's life.
    pub hosts: u32,
    /// Seconds without new connections after a budget is used up.
    #[serde(default)]
    pub cool_down_seconds: u32,
}

/// Which budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverBudget {
    /// [`Budget::connections`].
    Connections(u32),
    /// [`Budget::connections_per_minute`].
    Rate(u32),
    /// [`Budget::upload_bytes`].
    Upload(u64),
    /// [`Budget::hosts`].
    Hosts(u32),
    /// The pause after a used-up budget; this many seconds are left.
    CoolDown(u64),
}

impl OverBudget {
    /// The word under which it is counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Connections(_) => "over-connections",
            Self::Rate(_) => "over-connections-per-minute",
            Self::Upload(_) => "over-upload",
            Self::Hosts(_) => "over-hosts",
            Self::CoolDown(_) => "cool-down",
        }
    }
}

/// The use so far.
#[derive(Debug)]
pub struct Ledger {
    budget: Budget,
    open: u32,
    /// Connections that may start now, in sixtieths of one, as of `refilled`: a bucket that fills within a minute.
    tokens: u64,
    refilled_ms: u64,
    sent: u64,
    /// The end of the pause.
    cold_until_ms: u64,
}

impl Ledger {
    /// Nothing used yet at `now_ms` of any monotonic clock.
    pub fn new(budget: Budget, now_ms: u64) -> Self {
        Self {
            budget,
            open: 0,
            tokens: u64::from(budget.connections_per_minute) * 60_000,
            refilled_ms: now_ms,
            sent: 0,
            cold_until_ms: 0,
        }
    }

    /// Whether the pause after a used-up budget is over.
    pub fn check_pause(&self, now_ms: u64) -> Result<(), OverBudget> {
        match self.cold_until_ms.checked_sub(now_ms) {
            None | Some(0) => Ok(()),
            Some(left) => Err(OverBudget::CoolDown(left.div_ceil(1000))),
        }
    }

    /// Starts the pause, if there is one, because a budget is used up.
    pub fn begin_pause(&mut self, now_ms: u64) {
        let pause = u64::from(self.budget.cool_down_seconds) * 1000;
        self.cold_until_ms = now_ms.saturating_add(pause);
    }

    /// Counts a new connection. [`Ledger::close`] ends it.
    pub fn open(&mut self, now_ms: u64) -> Result<(), OverBudget> {
        self.check_pause(now_ms)?;
        let taken = self.take(now_ms);
        if taken.is_err() {
            self.begin_pause(now_ms);
        }
        taken
    }

    /// Counts a new inbound connection. It does not count among the new connections per minute, and starts no pause:
    /// strangers could otherwise cause one.
    pub fn open_inward(&mut self, now_ms: u64) -> Result<(), OverBudget> {
        self.check_pause(now_ms)?;
        self.check_room()?;
        self.open += 1;
        Ok(())
    }

    fn check_room(&self) -> Result<(), OverBudget> {
        let Budget {
            connections,
            upload_bytes,
            ..
        } = self.budget;
        if self.open >= connections {
            return Err(OverBudget::Connections(connections));
        }
        if self.sent >= upload_bytes {
            return Err(OverBudget::Upload(upload_bytes));
        }
        Ok(())
    }

    fn take(&mut self, now_ms: u64) -> Result<(), OverBudget> {
        let Budget {
            connections: _,
            connections_per_minute,
            upload_bytes: _,
            hosts: _,
            cool_down_seconds: _,
        } = self.budget;
        let full = u64::from(connections_per_minute) * 60_000;
        let elapsed = now_ms.saturating_sub(self.refilled_ms);
        self.tokens = full.min(
            self.tokens
                .saturating_add(elapsed.saturating_mul(u64::from(connections_per_minute))),
        );
        self.refilled_ms = now_ms;
        self.check_room()?;
        if self.tokens < 60_000 {
            return Err(OverBudget::Rate(connections_per_minute));
        }
        self.tokens -= 60_000;
        self.open += 1;
        Ok(())
    }

    /// Ends a connection.
    pub fn close(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Counts bytes that are about to be sent upstream.
    pub fn send(&mut self, bytes: u64, now_ms: u64) -> Result<(), OverBudget> {
        let sent = self.send_inward(bytes);
        if sent.is_err() {
            self.begin_pause(now_ms);
        }
        sent
    }

    /// The same for an inbound connection, which starts no pause.
    pub fn send_inward(&mut self, bytes: u64) -> Result<(), OverBudget> {
        let sent = self.sent.saturating_add(bytes);
        if sent > self.budget.upload_bytes {
            return Err(OverBudget::Upload(self.budget.upload_bytes));
        }
        self.sent = sent;
        Ok(())
    }

    /// Open connections and bytes sent.
    pub fn used(&self) -> (u32, u64) {
        (self.open, self.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let budget = Budget {
            connections: 2,
            connections_per_minute: 3,
            upload_bytes: 10,
            hosts: 1,
            cool_down_seconds: 0,
        };
        Ledger::new(budget, 1000)
    }

    #[test]
    fn counts_connections_at_once() {
        let mut ledger = ledger();
        ledger.open(1000).unwrap();
        ledger.open(1000).unwrap();
        assert_eq!(ledger.open(1000), Err(OverBudget::Connections(2)));
        ledger.close();
        ledger.open(1000).unwrap();
        assert_eq!(ledger.used(), (2, 0));
    }

    #[test]
    fn counts_new_connections_in_a_minute() {
        let mut ledger = ledger();
        for _ in 0..3 {
            ledger.open(1000).unwrap();
            ledger.close();
        }
        assert_eq!(ledger.open(1000), Err(OverBudget::Rate(3)));
        assert_eq!(ledger.open(20_999), Err(OverBudget::Rate(3)));
        ledger.open(21_000).unwrap();
        ledger.close();
        assert_eq!(ledger.open(21_001), Err(OverBudget::Rate(3)));
        for _ in 0..3 {
            ledger.open(10_000_000).unwrap();
            ledger.close();
        }
        assert_eq!(ledger.open(10_000_000), Err(OverBudget::Rate(3)));
    }

    #[test]
    fn counts_sent_bytes() {
        let mut ledger = ledger();
        ledger.send(10, 1000).unwrap();
        assert_eq!(ledger.send(1, 1000), Err(OverBudget::Upload(10)));
        assert_eq!(ledger.open(1000), Err(OverBudget::Upload(10)));
        assert_eq!(ledger.send(u64::MAX, 1000), Err(OverBudget::Upload(10)));
    }

    #[test]
    fn after_a_used_up_budget_nothing_goes_through_for_a_while() {
        let mut ledger = ledger();
        ledger.budget.cool_down_seconds = 5;
        ledger.open(1000).unwrap();
        ledger.open(1000).unwrap();
        assert_eq!(ledger.open(1000), Err(OverBudget::Connections(2)));
        ledger.close();
        // Connections that are refused in the pause do not extend it.
        for now in [1000, 3000, 5999] {
            assert!(matches!(ledger.open(now), Err(OverBudget::CoolDown(_))));
        }
        assert_eq!(ledger.check_pause(5999), Err(OverBudget::CoolDown(1)));
        ledger.open(6000).unwrap();
        // Sending too much starts a pause too.
        assert_eq!(ledger.send(11, 7000), Err(OverBudget::Upload(10)));
        assert_eq!(ledger.open(8000), Err(OverBudget::CoolDown(4)));
    }

    /// N-M6: inbound clients cannot stop outbound connections.
    #[test]
    fn inbound_connections_start_no_pause() {
        let mut ledger = ledger();
        ledger.budget.cool_down_seconds = 5;
        ledger.open_inward(1000).unwrap();
        ledger.open_inward(1000).unwrap();
        assert_eq!(ledger.open_inward(1000), Err(OverBudget::Connections(2)));
        assert_eq!(ledger.send_inward(11), Err(OverBudget::Upload(10)));
        ledger.close();
        ledger.open(1000).unwrap();
    }

    /// N-M6: inbound connections use the budgets of connections and bytes.
    #[test]
    fn inbound_connections_count_but_not_per_minute() {
        let budget = Budget {
            connections: 3,
            connections_per_minute: 1,
            upload_bytes: 100,
            hosts: 1,
            cool_down_seconds: 0,
        };
        let mut ledger = Ledger::new(budget, 0);
        for _ in 0..10 {
            ledger.open_inward(0).unwrap();
            ledger.close();
        }
        ledger.open(0).unwrap();
        assert_eq!(ledger.open(0), Err(OverBudget::Rate(1)));
        ledger.open_inward(0).unwrap();
        ledger.open_inward(0).unwrap();
        assert_eq!(ledger.open_inward(0), Err(OverBudget::Connections(3)));
        ledger.close();
        ledger.send(100, 0).unwrap();
        assert_eq!(ledger.open_inward(0), Err(OverBudget::Upload(100)));
        assert_eq!(ledger.used(), (2, 100));
    }
}
