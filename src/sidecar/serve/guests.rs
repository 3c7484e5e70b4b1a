//! The open inbound connections and their totals: the lines in `agentbox network`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use chrono::{DateTime, Utc};

use super::pool::Pool;
use crate::audit::{ConnectionKind, Event, EventDetail, Verdict, WallName};
use crate::egress::{InboundConnection, InboundStatus, InboundTotal};

/// An open inbound connection.
pub(super) struct OpenInbound {
    pub port: u16,
    pub from: Option<IpAddr>,
    pub since: DateTime<Utc>,
    pub sent: Cell<u64>,
    pub received: Cell<u64>,
}

/// All open inbound connections, and the totals.
#[derive(Default)]
pub(super) struct Guests {
    pub open: RefCell<BTreeMap<u64, Rc<OpenInbound>>>,
    totals: RefCell<BTreeMap<u16, InboundTotal>>,
    /// Ports without a listener inside, already logged.
    pub deserted: RefCell<BTreeSet<u16>>,
    pub next: Cell<u64>,
    /// The sockets to dial inside with.
    pub pool: Rc<Pool>,
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

    /// Whether connections from outside lead to a port.
    pub fn lead_to(&self, port: u16) -> bool {
        self.totals.borrow().contains_key(&port)
    }

    /// Adds to the totals of a port.
    pub fn count(&self, port: u16, add: impl FnOnce(&mut InboundTotal)) {
        add(self.totals.borrow_mut().entry(port).or_default());
    }
}

impl OpenInbound {
    /// For the log; without bytes at the beginning.
    pub fn event(&self, verdict: Verdict) -> Event {
        let bytes = |bytes: &Cell<u64>| (verdict == Verdict::Ended).then(|| bytes.get());
        let what = EventDetail::Connection {
            via: Some(ConnectionKind::Inbound),
            host: self
                .from
                .map(|from| from.to_string().into())
                .unwrap_or_default(),
            port: Some(self.port),
            sent: bytes(&self.sent),
            received: bytes(&self.received),
        };
        Event {
            rule: Some(format!("network.inbound: {}", self.port).into()),
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
