//! What helps where a policy exceeds a ceiling, as text to paste.

use std::fmt;

use super::message::{OriginText, OverLimits};
use super::text::MESSAGE;
use super::{
    Advice, Ceiling, ExceededField, Field, NetworkLimit, Origin, OverLimit, Policy, PolicyError,
    PolicyName, RootAccess, annotation_key,
};

/// What helps, where one field alone exceeds the ceiling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing that is said in a line.
    None,
    /// These rules, in `network.limit` of a ceiling of the node.
    Limit {
        /// The rules of `network.allow` that exceed the ceiling.
        rules: Box<[String]>,
        /// The policy file of the node that is the ceiling; without one root makes one.
        file: Option<PolicyName>,
    },
    /// The same for a caller of `wrap` under the ceiling that holds where the node's file names none: whole files, which `wrap` prints.
    Files(Box<[String]>),
    /// The root that is within, where the policy itself has more.
    Root(RootAccess),
}

impl Remedy {
    /// Of fields that exceed a ceiling. `file` is the policy file of the node that is the ceiling, if one is.
    pub(super) fn of(
        over: &[OverLimit],
        asked: &Policy,
        (ceiling, says): (&Ceiling, &Policy),
        file: Option<PolicyName>,
    ) -> Self {
        let [over] = over else {
            return Self::None;
        };
        match over.exceeded.field {
            Field::FilesystemRoot => {
                root_within(std::slice::from_ref(over), says).map_or(Self::None, Self::Root)
            }
            // Whoever runs the call set that one on purpose.
            Field::NetworkAllow if ceiling.set_by != Origin::Flag => {
                let rules = beyond(asked, says);
                let by_option = matches!(
                    over.origin,
                    Origin::Option(_) | Origin::Setting(_) | Origin::OwnFile(_)
                );
                match by_option && ceiling.set_by == Origin::Default {
                    _ if rules.is_empty() => Self::None,
                    true => Self::Files(rules),
                    false => Self::Limit { rules, file },
                }
            }
            _ => Self::None,
        }
    }
}

/// The root that a ceiling has, where that is what the policy alone exceeds it in.
pub(super) fn root_within(over: &[OverLimit], ceiling: &Policy) -> Option<RootAccess> {
    let [over] = over else {
        return None;
    };
    let by_policy = matches!(over.origin, Origin::Builtin(_) | Origin::File(_));
    let is_root = over.exceeded.field == Field::FilesystemRoot;
    (by_policy && is_root).then_some(ceiling.filesystem.root)
}

/// The rules of an allowlist that a ceiling does not cover; none where one of them is never named.
fn beyond(asked: &Policy, ceiling: &Policy) -> Box<[String]> {
    let limit = NetworkLimit::of(ceiling.name.to_string(), &ceiling.network);
    let rules = asked.network.allow.iter();
    let rules: Vec<_> = rules.filter(|rule| !limit.covers(rule)).collect();
    let named = |rule: &&super::EgressRule| Advice::of_rule(rule).may_be_named();
    match rules.iter().all(named) {
        true => rules.iter().map(ToString::to_string).collect(),
        false => Box::default(),
    }
}

/// A message with what helps, as far as there is room for it: lines to paste come before what the ceiling has.
pub(super) fn one_line(
    head: &str,
    over: &[OverLimit],
    remedy: &Remedy,
    ceiling: &Ceiling,
) -> String {
    let message = format!("{head}: {}", OverLimits(over));
    let quoted = |rules: &[String]| {
        let rules: Vec<String> = rules.iter().map(|rule| format!("{rule:?}")).collect();
        rules.join(", ")
    };
    let (more, short) = match remedy {
        Remedy::None | Remedy::Files(_) => return message,
        Remedy::Limit {
            rules,
            file: Some(policy),
        } => (
            format!(
                "; root permits it by adding {} to network.limit of policies/{policy}.toml",
                quoted(rules)
            ),
            format!("; root permits it in network.limit of policies/{policy}.toml"),
        ),
        Remedy::Limit { rules, file: None } => (
            format!(
                "; needs ceiling=\"wider\" in config.toml and base=\"{}\", network.limit=[\"+\", {}] in policies/wider.toml",
                ceiling.policy,
                quoted(rules)
            ),
            "; needs a ceiling of the node with it in network.limit".to_owned(),
        ),
        Remedy::Root(root) => (
            format!(
                "; {}={root} is within, and {}",
                annotation_key(Field::FilesystemRoot),
                of_root(*root)
            ),
            String::new(),
        ),
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

/// What a root means for the container's files.
fn of_root(root: RootAccess) -> &'static str {
    match root {
        RootAccess::ReadOnly => "makes it read-only",
        RootAccess::Ephemeral => "its writes end with the container",
        RootAccess::Engine => "keeps its writes",
    }
}

/// What the node's file needs for a default with such a root.
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
    /// The two files by which root permits hosts beyond the ceiling that holds where the node's file names none.
    pub fn files_that_permit(&self) -> Option<String> {
        let Self::ExceedsCeiling {
            ceiling, remedy, ..
        } = self
        else {
            return None;
        };
        let Remedy::Files(rules) = remedy.as_ref() else {
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
