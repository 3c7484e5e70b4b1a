//! PURE. Whether the rule that a refusal lacks is offered, and what its reader types: the one answer for hints, for what a container
//! reads, for `audit`, for `suggest` and for `policy check`.

use super::closed::{is_above_metadata, is_metadata, touches};
use super::rule::{HostReach, RuleTarget};
use super::{EgressRule, Field, HostName, SyscallProfile, annotation_key};

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

/// By what a container was started, in whose words a remedy is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tool {
    /// An engine, which has annotations.
    #[default]
    Engine,
    /// `agentbox wrap`, which has options.
    Wrap,
}

impl Tool {
    /// What a log has for the engine of a run of `wrap`.
    pub const WRAP: &'static str = "wrap";

    /// By what a log has for the engine.
    pub fn of(engine: Option<&str>) -> Self {
        match engine {
            Some(Self::WRAP) => Self::Wrap,
            _ => Self::Engine,
        }
    }

    /// What is typed to set a field.
    pub fn sets(self, field: Field, value: &str) -> String {
        match self {
            Self::Engine => format!("{}={value}", annotation_key(field)),
            Self::Wrap => format!("--set {field}={value}"),
        }
    }

    /// What is typed to add to a list.
    pub fn adds(self, field: Field, values: &[&str]) -> String {
        match (self, field) {
            (Self::Wrap, Field::NetworkAllow) => {
                let each = values.iter().map(|rule| format!("--allow {}", typed(rule)));
                each.collect::<Vec<_>>().join(" ")
            }
            _ => self.sets(field, &format!("+,{}", values.join(","))),
        }
    }

    /// What is typed for the calls of debuggers.
    pub fn debugs(self) -> String {
        self.sets(Field::SyscallsProfile, SyscallProfile::Debug.as_str())
    }

    /// What is typed for these system calls: the profile of debuggers where they are all its.
    pub fn calls(self, names: &[&str]) -> String {
        let debuggers = SyscallProfile::Debug.adds();
        match names.iter().all(|name| debuggers.contains(name)) {
            true => self.debugs(),
            false => self.adds(Field::SyscallsAllow, names),
        }
    }

    /// What [`Self::sets`] makes.
    pub fn calls_it(self) -> &'static str {
        match self {
            Self::Engine => "an annotation",
            Self::Wrap => "an option",
        }
    }
}

/// A rule as it is typed in a shell: what has a space is one word in quotes. No rule that is offered has a quote in it.
pub fn typed(rule: &str) -> String {
    match rule.contains([' ', '*']) {
        true => format!("'{rule}'"),
        false => rule.to_owned(),
    }
}

const METADATA: &str = "a cloud gives its machine's credentials there";
const NO_RULE: &str = "the log names no rule for it";
const ADDRESS: &str = "an address or a pattern may be the node's own";
const PRIVATE: &str = "it lies in a network of the node";
const NO_DOT: &str = "a name without a dot is one of the node's network, where rules with internal: or service: lead";
const NOT_PUBLIC: &str = "the internet has no such name";
const NODE: &str =
    "it is the node itself, where only rules node:HOST:PORT lead, which the node's file permits";
/// What engines call the node in a container.
const NODES_NAMES: [&str; 3] = [
    "gateway.docker.internal",
    "host.containers.internal",
    "host.docker.internal",
];

impl Advice {
    /// About a rule as a log has it, which a container may have chosen.
    pub fn of(rule: &str) -> Self {
        match rule.parse::<EgressRule>() {
            Ok(rule) => Self::of_rule(&rule),
            Err(_) => Self::Never(NO_RULE),
        }
    }

    /// About a rule.
    pub fn of_rule(rule: &EgressRule) -> Self {
        let (target, reach) = match rule {
            EgressRule::Connection(rule) => (&rule.target, rule.reach),
            // One request, or one call.
            EgressRule::Request(rule) => (&rule.target, HostReach::Public),
        };
        match target {
            RuleTarget::Name(name) => of_name(name, reach),
            RuleTarget::Addresses(net, bits) if touches(*net, *bits) => Self::Never(METADATA),
            RuleTarget::Below(name) if is_above_metadata(name) => Self::Never(METADATA),
            RuleTarget::Addresses(..) | RuleTarget::Below(_) | RuleTarget::Any => {
                Self::Deliberate(ADDRESS)
            }
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

fn of_name(name: &HostName, reach: HostReach) -> Advice {
    const NEVER: [&str; 5] = ["arpa", "internal", "local", "localhost", "invalid"];
    const OF_CLOUDS: [&str; 2] = ["metadata", "instance-data"];
    let mut labels = name.as_str().split('.');
    let (first, last) = (labels.next().unwrap_or_default(), labels.next_back());
    if is_metadata(name) || OF_CLOUDS.contains(&first) {
        return Advice::Never(METADATA);
    }
    if reach != HostReach::Public {
        return Advice::Deliberate(PRIVATE);
    }
    if NODES_NAMES.contains(&name.as_str()) {
        return Advice::Deliberate(NODE);
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

    /// NEWCOMER 1.4 and 1.7: one thing to type for each tool, whoever says it.
    #[test]
    fn a_remedy_is_in_the_words_of_what_started_the_run() {
        let (engine, wrap) = (Tool::of(Some("docker")), Tool::of(Some(Tool::WRAP)));
        assert_eq!((engine, wrap), (Tool::Engine, Tool::Wrap));
        let rules = ["a.test", "GET https://b.test/x"];
        assert_eq!(
            engine.adds(Field::NetworkAllow, &rules),
            "dev.agentbox.network.allow=+,a.test,GET https://b.test/x"
        );
        assert_eq!(
            wrap.adds(Field::NetworkAllow, &rules),
            "--allow a.test --allow 'GET https://b.test/x'"
        );
        let debug = "dev.agentbox.syscalls.profile=debug";
        assert_eq!(engine.calls(&["ptrace"]), debug);
        assert_eq!(wrap.calls(&["ptrace"]), "--set syscalls.profile=debug");
        assert_eq!(
            wrap.calls(&["ptrace", "bpf"]),
            "--set syscalls.allow=+,ptrace,bpf"
        );
    }

    /// AGENTS 8: a model server on the node is reached by a rule of another kind.
    #[test]
    fn the_nodes_own_names_need_a_rule_of_the_node() {
        for name in ["host.docker.internal:11434", "host.containers.internal"] {
            let why = Advice::of(name).why_not().unwrap();
            assert!(why.contains("node:HOST:PORT"), "{why}");
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
