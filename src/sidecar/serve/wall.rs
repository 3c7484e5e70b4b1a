//! State of all connections: the rules, the names, the budget, the resolver and the log.

use std::cell::{Cell, Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::super::inside::DenialFile;
use super::super::journal::Journal;
use super::around::NamespaceWatch;
use super::config::{LatePorts, ServingConfig};
use super::guests::Guests;
use super::honey::Traps;
use super::live::Connections;
use super::message::EngineNames;
use super::permission::Approvals;
use super::reader_line::Reader;
use super::routes::UpstreamRoutes;
use super::tried::VerifyAttempts;
use crate::audit::Event;
use crate::audit::quota::Amounts;
use crate::egress::names::{Families, NameTable};
use crate::egress::{Budget, BudgetUse, Ledger, NetworkStatus, OverBudget, Uses, WithheldSecret};
use crate::plan::network::UNDECIDED;
use crate::plan::{AuditedNetwork, ServiceTarget};
use crate::policy::Tool;
use crate::rules::request::Request;
use crate::rules::{
    AskRules, ClockReading, EgressRules, ExpiredRule, Host, HostName, NetworkPrefix, TlsHosts,
};
use crate::sys::clocks;
use crate::sys::netlink::RouteSocket;

/// The state of one sidecar. Single-threaded: no borrow is held over an await.
pub(super) struct Wall {
    /// Read by [`Wall::rules`] alone, which knows the time.
    rules: RefCell<EgressRules>,
    /// Rules that have expired, and are not logged yet.
    expired: RefCell<Vec<ExpiredRule>>,
    /// Signals a new end, or that something has expired.
    pub ends: Notify,
    opened: Option<TlsHosts>,
    /// The honey values, which must not leave.
    pub traps: Traps,
    /// How often the node's secrets were used.
    pub uses: Uses,
    pub names: RefCell<NameTable>,
    pub families: Families,
    pub ports: RefCell<Vec<u16>>,
    /// Open connections from inside, decided or not.
    pub accepted: Cell<u32>,
    pub upstream: UpstreamRoutes,
    reader: Option<Reader>,
    pub audited: RefCell<Option<AuditedNetwork>>,
    pub asking: Option<AskRules>,
    pub approvals: Approvals,
    pub container: String,
    /// The tool whose words the hints use.
    pub tool: Tool,
    /// The container's own names.
    pub own_names: Vec<String>,
    /// Ports of the loopback inside that lead to services.
    pub services: BTreeMap<u16, ServiceTarget>,
    /// Ports that the engine publishes but that lead nowhere.
    pub leads_nowhere: RefCell<BTreeSet<u16>>,
    pub late_ports: LatePorts,
    /// Nothing leads out, whatever is requested.
    pub refusing: bool,
    pub budget: Budget,
    pub ledger: RefCell<Ledger>,
    journal: RefCell<Journal>,
    /// A line of the log is due earlier than before.
    due: Notify,
    pub connections: Connections,
    pub guests: Guests,
    began: Instant,
    /// Admitted connections, whether their host answered or not.
    pub admitted: Cell<u64>,
    /// Admitted connections whose host has answered.
    pub allowed: Cell<u64>,
    /// Inbound connections.
    led_in: Cell<u64>,
    pub denied: RefCell<BTreeMap<&'static str, u64>>,
    pub tried: VerifyAttempts,
}

/// Connections through the wall, both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionCount {
    /// The open ones.
    pub open: u64,
    /// All so far.
    pub ever: u64,
}

