//! PURE. Whether to offer the rule that a denial lacks, and the text to type. Hints, the workload's own list of
//! denials, `audit`, `suggest` and `policy check` all ask this module.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::list::list_text;
use super::{Field, POLICY_KEY, SyscallProfile, WORKSPACE_KEY, annotation_key};
use crate::rules::closed::{is_above_metadata, is_metadata, touches};
use crate::rules::{EgressRule, HostName, HostReach, RuleTarget};

/// Whether to offer a missing rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Ready to paste.
    Offer,
    /// Only the reader can know whether the rule is meant. No text to paste; the reason instead.
    Deliberate(&'static str),
    /// The same for a name without a dot: this rule is refused, and a rule of another kind may be meant.
    Dotless,
    /// The rule would open a cloud's credentials, or nothing. It is not named; the reason instead.
    Never(&'static str),
}

/// The tool that started a container: a remedy uses its words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tool {
    /// An engine that has annotations, in a form that is not known: `ctr`, or another caller.
    #[default]
    Engine,
    /// Docker or podman, whose `run` and `create` have an option for annotations.
    Annotating,
    /// A Kubernetes cluster: a pod's YAML file has the annotations.
    Pod,
    /// The container that holds the network of a podman pod. podman gives it no annotation.
    PodmanPod,
    /// `agentbox wrap`, which has options.
    Wrap,
}

/// What gives a podman pod's network a policy of this name.
macro_rules! podman_pod_restart {
    ($name:literal) => {
        concat!(
            "podman --runtime agentbox --runtime-flag policy=",
            $name,
            " pod restart POD"
        )
    };
}

/// What a field of a podman pod's network is in.
const OF_PODMAN_POD: &str = concat!(
    "a policy of the node, given by ",
    podman_pod_restart!("NAME")
);

impl Tool {
    /// The log's engine for a run of `wrap`.
    pub const WRAP: &'static str = "wrap";
    /// The log's engine for the container that holds the network of a podman pod.
    pub const PODMAN_POD: &'static str = "podman pod";

    /// The tool for the engine that a log names.
    pub fn of(engine: Option<&str>) -> Self {
        let engine = engine.unwrap_or_default();
        // containerd is followed by its namespace.
        let (engine, namespace) = engine.split_once(' ').unwrap_or((engine, ""));
        match (engine, namespace) {
            (Self::WRAP, "") => Self::Wrap,
            ("docker" | "podman", "") => Self::Annotating,
            ("podman", "pod") => Self::PodmanPod,
            ("containerd", "k8s.io") | ("cri-o", "") => Self::Pod,
            _ => Self::Engine,
        }
    }

    /// The text that sets a field.
    pub fn sets(self, field: Field, value: &str) -> String {
        match self {
            Self::Wrap => format!("--set {}", typed(&format!("{field}={value}"))),
            Self::PodmanPod => format!("{field}={value}"),
            Self::Engine | Self::Annotating | Self::Pod => {
                self.annotates(&annotation_key(field), value)
            }
        }
    }

    /// The text that names the workspace. `wrap` does so itself: its `--set` has no such key.
    pub fn sets_workspace(self, place: &str) -> String {
        self.annotates(WORKSPACE_KEY, place)
    }

    fn annotates(self, key: &str, value: &str) -> String {
        match self {
            Self::Engine | Self::PodmanPod | Self::Wrap => typed(&format!("{key}={value}")),
            Self::Annotating => format!("--annotation {}", typed(&format!("{key}={value}"))),
            // The escapes of a text in Rust are those of YAML.
            Self::Pod => format!("{key}: {value:?}"),
        }
    }

    /// How to use a policy of the node.
    pub fn with_policy(self, name: &str) -> String {
        match self {
            Self::Engine => format!("the annotation {POLICY_KEY}={name}"),
            Self::Annotating => format!(
                "--annotation {POLICY_KEY}={name} (before Docker 26: a runtime with --policy {name})"
            ),
            Self::Pod => format!("the pod's annotation {POLICY_KEY}: {name:?}"),
            Self::PodmanPod => format!(podman_pod_restart!("{}"), name),
            Self::Wrap => format!("agentbox wrap --policy {name} -- COMMAND"),
        }
    }

    /// The text that adds to a list.
    pub fn adds(self, field: Field, values: &[&str]) -> String {
        match (self, field) {
            (Self::Wrap, Field::NetworkAllow) => {
                let each = values.iter();
                let each = each.map(|rule| format!("--allow {}", typed(&list_text([rule]))));
                each.collect::<Vec<_>>().join(" ")
            }
            (Self::Wrap, Field::NetworkConnect) => {
                let each = values
                    .iter()
                    .map(|item| format!("--connect {}", typed(item)));
                each.collect::<Vec<_>>().join(" ")
            }
            (Self::Wrap, Field::FilesystemUnprotected) => {
                let each = values
                    .iter()
                    .map(|name| format!("--unprotect {}", typed(name)));
                each.collect::<Vec<_>>().join(" ")
            }
            _ => self.sets(field, &format!("+,{}", list_text(values))),
        }
    }

