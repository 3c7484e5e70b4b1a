//! Shared by all connections: the rules, the names, the budget, the resolver and the log.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use super::Serving;
use super::around::Around;
use super::asks::Desk;
use super::control::Pinned;
use super::dns;
use super::guests::Guests;
use super::journal::{Event, Journal, Outcome, Via};
use super::keeper::Keeper;
use super::live::{Connections, Share};
use super::secure::Server;
use super::upstream::{Dial, Upstream};
use crate::egress::NetworkStatus;
use crate::egress::Used;
use crate::egress::names::{Names, Synthetic};
use crate::egress::own::is_own;
use crate::egress::{
    AddressRefusal, AskRefusal, Asking, Budget, Denial, Kept, Ledger, NameVerdict, OverBudget,
    Rules, is_within, room,
};
use crate::plan::network::UNDECIDED;
use crate::policy::{Host, HostName, NetworkPrefix, Reach};
use crate::sys::netlink::RouteSocket;

/// The state of one sidecar. Single-threaded: no borrow is held over an await.
pub(super) struct Wall {
    pub rules: RefCell<Rules>,
    pub names: RefCell<Names>,
    pub ipv6: bool,
    pub ports: RefCell<Vec<u16>>,
    /// Connections from inside that are open, decided on or not.
    pub accepted: Cell<u32>,
    pub upstream: Upstream,
    pub asking: Option<Asking>,
    pub desk: Desk,
    pub container: String,
    /// What the container itself is called.
    pub own_names: Vec<String>,
    /// Nothing leads out, whatever is asked for.
    refusing: bool,
    budget: Budget,
    ledger: RefCell<Ledger>,
    journal: RefCell<Journal>,
    keeper: RefCell<Option<Keeper>>,
    pub connections: Connections,
    pub guests: Guests,
    began: Instant,
    allowed: Cell<u64>,
    /// Connections that led in.
    led_in: Cell<u64>,
    denied: RefCell<BTreeMap<&'static str, u64>>,
}

/// Connections through the wall, either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opened {
    /// Those that are open.
    pub open: u64,
    /// All that were let through.
    pub ever: u64,
}

/// A connection that may go on, and the rule's word on private addresses.
#[derive(Debug)]
pub(super) struct Admitted<'a> {
    pub host: Host,
    pub port: u16,
    pub reach: Reach,
    pub share: Share<'a>,
}

/// Why a connection does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The rules.
    Denied(Denial),
    /// The budget.
    Over(OverBudget),
    /// What the connection said.
    Other(String),
    /// Where the name led.
    Address(IpAddr, AddressRefusal),
    /// It was asked for, in vain.
    NotApproved(AskRefusal),
    /// It was allowed, and the rules have changed.
    Revoked,
    /// It is the container itself.
    Own,
    /// Nothing leads out: no rule would change that.
    Local,
    /// Allowed, and not to be had: no violation.
    Unreachable(String),
    /// One of the two sides is gone: no violation either.
    Broken(std::io::ErrorKind),
}

impl Refusal {
    /// Whether the wall refused, as opposed to the network.
    pub fn is_violation(&self) -> bool {
        !matches!(self, Self::Unreachable(_) | Self::Broken(_))
    }

    /// Under which word it is counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Denied(denial) => denial.kind(),
            Self::Over(over) => over.kind(),
            Self::Other(_) | Self::Address(..) => "content-or-address",
            Self::NotApproved(refusal) => refusal.kind(),
            Self::Revoked => "no-longer-allowed",
            Self::Own => "container-itself",
            Self::Local => "local",
            Self::Unreachable(_) => "unreachable",
            Self::Broken(_) => "broken",
        }
    }
}

