//! The open outbound connections: for `agentbox network`, and to close them when the rules change.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use chrono::{DateTime, Utc};
use tokio::sync::Notify;

use super::permission::CurrentRequest;
use crate::audit::{Event, EventDetail, Verdict, WallName};
use crate::egress::LiveConnection;
use crate::rules::{Host, HostReach};

/// The most connections that one answer lists.
const LISTED: usize = 1000;

/// An allowed connection.
pub(super) struct AllowedConnection {
    pub host: Host,
    pub port: u16,
    /// Whether it may lead to private addresses.
    pub reach: HostReach,
    /// Whether the operator approved only this connection.
    pub once: bool,
    /// The current request, if requests are decided and not the connection.
    pub request: Option<CurrentRequest>,
    /// Whether `network.connect` permits it, and no rule.
    pub is_service: bool,
    /// Its two events.
    pub forms: Rc<LiveEvents>,
    /// The dialled address, once known. Behind a proxy that resolves names it stays unknown.
    pub address: Cell<Option<IpAddr>>,
    pub since: DateTime<Utc>,
    /// Whether the host has answered.
    pub began: Cell<bool>,
    pub sent: Cell<u64>,
    pub received: Cell<u64>,
    /// Signalled once, when the connection is no longer allowed.
    pub revoked: Notify,
}

/// The events that all connections of one rule to one host share. They are made once, and compared with events in the
/// log.
pub(super) struct LiveEvents {
    host: Host,
    port: u16,
    /// The rule or approval, in words.
    rule: String,
    pub began: Event,
    pub ended: Event,
}

impl LiveEvents {
    fn new(host: &Host, port: u16, rule: String) -> Self {
        // Without bytes at the beginning.
        let event = |verdict, bytes: Option<u64>| {
            let what = EventDetail::Connection {
                via: None,
                host: host.to_string().into(),
                port: Some(port),
                sent: bytes,
                received: bytes,
            };
            Event {
                rule: Some(rule.clone().into()),
                ..Event::new(WallName::Network, verdict, what)
            }
        };
        Self {
            began: event(Verdict::Allowed, None),
            ended: event(Verdict::Ended, Some(0)),
            host: host.clone(),
            port,
            rule,
        }
    }

    fn are_of(&self, host: &Host, port: u16, rule: &str) -> bool {
        self.port == port && self.host == *host && self.rule == rule
    }
}

/// The most shared events that are kept.
const MOST_FORMS: usize = 32;

/// All open connections, by numbers that are never reused.
#[derive(Default)]
pub(super) struct Connections {
    pub open: RefCell<BTreeMap<u64, Rc<AllowedConnection>>>,
    /// The newest last.
    forms: RefCell<Vec<Rc<LiveEvents>>>,
    pub next: Cell<u64>,
}

impl Connections {
    /// The oldest connections, and how many more there are.
    pub fn list(&self) -> (Vec<LiveConnection>, usize) {
        let open = self.open.borrow();
        let list = open.values().take(LISTED).map(|live| live.shown());
        (list.collect(), open.len().saturating_sub(LISTED))
    }

    /// The events of this rule's connections to a host.
    pub fn forms_of(&self, host: &Host, port: u16, rule: String) -> Rc<LiveEvents> {
        let mut all = self.forms.borrow_mut();
        if let Some(known) = all.iter().find(|forms| forms.are_of(host, port, &rule)) {
            return Rc::clone(known);
        }
        if all.len() >= MOST_FORMS {
            all.remove(0);
        }
        let new = Rc::new(LiveEvents::new(host, port, rule));
        all.push(Rc::clone(&new));
        new
    }

    /// Ends every connection for which `holds` is false; returns how many.
    pub fn end_unless(&self, holds: impl Fn(&AllowedConnection) -> bool) -> usize {
        let open = self.open.borrow();
        let ended = open.values().filter(|live| !holds(live));
        ended.inspect(|live| live.revoked.notify_one()).count()
    }
}

impl AllowedConnection {
    fn shown(&self) -> LiveConnection {
        LiveConnection {
            host: self.host.clone(),
            port: self.port,
            since: self
                .since
                .to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
            sent: self.sent.get(),
            received: self.received.get(),
        }
    }
}
