//! The open outbound connections: for `agentbox network`, and to close them when the rules change.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::rc::Rc;

use chrono::{DateTime, Utc};
use tokio::sync::Notify;

use super::asks::{CurrentRequest, Permission};
use super::refusal::Refusal;
use super::wall::Wall;
use crate::audit::{Event, EventDetail, Verdict, WallName};
use crate::egress::LiveConnection;
use crate::egress::OverBudget;
use crate::policy::{Host, HostName, HostReach};

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
    /// Its two events.
    forms: Rc<LiveEvents>,
    /// The dialled address, once known. Behind a proxy that resolves names it stays unknown.
    pub address: Cell<Option<IpAddr>>,
    since: DateTime<Utc>,
    /// Whether the host has answered.
    began: Cell<bool>,
    sent: Cell<u64>,
    received: Cell<u64>,
    /// Signalled once, when the connection is no longer allowed.
    revoked: Notify,
}

/// The events that all connections of one rule to one host share. They are made once, and compared with events in the
/// log.
struct LiveEvents {
    host: Host,
    port: u16,
    /// The rule or approval, in words.
    rule: String,
    began: Event,
    ended: Event,
}

impl LiveEvents {
    fn new(host: &Host, port: u16, rule: String) -> Self {
        // Without bytes at the beginning.
        let event = |verdict, bytes: Option<u64>| {
            let what = EventDetail::Connection {
                via: None,
                host: host.to_string(),
                port: Some(port),
                sent: bytes,
                received: bytes,
            };
            Event {
                rule: Some(rule.clone()),
                ..Event::new(WallName::Network, verdict, what)
            }
            .plain()
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
    open: RefCell<BTreeMap<u64, Rc<AllowedConnection>>>,
    /// The newest last.
    forms: RefCell<Vec<Rc<LiveEvents>>>,
    next: Cell<u64>,
}

impl Connections {
    /// The oldest connections, and how many more there are.
    pub fn list(&self) -> (Vec<LiveConnection>, usize) {
        let open = self.open.borrow();
        let list = open.values().take(LISTED).map(|live| live.shown());
        (list.collect(), open.len().saturating_sub(LISTED))
    }

    fn forms_of(&self, host: &Host, port: u16, rule: String) -> Rc<LiveEvents> {
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

/// A connection's share of the budget and its place among the open ones; both end on drop.
pub(super) struct Share<'a> {
    wall: &'a Wall,
    number: u64,
    live: Rc<AllowedConnection>,
    /// Whether its host is being resolved and dialled, with nothing logged yet.
    dials: Cell<bool>,
}

impl std::fmt::Debug for Share<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Share")
    }
}

impl<'a> Share<'a> {
    /// For a connection that the ledger has counted.
    pub fn new(wall: &'a Wall, host: Host, port: u16, permission: Permission) -> Self {
        let forms = wall.connections.forms_of(&host, port, permission.rule);
        let live = Rc::new(AllowedConnection {
            host,
            port,
            reach: permission.reach,
            once: permission.once,
            request: permission.request,
            forms,
            address: Cell::new(None),
            since: Utc::now(),
            began: Cell::new(false),
            sent: Cell::new(0),
            received: Cell::new(0),
            revoked: Notify::new(),
        });
        let number = wall.connections.next.get();
        wall.connections.next.set(number + 1);
        let open = &wall.connections.open;
        open.borrow_mut().insert(number, Rc::clone(&live));
        Self {
            wall,
            number,
            live,
            dials: Cell::new(false),
        }
    }

    /// Dials. The log always shows that something was sent: by the outcome, or by the drop of this share.
    pub async fn dial<T>(
        &self,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        self.dials.set(true);
        let done = work.await;
        self.dials.set(false);
        done
    }

    /// Logs that the connection was allowed, now that the host has answered. Its end then logs the bytes.
    pub fn begin(&self) {
        if !self.live.began.replace(true) {
            self.wall.log_again(&self.live.forms.began, (None, None));
        }
    }

    /// Sets the connection's address: later rules about the address apply to it.
    pub fn leads_to(&self, address: IpAddr) {
        self.live.address.set(Some(address));
    }

    /// Whether its requests are decided, and not the connection.
    pub fn carries_requests(&self) -> bool {
        self.live.request.is_some()
    }

    /// Counts bytes that are about to be sent upstream.
    pub fn send(&self, bytes: usize) -> Result<(), OverBudget> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.wall.send(bytes)?;
        let sent = &self.live.sent;
        sent.set(sent.get().saturating_add(bytes));
        Ok(())
    }

    /// Counts a name that an outside resolver will receive: many such names in order can carry data.
    pub fn ask_for(&self, name: &HostName) -> Result<(), Refusal> {
        let bytes = u64::try_from(name.as_str().len()).unwrap_or(u64::MAX);
        self.wall.send(bytes).map_err(Refusal::Over)
    }

    /// Counts bytes that came back.
    pub fn receive(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let received = &self.live.received;
        received.set(received.get().saturating_add(bytes));
    }

    /// Runs `work` until it is done, or the connection is no longer allowed.
    pub async fn while_allowed<T>(
        &self,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        tokio::select! {
            biased;
            () = self.live.revoked.notified() => {
                self.dials.set(false);
                Err(Refusal::Revoked)
            }
            done = work => done,
        }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.wall.connections.open.borrow_mut().remove(&self.number);
        self.wall.close();
        let live = &self.live;
        if self.dials.get() {
            self.wall.note_given_up(&live.host, live.port);
        }
        if !live.began.get() {
            return;
        }
        let amounts = (Some(live.sent.get()), Some(live.received.get()));
        self.wall.log_again(&live.forms.ended, amounts);
    }
}
