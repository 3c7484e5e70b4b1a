//! What all connections share: the rules, the names, the budget, the resolver and the log.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use super::Serving;
use super::journal::{Event, Journal, Via};
use super::upstream::Upstream;
use crate::egress::names::Names;
use crate::egress::{Budget, Decision, Denial, Ledger, OverBudget, Rules};
use crate::policy::{Host, HostName};
use crate::sys::netlink::RouteSocket;

/// The state of one sidecar. Single-threaded: no borrow is held over an await.
pub(super) struct Wall {
    pub rules: RefCell<Rules>,
    pub names: RefCell<Names>,
    pub ipv6: bool,
    pub ports: Vec<u16>,
    pub upstream: Upstream,
    budget: Budget,
    ledger: RefCell<Ledger>,
    journal: RefCell<Journal>,
    began: Instant,
    allowed: Cell<u64>,
}

/// A connection that may go on, and the rule's word on private addresses.
#[derive(Debug)]
pub(super) struct Admitted<'a> {
    pub host: Host,
    pub port: u16,
    pub internal: bool,
    pub share: Share<'a>,
}

/// A connection's share of the budget, given back when it is dropped.
pub(super) struct Share<'a> {
    wall: &'a Wall,
}

impl std::fmt::Debug for Share<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Share")
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.wall.ledger.borrow_mut().close();
    }
}

impl Share<'_> {
    /// Counts bytes that are about to be sent upstream.
    pub fn send(&self, bytes: usize) -> Result<(), OverBudget> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.wall.ledger.borrow_mut().send(bytes)
    }
}

/// Why a connection does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The rules.
    Denied(Denial),
    /// The budget.
    Over(OverBudget),
    /// What the connection said, or where the name led.
    Other(String),
    /// Allowed, and not to be had: no violation.
    Unreachable(String),
    /// One of the two sides is gone: no violation either.
    Broken(std::io::ErrorKind),
}

impl Refusal {
    /// Whether the wall refused, as opposed to the network.
    pub fn is_violation(&self) -> bool {
        matches!(self, Self::Denied(_) | Self::Over(_) | Self::Other(_))
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Denied(denial) => denial.fmt(f),
            Self::Over(over) => over.fmt(f),
            Self::Other(why) | Self::Unreachable(why) => f.write_str(why),
            Self::Broken(kind) => write!(f, "the connection broke: {kind}"),
        }
    }
}

impl Wall {
    pub fn new(serving: Serving, journal: OwnedFd, route: RouteSocket) -> Self {
        let Serving {
            rules,
            budget,
            ports,
            ipv6,
        } = serving;
        let began = Instant::now();
        Self {
            rules: RefCell::new(rules),
            names: RefCell::new(Names::new(budget.hosts)),
            ipv6,
            ports,
            upstream: Upstream::new(route),
            budget,
            ledger: RefCell::new(Ledger::new(budget, 0)),
            journal: RefCell::new(Journal::new(journal)),
            began,
            allowed: Cell::new(0),
        }
    }

    /// The one place where a connection is let through.
    pub fn admit(&self, host: Host, port: u16) -> Result<Admitted<'_>, Refusal> {
        let internal = match self.rules.borrow().decide(&host, port) {
            Decision::Allow(rule) => rule.internal,
            Decision::Deny(denial) => return Err(Refusal::Denied(denial)),
        };
        let now = self.milliseconds();
        self.ledger.borrow_mut().open(now).map_err(Refusal::Over)?;
        self.allowed.set(self.allowed.get().saturating_add(1));
        Ok(Admitted {
            host,
            port,
            internal,
            share: Share { wall: self },
        })
    }

    /// Lets a connection through and dials: for clients that are told before they say more.
    pub async fn connect(
        &self,
        host: &Host,
        port: u16,
    ) -> Result<(Admitted<'_>, TcpStream), Refusal> {
        let admitted = self.admit(host.clone(), port)?;
        let server = self.upstream.dial(host, port, admitted.internal).await?;
        Ok((admitted, server))
    }

    /// Whether a name is resolved, by the rules alone.
    pub fn decide_name(&self, name: &HostName) -> Result<(), Denial> {
        self.rules.borrow().decide_name(name)
    }

    /// What may be used.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Writes down what was refused.
    pub fn note(&self, via: Via, host: &str, port: Option<u16>, why: &str) {
        let event = Event {
            via,
            host,
            port,
            why,
        };
        let now = self.milliseconds();
        self.journal.borrow_mut().write(&event, now);
    }

    /// Connections that were let through, are open, bytes sent, names in use, events refused.
    pub fn counts(&self) -> (u64, u32, u64, usize, u64) {
        let (open, sent) = self.ledger.borrow().used();
        let names = self.names.borrow().len();
        (
            self.allowed.get(),
            open,
            sent,
            names,
            self.journal.borrow().seen(),
        )
    }

    /// Since the sidecar began.
    fn milliseconds(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// How long a client may take to say what it wants.
pub(super) const FIRST_BYTES_WITHIN: Duration = Duration::from_secs(10);
