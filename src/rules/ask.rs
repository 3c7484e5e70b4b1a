//! Approvals: the connections that may wait for one, and the decisions.
//!
//! Nothing is forwarded while a connection waits. An approval covers one name and port, never beyond a ceiling. The
//! name's addresses are checked afterwards as usual.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::ask_refusal::AskRefusal;
use super::closed::is_metadata;
use super::connection::{self, DNS_PORT};
use super::connection::{HostReach, NetworkRule, RuleTarget};
use super::decide::{Decision, Denial, EgressRules};
use super::expiry::{ClockReading, EndDate, Expiry};
use super::host::{Host, HostName};
use super::limit::NetworkLimit;

/// Connections that may wait at once. Each keeps a descriptor and a few hundred bytes.
pub const MOST_WAITING: usize = 32;
/// Approvals in force, and remembered denials.
const MOST_DECIDED: usize = 256;
/// Domains that are never on the internet: names of machines, links, and resolvers' own queries.
const NOT_PUBLIC: [&str; 5] = ["arpa", "internal", "local", "localhost", "invalid"];

/// Which connections need an approval under `network.on-unknown = "ask"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AskRules {
    /// How long a connection waits.
    pub seconds: u32,
    /// What each ceiling allows approvals for.
    pub limits: Vec<NetworkLimit>,
    /// Learn mode: a connection that could be approved is allowed and recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub learns: bool,
    /// Hosts of the container's secrets. No other port of theirs is opened, because its traffic would not be read.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub secret_hosts: BTreeSet<Host>,
}

/// The decision about a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkVerdict<'a> {
    /// This rule allows it.
    Allow(&'a NetworkRule),
    /// It waits for approval. The reason applies without approvals.
    Ask(Denial),
    /// It is refused.
    Deny(Denial),
}

/// The decision about a name in the DNS stub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameVerdict {
    /// A rule allows it on some port.
    Listed,
    /// A connection to it may wait for approval.
    Unlisted,
}

impl EgressRules {
    /// Decides about a TCP connection to this host and port.
    pub fn verdict(&self, asking: Option<&AskRules>, host: &Host, port: u16) -> NetworkVerdict<'_> {
        match self.decide(host, port) {
            Decision::Allow(rule) => NetworkVerdict::Allow(rule),
            // No approval opens a tunnel to a host with denied requests: the sidecar could not read them there.
            Decision::Deny(denial)
                if denial.is_missing_rule()
                    && !self.sees(host, port)
                    && asking.is_some_and(|a| {
                        a.may_ask(host, port) && !(a.learns && self.names_requests_to(host))
                    }) =>
            {
                NetworkVerdict::Ask(denial)
            }
            Decision::Deny(denial) => NetworkVerdict::Deny(denial),
        }
    }

    /// Decides about a name, if the sidecar listens on these ports.
    pub fn name_verdict(
        &self,
        asking: Option<&AskRules>,
        name: &HostName,
        ports: &[u16],
    ) -> Result<NameVerdict, Denial> {
        let denial = match self.decide_name(name) {
            Ok(()) => return Ok(NameVerdict::Listed),
            Err(denial) => denial,
        };
        let host = Host::Name(name.clone());
        let asks =
            |port: &u16| matches!(self.verdict(asking, &host, *port), NetworkVerdict::Ask(_));
        match ports.iter().any(asks) {
            true => Ok(NameVerdict::Unlisted),
            false => Err(denial),
        }
    }
}

impl AskRules {
    /// Whether an approval is possible: the name is public, and a rule for it is within every ceiling.
    fn may_ask(&self, host: &Host, port: u16) -> bool {
        let Host::Name(name) = host else {
            // A rule for an address opens exactly that address: too much for a decision in a hurry.
            return false;
        };
        let public = name
            .as_str()
            .rsplit_once('.')
            .is_some_and(|(_, last)| !NOT_PUBLIC.contains(&last));
        let rule = NetworkRule {
            target: RuleTarget::Name(name.clone()),
            port: Some(port),
            reach: HostReach::Public,
        };
        public
            && port != DNS_PORT
            && !is_metadata(name)
            && !self.secret_hosts.contains(host)
            && self
                .limits
                .iter()
                .all(|limit| limit.covers(&rule.clone().into()))
    }
}

/// Whether a name is below a domain, at any depth.
pub fn is_within(name: &HostName, domain: &HostName) -> bool {
    connection::is_within(name.as_str(), domain.as_str())
}

