//! Shared by all connections: the rules, the names, the budget, the resolver and the log.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::super::inside::Inside;
use super::super::journal::Journal;
use super::Serving;
use super::around::Around;
use super::asks::Approvals;
use super::control::EngineNames;
use super::guests::Guests;
use super::keeper::Keeper;
use super::live::Connections;
use super::refusal::Refusal;
use super::upstream::WaysOut;
use crate::audit::{Event, Verdict, Via, WallName, What};
use crate::egress::NetworkStatus;
use crate::egress::Used;
use crate::egress::names::{Families, Names};
use crate::egress::{Asking, Budget, Kept, Ledger, OverBudget, Rules, room};
use crate::plan::AuditedNetwork;
use crate::plan::network::UNDECIDED;
use crate::policy::{Host, HostName, NetworkPrefix};
use crate::sys::netlink::RouteSocket;
use tokio::sync::Notify;

/// The state of one sidecar. Single-threaded: no borrow is held over an await.
pub(super) struct Wall {
    pub rules: RefCell<Rules>,
    pub names: RefCell<Names>,
    pub families: Families,
    pub ports: RefCell<Vec<u16>>,
    /// Connections from inside that are open, decided on or not.
    pub accepted: Cell<u32>,
    pub upstream: WaysOut,
    pub audited: RefCell<Option<AuditedNetwork>>,
    pub asking: Option<Asking>,
    pub approvals: Approvals,
    pub container: String,
    /// What the container itself is called.
    pub own_names: Vec<String>,
    /// Nothing leads out, whatever is asked for.
    pub refusing: bool,
    pub budget: Budget,
    pub ledger: RefCell<Ledger>,
    journal: RefCell<Journal>,
    /// A line of the log is due earlier than was known.
    due: Notify,
    pub keeper: RefCell<Option<Keeper>>,
    pub connections: Connections,
    pub guests: Guests,
    began: Instant,
    pub allowed: Cell<u64>,
    /// Connections that led in.
    led_in: Cell<u64>,
    denied: RefCell<BTreeMap<&'static str, u64>>,
}

/// Connections through the wall, either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionCount {
    /// Those that are open.
    pub open: u64,
    /// All that were let through.
    pub ever: u64,
}

impl Wall {
    pub fn new(
        serving: Serving,
        (journal, inside): (OwnedFd, Option<Inside>),
        kept: Option<(Kept, OwnedFd)>,
        routes: [RouteSocket; 2],
    ) -> Self {
        let Serving {
            rules,
            audited,
            asking,
            budget,
            container,
            context,
            own_names,
            ports,
            inbound,
            // Where the ports are listened for was decided before.
            published: _,
            kept: _,
            outside: _,
            warden: _,
            families,
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
            families,
            ports: RefCell::new(ports.unwrap_or_default()),
            accepted: Cell::new(0),
            upstream: WaysOut::new(Around::new(routes, services, engine_networks)),
            audited: RefCell::new(audited),
            asking,
            approvals: Approvals::new(),
            container,
            own_names,
            refusing,
            budget,
            ledger: RefCell::new(Ledger::new(budget, 0).after(sent)),
            journal: RefCell::new(Journal::new(journal, context).showing(inside)),
            due: Notify::new(),
            keeper: RefCell::new(keeper),
            connections: Connections::default(),
            guests: Guests::of(inbound),
            began,
            allowed: Cell::new(0),
            led_in: Cell::new(0),
            denied: RefCell::default(),
        }
    }

    /// Takes over what the engine prepared; once, before the container's program runs.
    pub fn take_names(&self, names: EngineNames) -> Result<(), String> {
        let search = names.search.clone();
        self.upstream.take_names(names)?;
        if let Some(audited) = &mut *self.audited.borrow_mut() {
            audited.rules.search.clone_from(&search);
        }
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

    /// How many connections from inside may be open, those whose wish is not known yet among them.
    pub fn most_accepted(&self) -> u64 {
        match self.refusing {
            true => UNDECIDED,
            false => u64::from(self.budget.connections) + UNDECIDED,
        }
    }

    /// Counts and writes down a refusal that no rule is about; `kind` is the word it is counted under.
    pub fn note(&self, via: Via, host: &str, port: Option<u16>, kind: &'static str, why: &str) {
        self.count_denied(kind);
        let what = What::attempt(via, host, port);
        match via {
            Via::Dns | Via::Transparent | Via::Http | Via::Socks => {
                self.show(&what, why.to_owned(), None);
            }
            // The container has not tried anything.
            Via::Inbound | Via::Outside | Via::Control => {}
        }
        self.log(Event {
            cause: Some(kind.to_owned()),
            reason: Some(why.to_owned()),
            ..denied(what)
        });
    }

    /// Counts and writes down a refusal, with the rule that decided or is missing.
    pub fn note_refusal(&self, via: Via, host: &Host, port: Option<u16>, refusal: &Refusal) {
        let kind = refusal.kind();
        self.count_denied(kind);
        let missing_rule = refusal.missing_rule(host, port);
        let what = What::attempt(via, &host.to_string(), port);
        if via != Via::Inbound {
            let ask = missing_rule.as_ref().map(|rule| self.hint(rule));
            self.show(&what, refusal.for_container(), ask);
        }
        self.log(Event {
            cause: Some(kind.to_owned()),
            reason: Some(refusal.to_string()),
            rule: refusal.rule(),
            hint: missing_rule.as_ref().map(|rule| self.hint(rule)),
            missing_rule,
            ..denied(what)
        });
    }

    /// What somebody does who wants a rule.
    fn hint(&self, rule: &str) -> String {
        match self.refusing {
            true => format!("network.allow with {rule}, when the container is made"),
            false if self.container.is_empty() => {
                format!("network.allow with {rule}, when the command is started")
            }
            false => format!(
                "agentbox update --network-add {} {}, within the ceiling",
                crate::egress::phrase::typed(rule),
                self.container
            ),
        }
    }

    fn count_denied(&self, kind: &'static str) {
        let mut denied = self.denied.borrow_mut();
        let count = denied.entry(kind).or_default();
        *count = count.saturating_add(1);
    }

    /// Writes an event down.
    pub fn log(&self, event: Event) {
        let now = self.milliseconds();
        self.with_journal(|journal| journal.write(event, now));
    }

    /// Does something with the log, after which a line may be due earlier.
    pub fn with_journal<T>(&self, act: impl FnOnce(&mut Journal) -> T) -> T {
        let mut journal = self.journal.borrow_mut();
        let before = journal.due_ms();
        let done = act(&mut journal);
        if journal.due_ms() != before {
            self.due.notify_one();
        }
        done
    }

    /// Writes down what the log has not said yet: the sidecar ends.
    pub fn close_log(&self) {
        self.journal.borrow_mut().close();
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
        let what = What::attempt(via, host, Some(port));
        self.log(Event {
            cause: Some("unreachable".to_owned()),
            reason: Some(why.to_owned()),
            ..Event::new(WallName::Network, Verdict::Failed, what)
        });
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
    pub fn opened(&self) -> ConnectionCount {
        ConnectionCount {
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

fn denied(what: What) -> Event {
    Event::new(WallName::Network, Verdict::Denied, what)
}

/// Writes the log's lines when they are due, until the sidecar ends. Where none is due it sleeps.
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

/// How long a client may take to say what it wants.
pub(super) const FIRST_BYTES_WITHIN: Duration = Duration::from_secs(10);
