//! How the parts of a [`super::PolicyError`] read in its one line.

use std::fmt;

use super::{Ceiling, ExceededField, Origin, OverLimit, PolicyName};
use crate::text::bounded;

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