impl Wall {
    pub fn new(
        serving: ServingConfig,
        (journal, inside): (OwnedFd, Option<DenialFile>),
        routes: [RouteSocket; 2],
    ) -> Self {
        let ServingConfig {
            rules,
            secrets,
            honey,
            opened,
            audited,
            asking,
            budget,
            container,
            context,
            own_names,
            ports,
            inbound,
            // The listeners were opened at these addresses before.
            published: _,
            connect,
            leads_nowhere,
            families,
            late_ports,
            refusing,
            services,
            engine_networks,
        } = serving;
        let services = services.into_iter().map(NetworkPrefix::parts).collect();
        let began = Instant::now();
        let now = clocks::read();
        Self {
            rules: RefCell::new(rules.pinned(now)),
            expired: RefCell::default(),
            ends: Notify::new(),
            opened,
            traps: Traps::new(&honey),
            uses: Uses::new(secrets, now),
            names: RefCell::new(NameTable::new(budget.hosts)),
            families,
            ports: RefCell::new(ports.unwrap_or_default()),
            accepted: Cell::new(0),
            upstream: UpstreamRoutes::new(NamespaceWatch::new(routes, services, engine_networks)),
            reader: None,
            audited: RefCell::new(audited),
            asking,
            approvals: Approvals::new(),
            container,
            tool: context.tool(),
            own_names,
            services: connect,
            leads_nowhere: RefCell::new(leads_nowhere),
            late_ports,
            refusing,
            budget,
            ledger: RefCell::new(Ledger::new(budget, 0)),
            journal: RefCell::new(Journal::new(journal, context).showing(inside)),
            due: Notify::new(),
            connections: Connections::default(),
            guests: Guests::of(inbound),
            began,
            admitted: Cell::new(0),
            allowed: Cell::new(0),
            led_in: Cell::new(0),
            denied: RefCell::default(),
            tried: VerifyAttempts::default(),
        }
    }

    /// Adds the line to a reader of requests. Must be called inside a tokio runtime.
    pub fn with_reader(self, line: Option<OwnedFd>) -> std::io::Result<Self> {
        Ok(Self {
            reader: line.map(Reader::new).transpose()?,
            ..self
        })
    }

    /// The reader of requests.
    pub fn reader(&self) -> Option<&Reader> {
        self.reader.as_ref()
    }

    /// Waits until the reader has ended, and logs that at once. Without a reader it waits for ever.
    pub async fn reader_lost(&self) {
        match self.reader() {
            Some(reader) => reader.ended().await,
            None => std::future::pending().await,
        }
        self.note_reader_lost();
    }

    /// Whether TLS to this host is opened, to read its requests.
    pub fn opens(&self, host: &Host) -> bool {
        let opened = self.opened.as_ref();
        opened.is_some_and(|opened| opened.has(host))
    }

    /// Why these rules cannot be enforced, if so: request rules without a reader, or denied addresses although the
    /// node's proxy resolves names.
    pub fn cannot_hold(&self, rules: &EgressRules) -> Option<String> {
        if rules.have_requests() && self.reader.is_none() {
            return Some(
                "rules for requests need a process that reads them, which this container was created without: create the container \
                 with such a rule"
                    .to_owned(),
            );
        }
        self.upstream.cannot_hold(rules)
    }

    /// Takes the engine's settings for names; once, before the container's program runs.
    pub fn take_names(&self, names: EngineNames) -> Result<(), String> {
        let search = names.search.clone();
        self.upstream.take_names(names)?;
        if let Some(audited) = &mut *self.audited.borrow_mut() {
            audited.rules.search.clone_from(&search);
        }
        self.rules.borrow_mut().search = search;
        match self.cannot_hold(&self.rules()) {
            None => Ok(()),
            Some(why) => Err(why),
        }
    }

    /// Takes the engine's names for a container that shares this network: a pod's aliases are only in the files of its
    /// containers.
    pub fn add_hosts(&self, hosts: Vec<(HostName, IpAddr)>) -> Result<(), String> {
        self.upstream.add_hosts(hosts)
    }

    /// The most open connections from inside, including undecided ones.
    pub fn most_accepted(&self) -> u64 {
        match self.refusing && self.services.is_empty() {
            true => UNDECIDED,
            false => u64::from(self.budget.connections) + UNDECIDED,
        }
    }

    /// Logs an event.
    pub fn log(&self, event: Event) {
        let now = self.milliseconds();
        let by = event.by.or(self.tried.by());
        let event = Event { by, ..event };
        self.with_journal(|journal| journal.write(event, now));
    }

    /// The same for one of many events of a form.
    pub fn log_again(&self, form: &Event, amounts: Amounts) {
        let now = self.milliseconds();
        self.with_journal(|journal| journal.write_again(form, amounts, now));
    }

    /// Runs `act` on the log, after which a line may be due earlier.
    pub fn with_journal<T>(&self, act: impl FnOnce(&mut Journal) -> T) -> T {
        let mut journal = self.journal.borrow_mut();
        let before = journal.due_ms();
        let done = act(&mut journal);
        if journal.due_ms() != before {
            self.due.notify_one();
        }
        done
    }

