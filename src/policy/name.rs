//! Names of policies and of environment variables.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::{ValueError, string_form, text_type};

/// The word that chooses no policy at all. Only the node's operator may use it.
pub const UNCONFINED: &str = "unconfined";

text_type! {
    /// The name of a built-in policy or of a policy file on the node: `[a-z0-9][a-z0-9-]{0,62}`.
    ///
    /// Never `unconfined`: that is no policy, and a file of that name would look like one.
    PolicyName
}

impl FromStr for PolicyName {
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        if value == UNCONFINED {
            return Err(ValueError::grammar(
                value,
                "a policy: the word is reserved, and only the node's `default` or --policy may say it",
            ));
        }
        let fits = (1..=63).contains(&value.len())
            && !value.starts_with('-')
            && value
                .bytes()
                .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        if fits {
            Ok(Self(value.to_owned()))
        } else {
            Err(ValueError::grammar(
                value,
                "a policy's name: 1 to 63 of a-z, 0-9 and -, the first not a -",
            ))
        }
    }
}

/// What an operator can choose: a policy, or no policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PolicyChoice {
    /// The spec as the engine wrote it, without our walls.
    Unconfined,
    /// A policy.
    Named(PolicyName),
}

impl FromStr for PolicyChoice {
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        if value == UNCONFINED {
            Ok(Self::Unconfined)
        } else {
            value.parse().map(Self::Named)
        }
    }
}

impl fmt::Display for PolicyChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unconfined => f.write_str(UNCONFINED),
            Self::Named(name) => name.fmt(f),
        }
    }
}

string_form!(PolicyChoice);

text_type! {
    /// The name of an environment variable (environ(7)): letters, digits and underscores.
    VariableName,
    "the name of a variable: letters, digits and '_', no digit first",
    |text| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && text.bytes().all(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_safe_file_names_are_accepted() {
        for good in ["strict", "0", "a-b", &"a".repeat(63)] {
            assert_eq!(good.parse::<PolicyName>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            "-a",
            "A",
            "a_b",
            "a.b",
            "../a",
            "a/b",
            "a\0",
            "a b",
            "é",
            &"a".repeat(64),
        ] {
            assert!(bad.parse::<PolicyName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn unconfined_is_a_choice_and_never_a_policy() {
        assert!(UNCONFINED.parse::<PolicyName>().is_err());
        assert_eq!(UNCONFINED.parse(), Ok(PolicyChoice::Unconfined));
    }
}
