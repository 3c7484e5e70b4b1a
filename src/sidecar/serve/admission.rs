//! Whether a connection or a name is allowed: by rules, budget, and approvals.

use std::cell::RefMut;
use std::pin::pin;

use tokio::net::TcpStream;

use super::asks::reach_of;
use super::dns;
use super::permission::{CurrentRequest, Permission};
use super::refusal::Refusal;
use super::secure::Server;
use super::share::Share;
use super::upstream::Dial;
use super::wall::Wall;
use crate::audit::{Event, EventCause, EventDetail, KnownCause, Verdict, WallName};
use crate::egress::OverBudget;
use crate::egress::names::SyntheticAddresses;
use crate::egress::own::is_own;
use crate::egress::words::{DenyWords, REQUEST_NOT_LISTED};
use crate::plan::AuditedNetwork;
use crate::policy::Advice;
use crate::rules::request::Request;
use crate::rules::request::decide::RequestDecision;
use crate::rules::{
    Decision, Denial, EgressRule, Host, HostName, HostReach, NameVerdict, is_within, rule_for,
};
use crate::sys::clocks;

/// Why a connection without a rule is allowed.
const LEARNT: &str = "allowed by learn mode";

/// An admitted connection, with the reach of its rule.
#[derive(Debug)]
pub(super) struct AdmittedConnection<'a> {
    pub host: Host,
    pub port: u16,
    pub reach: HostReach,
    pub share: Share<'a>,
    /// Learn mode admitted it, in place of this denial.
    learnt: Option<Denial>,
}

/// Why a policy that is not enforced would deny a connection.
struct OtherDenial {
    /// The reason in one word.
    cause: EventCause,
    why: String,
    /// The rule that would allow it.
    missing_rule: Option<String>,
}

