//! Why a connection is refused or ends: for the log, the counts, and the container.

use std::net::IpAddr;

use crate::audit::{KnownCause, PlainText};
use crate::egress::words::{self, ApprovalEndWords, ContentRefusal, DenyWords};
use crate::egress::{HoneyMatch, OverBudget, WithheldSecret, WithholdReason};
use crate::policy::Advice;
use crate::rules::request::decide::FullRequest;
use crate::rules::{
    APPROVAL_EXPIRED, AddressRefusal, AskRefusal, Denial, EgressRule, EndDate, ExpiredRule, Host,
    rule_for,
};

/// The longest reason from the reader, in bytes.
const LONGEST_REASON: usize = 400;

/// The word under which refusals by the end of a secret are counted.
const SECRET_EXPIRED: &str = "secret-expired";

/// What allowed a connection, and has ended since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AllowanceEnd {
    /// A rule.
    Rule(ExpiredRule),
    /// An operator's approval.
    Approval(EndDate),
    /// A secret that its request gets. Its rule still allows it.
    Secret(WithheldSecret),
}

impl AllowanceEnd {
    fn kind(&self) -> &'static str {
        match self {
            Self::Rule(_) => KnownCause::RuleExpired.as_str(),
            Self::Approval(_) => APPROVAL_EXPIRED,
            Self::Secret(secret) => withheld_kind(secret),
        }
    }

    /// What gives it again: the rule itself, never more.
    fn lacking(&self, host: &Host, port: Option<u16>) -> Option<String> {
        match self {
            Self::Rule(expired) => Some(expired.rule.to_string()),
            Self::Approval(_) => Some(rule_for(host, port)),
            Self::Secret(_) => None,
        }
    }
}

impl std::fmt::Display for AllowanceEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rule(expired) => expired.fmt(f),
            Self::Approval(end) => ApprovalEndWords(*end).fmt(f),
            Self::Secret(secret) => secret.fmt(f),
        }
    }
}

fn withheld_kind(secret: &WithheldSecret) -> &'static str {
    match secret.why {
        WithholdReason::Expired(_) => SECRET_EXPIRED,
        WithholdReason::UsedUp(_) => "content-or-address",
    }
}

/// Why a connection is refused or ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// By the rules.
    Denied(Denial),
    /// By its request.
    Request(Box<RequestRefusal>),
    /// By the budget.
    Over(OverBudget),
    /// By its content.
    Content(ContentRefusal),
    /// By the address of its name.
    Address(IpAddr, AddressRefusal),
    /// A honeytoken is in the request or its body.
    Honey(HoneyMatch),
    /// It was not approved.
    NotApproved(AskRefusal),
    /// It was allowed, but the rules have changed.
    Revoked,
    /// It was allowed, by something that has expired since.
    Expired(Box<AllowanceEnd>),
    /// It is the container itself.
    Own,
    /// Nothing leads out: no rule would change that.
    Local,
    /// A datagram: only TCP leads out.
    Datagram,
    /// Allowed but unreachable: no violation.
    Unreachable(String),
    /// There is no room now to read it and decide: no violation.
    Busy,
    /// One of the two sides is gone: no violation.
    Broken(std::io::ErrorKind),
}

impl Refusal {
    /// For a reason from the reader.
    pub fn by_reader(why: String) -> Self {
        Self::Content(ContentRefusal::Reader(bounded(why)))
    }

    /// Whether the wall refused, as opposed to the network.
    pub fn is_violation(&self) -> bool {
        !matches!(self, Self::Unreachable(_) | Self::Busy | Self::Broken(_))
    }

    /// Whether no byte has passed on the connection: it was refused, or the host was not reached.
    pub fn is_before_the_first_byte(&self) -> bool {
        matches!(
            self,
            Self::Denied(_) | Self::Address(..) | Self::NotApproved(_) | Self::Unreachable(_)
        )
    }

