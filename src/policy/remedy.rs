//! The remedy if a policy exceeds a ceiling, as text to paste.

use std::fmt;

use super::message::{OriginText, OverLimits};
use super::{
    Advice, Ceiling, ExceededField, Field, NetworkMode, Origin, OverLimit, Policy, PolicyError,
    PolicyName, RootAccess, Tool,
};
use crate::rules::{EgressRule, NetworkLimit, RuleTarget};
use crate::text::MESSAGE;

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
    /// Give a new ceiling of the node this mode. In the ceiling's own file it would hold for each run under that policy.
    Mode {
        /// The field.
        field: Field,
        /// The requested word.
        word: String,
    },
    /// Use a root within the ceiling; the policy itself has more.
    Root {
        /// The root.
        root: RootAccess,
        /// The tool that sets it.
        tool: Tool,
    },
}

/// Fields whose value is one word or number.
const MODES: [Field; 8] = [
    Field::FilesystemWorkspace,
    Field::FilesystemMounts,
    Field::NetworkMode,
    Field::PrivilegesSetId,
    Field::SyscallsProfile,
    Field::LimitsPids,
    Field::LimitsMemory,
    Field::LimitsCpus,
];

impl Remedy {
    /// The remedy for these fields. `file` is the policy file of the node that is the ceiling, if any.
    pub(super) fn of(
        over: &[OverLimit],
        asked: &Policy,
        (ceiling, says): (&Ceiling, &Policy),
        file: Option<PolicyName>,
        tool: Tool,
    ) -> Self {
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
            field if MODES.contains(&field) && ceiling.set_by != Origin::Flag => Self::Mode {
                field,
                word: over.exceeded.asked.clone(),
            },
            Field::FilesystemRoot => {
                let root = root_within(std::slice::from_ref(over), says);
                root.map_or(Self::None, |root| Self::Root { root, tool })
            }
            // A ceiling by `--policy` was set on purpose: name no way around it.
            Field::NetworkAllow if ceiling.set_by != Origin::Flag => {
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
            _ => Self::None,
        }
    }
}

impl Remedy {
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
            RuleTarget::Name(_) | RuleTarget::Below(_) | RuleTarget::Any => None,
        },
        EgressRule::Request(_) => None,
    });
    ports.collect()
}

/// A message with the remedy, if there is room. Lines to paste take precedence over the ceiling's values.
pub(super) fn one_line(
    head: &str,
    over: &[OverLimit],
    remedy: &Remedy,
    ceiling: &Ceiling,
) -> String {
    let message = format!("{head}: {}", OverLimits(over));
    let Some(RemedyWords { more, short }) = RemedyWords::of(remedy, ceiling) else {
        return message;
    };
    let asked = over.iter().map(|over| {
        let ExceededField { field, asked, .. } = &over.exceeded;
        format!(
            "{head}: {field} requests {asked} ({}){more}",
            OriginText(&over.origin)
        )
    });
    let all = [format!("{message}{more}")].into_iter().chain(asked);
    let mut all = all.chain([format!("{message}{short}")]);
    let fits = |text: &String| text.chars().count() <= MESSAGE;
    all.find(fits).unwrap_or(message)
}

/// A remedy at the end of a message.
struct RemedyWords {
    /// All of it.
    more: String,
    /// What fits beside a long message.
    short: String,
}