/// How long an approval lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalTerm {
    /// While the container runs.
    Always,
    /// For this many seconds.
    Seconds(u32),
    /// Until this date.
    Until(EndDate),
    /// For one connection.
    Once,
}

/// A connection that waits for an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingConnection {
    /// The host of the connection.
    pub host: HostName,
    /// Its port.
    pub port: u16,
    /// When the wait began, in milliseconds of the caller's clock.
    pub since_ms: u64,
    /// The client's own port, to find its program.
    pub client_port: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grant {
    Always,
    Until(Expiry),
    Once(u32),
}

/// An approval whose time is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredApproval {
    /// The host.
    pub host: HostName,
    /// The port.
    pub port: u16,
    /// When it ended.
    pub end: Expiry,
}

/// The connections that wait for an approval, and the decisions so far.
#[derive(Debug, Default)]
pub struct AskQueue {
    waiting: BTreeMap<u64, PendingConnection>,
    /// The waiting connections that were approved by number, each for itself.
    chosen: BTreeSet<u64>,
    next: u64,
    granted: BTreeMap<(HostName, u16), Grant>,
    refused: VecDeque<(HostName, u16)>,
    /// The ends of expired approvals, for reasons; a decision removes its own.
    expired: BTreeMap<(HostName, u16), EndDate>,
}

impl AskQueue {
    /// A queue whose numbers begin here. When an engine restarts a container, the numbers begin elsewhere, so that an
    /// old number from the terminal means nothing now.
    pub fn numbered_from(first: u64) -> Self {
        Self {
            next: first,
            ..Self::default()
        }
    }

    /// The earlier decision about this host and port. `Ok(true)`: the approval was for one connection, and is now used
    /// up. `number` is the connection's own, if it waits.
    pub fn decided(
        &mut self,
        (host, port): (&HostName, u16),
        number: Option<u64>,
        now: ClockReading,
    ) -> Option<Result<bool, AskRefusal>> {
        let key = (host.clone(), port);
        if self.refused.contains(&key) {
            return Some(Err(AskRefusal::Refused));
        }
        if number.is_some_and(|number| self.chosen.remove(&number)) {
            return Some(Ok(true));
        }
        match self.granted.get_mut(&key)? {
            Grant::Always => Some(Ok(false)),
            Grant::Until(end) if !end.is_over(now) => Some(Ok(false)),
            Grant::Once(left) if *left > 1 => {
                *left -= 1;
                Some(Ok(true))
            }
            Grant::Once(_) => {
                self.granted.remove(&key);
                Some(Ok(true))
            }
            // Removed and logged by `expire`.
            Grant::Until(_) => None,
        }
    }

    /// Removes the approvals whose time is over, and returns them.
    pub fn expire(&mut self, now: ClockReading) -> Vec<ExpiredApproval> {
        let over = self.granted.iter().filter_map(|((host, port), grant)| {
            let Grant::Until(end) = grant else {
                return None;
            };
            end.is_over(now).then(|| ExpiredApproval {
                host: host.clone(),
                port: *port,
                end: *end,
            })
        });
        let over: Vec<_> = over.collect();
        for ExpiredApproval { host, port, end } in &over {
            let key = (host.clone(), *port);
            self.granted.remove(&key);
            if self.expired.len() >= MOST_DECIDED {
                self.expired.pop_first();
            }
            self.expired.insert(key, end.date());
        }
        over
    }

    /// When the last approval expired, if there was no decision since.
    pub fn expired_at(&self, host: &HostName, port: u16) -> Option<EndDate> {
        self.expired.get(&(host.clone(), port)).copied()
    }

    /// Why a connection is refused for which no decision came.
    pub fn unapproved(&self, host: &HostName, port: u16, seconds: u32) -> AskRefusal {
        match self.expired_at(host, port) {
            Some(end) => AskRefusal::Expired(seconds, end),
            None => AskRefusal::TimedOut(seconds),
        }
    }

    /// The ends of the approvals.
    pub fn ends(&self) -> impl Iterator<Item = Expiry> {
        self.granted.values().filter_map(|grant| match grant {
            Grant::Until(end) => Some(*end),
            Grant::Always | Grant::Once(_) => None,
        })
    }

    /// Whether an approval for more than one connection is in force.
    pub fn holds(&self, host: &HostName, port: u16, now: ClockReading) -> bool {
        match self.granted.get(&(host.clone(), port)) {
            Some(Grant::Always) => true,
            Some(Grant::Until(end)) => !end.is_over(now),
            Some(Grant::Once(_)) | None => false,
        }
    }