    /// The word under which it is counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Denied(denial) => denial.kind(),
            Self::Request(request) => request.kind(),
            Self::Over(over) => over.kind(),
            Self::Content(_) | Self::Address(..) => "content-or-address",
            Self::Honey(_) => KnownCause::Honey.as_str(),
            Self::NotApproved(refusal) => refusal.kind(),
            Self::Revoked => "no-longer-allowed",
            Self::Expired(end) => end.kind(),
            Self::Own => "container-itself",
            Self::Local => "local",
            Self::Datagram => "datagram",
            Self::Unreachable(_) => "unreachable",
            Self::Busy => "busy",
            Self::Broken(_) => "broken",
        }
    }

    /// The rule that refused.
    pub fn rule(&self) -> Option<String> {
        match self {
            Self::Denied(Denial::DeniedBy(rule)) => Some(format!("network.deny: {rule}")),
            Self::Address(_, AddressRefusal::Denied(rule)) => Some(format!("network.deny: {rule}")),
            Self::Request(request) => request.rule(),
            Self::Denied(_)
            | Self::Address(..)
            | Self::Over(_)
            | Self::Content(_)
            | Self::Honey(_)
            | Self::NotApproved(_)
            | Self::Revoked
            | Self::Expired(_)
            | Self::Own
            | Self::Local
            | Self::Datagram
            | Self::Unreachable(_)
            | Self::Busy
            | Self::Broken(_) => None,
        }
    }

    /// The rule that would allow it, if there is one and it may be named.
    pub fn missing_rule(&self, host: &Host, port: Option<u16>) -> Option<String> {
        let missing = self.lacking(host, port);
        missing.filter(|rule| Advice::of(rule).may_be_named())
    }

    fn lacking(&self, host: &Host, port: Option<u16>) -> Option<String> {
        let is_missing = match self {
            Self::Request(request) => return request.missing_rule(),
            Self::Expired(end) => return end.lacking(host, port),
            // What ended may have been less than the host.
            Self::Denied(Denial::Expired(expired)) => return Some(expired.rule.to_string()),
            Self::Denied(denial) => denial.is_missing_rule(),
            Self::Local | Self::NotApproved(_) | Self::Revoked => true,
            Self::Over(_)
            | Self::Content(_)
            | Self::Honey(_)
            | Self::Address(..)
            | Self::Own
            | Self::Datagram
            | Self::Unreachable(_)
            | Self::Busy
            | Self::Broken(_) => false,
        };
        is_missing.then(|| rule_for(host, port))
    }

    /// The reason in words for the container, without the addresses of names inside the node's network.
    pub fn for_container(&self) -> String {
        match self {
            Self::Address(..) => words::CLOSED_ADDRESS.to_owned(),
            // The container must not learn which value was found.
            Self::Honey(_) => words::HONEY.to_owned(),
            other => other.to_string(),
        }
    }
}

impl From<ContentRefusal> for Refusal {
    fn from(refusal: ContentRefusal) -> Self {
        Self::Content(refusal)
    }
}

impl From<RequestRefusal> for Refusal {
    fn from(refusal: RequestRefusal) -> Self {
        Self::Request(Box::new(refusal))
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Denied(denial) => denial.fmt(f),
            Self::Request(request) => request.fmt(f),
            Self::Over(over) => over.fmt(f),
            Self::Content(refusal) => refusal.fmt(f),
            Self::Unreachable(why) => f.write_str(why),
            Self::Expired(end) => end.fmt(f),
            Self::Address(address, why) => write!(f, "the name leads to {address}, {why}"),
            Self::Honey(caught) => caught.fmt(f),
            Self::NotApproved(refusal) => refusal.fmt(f),
            Self::Revoked => f.write_str(words::REVOKED),
            Self::Local => f.write_str(words::LOCAL),
            Self::Own => f.write_str(words::OWN),
            Self::Datagram => f.write_str(words::DATAGRAM),
            Self::Busy => f.write_str(words::BUSY),
            Self::Broken(kind) => write!(f, "the connection broke: {kind}"),
        }
    }
}

/// Why a request is not sent, with the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestRefusal {
    /// The canonical request, without its query.
    shown: String,
    /// The rule that would allow it, if it can be written.
    missing: Option<String>,
    why: RequestFault,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum RequestFault {
    NotListed,
    Expired(ExpiredRule),
    DeniedBy(EgressRule),
    /// The reader gave this reason.
    Unfit(String),
    Withheld(WithheldSecret),
}

