//! Inbound connections: their share of the budget, and their lines in `agentbox network`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use chrono::{DateTime, Utc};

use super::wall::Wall;
use crate::audit::{ConnectionKind, Event, EventDetail, Verdict, WallName};
use crate::egress::InboundConnection;
use crate::egress::InboundStatus;
use crate::egress::InboundTotal;
use crate::egress::OverBudget;

/// An open inbound connection.
struct OpenInbound {
    port: u16,
    from: Option<IpAddr>,
    since: DateTime<Utc>,
    sent: Cell<u64>,
    received: Cell<u64>,
}

/// All open inbound connections, and the totals.
#[derive(Default)]
pub(super) struct Guests {
    open: RefCell<BTreeMap<u64, Rc<OpenInbound>>>,
    totals: RefCell<BTreeMap<u16, InboundTotal>>,
    /// Ports without a listener inside, already logged.
    deserted: RefCell<BTreeSet<u16>>,
    next: Cell<u64>,
}

impl Guests {
    /// For these inbound ports.
    pub fn of(ports: impl IntoIterator<Item = u16>) -> Self {
        let totals = ports
            .into_iter()
            .map(|port| (port, InboundTotal::default()));
        Self {
            totals: RefCell::new(totals.collect()),
            ..Self::default()
        }
    }

    /// The current state.
    pub fn status(&self) -> InboundStatus {
        let open = self.open.borrow();
        InboundStatus {
            ports: self.totals.borrow().clone(),
            connections: open.values().map(|one| one.shown()).collect(),
        }
    }

    fn count(&self, port: u16, add: impl FnOnce(&mut InboundTotal)) {
        add(self.totals.borrow_mut().entry(port).or_default());
    }
}

impl OpenInbound {
    /// For the log; without bytes at the beginning.
    fn event(&self, verdict: Verdict) -> Event {
        let bytes = |bytes: &Cell<u64>| (verdict == Verdict::Ended).then(|| bytes.get());
        let what = EventDetail::Connection {
            via: Some(ConnectionKind::Inbound),
            host: self.from.map_or_else(String::new, |from| from.to_string()),
            port: Some(self.port),
            sent: bytes(&self.sent),
            received: bytes(&self.received),
        };
        Event {
            rule: Some(format!("network.inbound: {}", self.port)),
            ..Event::new(WallName::Network, verdict, what)
        }
    }

    fn shown(&self) -> InboundConnection {
        InboundConnection {
            port: self.port,
            from: self.from,
            since: self
                .since
                .to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
            sent: self.sent.get(),
            received: self.received.get(),
        }
    }
}

/// An inbound connection's share of the budget, freed on drop.
pub(super) struct Guest<'a> {
    wall: &'a Wall,
    number: u64,
    open: Rc<OpenInbound>,
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.wall.guests.open.borrow_mut().remove(&self.number);
        self.wall.close();
        self.wall.log(self.open.event(Verdict::Ended));
    }
}

impl Guest<'_> {
    /// Counts bytes that are about to leave the container.
    pub fn send(&self, bytes: usize) -> Result<(), OverBudget> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.wall.send_inward(bytes)?;
        self.open
            .sent
            .set(self.open.sent.get().saturating_add(bytes));
        self.wall.guests.count(self.open.port, |total| {
            total.sent = total.sent.saturating_add(bytes);
        });
        Ok(())
    }

    /// Counts bytes that came in.
    pub fn receive(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let received = &self.open.received;
        received.set(received.get().saturating_add(bytes));
        self.wall.guests.count(self.open.port, |total| {
            total.received = total.received.saturating_add(bytes);
        });
    }
}

impl Wall {
    /// The only place where an inbound connection is allowed.
    pub fn let_in(&self, port: u16, from: Option<IpAddr>) -> Result<Guest<'_>, OverBudget> {
        self.open_inward()?;
        let open = Rc::new(OpenInbound {
            port,
            from,
            since: Utc::now(),
            sent: Cell::new(0),
            received: Cell::new(0),
        });
        let guests = &self.guests;
        self.log(open.event(Verdict::Allowed));
        let number = guests.next.get();
        guests.next.set(number + 1);
        guests.open.borrow_mut().insert(number, Rc::clone(&open));
        guests.count(port, |total| {
            total.connections = total.connections.saturating_add(1);
        });
        Ok(Guest {
            wall: self,
            number,
            open,
        })
    }

    /// Logs that no program listens on a port: once, until one does. Probes try every few seconds.
    pub fn find_nobody(&self, port: u16, from: Option<IpAddr>) {
        if self.guests.deserted.borrow_mut().insert(port) {
            let from = from.map_or_else(String::new, |from| from.to_string());
            let why = "no program of the container listens on this port of its loopback";
            self.note_failed(ConnectionKind::Inbound, &from, port, why);
        }
    }

    /// A program inside has answered.
    pub fn find_somebody(&self, port: u16) {
        self.guests.deserted.borrow_mut().remove(&port);
    }

    /// Logs that an inbound connection was refused.
    pub fn send_away(&self, port: u16, from: Option<IpAddr>, over: OverBudget) {
        let from = from.map_or_else(String::new, |from| from.to_string());
        self.note(
            ConnectionKind::Inbound,
            &from,
            Some(port),
            over.kind(),
            &over.to_string(),
        );
    }
}
