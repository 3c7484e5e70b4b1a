//! How the parts of a [`super::PolicyError`] read in its one line, and a remedy, as text to paste.

use std::fmt;

use super::remedy::Remedy;
use super::{
    Ceiling, ExceededField, Field, NetworkMode, Origin, OverLimit, PolicyError, PolicyName,
    RootAccess,
};
use crate::text::{MESSAGE, bounded};

/// A chain of policy names, each the base of the one before.
pub(super) struct BaseChain<'a>(pub &'a [PolicyName]);

impl fmt::Display for BaseChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(PolicyName::as_str).collect();
        f.write_str(&bounded(&names.join(" -> "), 180))
    }
}

/// The permission that the node's operator can write.
pub(super) struct LeaveHint<T> {
    /// In the syntax of `allow.annotations`.
    pub keys: Vec<T>,
    /// Whether an image may have written the annotations.
    pub image: bool,
}

/// How many keys a hint names: enough for a host and its limits.
const KEYS: usize = 2;

impl<T: fmt::Display> fmt::Display for LeaveHint<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keys, image } = self;
        // Complete if possible, so that it can be pasted.
        let named: Vec<String> = keys.iter().take(KEYS).map(|k| format!("\"{k}\"")).collect();
        let (named, more) = (
            named.join(", "),
            if keys.len() > KEYS { ", ..." } else { "" },
        );
        let line = format!("annotations = [{named}{more}] in [allow] of the node's file");
        match image {
            true => write!(f, "an image may set it: {line} or --policy permits it"),
            false => write!(f, "{line} permits it, and so does a ceiling there"),
        }
    }
}

/// The policy that exceeds a ceiling. If that is the ceiling's own policy, annotations or options changed it.
pub(super) struct ExceedingPolicy<'a>(pub &'a PolicyName, pub &'a Ceiling);

impl fmt::Display for ExceedingPolicy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.0 == self.1.policy {
            true => f.write_str("the request"),
            false => write!(f, "policy {}", self.0),
        }
    }
}

/// The fields that exceed a ceiling, as many as fit into a message.
pub(super) struct OverLimits<'a>(pub &'a [OverLimit]);

/// Characters for them in a message, a guess at what is readable; `policy check` prints the others.
const LISTED: usize = 110;

impl fmt::Display for OverLimits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown: Vec<String> = Vec::new();
        for over in self.0 {
            let one = over.to_string();
            let length: usize = shown.iter().map(String::len).sum();
            if !shown.is_empty() && length + one.len() > LISTED {
                break;
            }
            shown.push(one);
        }
        let rest = match self.0.len() - shown.len() {
            0 => None,
            1 => Some("and 1 more field".to_owned()),
            more => Some(format!("and {more} more fields")),
        };
        list(f, "; ", shown.into_iter().chain(rest))
    }
}

impl fmt::Display for OverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { exceeded, origin } = self;
        let ExceededField {
            field,
            asked,
            allowed,
        } = exceeded;
        write!(
            f,
            "{field} requests {asked} ({}), allowed: {allowed}",
            OriginText(origin)
        )
    }
}

/// The origin of a value that the message names nearby. An annotation has the field's own name, so it is not repeated.
pub(super) struct OriginText<'a>(pub &'a Origin);

impl fmt::Display for OriginText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Origin::Annotation(_) => f.write_str("annotation"),
            other => other.fmt(f),
        }
    }
}

fn list(
    f: &mut fmt::Formatter<'_>,
    separator: &str,
    items: impl IntoIterator<Item = impl fmt::Display>,
) -> fmt::Result {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            f.write_str(separator)?;
        }
        write!(f, "{item}")?;
    }
    Ok(())
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
            Remedy::Runtime { rules, file } => {
                let rules: Vec<String> = rules.iter().map(|rule| format!("{rule:?}")).collect();
                let (name, rules) = (&ceiling.policy, rules.join(", "));
                match file {
                    Some(_) => (
                        format!(
                            "; root permits it by adding {rules} to network.allow of policies/{name}.toml, this runtime's policy"
                        ),
                        format!("; root permits it in network.allow of policies/{name}.toml"),
                    ),
                    None => (
                        format!(
                            "; root permits it by a policy file with base=\"{name}\", network.mode=\"allowlist\" and network.allow=[{rules}], \
                             which --policy of this runtime names"
                        ),
                        "; root permits it in the policy that --policy of this runtime names"
                            .to_owned(),
                    ),
                }
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
            Remedy::Value { field, value } => {
                let more = format!("; needs {}", of_new_ceiling(ceiling, *field, value));
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

/// The lines in two files for a new ceiling in which one field has another value.
fn of_new_ceiling(ceiling: &Ceiling, field: Field, value: &str) -> String {
    let wider = wider(ceiling);
    format!(
        "ceiling=\"{wider}\" in config.toml and base=\"{}\", {field}={value} in policies/{wider}.toml",
        ceiling.policy
    )
}

/// How root permits approvals. A ceiling by `--policy` was set on purpose: its own file has the list.
pub(super) fn of_approvals(ceiling: &Ceiling) -> String {
    match ceiling.set_by {
        Origin::Flag => "set one, such as limit = [\"*\"]".to_owned(),
        _ => format!(
            "needs {}",
            of_new_ceiling(ceiling, Field::NetworkLimit, "[\"*\"]")
        ),
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
        let Remedy::Files { rules, connect } = remedy.as_ref() else {
            return None;
        };
        // No rule leads to the machine's own ports.
        if connect.len() >= rules.len() {
            return None;
        }
        let rules: Vec<String> = rules.iter().map(|rule| format!(", {rule:?}")).collect();
        Some(format!(
            "# /etc/agentbox/config.toml\nceiling = \"wider\"\n# /etc/agentbox/policies/wider.toml\nbase = \"{}\"\n\
             network.limit = [\"+\"{}]",
            ceiling.policy,
            rules.concat()
        ))
    }
}