impl RequestRefusal {
    /// No rule allows it, or none any more. A rule that the log would cut is not named.
    pub fn not_listed(asked: &FullRequest, expired: Option<ExpiredRule>) -> Self {
        let missing = match &expired {
            Some(expired) => Some(expired.rule.clone()),
            None => asked.rule().map(EgressRule::Request),
        };
        let missing = missing.filter(EgressRule::fits_a_list);
        let missing = missing.map(|rule| rule.to_string());
        Self {
            missing: missing.filter(|rule| rule.len() <= PlainText::LONGEST),
            ..Self::new(
                asked,
                expired.map_or(RequestFault::NotListed, RequestFault::Expired),
            )
        }
    }

    /// This rule denies it.
    pub fn denied(asked: &FullRequest, rule: EgressRule) -> Self {
        Self::new(asked, RequestFault::DeniedBy(rule))
    }

    /// The reader cannot send it, for this reason.
    pub fn unfit(asked: &FullRequest, why: String) -> Self {
        Self::new(asked, RequestFault::Unfit(bounded(why)))
    }

    /// No further request gets one of its secrets.
    pub fn withheld(asked: &FullRequest, secret: WithheldSecret) -> Self {
        Self::new(asked, RequestFault::Withheld(secret))
    }

    fn new(asked: &FullRequest, why: RequestFault) -> Self {
        Self {
            shown: shown(asked),
            missing: None,
            why,
        }
    }

    fn kind(&self) -> &'static str {
        match &self.why {
            RequestFault::NotListed => "request-not-listed",
            RequestFault::Expired(_) => KnownCause::RuleExpired.as_str(),
            RequestFault::DeniedBy(_) => "denied-by-rule",
            RequestFault::Unfit(_) => "content-or-address",
            RequestFault::Withheld(secret) => withheld_kind(secret),
        }
    }

    fn rule(&self) -> Option<String> {
        match &self.why {
            RequestFault::DeniedBy(rule) => Some(format!("network.deny: {rule}")),
            RequestFault::NotListed
            | RequestFault::Expired(_)
            | RequestFault::Unfit(_)
            | RequestFault::Withheld(_) => None,
        }
    }

    fn missing_rule(&self) -> Option<String> {
        self.missing.clone()
    }
}

impl std::fmt::Display for RequestRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = &self.shown;
        match &self.why {
            RequestFault::NotListed => write!(f, "{shown}: {}", words::REQUEST_NOT_LISTED),
            RequestFault::Expired(expired) => write!(f, "{shown}: {expired}"),
            RequestFault::DeniedBy(rule) => write!(f, "{shown}: {}", DenyWords(rule)),
            RequestFault::Unfit(why) => write!(f, "{shown}: {why}"),
            RequestFault::Withheld(secret) => write!(f, "{shown}: {secret}"),
        }
    }
}

/// Cuts a reason from the reader, which may be compromised.
pub(super) fn bounded(mut why: String) -> String {
    let fits = |at: &usize| why.is_char_boundary(*at);
    let most = (0..=LONGEST_REASON.min(why.len())).rev().find(fits);
    why.truncate(most.unwrap_or(0));
    why
}