impl Refusal {
    /// The reason as the container is told it: where a name leads inside the node's network is not its business (N-L2).
    pub fn told(&self) -> String {
        match self {
            Self::Address(..) => "the name leads to no address that is open to this container; the node's log of refusals says \
                                  where, and why (a name that may be private is listed as internal:HOST:PORT)"
                .to_owned(),
            other => other.to_string(),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Denied(denial) => denial.fmt(f),
            Self::Over(over) => over.fmt(f),
            Self::Other(why) | Self::Unreachable(why) => f.write_str(why),
            Self::Address(address, why) => write!(f, "the name leads to {address}, {why}"),
            Self::NotApproved(refusal) => refusal.fmt(f),
            Self::Revoked => f.write_str("the rules were changed: it is no longer allowed"),
            Self::Local => f.write_str(
                "the network is local (network.mode): nothing leads out; hosts are named in network.allow when a container starts",
            ),
            Self::Own => f.write_str(
                "it is this container itself: connect to it directly, without the proxy, and on a port that no rule names",
            ),
            Self::Broken(kind) => write!(f, "the connection broke: {kind}"),
        }
    }
}

impl Wall {
    pub fn new(
        serving: Serving,
        journal: OwnedFd,
        kept: Option<(Kept, OwnedFd)>,
        routes: [RouteSocket; 2],
    ) -> Self {
        let Serving {
            rules,
            asking,
            budget,
            container,
            own_names,
            ports,
            inbound,
            kept: _,
            outside: _,
            ipv6,
            refusing,
            services,
            engine_networks,
        } = serving;
        let services = services.into_iter().map(NetworkPrefix::parts).collect();
        let began = Instant::now();
        let (spent, file) = kept.unzip();
        let kept: Kept = spent.unwrap_or_default();
        let sent = kept.spent.upload_bytes;
        let room = room(budget.hosts, kept.spent.hosts.len());
        // As the runtime has just written it.
        let room = room.saturating_sub(kept.to_string().len() as u64);
        let keeper = file.map(|file| Keeper::new(file, sent, budget.upload_bytes, room));
        let names = Names::new(budget.hosts).after(kept);
        Self {
            rules: RefCell::new(rules),
            names: RefCell::new(names),
            ipv6,
            ports: RefCell::new(ports.unwrap_or_default()),
            accepted: Cell::new(0),
            upstream: Upstream::new(Around::new(routes, services, engine_networks)),
            asking,
            desk: Desk::new(),
            container,
            own_names,
            refusing,
            budget,
            ledger: RefCell::new(Ledger::new(budget, 0).after(sent)),
            journal: RefCell::new(Journal::new(journal)),
            keeper: RefCell::new(keeper),
            connections: Connections::default(),
            guests: Guests::of(inbound),
            began,
            allowed: Cell::new(0),
            led_in: Cell::new(0),
            denied: RefCell::default(),
        }
    }

