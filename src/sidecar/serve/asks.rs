//! Connections that wait for an approval, and the effect of a decision.

use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;

use super::message::{AskDecision, AskDecisionTarget, ControlReply};
use super::permission::{Approvals, Permission};
use super::refusal::Refusal;
use super::wall::Wall;
use crate::egress::{AskStatus, WaitingConnection};
use crate::rules::request::decide::RequestDecision;
use crate::rules::{
    ApprovalTerm, AskQueue, AskRules, Denial, EgressRule, Host, HostName, HostReach,
    NetworkVerdict, PendingConnection, endpoint,
};
use crate::sys::clocks;

/// A slot among the waiting connections, freed on drop.
struct WaitingSlot<'a> {
    approvals: &'a Approvals,
    number: u64,
    until_ms: u64,
}

impl Drop for WaitingSlot<'_> {
    fn drop(&mut self) {
        self.approvals.asks.borrow_mut().forget(self.number);
    }
}

impl Wall {
    /// Whether a connection is permitted, by a rule or by an approval, for which this waits.
    pub async fn permission(
        &self,
        client: &TcpStream,
        host: &Host,
        port: u16,
    ) -> Result<Permission, Refusal> {
        let mut place = None;
        loop {
            // Made before the look, so that any later decision wakes it.
            let changed = self.approvals.changed.notified();
            let number = place.as_ref().map(|place: &WaitingSlot<'_>| place.number);
            let (asking, name) = match self.look(host, port, number)? {
                AskLookup::Permitted(permission) => return Ok(permission),
                AskLookup::Open(asking, name) => (asking, name),
            };
            let now = self.milliseconds();
            let until = match &place {
                None => {
                    let until_ms = now + u64::from(asking.seconds) * 1000;
                    place = Some(self.take_place(client, name, port, until_ms)?);
                    until_ms
                }
                Some(place) => place.until_ms,
            };
            if now >= until {
                let asks = self.approvals.asks.borrow();
                let refusal = asks.unapproved(name, port, asking.seconds);
                return Err(Refusal::NotApproved(refusal));
            }
            let left = Duration::from_millis(until - now);
            let _woken = tokio::time::timeout(left, changed).await;
        }
    }

    fn look<'a>(
        &self,
        host: &'a Host,
        port: u16,
        number: Option<u64>,
    ) -> Result<AskLookup<'_, 'a>, Refusal> {
        let rules = self.rules();
        let denial: Denial = match rules.verdict(self.asking.as_ref(), host, port) {
            NetworkVerdict::Allow(rule) => {
                return Ok(AskLookup::Permitted(Permission {
                    reach: rule.reach,
                    once: false,
                    rule: rule.to_string(),
                    learnt: None,
                    request: None,
                    is_service: false,
                }));
            }
            NetworkVerdict::Deny(denial) => return Err(self.denied(host, denial)),
            NetworkVerdict::Ask(denial) => denial,
        };
        let (Some(asking), Host::Name(name)) = (&self.asking, host) else {
            return Err(self.denied(host, denial));
        };
        if asking.learns {
            return Ok(AskLookup::Permitted(Permission {
                reach: HostReach::Public,
                once: false,
                rule: "learn mode".to_owned(),
                learnt: Some(denial),
                request: None,
                is_service: false,
            }));
        }
        let now = clocks::read();
        let mut asks = self.approvals.asks.borrow_mut();
        let decided = asks.decided((name, port), number, now);
        match decided {
            None => Ok(AskLookup::Open(asking, name)),
            Some(Ok(once)) => Ok(AskLookup::Permitted(Permission {
                reach: HostReach::Public,
                once,
                rule: match once {
                    true => "an approval for one connection",
                    false => "an approval",
                }
                .to_owned(),
                learnt: None,
                request: None,
                is_service: false,
            })),
            Some(Err(refusal)) => Err(Refusal::NotApproved(refusal)),
        }
    }

