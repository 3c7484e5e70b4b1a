//! What a ceiling lets the rules of the network wall allow.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::ceiling_rule::{CeilingRule, Excess, join};
use super::{Network, NetworkRule, Policy};

/// What one ceiling lets a container's rules allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NetworkLimit {
    /// The ceiling's name, and who set it.
    pub ceiling: String,
    /// Each names hosts, and a port where it does not mean all of them.
    pub rules: BTreeSet<NetworkRule>,
}

impl NetworkLimit {
    /// What a policy lets be allowed where it is a ceiling.
    pub fn of(ceiling: String, network: &Network) -> Self {
        // What the ceiling allows is a limit on the port that it names; 443 where it names none.
        let allowed = network.allow.iter().map(NetworkRule::as_limit);
        Self {
            ceiling,
            rules: allowed.chain(network.limit.iter().cloned()).collect(),
        }
    }

    /// Whether a rule of an allowlist is within it.
    pub fn covers(&self, rule: &NetworkRule) -> bool {
        self.rules.iter().any(|limit| limit.covers(rule))
    }

    /// Whether another limit is within it.
    pub fn covers_limit(&self, rule: &NetworkRule) -> bool {
        self.rules.iter().any(|limit| limit.covers_limit(rule))
    }
}

/// Rules that allow, one by one.
pub(super) struct RulesWithin;

impl CeilingRule<BTreeSet<NetworkRule>> for RulesWithin {
    #[cfg(test)]
    const WITHIN: &'static str = WITHIN;

    fn excess(
        asked: &BTreeSet<NetworkRule>,
        _: &BTreeSet<NetworkRule>,
        ceiling: &Policy,
    ) -> Option<Excess> {
        excess(asked, ceiling, NetworkLimit::covers)
    }

    fn narrowed(
        own: &BTreeSet<NetworkRule>,
        _: &BTreeSet<NetworkRule>,
        ceiling: &Policy,
    ) -> BTreeSet<NetworkRule> {
        narrowed(own, ceiling, NetworkLimit::covers)
    }
}

/// Rules that limit, one by one.
pub(super) struct LimitsWithin;

impl CeilingRule<BTreeSet<NetworkRule>> for LimitsWithin {
    #[cfg(test)]
    const WITHIN: &'static str = WITHIN;

    fn excess(
        asked: &BTreeSet<NetworkRule>,
        _: &BTreeSet<NetworkRule>,
        ceiling: &Policy,
    ) -> Option<Excess> {
        excess(asked, ceiling, NetworkLimit::covers_limit)
    }

    fn narrowed(
        own: &BTreeSet<NetworkRule>,
        _: &BTreeSet<NetworkRule>,
        ceiling: &Policy,
    ) -> BTreeSet<NetworkRule> {
        narrowed(own, ceiling, NetworkLimit::covers_limit)
    }
}

#[cfg(test)]
const WITHIN: &str = "each rule within one rule of the ceiling's `limit` or `allow`: the same name, a name below its wildcard, an \
                      address in its prefix; the same port, or any port if `limit` gives none. `*` covers public names only. \
                      Other names and addresses need a rule of their kind: `service:*`, `internal:postgres`, `node:*:11434`, \
                      `10.0.0.0/8`. `internal:` covers `service:` too";

/// Whether a limit covers a rule.
type Covers = fn(&NetworkLimit, &NetworkRule) -> bool;

fn excess(asked: &BTreeSet<NetworkRule>, ceiling: &Policy, covers: Covers) -> Option<Excess> {
    let network = &ceiling.network;
    let within = NetworkLimit::of(String::new(), network);
    let mut too_much = asked
        .iter()
        .filter(|rule| !covers(&within, rule))
        .peekable();
    too_much.peek()?;
    Some(Excess {
        asked: join(too_much),
        allowed: join(network.limit.iter().chain(&network.allow)),
    })
}

/// A rule that is covered in part goes as a whole: less is open, never more.
fn narrowed(
    own: &BTreeSet<NetworkRule>,
    ceiling: &Policy,
    covers: Covers,
) -> BTreeSet<NetworkRule> {
    let within = NetworkLimit::of(String::new(), &ceiling.network);
    let kept = own.iter().filter(|rule| covers(&within, rule));
    kept.cloned().collect()
}
