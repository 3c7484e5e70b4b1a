//! Why a connection is refused or ends: for the log, the counts, and the container.

use std::net::IpAddr;

use crate::egress::words::{self, ContentRefusal, DenyWords};
use crate::egress::{HoneyMatch, OverBudget, WithheldSecret};
use crate::policy::Advice;
use crate::rules::request::FullRequest;
use crate::rules::{
    AddressRefusal, AskRefusal, Denial, EgressRule, ExpiredRule, Host, RULE_EXPIRED, rule_for,
};

/// The longest reason from the reader, in bytes.
const LONGEST_REASON: usize = 400;

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
    Expired(String),
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
            Self::Honey(_) => "honey",
            Self::NotApproved(refusal) => refusal.kind(),
            Self::Revoked => "no-longer-allowed",
            Self::Expired(_) => RULE_EXPIRED,
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
            Self::Denied(denial) => {
                denial.is_missing_rule() || matches!(denial, Denial::Expired(_))
            }
            Self::Local | Self::NotApproved(_) | Self::Revoked | Self::Expired(_) => true,
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

    /// The reason in words for the container, without the addresses of names inside the node's network (N-L2).
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
            Self::Unreachable(why) | Self::Expired(why) => f.write_str(why),
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
    /// The longest rule that is suggested.
    const LONGEST: usize = 300;

    /// No rule allows it, or none any more.
    pub fn not_listed(asked: &FullRequest, expired: Option<ExpiredRule>) -> Self {
        let missing = asked.rule().map(|rule| rule.to_string());
        // In a list a comma ends a rule, and a quote ends a typed argument.
        let plain = |rule: &String| {
            let path = rule.split_once("://").map_or("", |(_, path)| path);
            !path.contains([',', '\'']) && rule.len() <= Self::LONGEST
        };
        Self {
            missing: missing.filter(plain),
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
            RequestFault::Expired(_) => RULE_EXPIRED,
            RequestFault::DeniedBy(_) => "denied-by-rule",
            RequestFault::Unfit(_) | RequestFault::Withheld(_) => "content-or-address",
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
