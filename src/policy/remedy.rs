//! The remedy if a policy exceeds a ceiling, as text to paste.

use super::ceiling_rule::NeededValue;
use super::{
    Advice, Ceiling, Field, Origin, OverLimit, Policy, PolicyName, RootAccess, Tool, table,
};
use crate::rules::{EgressRule, NetworkLimit, RuleTarget};

/// The remedy if one field exceeds the ceiling, or a few that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// None that fits in a line.
    None,
    /// Put these rules into `network.limit` of a ceiling of the node.
    Limit {
        /// The rules of `network.allow` that exceed the ceiling.
        rules: Box<[String]>,
        /// The policy file of the node that is the ceiling; `None` if root must create one.
        file: Option<PolicyName>,
    },
    /// The same for a user of `wrap` under the default ceiling: whole files, which `wrap` prints.
    Files {
        /// The rules.
        rules: Box<[String]>,
        /// Ports of this machine's loopback among them, which need no file.
        connect: Box<[u16]>,
    },
    /// Put these rules into `network.allow` of the policy that the runtime's `--policy` names.
    Runtime {
        /// The rules.
        rules: Box<[String]>,
        /// Whether the policy is a file of the node, or built in.
        file: Option<PolicyName>,
    },
    /// Make the chosen policy the node's ceiling: its own values exceed it.
    Ceiling(PolicyName),
    /// Give a new ceiling of the node the mode `allowlist`, and put these rules into its `network.limit`. In the ceiling's own file
    /// the mode would open hosts for each run that has it as its policy.
    Hosts {
        /// The rules of `network.allow` that exceed the ceiling.
        rules: Box<[String]>,
    },
    /// Make a policy that permits all of it the node's ceiling: several fields, not all of one policy, exceed it.
    Wider,
    /// Give a new ceiling of the node this value. In the ceiling's own file it would hold for each run under that policy.
    Value {
        /// The field.
        field: Field,
        /// Its value in TOML.
        value: String,
    },
    /// Use a root within the ceiling; the policy itself has more.
    Root {
        /// The root.
        root: RootAccess,
        /// The tool that sets it.
        tool: Tool,
    },
}

impl Remedy {
    /// The remedy for these fields. `file` is the policy file of the node that is the ceiling, if any.
    pub(super) fn of(
        over: &[OverLimit],
        asked: &Policy,
        (ceiling, says): (&Ceiling, &Policy),
        file: Option<PolicyName>,
        tool: Tool,
    ) -> Self {
        let is_hosts = |over: &OverLimit| {
            matches!(
                over.exceeded.field,
                Field::NetworkMode | Field::NetworkAllow
            )
        };
        if ceiling.set_by == Origin::Flag && over.iter().all(is_hosts) {
            let rules = beyond(asked, says);
            return match rules.is_empty() {
                true => Self::None,
                false => Self::Runtime { rules, file },
            };
        }
        let [over] = over else {
            let mut origins = over.iter().map(|over| &over.origin);
            let is_policys = origins.all(|o| matches!(o, Origin::Builtin(_) | Origin::File(_)));
            return match (is_policys, &ceiling.set_by) {
                (true, Origin::Node) => Self::Ceiling(asked.name.clone()),
                (false, Origin::Node) => Self::of_hosts(over, beyond(asked, says)),
                _ => Self::None,
            };
        };
        match over.exceeded.field {
            Field::FilesystemRoot => {
                let root = root_within(std::slice::from_ref(over), says);
                root.map_or(Self::None, |root| Self::Root { root, tool })
            }
            Field::NetworkAllow => {
                let rules = beyond(asked, says);
                let by_option = matches!(
                    over.origin,
                    Origin::Option(_) | Origin::Setting(_) | Origin::OwnFile(_)
                );
                match by_option && ceiling.set_by == Origin::Default {
                    _ if rules.is_empty() => Self::None,
                    true => Self::Files {
                        rules,
                        connect: own_ports(asked),
                    },
                    false => Self::Limit { rules, file },
                }
            }
            // A ceiling by `--policy` was set on purpose: name no way around it.
            field if ceiling.set_by != Origin::Flag => Self::of_value(field, asked, says),
            _ => Self::None,
        }
    }
}

impl Remedy {
    /// The value that a ceiling needs for one field.
    fn of_value(field: Field, asked: &Policy, says: &Policy) -> Self {
        let mut value = None;
        table::compare(asked, says, |exceeded, excess| {
            if exceeded == field {
                value = match excess.needed {
                    NeededValue::Same => Some(toml_value(&excess.asked)),
                    NeededValue::With(items) => Some(with_items(&items)),
                    NeededValue::Other => None,
                };
            }
        });
        // What a ceiling only allows others is in its `limit`.
        let field = match field {
            Field::SyscallsAllow => Field::SyscallsLimit,
            field => field,
        };
        value.map_or(Self::None, |value| Self::Value { field, value })
    }

    /// The commonest request beyond a ceiling has two fields: a host under a policy without hosts.
    fn of_hosts(over: &[OverLimit], rules: Box<[String]>) -> Self {
        let mut fields = over.iter().map(|over| over.exceeded.field);
        let is_hosts = fields.all(|f| matches!(f, Field::NetworkMode | Field::NetworkAllow));
        match is_hosts && !rules.is_empty() {
            true => Self::Hosts { rules },
            false => Self::Wider,
        }
    }
}

/// The ceiling's root, if a policy file's or built-in policy's root is all that exceeds it.
pub(super) fn root_within(over: &[OverLimit], ceiling: &Policy) -> Option<RootAccess> {
    let [over] = over else {
        return None;
    };
    let by_policy = matches!(over.origin, Origin::Builtin(_) | Origin::File(_));
    let is_root = over.exceeded.field == Field::FilesystemRoot;
    (by_policy && is_root).then_some(ceiling.filesystem.root)
}

/// The rules of an allowlist that a ceiling does not cover. None if messages must not name one of them.
fn beyond(asked: &Policy, ceiling: &Policy) -> Box<[String]> {
    let limit = NetworkLimit::of(ceiling.name.to_string(), &ceiling.network);
    let rules = asked.network.allow.iter();
    let rules: Vec<_> = rules.filter(|rule| !limit.covers(rule)).collect();
    let named = |rule: &&EgressRule| Advice::of_rule(rule).may_be_named();
    match rules.iter().all(named) {
        true => rules.iter().map(ToString::to_string).collect(),
        false => Box::default(),
    }
}

/// Ports of this machine's loopback in an allowlist.
fn own_ports(asked: &Policy) -> Box<[u16]> {
    let rules = asked.network.allow.iter();
    let ports = rules.filter_map(|rule| match rule {
        EgressRule::Connection(rule) => match rule.target {
            RuleTarget::Addresses(address, bits) => {
                let single = if address.is_ipv4() { 32 } else { 128 };
                let is_own = address.is_loopback() && bits == single;
                is_own.then(|| rule.allowed_port())
            }
            RuleTarget::Name(ref name) => {
                (name.as_str() == "localhost").then(|| rule.allowed_port())
            }
            RuleTarget::Below(_) | RuleTarget::Any => None,
        },
        EgressRule::Request(_) => None,
    });
    ports.collect()
}

/// A word or number in TOML.
fn toml_value(value: &str) -> String {
    match value.parse::<u64>() {
        Ok(number) => number.to_string(),
        Err(_) => format!("{value:?}"),
    }
}

/// A list in TOML: that of the policy below, with these items.
fn with_items(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!(", {item:?}")).collect();
    format!("[\"+\"{}]", items.concat())
}
