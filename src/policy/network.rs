//! Network rules that need the node's permission because they cover too many hosts, and those within a ceiling.

use std::collections::BTreeSet;

use super::ceiling_rule::{CeilingRule, Excess, NeededValue, join};
use super::{Field, Network, NodeAllow, Policy, TemporaryRule};
use crate::rules::strangers::{Strangers, whose};
use crate::rules::{EgressRule, HostName, NetworkLimit, NetworkRule, RuleTarget};

type Rules = BTreeSet<EgressRule>;
type TemporaryRules = BTreeSet<TemporaryRule>;

/// The most ports that rules may name: the sidecar listens on each.
pub const MOST_PORTS: usize = 64;

/// A rule that the node does not allow, or that makes no sense.
pub(super) struct RuleRefusal {
    pub field: Field,
    pub rule: Box<EgressRule>,
    pub why: String,
}

impl RuleRefusal {
    fn of(field: Field, rule: &EgressRule, why: String) -> Self {
        Self {
            field,
            rule: Box::new(rule.clone()),
            why,
        }
    }
}

/// Refuses rules that the node does not allow, or that make no sense.
pub(super) fn check(
    network: &Network,
    leave: &NodeAllow,
    is_preset: impl Fn(&str) -> bool,
) -> Result<(), RuleRefusal> {
    for (field, rule) in allowed(network) {
        let hosts = match rule {
            EgressRule::Connection(rule) => rule.clone(),
            EgressRule::Request(rule) => rule.connection(),
        };
        if let Some(why) = refused(&hosts, leave, &is_preset) {
            return Err(RuleRefusal::of(field, rule, why));
        }
    }
    let twice = network
        .temporary
        .iter()
        .zip(network.temporary.iter().skip(1));
    if let Some((one, other)) = twice
        .into_iter()
        .find(|(one, other)| one.item == other.item)
    {
        let why = format!("it ends {} and {}: give it one end", one.term, other.term);
        let field = Field::NetworkTemporary;
        return Err(RuleRefusal::of(field, &one.item, why));
    }
    let ports = allowed(network).flat_map(|(_, rule)| rule.ports());
    let ports: BTreeSet<u16> = ports.collect();
    match allowed(network).last() {
        Some((field, last)) if ports.len() > MOST_PORTS => {
            let why = format!(
                "rules may name {MOST_PORTS} different ports, these name {}",
                ports.len()
            );
            Err(RuleRefusal::of(field, last, why))
        }
        _ => Ok(()),
    }
}

/// The rules that allow, lasting and temporary ones, with their fields.
fn allowed(network: &Network) -> impl Iterator<Item = (Field, &EgressRule)> {
    let lasting = network.allow.iter().map(|rule| (Field::NetworkAllow, rule));
    let temporary = network.temporary.iter();
    lasting.chain(temporary.map(|one| (Field::NetworkTemporary, &one.item)))
}

impl Network {
    /// The rules that allow when a run begins: lasting and temporary ones.
    pub fn allowed_at_first(&self) -> impl Iterator<Item = &EgressRule> {
        allowed(self).map(|(_, rule)| rule)
    }
}

/// Why a rule for these hosts is refused, if it is.
fn refused(
    rule: &NetworkRule,
    leave: &NodeAllow,
    is_preset: impl Fn(&str) -> bool,
) -> Option<String> {
    let wide = match &rule.target {
        RuleTarget::Any if rule.reach.is_private() => {
            return Some(format!(
                "names that are not public are listed one by one; only network.limit may have {rule}"
            ));
        }
        RuleTarget::Name(name) if !rule.reach.is_private() && name.parent().is_none() => {
            let port = rule.allowed_port();
            let preset = is_preset(name.as_str()).then_some(name);
            return Some(no_public_name(name, port, preset));
        }
        RuleTarget::Any => Some("it names every host".to_owned()),
        RuleTarget::Below(domain) => whose(domain).map(|whose| match whose {
            Strangers::Registrars => {
                format!("every internet user can register a name below {domain} (the public suffix list)")
            }
            Strangers::Customers => format!(
                "every internet user can publish below {domain} (the public suffix list, or policies/publishers.toml): list single hosts"
            ),
            Strangers::Anywhere => {
                format!("a name below {domain} leads to whatever address it says itself")
            }
        }),
        RuleTarget::Name(_) | RuleTarget::Addresses(..) => None,
    };
    wide.filter(|_| !leave.open_egress)
        .map(|why| format!("{why}; allow.open-egress of the node's file permits it"))
}