    /// An addition for a name that was only looked up. Its port is unknown, and a rule without one is for HTTPS.
    pub fn for_other_ports(self, name: &str) -> String {
        match self {
            Self::Engine | Self::Annotating | Self::Pod | Self::PodmanPod => {
                format!("; other ports need {name}:PORT")
            }
            Self::Wrap => format!("; other ports, such as SSH's, need --allow {name}:PORT"),
        }
    }

    /// The text that allows the calls of debuggers.
    pub fn debugs(self) -> String {
        self.sets(Field::SyscallsProfile, SyscallProfile::Debug.as_str())
    }

    /// How to start a container without the engine's own seccomp profile.
    pub fn without_profile(self) -> &'static str {
        match self {
            Self::Annotating | Self::PodmanPod => {
                "--security-opt seccomp=unconfined (agentbox's own filter stays)"
            }
            Self::Pod => {
                "seccompProfile.type: Unconfined in the container's securityContext (agentbox's own filter stays)"
            }
            Self::Engine | Self::Wrap => {
                "start it without the engine's seccomp profile (agentbox's own filter stays)"
            }
        }
    }

    /// The text that allows these system calls: the debug profile if it has all of them.
    pub fn calls(self, names: &[&str]) -> String {
        let debuggers = SyscallProfile::Debug.adds();
        match names.iter().all(|name| debuggers.contains(name)) {
            true => self.debugs(),
            false => self.adds(Field::SyscallsAllow, names),
        }
    }

    /// What this tool calls the text of [`Self::sets`].
    pub fn calls_it(self) -> &'static str {
        match self {
            Self::Engine => "an annotation",
            Self::Pod => "an annotation of the pod (metadata.annotations)",
            // `--annotation` is unknown to older ones.
            Self::Annotating => {
                "an option of docker run (before Docker 26: a runtime with --policy) or podman run"
            }
            Self::PodmanPod => OF_PODMAN_POD,
            Self::Wrap => "an option",
        }
    }

    /// A text of [`Self::sets`] within a sentence. An option needs no noun.
    pub fn names(self, text: &str) -> String {
        match self {
            Self::Engine => format!("the annotation {text}"),
            Self::Pod => format!("the pod's annotation {text}"),
            Self::PodmanPod => format!("{text} in {OF_PODMAN_POD}"),
            Self::Annotating | Self::Wrap => text.to_owned(),
        }
    }

    /// What gets the text of [`Self::sets`] after a container that has ended.
    pub fn next(self) -> &'static str {
        match self {
            Self::Engine | Self::Annotating => "the next container",
            Self::Pod | Self::PodmanPod => "the next pod",
            Self::Wrap => "the next run",
        }
    }
}

