//! What a ceiling allows in the rules of the network wall.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::ceiling_rule::{CeilingRule, Excess, join};
use super::request::{self, RequestRule};
use super::{EgressRule, Network, NetworkRule, Policy};

/// What one ceiling allows in a container's rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NetworkLimit {
    /// The ceiling's name, and who set it.
    pub ceiling: String,
    /// Connection rules, each for one port or for all; or request rules.
    pub rules: BTreeSet<EgressRule>,
}

/// The part of a rule that a limit does not cover.
enum LimitGap {
    /// Nothing.
    Nothing,
    /// All of the rule.
    Rule,
    /// Part of it, such as this request.
    Request(String),
}

impl NetworkLimit {
    /// What a policy allows as a ceiling.
    pub fn of(ceiling: String, network: &Network) -> Self {
        let mut limit = Self::of_rules(ceiling, &network.allow);
        limit.rules.extend(network.limit.iter().cloned());
        limit
    }

    /// A limit of exactly these rules: each for the port that it names, or for 443.
    pub fn of_rules(ceiling: String, allow: &BTreeSet<EgressRule>) -> Self {
        let as_limit = |rule: &EgressRule| match rule {
            EgressRule::Connection(rule) => EgressRule::Connection(rule.as_limit()),
            EgressRule::Request(rule) => EgressRule::Request(rule.clone()),
        };
        Self {
            ceiling,
            rules: allow.iter().map(as_limit).collect(),
        }
    }

    /// Whether a rule of an allowlist is within this limit.
    pub fn covers(&self, rule: &EgressRule) -> bool {
        match rule {
            EgressRule::Connection(rule) => self.connections().any(|limit| limit.covers(rule)),
            EgressRule::Request(rule) => matches!(self.outside(rule), LimitGap::Nothing),
        }
    }

    /// Whether another limit is within this one.
    pub fn covers_limit(&self, rule: &EgressRule) -> bool {
        match rule {
            EgressRule::Connection(rule) => {
                self.connections().any(|limit| limit.covers_limit(rule))
            }
            EgressRule::Request(_) => self.covers(rule),
        }
    }

    fn connections(&self) -> impl Iterator<Item = &NetworkRule> {
        self.rules.iter().filter_map(EgressRule::connection)
    }

    /// A request rule must be within one connection rule for its hosts, or within all request rules together. A
    /// connection rule is never within request rules, because a connection can carry anything.
    fn outside(&self, rule: &RequestRule) -> LimitGap {
        let host = rule.connection();
        if self.connections().any(|limit| limit.covers(&host)) {
            return LimitGap::Nothing;
        }
        let limits: Vec<RequestRule> = self
            .rules
            .iter()
            .filter_map(|rule| rule.request().cloned())
            .collect();
        match request::exceeds(rule, &limits) {
            None => LimitGap::Nothing,
            Some(_) if limits.is_empty() => LimitGap::Rule,
            Some(request) => LimitGap::Request(request),
        }
    }

    /// The text for a message: the rule, or a request that it allows beyond the limit.
    fn too_much(&self, rule: &EgressRule) -> String {
        match rule.request().map(|rule| self.outside(rule)) {
            Some(LimitGap::Request(request)) => request,
            Some(LimitGap::Nothing | LimitGap::Rule) | None => rule.to_string(),
        }
    }
}

/// Rules that allow, compared one by one.
pub(super) struct RulesWithin;

impl CeilingRule<BTreeSet<EgressRule>> for RulesWithin {
    #[cfg(test)]
    const WITHIN: &'static str = WITHIN;

    fn excess(
        asked: &BTreeSet<EgressRule>,
        _: &BTreeSet<EgressRule>,
        ceiling: &Policy,
    ) -> Option<Excess> {
        excess(asked, ceiling, NetworkLimit::covers)
    }

    fn narrowed(
        own: &BTreeSet<EgressRule>,
        _: &BTreeSet<EgressRule>,
        ceiling: &Policy,
    ) -> BTreeSet<EgressRule> {
        narrowed(own, ceiling, NetworkLimit::covers)
    }
}

/// Rules that limit, compared one by one.
pub(super) struct LimitsWithin;

impl CeilingRule<BTreeSet<EgressRule>> for LimitsWithin {
    #[cfg(test)]
    const WITHIN: &'static str = WITHIN;

    const NARROWS_CHOSEN: bool = true;

    fn excess(
        asked: &BTreeSet<EgressRule>,
        _: &BTreeSet<EgressRule>,
        ceiling: &Policy,
    ) -> Option<Excess> {
        excess(asked, ceiling, NetworkLimit::covers_limit)
    }

    fn narrowed(
        own: &BTreeSet<EgressRule>,
        _: &BTreeSet<EgressRule>,
        ceiling: &Policy,
    ) -> BTreeSet<EgressRule> {
        narrowed(own, ceiling, NetworkLimit::covers_limit)
    }
}

#[cfg(test)]
const WITHIN: &str = "[within](#rules-within-a-ceiling) the ceiling's `limit` or `allow`";

/// Whether a limit covers a rule.
type Covers = fn(&NetworkLimit, &EgressRule) -> bool;

fn excess(asked: &BTreeSet<EgressRule>, ceiling: &Policy, covers: Covers) -> Option<Excess> {
    let network = &ceiling.network;
    let within = NetworkLimit::of(String::new(), network);
    let mut too_much = asked
        .iter()
        .filter(|rule| !covers(&within, rule))
        .map(|rule| within.too_much(rule))
        .peekable();
    too_much.peek()?;
    Some(Excess {
        asked: join(too_much),
        allowed: join(network.limit.iter().chain(&network.allow)),
    })
}

/// A rule that is only partly covered is removed: that allows less, never more.
fn narrowed(own: &BTreeSet<EgressRule>, ceiling: &Policy, covers: Covers) -> BTreeSet<EgressRule> {
    let within = NetworkLimit::of(String::new(), &ceiling.network);
    let kept = own.iter().filter(|rule| covers(&within, rule));
    kept.cloned().collect()
}