    fn take_place(
        &self,
        client: &TcpStream,
        name: &HostName,
        port: u16,
        until_ms: u64,
    ) -> Result<WaitingSlot<'_>, Refusal> {
        let waiting = PendingConnection {
            host: name.clone(),
            port,
            since_ms: self.milliseconds(),
            client_port: client.peer_addr().ok().map(|address| address.port()),
        };
        let taken = self.approvals.asks.borrow_mut().wait(waiting);
        let number = taken.map_err(Refusal::NotApproved)?;
        Ok(WaitingSlot {
            approvals: &self.approvals,
            number,
            until_ms,
        })
    }

    /// Whether an open connection would still be allowed.
    pub fn still_allowed(&self, live: &super::live::AllowedConnection) -> bool {
        if live.is_service {
            return self.denies_service(live.port).is_none();
        }
        let rules = self.rules();
        let leads_to_denied = live
            .address
            .get()
            .is_some_and(|address| rules.denies(&Host::Address(address), live.port).is_some());
        if leads_to_denied {
            return false;
        }
        if let Some(request) = &live.request {
            if self.ended_secret(&request.borrow()).is_some() {
                return false;
            }
            return match rules.decide_request(&request.borrow()) {
                RequestDecision::Allow(rule) => reach_of(&rule).keeps(live.reach),
                RequestDecision::DeniedBy(_) | RequestDecision::NotListed => false,
            };
        }
        match rules.verdict(self.asking.as_ref(), &live.host, live.port) {
            // A connection under a rule for private addresses may not continue under a rule without them.
            NetworkVerdict::Allow(rule) => rule.reach.keeps(live.reach),
            NetworkVerdict::Deny(_) => false,
            NetworkVerdict::Ask(_) => {
                let Host::Name(name) = &live.host else {
                    return false;
                };
                let asks = self.approvals.asks.borrow();
                let once = live.once && !asks.is_refused(name, live.port);
                // An approval never covers private addresses.
                let learns = self.asking.as_ref().is_some_and(|asking| asking.learns);
                live.reach == HostReach::Public
                    && (learns || once || asks.holds(name, live.port, clocks::read()))
            }
        }
    }

    /// Makes all waiting connections look again, and ends those that are no longer allowed. Returns how many ended.
    pub fn review(&self) -> usize {
        self.approvals.changed.notify_waiters();
        self.connections.end_unless(|live| self.still_allowed(live))
    }

    /// The waiting connections and the decisions, if approvals are on.
    pub fn ask_status(&self) -> Option<AskStatus> {
        let seconds = self.asking.as_ref()?.seconds;
        let (asks, now) = (self.approvals.asks.borrow(), self.milliseconds());
        let (approved, denied) = asks.decisions(clocks::read());
        let shown = |(id, one): (u64, &PendingConnection)| {
            let waited = now.saturating_sub(one.since_ms) / 1000;
            WaitingConnection {
                id,
                host: one.host.clone(),
                port: one.port,
                waited,
                left: u64::from(seconds).saturating_sub(waited),
                client_port: one.client_port,
                program: None,
            }
        };
        Some(AskStatus {
            seconds,
            waiting: asks.waiting().map(shown).collect(),
            approved,
            denied,
        })
    }
}

/// How far a rule lets the names of its requests lead.
pub(super) fn reach_of(rule: &EgressRule) -> HostReach {
    rule.connection()
        .map_or(HostReach::Public, |rule| rule.reach)
}

/// The result of the lookup whether a connection needs an approval.
enum AskLookup<'w, 'h> {
    Permitted(Permission),
    /// There is no decision yet.
    Open(&'w AskRules, &'h HostName),
}

/// Applies an operator's decision.
pub(super) fn decide(wall: &Rc<Wall>, decision: AskDecision) -> ControlReply {
    match try_decide(wall, decision) {
        Ok(reply) => reply,
        Err(why) => ControlReply::Failed(why),
    }
}

fn try_decide(wall: &Rc<Wall>, decision: AskDecision) -> Result<ControlReply, String> {
    let AskDecision { of, approve } = decision;
    wall.expire();
    if wall.asking.is_none() {
        return Err(
            "network.on-unknown of this container is deny: nothing waits; agentbox update --network-add changes its \
             rules"
                .to_owned(),
        );
    }
    let number = match of {
        AskDecisionTarget::Waiting(number) => Some(number),
        AskDecisionTarget::Endpoint(..) | AskDecisionTarget::Host(_) => None,
    };
    let (host, port) = decided_of(&wall.approvals.asks.borrow(), of)?;
    may_be_decided(wall, &host, port)?;
    let now = clocks::read();
    let mut asks = wall.approvals.asks.borrow_mut();
    match approve {
        None => asks.refuse(&host, port),
        // Two programs may wait for one host: only the listed connection goes on. `decided_of` has just found it.
        Some(ApprovalTerm::Once) if number.is_some_and(|number| asks.choose(number)) => {}
        Some(lasting) if asks.approve(&host, port, lasting, now) => {}
        Some(_) => {
            return Err(
                "there are too many approvals already: list the hosts with agentbox update"
                    .to_owned(),
            );
        }
    }
    drop(asks);
    let closed = wall.review();
    wall.ends.notify_one();
    Ok(ControlReply::Decided { host, port, closed })
}