    /// Writes what is not yet in the log, at the sidecar's end.
    pub fn close_log(&self) {
        self.journal.borrow_mut().close();
    }

    /// Applies new rules. Returns how many connections they end.
    pub fn change(&self, new: EgressRules) -> usize {
        let mut rules = self.rules.borrow_mut();
        let search = std::mem::take(&mut rules.search);
        // The engine's, whatever the record has.
        *rules = EgressRules { search, ..new };
        drop(rules);
        self.ends.notify_one();
        self.review()
    }

    /// The rules that are in force at this moment.
    pub fn rules(&self) -> Ref<'_, EgressRules> {
        if self.rules.borrow().temporary().next().is_some() {
            self.expire_rules(clocks::read());
        }
        self.rules.borrow()
    }

    fn expire_rules(&self, now: ClockReading) {
        // A caller that holds the rules has got them at this moment.
        let Ok(mut rules) = self.rules.try_borrow_mut() else {
            return;
        };
        let expired = rules.expire(now);
        if !expired.is_empty() {
            self.expired.borrow_mut().extend(expired);
            self.ends.notify_one();
        }
    }

    /// The rules that have expired since the last call.
    pub fn newly_expired(&self, now: ClockReading) -> Vec<ExpiredRule> {
        self.expire_rules(now);
        self.expired.take()
    }

    /// Counts bytes that are about to be sent upstream.
    pub fn send(&self, bytes: u64) -> Result<(), OverBudget> {
        let now = self.milliseconds();
        self.ledger.borrow_mut().send(bytes, now)
    }

    /// Counts a request that gets secrets, before it is sent; an error if one of them is used up.
    pub fn count_uses(&self, request: &Request) -> Result<(), WithheldSecret> {
        let counted = self.uses.count(request, clocks::read());
        if counted.is_err() {
            // It may be the first to see that a secret has expired.
            self.ends.notify_one();
        }
        counted
    }

    /// Counts bytes of an inbound connection that are about to be sent.
    pub fn send_inward(&self, bytes: u64) -> Result<(), OverBudget> {
        self.ledger.borrow_mut().send_inward(bytes)
    }

    /// Counts an inbound connection; [`Self::close`] ends it.
    pub fn open_inward(&self) -> Result<(), OverBudget> {
        self.led_in.set(self.led_in.get().saturating_add(1));
        self.ledger.borrow_mut().open_inward(self.milliseconds())
    }

    /// Tells whether the container had connections meanwhile.
    pub fn opened(&self) -> ConnectionCount {
        ConnectionCount {
            open: u64::from(self.ledger.borrow().used().0),
            ever: self.admitted.get().saturating_add(self.led_in.get()),
        }
    }

    /// Ends a connection that was counted.
    pub fn close(&self) {
        self.ledger.borrow_mut().close();
    }

    /// The current state.
    pub fn status(&self) -> NetworkStatus {
        let (open, sent) = self.ledger.borrow().used();
        let (connections, more_connections) = self.connections.list();
        let denied = self.denied.borrow();
        let journal = self.journal.borrow();
        NetworkStatus {
            rules: self.rules().clone(),
            ports: self.ports.borrow().iter().copied().collect(),
            services: self.services.keys().copied().collect(),
            asking: self.ask_status(),
            budget: self.budget,
            used: BudgetUse {
                connections: open,
                upload_bytes: sent,
                hosts: self.names.borrow().len(),
            },
            secrets: self.uses.list(),
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

    /// Since the sidecar's start.
    pub fn milliseconds(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Writes the log's lines when they are due, until the sidecar ends. Without a due line it sleeps.
pub(super) fn keep_log(wall: &Rc<Wall>) {
    let wall = Rc::clone(wall);
    tokio::task::spawn_local(async move {
        loop {
            let due = wall.journal.borrow().due_ms();
            let earlier = wall.due.notified();
            let Some(due) = due else {
                earlier.await;
                continue;
            };
            let left = Duration::from_millis(due.saturating_sub(wall.milliseconds()));
            if tokio::time::timeout(left, earlier).await.is_err() {
                wall.journal.borrow_mut().flush(wall.milliseconds());
            }
        }
    });
}