    /// Whether the operator denied it.
    pub fn is_refused(&self, host: &HostName, port: u16) -> bool {
        self.refused.iter().any(|(h, p)| h == host && *p == port)
    }

    /// Starts to wait. [`AskQueue::forget`] must follow.
    pub fn wait(&mut self, waiting: PendingConnection) -> Result<u64, AskRefusal> {
        if self.waiting.len() >= MOST_WAITING {
            return Err(AskRefusal::TooMany(MOST_WAITING));
        }
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, waiting);
        Ok(number)
    }

    /// Ends the wait.
    pub fn forget(&mut self, number: u64) {
        self.waiting.remove(&number);
        self.chosen.remove(&number);
    }

    /// Approves only this connection. False: it no longer waits.
    #[must_use]
    pub fn choose(&mut self, number: u64) -> bool {
        self.waiting.contains_key(&number) && {
            self.chosen.insert(number);
            true
        }
    }

    /// The waiting connections, by number.
    pub fn waiting(&self) -> impl Iterator<Item = (u64, &PendingConnection)> {
        self.waiting.iter().map(|(number, one)| (*number, one))
    }

    /// Approves a host and port. False: too many approvals, or an end beyond the calendar.
    #[must_use]
    pub fn approve(
        &mut self,
        host: &HostName,
        port: u16,
        lasting: ApprovalTerm,
        now: ClockReading,
    ) -> bool {
        let key = (host.clone(), port);
        let end = match lasting {
            ApprovalTerm::Seconds(seconds) => Expiry::after(seconds, now),
            ApprovalTerm::Until(date) => Some(Expiry::at(date).pinned(now)),
            ApprovalTerm::Always | ApprovalTerm::Once => None,
        };
        if self.granted.len() >= MOST_DECIDED && !self.granted.contains_key(&key) {
            return false;
        }
        self.refused.retain(|refused| *refused != key);
        let grant = match (lasting, self.granted.get(&key)) {
            (ApprovalTerm::Always, _) => Grant::Always,
            (ApprovalTerm::Seconds(_) | ApprovalTerm::Until(_), _) => match end {
                Some(end) => Grant::Until(end),
                None => return false,
            },
            (ApprovalTerm::Once, Some(Grant::Once(left))) => Grant::Once(left.saturating_add(1)),
            (ApprovalTerm::Once, _) => Grant::Once(1),
        };
        self.expired.remove(&key);
        self.granted.insert(key, grant);
        true
    }

    /// Denies a host and port until it is approved. If there are too many denials, the oldest are forgotten.
    pub fn refuse(&mut self, host: &HostName, port: u16) {
        let key = (host.clone(), port);
        self.granted.remove(&key);
        self.expired.remove(&key);
        self.refused.retain(|refused| *refused != key);
        self.refused.push_back(key);
        if self.refused.len() > MOST_DECIDED {
            self.refused.pop_front();
        }
    }

    /// The approvals in force, in words, and the denials.
    pub fn decisions(&self, now: ClockReading) -> (Vec<String>, Vec<String>) {
        let granted = self.granted.iter().filter_map(|((host, port), grant)| {
            Some(match grant {
                Grant::Always => format!("{host}:{port}"),
                Grant::Until(end) if end.is_over(now) => return None,
                Grant::Until(end) => format!("{host}:{port} {}", end.words(now)),
                Grant::Once(1) => format!("{host}:{port} once"),
                Grant::Once(left) => format!("{host}:{port} for {left} connections"),
            })
        });
        let refused = self
            .refused
            .iter()
            .map(|(host, port)| format!("{host}:{port}"));
        (granted.collect(), refused.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    fn asking(limits: &[&[&str]]) -> AskRules {
        let limit = |rules: &&[&str]| NetworkLimit {
            ceiling: "c".to_owned(),
            rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
        };
        AskRules {
            learns: false,
            seconds: 30,
            limits: limits.iter().map(limit).collect(),
            secret_hosts: BTreeSet::new(),
        }
    }

    fn asks(asking: &AskRules, host: &str, port: u16) -> bool {
        let rules = EgressRules {
            allow: [
                "a.test".parse().unwrap(),
                "*.google.internal".parse().unwrap(),
            ]
            .into(),
            deny: [
                "bad.test",
                "DELETE https://seen.test",
                "PUT https://part.test:8443/x",
            ]
            .map(|rule| rule.parse().unwrap())
            .into(),
            ..EgressRules::default()
        };
        let host = host.parse().unwrap();
        matches!(
            rules.verdict(Some(asking), &host, port),
            NetworkVerdict::Ask(_)
        )
    }

    #[test]
    fn only_public_names_within_every_ceiling_can_be_approved() {
        let all = asking(&[&["*"]]);
        for (host, port, asked) in [
            ("b.test", 443, true),
            ("b.test", 22, true),
            ("a.test", 22, true),
            ("a.test", 443, false),
            ("bad.test", 443, false),
            ("seen.test", 443, false),
            ("a.seen.test", 22, false),
            ("part.test", 8443, false),
            ("part.test", 443, true),
            ("b.test", 53, false),
            ("192.0.2.1", 443, false),
            ("2001:db8::1", 443, false),
            ("localhost", 443, false),
            ("printer.local", 443, false),
            ("1.2.0.192.in-addr.arpa", 443, false),
            ("metadata.google.internal", 443, false),
            ("metadata.goog", 443, false),
        ] {
            assert_eq!(asks(&all, host, port), asked, "{host}:{port}");
        }
        let narrow = asking(&[&["*"], &["*.b.test:443"]]);
        assert!(asks(&narrow, "c.b.test", 443));
        assert!(!asks(&narrow, "c.b.test", 22) && !asks(&narrow, "c.test", 443));
        assert!(!asks(&asking(&[&["*"], &[]]), "c.test", 443));
        let rules = EgressRules::default();
        let host = "c.test".parse().unwrap();
        assert!(matches!(
            rules.verdict(None, &host, 443),
            NetworkVerdict::Deny(_)
        ));
    }

    /// Learn mode and approvals open a port to everything that is sent there.
    #[test]
    fn no_other_port_of_a_host_of_requests_is_learnt_and_none_of_a_secrets_is_opened() {
        let rules = EgressRules {
            allow: ["GET https://read.test/**", "GET https://*.wide.test/**"]
                .map(|rule| rule.parse().unwrap())
                .into(),
            ..EgressRules::default()
        };
        let waits = |asking: &AskRules, host: &str| {
            let host = host.parse().unwrap();
            let verdict = rules.verdict(Some(asking), &host, 8080);
            matches!(verdict, NetworkVerdict::Ask(_))
        };
        let asks = AskRules {
            secret_hosts: ["secret.test".parse().unwrap()].into(),
            ..asking(&[&["*"]])
        };
        let learns = AskRules {
            learns: true,
            ..asks.clone()
        };
        for (host, approved, learnt) in [
            ("other.test", true, true),
            ("read.test", true, false),
            ("a.wide.test", true, false),
            ("secret.test", false, false),
        ] {
            assert_eq!(waits(&asks, host), approved, "{host}");
            assert_eq!(waits(&learns, host), learnt, "{host}");
        }
    }

    #[test]
    fn a_name_is_answered_if_a_served_port_of_it_can_be_approved() {
        let rules = EgressRules {
            allow: ["a.test".parse().unwrap()].into(),
            ..EgressRules::default()
        };
        let narrow = asking(&[&["*:443"]]);
        let verdict =
            |text: &str, ports: &[u16]| rules.name_verdict(Some(&narrow), &name(text), ports);
        assert_eq!(verdict("a.test", &[443]), Ok(NameVerdict::Listed));
        assert_eq!(verdict("b.test", &[80, 443]), Ok(NameVerdict::Unlisted));
        assert_eq!(verdict("b.test", &[80]), Err(Denial::NotListed));
        assert!(rules.name_verdict(None, &name("b.test"), &[443]).is_err());
    }

    #[test]
    fn names_made_by_a_search_list_are_below_its_domains() {
        for (text, domain, within) in [
            ("a.test.corp.example", "corp.example", true),
            ("a.corp.example", "corp.example", true),
            ("corp.example", "corp.example", false),
            ("acorp.example", "corp.example", false),
            ("corp.example.test", "corp.example", false),
        ] {
            assert_eq!(is_within(&name(text), &name(domain)), within, "{text}");
        }
    }

    fn at(boot_ms: u64) -> ClockReading {
        ClockReading {
            boot_ms,
            unix: 1000,
        }
    }

    #[test]
    fn an_approval_lasts_as_long_as_it_says() {
        let (mut asks, host) = (AskQueue::default(), name("b.test"));
        let now = at(0);
        assert_eq!(asks.decided((&host, 443), None, now), None);
        assert!(asks.approve(&host, 443, ApprovalTerm::Once, now));
        assert!(!asks.holds(&host, 443, now));
        assert_eq!(asks.decided((&host, 443), None, now), Some(Ok(true)));
        assert_eq!(asks.decided((&host, 443), None, now), None);
        assert!(asks.approve(&host, 443, ApprovalTerm::Seconds(10), at(1000)));
        let just = at(10_999);
        assert_eq!(asks.decided((&host, 443), None, just), Some(Ok(false)));
        assert!(asks.holds(&host, 443, just) && !asks.holds(&host, 443, at(11_000)));
        assert_eq!(asks.decided((&host, 443), None, at(11_000)), None);
        assert!(asks.approve(&host, 443, ApprovalTerm::Always, now));
        let last = at(u64::MAX);
        assert_eq!(asks.decided((&host, 443), None, last), Some(Ok(false)));
        assert_eq!(asks.decided((&host, 80), None, now), None);
        asks.refuse(&host, 443);
        assert_eq!(
            asks.decided((&host, 443), None, now),
            Some(Err(AskRefusal::Refused))
        );
        assert!(asks.approve(&host, 443, ApprovalTerm::Always, now));
        assert_eq!(asks.decided((&host, 443), None, now), Some(Ok(false)));
    }

    #[test]
    fn an_expired_approval_is_the_reason_until_the_next_decision() {
        let (mut asks, host) = (AskQueue::default(), name("b.test"));
        let date = EndDate::of(1600).unwrap();
        for term in [ApprovalTerm::Seconds(600), ApprovalTerm::Until(date)] {
            assert!(asks.approve(&host, 443, term, at(0)));
            assert_eq!(asks.ends().count(), 1);
            assert_eq!(asks.expire(at(599_999)), []);
            assert_eq!(asks.unapproved(&host, 443, 5), AskRefusal::TimedOut(5));
            let over = asks.expire(at(600_000));
            assert_eq!(over.len(), 1);
            assert_eq!((&over[0].host, over[0].end.date()), (&host, date));
            assert_eq!(asks.expire(at(600_000)), [], "it is told once");
            let why = asks.unapproved(&host, 443, 5);
            assert_eq!(why, AskRefusal::Expired(5, date));
            assert!(why.to_string().contains("expired at 1970-01-01T00:26:40Z"));
        }
        assert!(asks.approve(&host, 443, ApprovalTerm::Once, at(0)));
        assert_eq!(asks.unapproved(&host, 443, 5), AskRefusal::TimedOut(5));
    }

    #[test]
    fn an_approval_by_number_applies_only_to_that_connection() {
        let (mut asks, host) = (AskQueue::default(), name("b.test"));
        let mut wait = || {
            asks.wait(PendingConnection {
                host: host.clone(),
                port: 443,
                since_ms: 0,
                client_port: None,
            })
            .unwrap()
        };
        let (first, shown, third) = (wait(), wait(), wait());
        assert!(asks.choose(shown));
        let mut decided = |number| asks.decided((&host, 443), number, at(0));
        for other in [Some(first), None, Some(third)] {
            assert_eq!(decided(other), None);
        }
        assert_eq!(decided(Some(shown)), Some(Ok(true)));
        assert_eq!(decided(Some(shown)), None);
        // The connection ends before: its approval passes to no other.
        assert!(asks.choose(third));
        asks.forget(third);
        assert!(!asks.choose(third));
        assert_eq!(asks.decided((&host, 443), Some(third), at(0)), None);
        // A denial of the host takes precedence.
        assert!(asks.choose(first));
        asks.refuse(&host, 443);
        let denied = Some(Err(AskRefusal::Refused));
        assert_eq!(asks.decided((&host, 443), Some(first), at(0)), denied);
    }

    #[test]
    fn the_number_of_decisions_is_bounded() {
        let mut asks = AskQueue::default();
        let waiting = || PendingConnection {
            host: name("b.test"),
            port: 443,
            since_ms: 0,
            client_port: None,
        };
        for _ in 0..MOST_WAITING {
            asks.wait(waiting()).unwrap();
        }
        assert_eq!(asks.wait(waiting()), Err(AskRefusal::TooMany(MOST_WAITING)));
        asks.forget(3);
        asks.wait(waiting()).unwrap();
        assert_eq!(asks.waiting().count(), MOST_WAITING);
        for i in 0..2 * MOST_DECIDED {
            asks.refuse(&name(&format!("n{i}.test")), 443);
        }
        assert_eq!(asks.refused.len(), MOST_DECIDED);
        let approved = (0..2 * MOST_DECIDED).filter(|i| {
            asks.approve(
                &name(&format!("m{i}.test")),
                443,
                ApprovalTerm::Always,
                at(0),
            )
        });
        assert_eq!(approved.count(), MOST_DECIDED);
    }
}