/// The host and port of a decision. The waiting connections may have changed since the list was read. So a number
/// belongs to one connection for ever, and a host alone decides nothing (N-M7).
fn decided_of(asks: &AskQueue, of: AskDecisionTarget) -> Result<(HostName, u16), String> {
    match of {
        AskDecisionTarget::Endpoint(host, port) => Ok((host, port)),
        AskDecisionTarget::Waiting(number) => {
            let mut waiting = asks.waiting();
            let found = waiting.find(|(id, _)| *id == number);
            let (_, one) = found.ok_or_else(|| {
                format!(
                    "no connection waits by the number {number} any more: `agentbox approvals` lists those that do, and \
                     HOST:PORT needs none"
                )
            })?;
            Ok((one.host.clone(), one.port))
        }
        AskDecisionTarget::Host(host) => {
            let waiting: Vec<String> = asks
                .waiting()
                .filter(|(_, one)| one.host == host)
                .map(|(id, one)| format!("{id} ({host}:{})", one.port))
                .collect();
            Err(match waiting.is_empty() {
                true => format!("say which port, as {host}:443: no connection to {host} waits"),
                false => format!(
                    "say which port, as {host}:PORT, or the number of what waits: {}",
                    waiting.join(", ")
                ),
            })
        }
    }
}

/// Whether an approval is possible: it overrides no deny rule and no ceiling.
fn may_be_decided(wall: &Wall, host: &HostName, port: u16) -> Result<(), String> {
    let host = Host::Name(host.clone());
    let asking = wall.asking.as_ref();
    let what = endpoint(&host, port);
    match wall.rules().verdict(asking, &host, port) {
        NetworkVerdict::Ask(_) => Ok(()),
        NetworkVerdict::Allow(rule) => Err(format!(
            "{what} needs no approval: the rule {rule} allows it"
        )),
        NetworkVerdict::Deny(_) if asking.is_some_and(|a| a.secret_hosts.contains(&host)) => {
            Err(format!(
                "{what} cannot be approved: requests to {host} get a secret, and a tunnel to it could not be checked"
            ))
        }
        NetworkVerdict::Deny(denial) if denial.is_missing_rule() => {
            let ceilings = asking.into_iter().flat_map(|a| &a.limits);
            let ceilings: Vec<&str> = ceilings.map(|limit| limit.ceiling.as_str()).collect();
            Err(format!(
                "{what} cannot be approved: it must be a public name within the ceiling {}",
                ceilings.join(" and ")
            ))
        }
        NetworkVerdict::Deny(denial) => Err(format!("{what} cannot be approved: {denial}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// N-M7, N33: the decision applies to the connection that was shown.
    #[test]
    fn a_decision_is_of_what_was_shown() {
        let host: HostName = "files.test".parse().unwrap();
        let mut asks = AskQueue::numbered_from(7000);
        let mut wait = |port| {
            let waiting = PendingConnection {
                host: host.clone(),
                port,
                since_ms: 0,
                client_port: None,
            };
            asks.wait(waiting).unwrap()
        };
        let (first, second) = (wait(443), wait(22));
        assert_eq!((first, second), (7000, 7001));
        let of = |asks: &AskQueue, number| decided_of(asks, AskDecisionTarget::Waiting(number));
        assert_eq!(of(&asks, first), Ok((host.clone(), 443)));
        assert_eq!(of(&asks, second), Ok((host.clone(), 22)));
        // The first one's time is up: its number means nothing now, and the host alone does not mean the other.
        asks.forget(first);
        assert!(of(&asks, first).unwrap_err().contains("any more"));
        let alone = |host: &str| decided_of(&asks, AskDecisionTarget::Host(host.parse().unwrap()));
        let said = alone("files.test").unwrap_err();
        assert!(
            said.contains(&format!("{second} (files.test:22)")),
            "{said}"
        );
        assert!(alone("other.test").unwrap_err().contains("other.test:443"));
        let named = AskDecisionTarget::Endpoint(host.clone(), 80);
        assert_eq!(decided_of(&asks, named), Ok((host, 80)));
    }
}