/// What the author may have meant by a single label, which is never a public name.
fn no_public_name(name: &HostName, port: u16, preset: Option<&HostName>) -> String {
    if name.as_str() == "localhost" {
        return format!(
            "localhost is the container itself, which no rule is about; to this machine's: wrap --connect {port}"
        );
    }
    let preset = match preset {
        Some(preset) => format!("@{preset} is the preset; "),
        None => String::new(),
    };
    format!(
        "{name} is no public name: {preset}service:{name}:{port} is a container or Service beside this one, internal:{name}:{port} a \
         private host beyond"
    )
}

impl NetworkLimit {
    /// What a policy allows as a ceiling.
    pub fn of(ceiling: String, network: &Network) -> Self {
        let mut limit = Self::of_rules(ceiling, &network.allow);
        limit.rules.extend(network.limit.iter().cloned());
        limit
    }
}

/// Rules that allow, compared one by one.
pub(super) struct RulesWithin;

impl CeilingRule<Rules> for RulesWithin {
    #[cfg(test)]
    const WITHIN: &'static str = WITHIN;

    fn excess(asked: &Rules, _: &Rules, ceiling: &Policy) -> Option<Excess> {
        excess(asked, ceiling, NetworkLimit::covers)
    }

    fn narrowed(own: &Rules, _: &Rules, ceiling: &Policy) -> Rules {
        narrowed(own, ceiling, NetworkLimit::covers)
    }
}

/// Rules that end. One is within what lasts, or within rules that do not end sooner.
pub(super) struct TemporaryWithin;

impl TemporaryWithin {
    fn covers(rule: &TemporaryRule, ceiling: &Policy) -> bool {
        let TemporaryRule { item: rule, term } = rule;
        let most = ceiling.network.temporary.iter();
        let most = most.filter(|most| term.is_within(most.term));
        let most = NetworkLimit::of_rules(String::new(), &most.map(|m| m.item.clone()).collect());
        let mut within = NetworkLimit::of(String::new(), &ceiling.network);
        within.rules.extend(most.rules);
        within.covers(rule)
    }
}

impl CeilingRule<TemporaryRules> for TemporaryWithin {
    #[cfg(test)]
    const WITHIN: &'static str = WITHIN;

    fn excess(asked: &TemporaryRules, _: &TemporaryRules, ceiling: &Policy) -> Option<Excess> {
        let mut too_much = asked
            .iter()
            .filter(|rule| !Self::covers(rule, ceiling))
            .peekable();
        too_much.peek()?;
        Some(Excess {
            asked: join(too_much),
            allowed: join(most_of(&ceiling.network)),
            needed: NeededValue::Other,
        })
    }

    fn narrowed(own: &TemporaryRules, _: &TemporaryRules, ceiling: &Policy) -> TemporaryRules {
        let kept = own.iter().filter(|rule| Self::covers(rule, ceiling));
        kept.cloned().collect()
    }
}

/// What a ceiling allows, for a message.
fn most_of(network: &Network) -> impl Iterator<Item = String> {
    let lasting = network.limit.iter().chain(&network.allow);
    let temporary = network.temporary.iter().map(ToString::to_string);
    lasting.map(ToString::to_string).chain(temporary)
}

/// Rules that limit, compared one by one.
pub(super) struct LimitsWithin;

impl CeilingRule<Rules> for LimitsWithin {
    #[cfg(test)]
    const WITHIN: &'static str = WITHIN;

    const NARROWS_CHOSEN: bool = true;

    fn excess(asked: &Rules, _: &Rules, ceiling: &Policy) -> Option<Excess> {
        excess(asked, ceiling, NetworkLimit::covers_limit)
    }

    fn narrowed(own: &Rules, _: &Rules, ceiling: &Policy) -> Rules {
        narrowed(own, ceiling, NetworkLimit::covers_limit)
    }
}

#[cfg(test)]
const WITHIN: &str = "[within](#rules-within-a-ceiling) the ceiling's `limit` or `allow`";

/// Whether a limit covers a rule.
type Covers = fn(&NetworkLimit, &EgressRule) -> bool;

fn excess(asked: &Rules, ceiling: &Policy, covers: Covers) -> Option<Excess> {
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
        allowed: join(most_of(network)),
        needed: NeededValue::Other,
    })
}

/// A rule that is only partly covered is removed: that allows less, never more.
fn narrowed(own: &Rules, ceiling: &Policy, covers: Covers) -> Rules {
    let within = NetworkLimit::of(String::new(), &ceiling.network);
    let kept = own.iter().filter(|rule| covers(&within, rule));
    kept.cloned().collect()
}
