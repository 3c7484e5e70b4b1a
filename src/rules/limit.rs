//! What a ceiling allows in the rules of the network wall.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::connection::NetworkRule;
use super::item::EgressRule;
use super::request::{RequestRule, cover};

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
        match cover::exceeds(rule, &limits) {
            None => LimitGap::Nothing,
            Some(_) if limits.is_empty() => LimitGap::Rule,
            Some(request) => LimitGap::Request(request),
        }
    }

    /// The text for a message: the rule, or a request that it allows beyond the limit.
    pub fn too_much(&self, rule: &EgressRule) -> String {
        match rule.request().map(|rule| self.outside(rule)) {
            Some(LimitGap::Request(request)) => request,
            Some(LimitGap::Nothing | LimitGap::Rule) | None => rule.to_string(),
        }
    }
}
