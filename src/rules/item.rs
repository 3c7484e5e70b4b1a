//! An item in a policy's lists of network rules: a connection rule, a request rule, or the name of a preset.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::connection::{NetworkRule, RuleTarget};
use super::expiry::is_word_of_end;
use super::git::GitRule;
use super::near_miss;
use super::request::RequestRule;
use crate::text::{ValueError, string_form, text_type};

/// A rule of the network wall, for connections or for requests.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub enum EgressRule {
    /// For connections, whatever they carry.
    Connection(NetworkRule),
    /// For HTTP requests. Nothing else reaches the host by this rule.
    Request(RequestRule),
}

/// An item of a policy's list: a rule, or the name of a preset.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub enum RuleItem {
    /// A rule.
    Rule(EgressRule),
    /// The request rules of a git client.
    Git(GitRule),
    /// The rules of this preset.
    Preset(PresetName),
}

impl RuleItem {
    /// Its rules, if no file is needed to know them; otherwise the name of the preset.
    pub fn rules(self) -> Result<BTreeSet<EgressRule>, PresetName> {
        match self {
            Self::Rule(rule) => Ok([rule].into()),
            Self::Git(rule) => Ok(rule.rules()),
            Self::Preset(name) => Err(name),
        }
    }
}

impl EgressRule {
    /// Whether it can stand in a list of rules that a user types; see [`RequestRule::fits_a_list`].
    pub fn fits_a_list(&self) -> bool {
        self.request().is_none_or(RequestRule::fits_a_list)
    }

    /// The rule, if it is a connection rule.
    pub fn connection(&self) -> Option<&NetworkRule> {
        match self {
            Self::Connection(rule) => Some(rule),
            Self::Request(_) => None,
        }
    }

    /// The rule, if it is a request rule.
    pub fn request(&self) -> Option<&RequestRule> {
        match self {
            Self::Connection(_) => None,
            Self::Request(rule) => Some(rule),
        }
    }

    /// The ports on which the sidecar listens for the rule. A request rule has two: the port of its address and of the
    /// plain address. On the first, the sidecar answers with the reason why nothing passes.
    pub fn ports(&self) -> BTreeSet<u16> {
        match self {
            Self::Connection(rule) => [rule.allowed_port()].into(),
            Self::Request(rule) => [rule.allowed_port(), rule.plain_port()].into(),
        }
    }
}

impl From<NetworkRule> for EgressRule {
    fn from(rule: NetworkRule) -> Self {
        Self::Connection(rule)
    }
}

impl From<RequestRule> for EgressRule {
    fn from(rule: RequestRule) -> Self {
        Self::Request(rule)
    }
}

impl fmt::Display for EgressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(rule) => rule.fmt(f),
            Self::Request(rule) => rule.fmt(f),
        }
    }
}

impl FromStr for EgressRule {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match RequestRule::is_meant(text) {
            true => text.parse().map(Self::Request),
            false => text.parse().map(Self::Connection),
        }
        .map_err(|error| near_miss::error(text, &is_for_host, &is_for_requests).unwrap_or(error))
    }
}

/// Whether a text is a rule for one host, or those below one: no error names a wider rule than was typed.
fn is_for_host(text: &str) -> bool {
    let rule = text.parse::<NetworkRule>();
    rule.is_ok_and(|rule| rule.target != RuleTarget::Any)
}

fn is_for_requests(text: &str) -> bool {
    text.parse::<RequestRule>().is_ok()
}

string_form!(EgressRule);

text_type! {
    /// The name of a preset: 1 to 32 of a-z, 0-9 and `-`, without the `@`.
    PresetName,
    "a preset's name: 1 to 32 of a-z, 0-9 and '-'",
    |text| {
        let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        (1..=32).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(known)
    }
}

const WITHOUT_END: &str = "a rule without an end: allowed rules with one go into network.temporary (update: --for 10m); denied rules and limits have none";

impl RuleItem {
    /// Whether a text is meant as a rule with an end. Such a text is never a rule: an end that a list ignores would make
    /// a lasting rule of a temporary one.
    pub fn has_end(text: &str) -> bool {
        let words: Vec<&str> = text.rsplit(' ').skip(1).collect();
        // `for 10 minutes`. A method of MCP may have the name.
        let most = if RequestRule::is_mcp_meant(text) {
            1
        } else {
            2
        };
        words.into_iter().take(most).any(is_word_of_end)
    }
}

impl fmt::Display for RuleItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => rule.fmt(f),
            Self::Git(rule) => rule.fmt(f),
            Self::Preset(name) => write!(f, "@{name}"),
        }
    }
}

impl FromStr for RuleItem {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.strip_prefix('@') {
            _ if Self::has_end(text) => Err(ValueError::grammar(text, WITHOUT_END)),
            Some(name) => match near_miss::error(text, &is_for_host, &is_for_requests) {
                Some(error) => Err(error),
                None => name.parse().map(Self::Preset),
            },
            None if GitRule::is_meant(text) => text.parse().map(Self::Git),
            None => text.parse().map(Self::Rule),
        }
    }
}

string_form!(RuleItem);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_rule_is_no_host() {
        for text in [
            "GET https://a.test/x",
            "GET,HEAD https://*.a.test/**",
            "DELETE http://a.test:8080/**",
        ] {
            let rule = text.parse::<EgressRule>().unwrap();
            assert!(rule.request().is_some() && rule.connection().is_none());
            assert_eq!(rule.to_string(), text);
        }
        for text in ["https://a.test/", "get https://a.test/", "a.test b.test"] {
            assert!(text.parse::<EgressRule>().is_err(), "{text}");
        }
        let host = "a.test:80".parse::<EgressRule>().unwrap();
        assert!(host.connection().is_some() && host.request().is_none());
    }

    #[test]
    fn a_preset_has_an_at_sign_before_its_name() {
        assert!("@Python".parse::<RuleItem>().is_err());
        assert!("@".parse::<RuleItem>().is_err());
        assert_eq!(
            "@python".parse::<RuleItem>().unwrap().to_string(),
            "@python"
        );
    }
}