impl Wall {
    /// The only place where a connection is allowed.
    pub async fn admit(
        &self,
        client: &TcpStream,
        host: Host,
        port: u16,
    ) -> Result<AdmittedConnection<'_>, Refusal> {
        let now = self.milliseconds();
        let pause = self.ledger.borrow().check_pause(now);
        pause.map_err(Refusal::Over)?;
        let permission = self.permission(client, &host, port).await?;
        self.open(host, port, permission)
    }

    /// Admits a connection that carries requests; each request is decided separately.
    pub fn admit_requests(
        &self,
        (host, port): (Host, u16),
        rule: &EgressRule,
        request: CurrentRequest,
    ) -> Result<AdmittedConnection<'_>, Refusal> {
        let pause = self.ledger.borrow().check_pause(self.milliseconds());
        pause.map_err(Refusal::Over)?;
        let permission = Permission {
            reach: reach_of(rule),
            once: false,
            rule: rule.to_string(),
            learnt: None,
            request: Some(request),
            is_service: false,
        };
        self.open(host, port, permission)
    }

    /// Counts a connection in the budget.
    fn open(
        &self,
        host: Host,
        port: u16,
        permission: Permission,
    ) -> Result<AdmittedConnection<'_>, Refusal> {
        let now = self.milliseconds();
        // A proxy's client never asks the stub. Its names are counted here, because each is resolved outside.
        if let Host::Name(name) = &host {
            self.count_name(name, now)?;
        }
        self.ledger.borrow_mut().open(now).map_err(Refusal::Over)?;
        self.admitted.set(self.admitted.get().saturating_add(1));
        Ok(AdmittedConnection {
            reach: permission.reach,
            learnt: permission.learnt.clone(),
            share: Share::new(self, host.clone(), port, permission),
            host,
            port,
        })
    }

    /// Counts a connection as allowed, now that the host has answered. One that failed before did nothing outside.
    fn let_through(&self, admitted: &AdmittedConnection<'_>) {
        let AdmittedConnection {
            host,
            port,
            reach,
            share,
            learnt,
        } = admitted;
        self.allowed.set(self.allowed.get().saturating_add(1));
        if let Some(denial) = learnt {
            let denial = OtherDenial {
                cause: KnownCause::Learnt.into(),
                why: format!("{LEARNT}: {denial}"),
                missing_rule: Some(rule_for(host, Some(*port))),
            };
            self.would_deny(denial, host, *port);
        }
        // Requests are compared one by one.
        if !share.carries_requests() {
            self.compare(host, *port, *reach);
        }
        share.begin();
    }

    /// The policy in audit mode, without the rules whose time is over.
    fn audited_now(&self) -> RefMut<'_, Option<AuditedNetwork>> {
        let mut audited = self.audited.borrow_mut();
        if let Some(audited) = &mut *audited {
            audited.rules.expire(clocks::read());
        }
        audited
    }

    /// Logs what a policy in audit mode would have refused. It decides nothing.
    fn compare(&self, host: &Host, port: u16, reach: HostReach) {
        let audited = self.audited_now();
        let Some(AuditedNetwork {
            policy,
            rules,
            asks,
        }) = &*audited
        else {
            return;
        };
        let (cause, why, missing_rule) = match rules.decide(host, port) {
            Decision::Allow(rule) if rule.reach.keeps(reach) => return,
            Decision::Allow(rule) => {
                let why = format!("its rule {rule} allows only public addresses");
                ("content-or-address", why, None)
            }
            Decision::Deny(denial) => {
                let missing = denial.is_missing_rule().then(|| rule_for(host, Some(port)));
                let waits = *asks && denial.is_missing_rule() && matches!(host, Host::Name(_));
                let why = match waits {
                    true => format!("{denial}, and it would wait for approval"),
                    false => denial.to_string(),
                };
                (denial.kind(), why, missing)
            }
        };
        let denial = OtherDenial {
            cause: cause.into(),
            why: format!("policy {policy}: {why}"),
            missing_rule,
        };
        self.would_deny(denial, host, port);
    }

    /// The same for a request, as far as a log may show it.
    pub fn compare_request(&self, request: &Request, shown: &str) {
        let audited = self.audited_now();
        let Some(AuditedNetwork { policy, rules, .. }) = &*audited else {
            return;
        };
        let (cause, why) = match rules.decide_request(request) {
            RequestDecision::Allow(_) => return,
            RequestDecision::DeniedBy(rule) => ("denied-by-rule", DenyWords(rule).to_string()),
            RequestDecision::NotListed => (Denial::NotListed.kind(), REQUEST_NOT_LISTED.to_owned()),
        };
        let denial = OtherDenial {
            cause: cause.into(),
            why: format!("policy {policy}: {shown}: {why}"),
            missing_rule: None,
        };
        self.would_deny(denial, &request.host, request.port);
    }

    /// Logs an allowed connection that the other policy would deny.
    fn would_deny(&self, denial: OtherDenial, host: &Host, port: u16) {
        self.log(Event {
            cause: Some(denial.cause),
            reason: Some(denial.why.into()),
            missing_rule: denial
                .missing_rule
                .filter(|rule| Advice::of(rule).may_be_named())
                .map(Into::into),
            ..Event::new(
                WallName::Network,
                Verdict::WouldDeny,
                EventDetail::to(&host.to_string(), port),
            )
        });
    }

    /// Admits a connection and dials, for clients that need an answer before they send more.
    pub async fn connect(
        &self,
        client: &TcpStream,
        host: &Host,
        port: u16,
    ) -> Result<(AdmittedConnection<'_>, Server), Refusal> {
        let admitted = self.admit(client, host.clone(), port).await?;
        let server = {
            let dialling = pin!(self.dial(&admitted));
            admitted.share.while_allowed(dialling).await?
        };
        Ok((admitted, server))
    }

    /// Dials for an admitted connection.
    pub async fn dial(&self, admitted: &AdmittedConnection<'_>) -> Result<Server, Refusal> {
        let AdmittedConnection {
            host,
            port,
            reach,
            share,
            learnt: _,
        } = admitted;
        let dial = Dial {
            host,
            port: *port,
            reach: *reach,
            wall: self,
            share,
        };
        let server = share.dial(self.upstream.dial(&dial)).await?;
        self.let_through(admitted);
        Ok(server)
    }

    /// The addresses of a name, if a rule or an approval may allow it.
    pub fn resolve(&self, name: &HostName) -> Result<SyntheticAddresses, Refusal> {
        let now = self.milliseconds();
        let pause = self.ledger.borrow().check_pause(now);
        pause.map_err(Refusal::Over)?;
        let rules = self.rules();
        let verdict = rules
            .name_verdict(self.asking.as_ref(), name, &self.ports.borrow())
            .map_err(|denial| self.denied(&Host::Name(name.clone()), denial))?;
        let names = self.names.borrow();
        let unlisted = &self.approvals.unlisted_names;
        if verdict == NameVerdict::Unlisted && !names.has(name) {
            // A part of the budget, so that unlisted names cannot use up the budget of listed ones.
            let learns = self.asking.as_ref().is_some_and(|asking| asking.learns);
            let most = match learns {
                true => self.budget.hosts,
                false => (self.budget.hosts / 4).max(1),
            };
            if self.is_search_artefact(name) || unlisted.get() >= most {
                return Err(Refusal::Denied(Denial::NotListed));
            }
            unlisted.set(unlisted.get() + 1);
        }
        drop(names);
        self.count_name(name, now)
    }

    /// The refusal for a denial. The container itself needs no rule.
    pub fn denied(&self, host: &Host, denial: Denial) -> Refusal {
        let may_be_own = denial.is_missing_rule() || denial == Denial::Metadata;
        if may_be_own && is_own(host, &self.own_names) {
            Refusal::Own
        } else if self.refusing {
            Refusal::Local
        } else {
            Refusal::Denied(denial)
        }
    }

    /// Counts a name in the budget, and returns its addresses.
    fn count_name(&self, name: &HostName, now: u64) -> Result<SyntheticAddresses, Refusal> {
        let mut names = self.names.borrow_mut();
        names.give(name).ok_or_else(|| {
            self.ledger.borrow_mut().begin_pause(now);
            Refusal::Over(OverBudget::Hosts(self.budget.hosts))
        })
    }

    /// Whether a resolver may have made this name from another one, with a search list of the engine or of Kubernetes.
    fn is_search_artefact(&self, name: &HostName) -> bool {
        let rules = self.rules();
        dns::is_search_artefact(name.as_str())
            || rules.search.iter().any(|domain| is_within(name, domain))
    }
}
