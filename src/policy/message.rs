//! How the parts of a [`super::PolicyError`] are said in its one line.

use std::fmt;

use super::text::bounded;
use super::{Ceiling, Exceeded, Origin, OverLimit, PolicyName};

/// Names on the way from one file to the next.
pub(super) struct BaseChain<'a>(pub &'a [PolicyName]);

impl fmt::Display for BaseChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(PolicyName::as_str).collect();
        f.write_str(&bounded(&names.join(" -> "), 180))
    }
}

/// What the node's operator can write to give leave.
pub(super) struct LeaveHint<T> {
    /// As `allow.annotations` spells them.
    pub keys: Vec<T>,
    /// Whether the annotations may be an image's.
    pub image: bool,
}

/// Annotations that a hint names: those of a host and its limits.
const KEYS: usize = 2;

impl<T: fmt::Display> fmt::Display for LeaveHint<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keys, image } = self;
        // Whole where it can be, to be pasted.
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

/// The policy that exceeds a ceiling; where it is the ceiling itself, what annotations or options made of it.
pub(super) struct AskedPolicy<'a>(pub &'a PolicyName, pub &'a Ceiling);

impl fmt::Display for AskedPolicy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.0 == self.1.policy {
            true => f.write_str("what is asked for"),
            false => write!(f, "policy {}", self.0),
        }
    }
}

/// The fields in which too much is asked for, as many of them as a message has room for.
pub(super) struct OverLimits<'a>(pub &'a [OverLimit]);

/// About as much as a person reads in a line beside the rest; `policy check` prints the others.
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
        let Exceeded {
            field,
            asked,
            allowed,
        } = exceeded;
        write!(
            f,
            "{field} asks for {asked} ({}), allowed is {allowed}",
            ByOrigin(origin)
        )
    }
}

/// Where something came from that is named beside it: its annotation is called like it.
pub(super) struct ByOrigin<'a>(pub &'a Origin);

impl fmt::Display for ByOrigin<'_> {
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