/// A request as logs show it: without its query, which may hold secrets.
pub(super) fn shown(asked: &FullRequest) -> String {
    const LONGEST: usize = 300;
    let alone = FullRequest {
        request: asked.request.clone(),
        query: None,
    };
    let mut text = alone.to_string();
    if text.len() > LONGEST {
        // It is ASCII.
        text.truncate(LONGEST);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::request::typed;
    use crate::rules::samples::rules;
    use crate::rules::{ClockReading, Decision, EgressRules, Expiry};

    fn end() -> Expiry {
        Expiry::after(600, ClockReading::default()).unwrap()
    }

    /// Rules of which this one has ended.
    fn ended(rule: &str) -> EgressRules {
        let mut rules = rules(&["other.test"], &[]);
        rules.ends.insert(rule.parse().unwrap(), end());
        rules
    }

    #[test]
    fn the_missing_rule_after_an_end_is_the_ended_rule_and_never_the_whole_host() {
        for (rule, host, port) in [
            ("GET https://r.test/**", "r.test", 443),
            ("a.test", "a.test", 443),
            ("*.w.test:8443", "x.w.test", 8443),
            ("internal:db:5432", "db", 5432),
        ] {
            let rules = ended(rule);
            let to: Host = host.parse().unwrap();
            let Decision::Deny(denial @ Denial::Expired(_)) = rules.decide(&to, port) else {
                panic!("{host} has not expired");
            };
            let Denial::Expired(expired) = denial.clone() else {
                unreachable!()
            };
            // Refused, by its name, and cut.
            let Host::Name(name) = &to else {
                unreachable!()
            };
            let looked_up = Refusal::Denied(rules.decide_name(name).unwrap_err());
            let cut = Refusal::Expired(Box::new(AllowanceEnd::Rule(*expired)));
            for refusal in [Refusal::Denied(denial), looked_up, cut] {
                assert_eq!(refusal.kind(), KnownCause::RuleExpired.as_str());
                let missing = refusal.lacking(&to, Some(port));
                assert_eq!(missing.as_deref(), Some(rule), "{refusal:?}");
            }
        }
        let whole = Refusal::Denied(Denial::NotListed);
        let missing = whole.missing_rule(&"r.test".parse().unwrap(), Some(443));
        assert_eq!(missing.as_deref(), Some("r.test"), "the control");
    }

    #[test]
    fn a_request_after_its_rules_end_lacks_that_rule() {
        let asked = typed("GET https://r.test/x").unwrap();
        let expired = ended("GET https://r.test/**").expired_request(&asked.request);
        assert!(expired.is_some());
        let missing = |expired| RequestRefusal::not_listed(&asked, expired).missing_rule();
        assert_eq!(missing(expired).as_deref(), Some("GET https://r.test/**"));
        let control = missing(None);
        assert_eq!(control.as_deref(), Some("GET https://r.test/x"));
    }

    #[test]
    fn a_rule_that_cannot_be_typed_or_logged_whole_is_not_named() {
        let missing = |path: &str| {
            let asked = typed(&format!("GET https://r.test/{path}")).unwrap();
            RequestRefusal::not_listed(&asked, None).missing_rule()
        };
        assert!(missing("x").is_some(), "the control");
        for path in ["a,b", "a'b", &"x".repeat(PlainText::LONGEST)] {
            assert_eq!(missing(path), None, "{path}");
        }
        let rule: EgressRule = "GET,HEAD https://r.test/x".parse().unwrap();
        assert_eq!(Advice::of_rule(&rule), Advice::Offer);
    }

    #[test]
    fn the_end_of_an_approval_or_a_secret_is_not_that_of_a_rule() {
        let host: Host = "r.test".parse().unwrap();
        let date = EndDate::of(600).unwrap();
        let approval = Refusal::Expired(Box::new(AllowanceEnd::Approval(date)));
        assert_eq!(approval.kind(), APPROVAL_EXPIRED);
        let missing = approval.missing_rule(&host, Some(8443));
        assert_eq!(missing.as_deref(), Some("r.test:8443"));
        let secret = |why| WithheldSecret {
            name: "model".to_owned(),
            why,
        };
        let asked = typed("GET https://r.test/x").unwrap();
        let of = |why| {
            let cut = Refusal::Expired(Box::new(AllowanceEnd::Secret(secret(why))));
            [cut, RequestRefusal::withheld(&asked, secret(why)).into()]
        };
        for (why, kind) in [
            (WithholdReason::Expired(end()), SECRET_EXPIRED),
            (WithholdReason::UsedUp(3), "content-or-address"),
        ] {
            for refusal in of(why) {
                assert_eq!(refusal.kind(), kind);
                assert_eq!(refusal.missing_rule(&host, Some(443)), None);
                assert!(refusal.to_string().contains("the secret model"));
            }
        }
    }
}
