//! PURE. Whether the rule that a refusal lacks is offered: the one answer for hints, for what a container reads, for `audit`, for
//! `suggest` and for `policy check`.

use super::closed::{is_above_metadata, is_metadata, touches};
use super::rule::{Reach, Target};
use super::{HostName, Rule};

/// Whether a missing rule is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Ready to paste.
    Offer,
    /// Only its reader can know whether it is meant. Nothing to paste, and why.
    Deliberate(&'static str),
    /// Such a rule opens a cloud's credentials, or nothing: no rule is named, and why.
    Never(&'static str),
}

const METADATA: &str = "a cloud gives its machine's credentials there";
const NO_RULE: &str = "the log names no rule for it";
const ADDRESS: &str = "an address or a pattern may be the node's own";
const PRIVATE: &str = "it lies in a network of the node";
const NO_DOT: &str = "a name without a dot is one of the node's network, where rules with internal: or service: lead";
const NOT_PUBLIC: &str = "such a name is none of the internet";

impl Advice {
    /// About a rule as a log has it, which a container may have chosen.
    pub fn of(rule: &str) -> Self {
        match rule.parse::<Rule>() {
            Ok(rule) => Self::of_rule(&rule),
            Err(_) => Self::Never(NO_RULE),
        }
    }

    /// About a rule.
    pub fn of_rule(rule: &Rule) -> Self {
        let (target, reach) = match rule {
            Rule::Connection(rule) => (&rule.target, rule.reach),
            // One request, or one call.
            Rule::Request(rule) => (&rule.target, Reach::Public),
        };
        match target {
            Target::Name(name) => of_name(name, reach),
            Target::Addresses(net, bits) if touches(*net, *bits) => Self::Never(METADATA),
            Target::Below(name) if is_above_metadata(name) => Self::Never(METADATA),
            Target::Addresses(..) | Target::Below(_) | Target::Any => Self::Deliberate(ADDRESS),
        }
    }

    /// Why it is not offered, for somebody who may write rules.
    pub fn why_not(self) -> Option<String> {
        match self {
            Self::Offer => None,
            Self::Deliberate(why) => Some(format!("{why}: write the rule yourself if you mean it")),
            Self::Never(why) => Some(why.to_owned()),
        }
    }

    /// Whether the rule may be named at all.
    pub fn may_be_named(self) -> bool {
        !matches!(self, Self::Never(_))
    }
}

fn of_name(name: &HostName, reach: Reach) -> Advice {
    const NEVER: [&str; 5] = ["arpa", "internal", "local", "localhost", "invalid"];
    const OF_CLOUDS: [&str; 2] = ["metadata", "instance-data"];
    let mut labels = name.as_str().split('.');
    let (first, last) = (labels.next().unwrap_or_default(), labels.next_back());
    if is_metadata(name) || OF_CLOUDS.contains(&first) {
        return Advice::Never(METADATA);
    }
    if reach != Reach::Public {
        return Advice::Deliberate(PRIVATE);
    }
    match last {
        // An address, to inet_aton(3).
        Some(last) if is_number(last) => Advice::Never(METADATA),
        None => Advice::Deliberate(NO_DOT),
        Some(last) if NEVER.contains(&last) => Advice::Deliberate(NOT_PUBLIC),
        Some(_) => Advice::Offer,
    }
}

fn is_number(label: &str) -> bool {
    let digits = label.strip_prefix("0x").unwrap_or(label);
    digits.chars().all(|c| c.is_ascii_hexdigit()) && label.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finding 9 of the reading for honesty: the way to a metadata service was in hints and in what an agent reads.
    #[test]
    fn no_metadata_service_is_ever_named() {
        for rule in [
            "169.254.169.254",
            "169.254.169.254:80",
            "169.254.170.2:80",
            "168.63.129.16:80",
            "[fd00:ec2::254]:80",
            "[::ffff:169.254.169.254]:80",
            "169.254.0.0/16",
            "0.0.0.0/0",
            "fd00:ec2::/32",
            "fd00::/8",
            "168.63.129.0/24",
            "100.100.100.0/24",
            "*.internal",
            "*.google.internal:80",
            "169.254.43518",
            "0xa9.0xfea9fe",
            "GET http://169.254.169.254/latest/meta-data",
            "metadata.google.internal:80",
            "metadata.goog",
            "metadata",
            "internal:metadata:80",
            "GET https://metadata.google.internal/x",
            "instance-data.ec2.internal",
            "",
            "a b",
        ] {
            assert!(!Advice::of(rule).may_be_named(), "{rule:?}");
        }
    }

    #[test]
    fn public_names_are_offered_and_all_else_is_left_to_its_reader() {
        for rule in ["a.test", "a.test:22", "GET https://a.test/x"] {
            assert_eq!(Advice::of(rule), Advice::Offer, "{rule}");
        }
        for rule in [
            "192.0.2.1",
            "192.0.2.0/24",
            "*.test",
            "*",
            "db:5432",
            "internal:db.corp.test:5432",
            "y.local:80",
            "host.docker.internal:80",
        ] {
            let advice = Advice::of(rule);
            assert!(
                matches!(advice, Advice::Deliberate(_)),
                "{rule}: {advice:?}"
            );
        }
    }
}