/// A text as a shell takes it: quoted unless it has only characters that no shell looks at. A workload may have chosen it.
pub fn typed(text: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"@%+=:,./_-".contains(&b);
    match text.bytes().all(is_plain) && !text.is_empty() {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// The same for a path. One that is no text is written byte by byte, as bash and zsh take it.
pub fn typed_path(path: &Path) -> String {
    let bytes = match path.to_str() {
        Some(text) => return typed(text),
        None => path.as_os_str().as_bytes(),
    };
    let typed = bytes.iter().map(|byte| match byte {
        b' '..=b'~' if !b"'\\".contains(byte) => char::from(*byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    });
    format!("$'{}'", typed.collect::<String>())
}

const IN_LIST: &str = "its path has a comma or a quote: a policy's file can name it";
const METADATA: &str = "a cloud gives its machine's credentials there";
const NO_RULE: &str = "the log names no rule for it";
const ADDRESS: &str = "an address or a pattern may be the node's own";
const PRIVATE: &str = "it lies in a network of the node";
const NO_DOT: &str = "a name without a dot is a host of the node's network, which internal: and service: rules allow";
const NOT_PUBLIC: &str = "not a public DNS name";
const NODE: &str =
    "it is the node itself: only a rule node:HOST:PORT allows it, within the node file's ceiling";

impl Advice {
    /// Whether a rule from a log is one for requests, whose host is read already.
    pub fn is_request(rule: &str) -> bool {
        matches!(rule.parse(), Ok(EgressRule::Request(_)))
    }

    /// For a rule from a log. A container may have chosen its text.
    pub fn of(rule: &str) -> Self {
        match rule.parse::<EgressRule>() {
            Ok(rule) => Self::of_rule(&rule),
            Err(_) => Self::Never(NO_RULE),
        }
    }

    /// For a rule.
    pub fn of_rule(rule: &EgressRule) -> Self {
        let (target, reach) = match rule {
            EgressRule::Connection(rule) => (&rule.target, rule.reach),
            EgressRule::Request(rule) if !rule.fits_a_list() => return Self::Deliberate(IN_LIST),
            // A request rule names single requests or calls.
            EgressRule::Request(rule) => (&rule.target, HostReach::Public),
        };
        match target {
            RuleTarget::Name(name) => match (of_name(name, reach), rule) {
                (Self::Dotless, EgressRule::Request(_)) => Self::Deliberate(NO_DOT),
                (advice, _) => advice,
            },
            RuleTarget::Addresses(net, bits) if touches(*net, *bits) => Self::Never(METADATA),
            RuleTarget::Below(name) if is_above_metadata(name) => Self::Never(METADATA),
            RuleTarget::Addresses(..) | RuleTarget::Below(_) | RuleTarget::Any => {
                Self::Deliberate(ADDRESS)
            }
        }
    }

    /// Why this rule is not offered, for a reader who may write rules.
    pub fn why_not(self, rule: &str) -> Option<String> {
        match self {
            Self::Offer => None,
            Self::Dotless => Some(dotless(rule)),
            Self::Deliberate(why) => Some(format!("{why}: write the rule yourself if you mean it")),
            Self::Never(why) => Some(why.to_owned()),
        }
    }

    /// Whether a message may name the rule at all.
    pub fn may_be_named(self) -> bool {
        !matches!(self, Self::Never(_))
    }

    /// Whether the rule can be written, and allows what it is missing for.
    pub fn can_be_written(self) -> bool {
        self.may_be_named() && self != Self::Dotless
    }
}

/// The rules that can be meant by one for a name without a dot. A port is part of them.
fn dotless(rule: &str) -> String {
    let endpoint = match rule.contains(':') {
        true => rule.to_owned(),
        false => format!("{rule}:PORT"),
    };
    format!(
        "a name without a dot is no public host: service:{endpoint} allows another container, internal:{endpoint} a host of the \
         node's network"
    )
}

fn of_name(name: &HostName, reach: HostReach) -> Advice {
    const NEVER: [&str; 5] = ["arpa", "internal", "local", "localhost", "invalid"];
    const OF_CLOUDS: [&str; 2] = ["metadata", "instance-data"];
    let mut labels = name.as_str().split('.');
    let (first, last) = (labels.next().unwrap_or_default(), labels.next_back());
    if is_metadata(name) || OF_CLOUDS.contains(&first) {
        return Advice::Never(METADATA);
    }
    if name.is_the_nodes() {
        return Advice::Deliberate(NODE);
    }
    if reach != HostReach::Public {
        return Advice::Deliberate(PRIVATE);
    }
    match last {
        // inet_aton(3) reads this as an address.
        Some(last) if is_number(last) => Advice::Never(METADATA),
        None => Advice::Dotless,
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

    /// A pasted hint is one shell word and one rule, even if the workload chose the host.
    #[test]
    fn a_pasted_hint_is_one_word_and_one_rule() {
        let hostile = "GET https://a.test/x'$(sh$IFS/w/run)'";
        assert_eq!(
            typed(hostile),
            r"'GET https://a.test/x'\''$(sh$IFS/w/run)'\'''"
        );
        for text in [
            "a b", "a;b", "$(x)", "`x`", "a&b", "~", "[::1]:80", "", "a\nb", "*.a.test",
        ] {
            let said = typed(text);
            assert!(said.starts_with('\'') && said.ends_with('\''), "{said}");
        }
        let plain = "dev.agentbox.network.allow=+,a.test:80";
        assert_eq!(typed(plain), plain);
        let path = |bytes: &[u8]| typed_path(Path::new(std::ffi::OsStr::from_bytes(bytes)));
        assert_eq!(path(b"/srv/$(x)"), "'/srv/$(x)'");
        assert_eq!(path(b"/srv/\xe9'$(x)"), r"$'/srv/\xe9\x27$(x)'");
        for rule in [hostile, "GET https://a.test/x,evil.test:443"] {
            let parsed: EgressRule = rule.parse().unwrap();
            assert_eq!(
                Advice::of_rule(&parsed),
                Advice::Deliberate(IN_LIST),
                "{rule}"
            );
            assert_eq!(Advice::of(rule), Advice::Deliberate(IN_LIST), "{rule}");
        }
        assert_eq!(Advice::of("GET https://a.test/x"), Advice::Offer);
    }

    /// Former fault: hints and the agent's own text named the way to a metadata service.
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

    /// For each tool, every message gives the same text to type.
    #[test]
    fn a_remedy_uses_the_words_of_the_tool_that_started_the_run() {
        let (engine, wrap) = (
            Tool::of(Some("containerd default")),
            Tool::of(Some(Tool::WRAP)),
        );
        assert_eq!((engine, wrap), (Tool::Engine, Tool::Wrap));
        let rules = ["a.test", "GET https://b.test/x"];
        assert_eq!(
            engine.adds(Field::NetworkAllow, &rules),
            "'dev.agentbox.network.allow=+,a.test,GET https://b.test/x'"
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

    /// Issue 31: an engine's user pastes an option, a pod's author a line of YAML.
    #[test]
    fn each_engine_has_its_own_form_of_an_annotation() {
        const KEY: &str = "dev.agentbox.network.allow";
        let plain = format!("{KEY}=+,a.test");
        let option = format!("--annotation {KEY}=+,a.test");
        let yaml = format!("{KEY}: \"+,a.test\"");
        for (engine, text, noun) in [
            (
                Some("docker"),
                &option,
                "an option of docker run (before Docker 26: a runtime with --policy) or podman run",
            ),
            (
                Some("podman"),
                &option,
                "an option of docker run (before Docker 26: a runtime with --policy) or podman run",
            ),
            (
                Some("containerd k8s.io"),
                &yaml,
                "an annotation of the pod (metadata.annotations)",
            ),
            (
                Some("cri-o"),
                &yaml,
                "an annotation of the pod (metadata.annotations)",
            ),
            (Some("containerd default"), &plain, "an annotation"),
            (Some("/run/other"), &plain, "an annotation"),
            (Some("agentbox"), &plain, "an annotation"),
            (None, &plain, "an annotation"),
        ] {
            let tool = Tool::of(engine);
            assert_eq!(&tool.adds(Field::NetworkAllow, &["a.test"]), text);
            assert_eq!(tool.calls_it(), noun, "{engine:?}");
        }
        let rules = ["GET https://b.test/x", "*.c.test"];
        let docker = Tool::Annotating.adds(Field::NetworkAllow, &rules);
        assert_eq!(
            docker,
            format!("--annotation '{KEY}=+,GET https://b.test/x,*.c.test'")
        );
        assert_eq!(Tool::Annotating.names(&docker), docker);
        assert_eq!(Tool::Engine.names("a=b"), "the annotation a=b");
        assert_eq!(Tool::Pod.names("a: \"b\""), "the pod's annotation a: \"b\"");
        // podman gives no annotation to what holds a pod's network: one was suggested, and had no effect.
        let pod = Tool::of(Some(Tool::PODMAN_POD));
        let named = pod.names(&pod.adds(Field::NetworkAllow, &["a.test"]));
        assert!(
            named.starts_with("network.allow=+,a.test in a policy"),
            "{named}"
        );
        assert!(named.ends_with(podman_pod_restart!("NAME")), "{named}");
        assert_eq!(pod.with_policy("web"), podman_pod_restart!("web"));
    }

    /// AGENTS 8: a model server on the node is reached by a rule of another kind.
    #[test]
    fn the_nodes_own_names_need_a_rule_of_the_node() {
        for name in [
            "host.docker.internal:11434",
            "host.containers.internal",
            "node:host.docker.internal:11434",
        ] {
            let why = Advice::of(name).why_not(name).unwrap();
            assert!(why.contains("node:HOST:PORT"), "{why}");
        }
    }

    /// A 403 had `db:6379` to paste, which is refused as a rule.
    #[test]
    fn for_a_name_without_a_dot_both_rules_that_can_be_meant_are_named() {
        for (rule, endpoint) in [("db:6379", "db:6379"), ("db", "db:PORT")] {
            let advice = Advice::of(rule);
            assert!(advice.may_be_named() && !advice.can_be_written());
            let why = advice.why_not(rule).unwrap();
            for reach in ["service:", "internal:"] {
                assert!(why.contains(&format!("{reach}{endpoint} ")), "{why}");
                let pasted = format!("{reach}{}", endpoint.replace("PORT", "6379"));
                assert!(Advice::of(&pasted).can_be_written(), "{pasted}");
            }
        }
        assert!(Advice::of("a.test").can_be_written(), "the control");
        assert!(!Advice::of("metadata").can_be_written());
    }

    #[test]
    fn only_rules_for_public_names_are_offered() {
        for rule in ["a.test", "a.test:22", "GET https://a.test/x"] {
            assert_eq!(Advice::of(rule), Advice::Offer, "{rule}");
        }
        for rule in [
            "192.0.2.1",
            "192.0.2.0/24",
            "*.test",
            "*",
            "GET http://db/x",
            "internal:db:5432",
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
