//! Refusals: counted, logged, and shown to the container.

use std::net::SocketAddr;

use tokio::net::TcpStream;

use super::addition::MissingRule;
use super::config::LatePorts;
use super::reader_line::GONE;
use super::refusal::Refusal;
use super::tried::COUNT_WITHIN_MS;
use super::wall::Wall;
use crate::audit::{Actor, ConnectionKind, Event, EventDetail, Verdict, WallName};
use crate::egress::tried::TriedPorts;
use crate::policy::Field;
use crate::rules::{EgressRule, Host};

impl Wall {
    /// Counts and logs a refusal without a rule; `kind` is the word for the count.
    pub fn note(
        &self,
        via: ConnectionKind,
        host: &str,
        port: Option<u16>,
        kind: &'static str,
        why: &str,
    ) {
        self.count_denied(kind);
        let what = EventDetail::attempt(via, host, port);
        match via {
            ConnectionKind::Dns
            | ConnectionKind::Transparent
            | ConnectionKind::Http
            | ConnectionKind::Socks
            | ConnectionKind::Tcp
            | ConnectionKind::Udp => {
                self.show(&what, why.to_owned(), None);
            }
            // These are no attempts of the container.
            ConnectionKind::Inbound
            | ConnectionKind::Outside
            | ConnectionKind::Unrouted
            | ConnectionKind::Unanswered
            | ConnectionKind::Control
            | ConnectionKind::Socket => {}
        }
        self.log(Event {
            cause: Some(kind.into()),
            reason: Some(why.into()),
            ..denied(what)
        });
    }

    /// Counts and logs a refusal, with the rule that decided or is missing.
    pub fn note_refusal(
        &self,
        via: ConnectionKind,
        host: &Host,
        port: Option<u16>,
        refusal: &Refusal,
    ) {
        let kind = refusal.kind();
        self.count_denied(kind);
        if let Refusal::Honey(caught) = refusal {
            self.traps.caught(caught);
        }
        let missing_rule = refusal.missing_rule(host, port);
        let what = EventDetail::attempt(via, &host.to_string(), port);
        if via != ConnectionKind::Inbound {
            let ask = missing_rule
                .as_ref()
                .map(|rule| self.missing_rule(rule).how_to_add(port));
            self.show(&what, refusal.for_container(), ask);
        }
        self.log(Event {
            cause: Some(kind.into()),
            reason: Some(refusal.to_string().into()),
            rule: refusal.rule().map(Into::into),
            hint: missing_rule
                .as_ref()
                .map(|rule| self.missing_rule(rule).how_to_add(port))
                .map(Into::into),
            missing_rule: missing_rule.map(Into::into),
            ..denied(what)
        });
    }

    /// The same for a honey value, possibly without a host.
    pub fn note_honey(&self, via: ConnectionKind, host: &str, refusal: &Refusal) {
        if let Refusal::Honey(caught) = refusal {
            self.traps.caught(caught);
        }
        let kind = refusal.kind();
        self.count_denied(kind);
        let what = EventDetail::attempt(via, host, None);
        self.show(&what, refusal.for_container(), None);
        self.log(Event {
            cause: Some(kind.into()),
            reason: Some(refusal.to_string().into()),
            ..denied(what)
        });
    }

    /// A rule that a refusal lacks, with what can be done about it.
    pub fn missing_rule<'a>(&'a self, rule: &'a str) -> MissingRule<'a> {
        let fits_now = rule.parse::<EgressRule>().is_ok_and(|rule| {
            let ports = self.ports.borrow();
            let listens = rule.ports().iter().all(|port| ports.contains(port));
            let is_read = matches!(rule, EgressRule::Connection(_)) || self.reader().is_some();
            is_read && (listens || self.late_ports == LatePorts::Possible)
        });
        MissingRule {
            rule,
            container: &self.container,
            tool: self.tool,
            fits_now: fits_now && !self.refusing && !self.container.is_empty(),
        }
    }

    fn count_denied(&self, kind: &'static str) {
        if self.tried.by().is_some() {
            return;
        }
        self.count_all_denied(kind, 1);
    }

    fn count_all_denied(&self, kind: &'static str, times: u64) {
        let mut denied = self.denied.borrow_mut();
        let count = denied.entry(kind).or_default();
        *count = count.saturating_add(times);
    }

    /// Logs the kernel's counts.
    pub fn note_counts(&self, events: Vec<Event>) {
        for event in events {
            if (event.wall, event.verdict) == (WallName::Network, Verdict::Denied) {
                self.count_all_denied("by-address", event.times());
            }
            self.log(event);
        }
    }

    /// Logs that another program came to the command's own proxy, with its user if the kernel tells.
    pub fn note_stranger(&self, uid: Option<u32>) {
        let who = match uid {
            Some(uid) => format!("user {uid}"),
            None => "the kernel does not say whose".to_owned(),
        };
        let why = format!("another program ({who}) came to the proxy of this run: reset");
        self.note(ConnectionKind::Outside, "", None, "stranger", &why);
    }