impl RemedyWords {
    /// `None` if no line has it.
    fn of(remedy: &Remedy, ceiling: &Ceiling) -> Option<Self> {
        let words = match remedy {
            Remedy::None => return None,
            Remedy::Files { connect, .. } if connect.is_empty() => return None,
            Remedy::Files { connect, .. } => {
                let options: Vec<String> =
                    connect.iter().map(|p| format!("--connect {p}")).collect();
                let options = options.join(" ");
                let more = format!("; this machine's own port needs no rule: {options}");
                (more.clone(), more)
            }
            Remedy::Limit { rules, file } => {
                return Some(Self::of_limit("", rules, file.as_ref(), ceiling));
            }
            Remedy::Hosts { rules } => {
                let mode = format!("{}=\"{}\"", Field::NetworkMode, NetworkMode::Allowlist);
                return Some(Self::of_limit(&mode, rules, None, ceiling));
            }
            Remedy::Ceiling(policy) => {
                let more = format!("; root permits it by ceiling = \"{policy}\" in config.toml");
                (more.clone(), more)
            }
            Remedy::Wider => {
                let more = "; root permits them by a wider ceiling in config.toml".to_owned();
                (more.clone(), more)
            }
            Remedy::Mode { field, word } => {
                let wider = wider(ceiling);
                let more = format!(
                    "; needs ceiling=\"{wider}\" in config.toml and base=\"{}\", {field}=\"{word}\" in policies/{wider}.toml",
                    ceiling.policy
                );
                (more.clone(), more)
            }
            Remedy::Root { root, tool } => (
                format!(
                    "; {} is within, and {}",
                    tool.sets(Field::FilesystemRoot, &root.to_string()),
                    of_root(*root)
                ),
                String::new(),
            ),
        };
        let (more, short) = words;
        Some(Self { more, short })
    }

    /// How a ceiling of the node permits rules. `mode` is the line that they need besides, if any.
    fn of_limit(
        mode: &str,
        rules: &[String],
        file: Option<&PolicyName>,
        ceiling: &Ceiling,
    ) -> Self {
        let mode = |and: &str| match mode {
            "" => String::new(),
            mode => format!("{mode}{and}"),
        };
        let rules: Vec<String> = rules.iter().map(|rule| format!("{rule:?}")).collect();
        let rules = rules.join(", ");
        let wider = wider(ceiling);
        let (more, short) = match file {
            Some(policy) => (
                format!(
                    "; root permits it by adding {rules} to network.limit of policies/{policy}.toml"
                ),
                format!("; root permits it in network.limit of policies/{policy}.toml"),
            ),
            None => (
                format!(
                    "; needs ceiling=\"{wider}\" in config.toml and base=\"{}\", {}network.limit=[\"+\", {rules}] in \
                     policies/{wider}.toml",
                    ceiling.policy,
                    mode(", ")
                ),
                format!(
                    "; needs a ceiling of the node with {}it in network.limit",
                    mode(" and ")
                ),
            ),
        };
        Self { more, short }
    }
}

/// The name of a new ceiling that has this one as its base.
fn wider(ceiling: &Ceiling) -> &'static str {
    match ceiling.policy.as_str() {
        "wider" => "wider-still",
        _ => "wider",
    }
}

/// The effect of a root on the container's files.
fn of_root(root: RootAccess) -> &'static str {
    match root {
        RootAccess::ReadOnly => "makes it read-only",
        RootAccess::Ephemeral => "its writes end with the container",
        RootAccess::Engine => "keeps its writes",
    }
}

/// What the node's file needs if its default has this root.
pub(super) struct RootOfDefault<'a>(pub &'a PolicyName, pub Option<RootAccess>);

impl fmt::Display for RootOfDefault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(base, Some(root)) => write!(
                f,
                "; a default with base = \"{base}\", filesystem.root = \"{root}\" is within, and {}",
                of_root(*root)
            ),
            Self(_, None) => Ok(()),
        }
    }
}

impl PolicyError {
    /// The two files by which root permits hosts beyond the default ceiling.
    pub fn files_that_permit(&self) -> Option<String> {
        let Self::ExceedsCeiling {
            ceiling, remedy, ..
        } = self
        else {
            return None;
        };
        let Remedy::Files { rules, .. } = remedy.as_ref() else {
            return None;
        };
        let rules: Vec<String> = rules.iter().map(|rule| format!(", {rule:?}")).collect();
        Some(format!(
            "# /etc/agentbox/config.toml\nceiling = \"wider\"\n# /etc/agentbox/policies/wider.toml\nbase = \"{}\"\n\
             network.limit = [\"+\"{}]",
            ceiling.policy,
            rules.concat()
        ))
    }
}