    /// The one place where a connection is let through.
    pub async fn admit(
        &self,
        client: &TcpStream,
        host: Host,
        port: u16,
    ) -> Result<Admitted<'_>, Refusal> {
        let now = self.milliseconds();
        let pause = self.ledger.borrow().check_pause(now);
        pause.map_err(Refusal::Over)?;
        let permission = self.permission(client, &host, port).await?;
        let now = self.milliseconds();
        // A proxy's client never asks the stub: its names are counted as well, since each is looked up outside.
        if let Host::Name(name) = &host {
            self.count_name(name, now)?;
        }
        self.ledger.borrow_mut().open(now).map_err(Refusal::Over)?;
        self.allowed.set(self.allowed.get().saturating_add(1));
        Ok(Admitted {
            share: Share::new(self, host.clone(), port, permission),
            host,
            port,
            reach: permission.reach,
        })
    }

    /// Lets a connection through and dials: for clients that are told before they say more.
    pub async fn connect(
        &self,
        client: &TcpStream,
        host: &Host,
        port: u16,
    ) -> Result<(Admitted<'_>, Server), Refusal> {
        let admitted = self.admit(client, host.clone(), port).await?;
        let server = {
            let dialling = pin!(self.dial(&admitted));
            admitted.share.while_allowed(dialling).await?
        };
        Ok((admitted, server))
    }

    /// Dials for a connection that was let through.
    pub async fn dial(&self, admitted: &Admitted<'_>) -> Result<Server, Refusal> {
        let Admitted {
            host,
            port,
            reach,
            share,
        } = admitted;
        let dial = Dial {
            host,
            port: *port,
            reach: *reach,
            rules: &self.rules,
            share,
        };
        self.upstream.dial(&dial).await
    }

    /// The addresses of a name, if it may be reached, or asked for.
    pub fn resolve(&self, name: &HostName) -> Result<Synthetic, Refusal> {
        let now = self.milliseconds();
        let pause = self.ledger.borrow().check_pause(now);
        pause.map_err(Refusal::Over)?;
        let rules = self.rules.borrow();
        let verdict = rules
            .name_verdict(self.asking.as_ref(), name, &self.ports.borrow())
            .map_err(|denial| self.denied(&Host::Name(name.clone()), denial))?;
        let names = self.names.borrow();
        let unlisted = &self.desk.unlisted_names;
        if verdict == NameVerdict::Unlisted && !names.has(name) {
            // A part of the budget, so that unlisted names cannot use up the budget of listed ones.
            let most = (self.budget.hosts / 4).max(1);
            if self.is_search_artefact(name) || unlisted.get() >= most {
                return Err(Refusal::Denied(Denial::NotListed));
            }
            unlisted.set(unlisted.get() + 1);
        }
        drop(names);
        self.count_name(name, now)
    }

    /// What a denial is called: nobody needs a rule for the container itself.
    pub fn denied(&self, host: &Host, denial: Denial) -> Refusal {
        if denial.is_missing_rule() && is_own(host, &self.own_names) {
            Refusal::Own
        } else if self.refusing {
            Refusal::Local
        } else {
            Refusal::Denied(denial)
        }
    }

    /// Gives a name its place among those that the budget allows.
    fn count_name(&self, name: &HostName, now: u64) -> Result<Synthetic, Refusal> {
        let mut names = self.names.borrow_mut();
        if let Some(keeper) = &mut *self.keeper.borrow_mut()
            && names.is_new(name)
        {
            let number = names.number(name);
            keeper.will_look_up(number).map_err(Refusal::Over)?;
        }
        names.give(name).ok_or_else(|| {
            self.ledger.borrow_mut().begin_pause(now);
            Refusal::Over(OverBudget::Hosts(self.budget.hosts))
        })
    }

    /// Takes over what the engine prepared; once, before the container's program runs.
    pub fn pin(&self, pinned: Pinned) -> Result<(), String> {
        let search = pinned.search.clone();
        self.upstream.pin(pinned)?;
        self.rules.borrow_mut().search = search;
        match self.upstream.cannot_hold(&self.rules.borrow()) {
            None => Ok(()),
            Some(why) => Err(why),
        }
    }

    /// Takes over what the engine calls others for a container that shares this network: a pod's aliases are in the files of
    /// its containers alone.
    pub fn add_hosts(&self, hosts: Vec<(HostName, IpAddr)>) -> Result<(), String> {
        self.upstream.add_hosts(hosts)
    }

    /// Whether a resolver may have made this of another name, with the engine's search list or one of Kubernetes.
    fn is_search_artefact(&self, name: &HostName) -> bool {
        let rules = self.rules.borrow();
        dns::is_search_artefact(name.as_str())
            || rules.search.iter().any(|domain| is_within(name, domain))
    }

    /// How many connections from inside may be open, those whose wish is not known yet among them.
    pub fn most_accepted(&self) -> u64 {
        match self.refusing {
            true => UNDECIDED,
            false => u64::from(self.budget.connections) + UNDECIDED,
        }
    }

    /// Counts and writes down what was refused; `kind` is the word it is counted under.
    pub fn note(&self, via: Via, host: &str, port: Option<u16>, kind: &'static str, why: &str) {
        let mut denied = self.denied.borrow_mut();
        let count = denied.entry(kind).or_default();
        *count = count.saturating_add(1);
        let event = Event {
            via,
            outcome: Outcome::Denied,
            host,
            port,
            why,
        };
        let now = self.milliseconds();
        self.journal.borrow_mut().write(&event, now);
    }

    /// Writes down how many connections from outside nobody has answered.
    pub fn note_outside(&self, count: u64) {
        let why = format!(
            "connections from outside to ports that network.inbound does not name (a probe, a published port, hostPort, \
             port-forward): {count} refused by the kernel since the last such line; network.inbound with the port lets them in"
        );
        self.note(Via::Outside, "", None, "outside", &why);
        // One is counted.
        let mut denied = self.denied.borrow_mut();
        let all = denied.entry("outside").or_default();
        *all = all.saturating_add(count.saturating_sub(1));
    }

    /// Logs the failure of an allowed connection, so that its reset has a reason.
    pub fn note_failed(&self, via: Via, host: &str, port: u16, why: &str) {
        let event = Event {
            via,
            outcome: Outcome::Failed,
            host,
            port: Some(port),
            why,
        };
        let now = self.milliseconds();
        self.journal.borrow_mut().write(&event, now);
    }

    /// Other rules hold from now on. Returns how many connections they end.
    pub fn change(&self, new: Rules) -> usize {
        let mut rules = self.rules.borrow_mut();
        let search = std::mem::take(&mut rules.search);
        // The engine's, whatever became of the record.
        *rules = Rules { search, ..new };
        drop(rules);
        self.review()
    }

    /// Counts bytes that are about to be sent upstream.
    pub fn send(&self, bytes: u64) -> Result<(), OverBudget> {
        let now = self.milliseconds();
        self.ledger.borrow_mut().send(bytes, now)?;
        self.keep()
    }

    /// Writes down what was counted, before it is sent.
    fn keep(&self) -> Result<(), OverBudget> {
        match &mut *self.keeper.borrow_mut() {
            Some(keeper) => keeper.will_send(self.ledger.borrow().used().1),
            None => Ok(()),
        }
    }

    /// The container has ended.
    pub fn settle(&self) {
        if let Some(keeper) = &mut *self.keeper.borrow_mut() {
            keeper.settle(self.ledger.borrow().used().1);
        }
    }

    /// The same of a connection that leads in.
    pub fn send_inward(&self, bytes: u64) -> Result<(), OverBudget> {
        self.ledger.borrow_mut().send_inward(bytes)?;
        self.keep()
    }

    /// Takes the share of a connection that leads in; [`Self::close`] gives it back.
    pub fn open_inward(&self) -> Result<(), OverBudget> {
        self.led_in.set(self.led_in.get().saturating_add(1));
        self.ledger.borrow_mut().open_inward(self.milliseconds())
    }

    /// What tells whether the container had connections to the outside meanwhile.
    pub fn opened(&self) -> Opened {
        Opened {
            open: u64::from(self.ledger.borrow().used().0),
            ever: self.allowed.get().saturating_add(self.led_in.get()),
        }
    }

    /// A connection that [`Self::admit`] let through has ended.
    pub fn close(&self) {
        self.ledger.borrow_mut().close();
    }

    /// What is going on.
    pub fn status(&self) -> NetworkStatus {
        let (open, sent) = self.ledger.borrow().used();
        let (connections, more_connections) = self.connections.list();
        let denied = self.denied.borrow();
        let journal = self.journal.borrow();
        NetworkStatus {
            rules: self.rules.borrow().clone(),
            ports: self.ports.borrow().iter().copied().collect(),
            asking: self.ask_status(),
            budget: self.budget,
            used: Used {
                connections: open,
                upload_bytes: sent,
                hosts: self.names.borrow().len(),
            },
            connections,
            more_connections,
            inbound: self.guests.status(),
            allowed: self.allowed.get(),
            denied: denied
                .iter()
                .map(|(kind, count)| ((*kind).to_owned(), *count))
                .collect(),
            log_lines_left_out: journal.lost(),
        }
    }

    /// Since the sidecar began.
    pub fn milliseconds(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// How long a client may take to say what it wants.
pub(super) const FIRST_BYTES_WITHIN: Duration = Duration::from_secs(10);
