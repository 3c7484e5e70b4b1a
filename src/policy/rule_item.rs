//! An item of a policy's list of rules: a rule, or the name of a preset.

use std::fmt;
use std::str::FromStr;

use super::request::RequestRule;
use super::rule::NetworkRule;
use super::text::{ValueError, string_form};

/// What stands in a policy's list: a rule, or the name of a set of rules.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub enum RuleItem {
    /// A rule.
    Rule(NetworkRule),
    /// The rules of this preset.
    Preset(PresetName),
}

/// The name of a preset: 1 to 32 of a-z, 0-9 and `-`, without the `@`.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct PresetName(String);

impl PresetName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PresetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PresetName {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if (1..=32).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(known) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ValueError::grammar(
                text,
                "a preset's name: 1 to 32 of a-z, 0-9 and '-'",
            ))
        }
    }
}

string_form!(PresetName);

impl fmt::Display for RuleItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => rule.fmt(f),
            Self::Preset(name) => write!(f, "@{name}"),
        }
    }
}

impl FromStr for RuleItem {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.strip_prefix('@') {
            Some(name) => name.parse().map(Self::Preset),
            // Nothing looks into a connection yet: the host alone would be opened, which is more than the rule says.
            None if RequestRule::is_meant(text) => Err(not_enforced(text)),
            None => text.parse().map(Self::Rule),
        }
    }
}

string_form!(RuleItem);

/// A rule for requests, or a wrong one: what is wrong with it, and what to write.
fn not_enforced(text: &str) -> ValueError {
    match text.parse::<RequestRule>() {
        Err(error) => error,
        Ok(_) => ValueError::grammar(
            text,
            "a rule that is enforced: no rule for methods and paths is yet; name the host alone, which opens every request to it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule that nothing enforces is refused, and not taken for its host.
    #[test]
    fn a_rule_for_requests_is_refused_by_its_name() {
        for text in [
            "GET https://a.test/x",
            "* https://a.test",
            "GET,HEAD https://*.a.test/**",
        ] {
            let error = text.parse::<RuleItem>().unwrap_err().to_string();
            assert!(error.contains("name the host alone"), "{error}");
        }
        for text in ["https://a.test/", "get https://a.test/", "a.test b.test"] {
            let error = text.parse::<RuleItem>().unwrap_err().to_string();
            assert!(!error.contains("name the host alone"), "{error}");
        }
    }

    #[test]
    fn a_preset_stands_behind_its_sign() {
        assert!("@Python".parse::<RuleItem>().is_err());
        assert!("@".parse::<RuleItem>().is_err());
        assert_eq!(
            "@python".parse::<RuleItem>().unwrap().to_string(),
            "@python"
        );
    }
}