    /// Logs how many connections from outside found no listener.
    pub fn note_outside(&self, count: u64) {
        let why = format!(
            "connections to ports that network.inbound does not name: {count} refused by the kernel since the last line; \
             network.inbound with the port lets them in"
        );
        self.count_denied("outside");
        // One is counted already.
        self.count_all_denied("outside", count.saturating_sub(1));
        let ports: Vec<String> = (self.leads_nowhere.borrow().iter())
            .map(u16::to_string)
            .collect();
        let ports = ports.join(",");
        let sets = self.tool.sets(Field::NetworkInbound, &ports);
        self.log(Event {
            cause: Some("outside".into()),
            reason: Some(why.into()),
            hint: (!ports.is_empty()).then(|| {
                format!(
                    "{}, when the container is made, or now: agentbox update {} --inbound-add {ports}",
                    self.tool.names(&sets),
                    self.container
                )
            }).map(Into::into),
            ..denied(EventDetail::attempt(ConnectionKind::Outside, "", None))
        });
    }

    /// Logs the end of the reader of requests.
    pub fn note_reader_lost(&self) {
        let what = EventDetail::attempt(ConnectionKind::Control, "", None);
        self.log(Event {
            cause: Some("reader-lost".into()),
            reason: Some(GONE.into()),
            hint: Some(
                "find what ended it: the OOM killer of the sidecar's cgroup, or a process of root"
                    .into(),
            ),
            ..Event::new(WallName::Network, Verdict::Failed, what)
        });
    }

    /// Logs that a host was dialled but its answer not awaited: the client is gone, or the container has ended.
    pub fn note_given_up(&self, host: &Host, port: u16) {
        self.log(Event {
            cause: Some("given-up".into()),
            reason: Some("it was dialled, and its answer was not waited for".into()),
            ..Event::new(
                WallName::Network,
                Verdict::Failed,
                EventDetail::to(&host.to_string(), port),
            )
        });
    }

    /// Logs the failure of an allowed connection, so that its reset has a reason.
    pub fn note_failed(&self, via: ConnectionKind, host: &str, port: u16, why: &str) {
        let what = EventDetail::attempt(via, host, Some(port));
        self.log(Event {
            cause: Some("unreachable".into()),
            reason: Some(why.into()),
            ..Event::new(WallName::Network, Verdict::Failed, what)
        });
    }
}

fn denied(what: EventDetail) -> Event {
    Event::new(WallName::Network, Verdict::Denied, what)
}

/// Logs a violation, or the failure of an allowed connection. A broken connection is neither.
pub(super) fn refuse(
    wall: &Wall,
    stream: &TcpStream,
    via: ConnectionKind,
    host: &Host,
    port: u16,
    refusal: &Refusal,
) {
    let by = wall.actor_of(stream, host, port);
    wall.tried
        .on_behalf(by, || write_down(wall, via, host, port, refusal));
}

fn write_down(wall: &Wall, via: ConnectionKind, host: &Host, port: u16, refusal: &Refusal) {
    if let Refusal::Unreachable(_) | Refusal::Busy = refusal {
        wall.note_failed(via, &host.to_string(), port, &refusal.to_string());
    }
    if !refusal.is_violation() {
        return;
    }
    // Also if the client is gone: it could otherwise reset its connections to leave no line.
    wall.note_refusal(via, host, Some(port), refusal);
}

impl Wall {
    /// Sets the ports from which `verify` tries; none when it is done.
    pub fn expect_tried(&self, from: TriedPorts) {
        let until_ms = self.milliseconds().saturating_add(COUNT_WITHIN_MS);
        self.tried.until_ms.set(until_ms);
        self.tried.from.replace(from);
    }

    /// The actor of a connection, if it is not the workload.
    pub fn actor_of(&self, stream: &TcpStream, to: &Host, port: u16) -> Option<Actor> {
        if self.tried.is_late(self.milliseconds()) {
            return None;
        }
        let from = stream.peer_addr().ok()?;
        let is_its = self.tried.from.borrow_mut().take_connection(from, to, port);
        is_its.then_some(Actor::Verify)
    }

    /// The same for a connection that the kernel refused.
    pub fn actor_of_attempt(&self, from: SocketAddr, to: &Host, port: u16) -> Option<Actor> {
        if self.tried.is_late(self.milliseconds()) {
            return None;
        }
        let is_its = self.tried.from.borrow_mut().take_connection(from, to, port);
        is_its.then_some(Actor::Verify)
    }

    /// The same for a DNS question.
    pub fn actor_of_question(&self, from: Option<SocketAddr>, name: &str) -> Option<Actor> {
        if self.tried.is_late(self.milliseconds()) {
            return None;
        }
        let is_its = self.tried.from.borrow_mut().take_question(from?, name);
        is_its.then_some(Actor::Verify)
    }
}
