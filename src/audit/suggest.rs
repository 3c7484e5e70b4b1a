//! PURE. The smallest additions to a policy that would have allowed what a run was denied.
//!
//! Only fields that a ceiling leaves to annotations are suggested: hosts that no rule names, and the calls of
//! `syscalls.limit`. All other denials are listed without a suggestion.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde::Serialize;

use super::cause::KnownCause;
use super::event::{LogLine, WallName};
use super::loopback;
use super::mounts::{self, Mounts};
use super::report::{self, DenialGroup};
use super::what::EventDetail;
use crate::policy::{Advice, Field, Tool};
use crate::text::escape;

/// The rules to add after one run.
#[derive(Debug, Default, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Suggestion {
    /// Rules for `network.allow`.
    pub network: Vec<Addition>,
    /// Ports for `network.inbound`, which the engine publishes.
    pub inbound: Vec<Addition>,
    /// Ports of the loopback inside that `network.connect` leads out of, if servers of the machine were meant.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub connect: BTreeSet<u16>,
    /// Calls for `syscalls.allow`.
    pub syscalls: Vec<Addition>,
    /// Denials without a suggestion.
    pub left_out: Vec<Refusal>,
    /// Writes to the writable mounts (`report.learn`).
    pub mounts: Mounts,
    /// The run used learn mode, which allows unlisted names (`report.learn`).
    pub learns: bool,
    /// The tool whose words the text uses.
    #[serde(skip)]
    pub tool: Tool,
}

/// An addition to a list of the policy.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Addition {
    /// The item.
    pub value: String,
    /// The denials that need it.
    pub needed_by: Vec<String>,
    /// Their number.
    pub times: u64,
    /// Whether a rule allowed it, and has expired: `update` gives it again, with a new end or without.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
    /// Whether they only looked a name up.
    #[serde(skip)]
    pub only_looked_up: bool,
    /// The ports of their connections.
    #[serde(skip)]
    pub ports: BTreeSet<u16>,
    /// The tool whose words the text uses: in a pod, that of its network.
    #[serde(skip)]
    pub tool: Tool,
}

/// A denial without a suggestion.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// The wall.
    pub wall: WallName,
    /// Host, call, mount.
    pub what: String,
    /// The wall's reason.
    pub reason: String,
    /// Why nothing is suggested for it, or the hint of the denial.
    pub left_out_since: String,
    /// Whether that is a hint.
    #[serde(skip)]
    pub is_hint: bool,
}

/// The suggestions for these lines. `givable` are the system calls that a policy may allow without giving up a wall.
pub fn of(lines: &[&LogLine], givable: &BTreeSet<String>) -> Suggestion {
    let calls = called(lines);
    let mut rules: BTreeMap<String, Addition> = BTreeMap::new();
    let mut names: BTreeMap<String, Addition> = BTreeMap::new();
    let mut inbound: BTreeMap<String, Addition> = BTreeMap::new();
    let mut left_out = Vec::new();
    let learnt = report::learnt(lines);
    let learns = lines.iter().any(|line| line.context.learn);
    for denied in learnt.into_iter().chain(report::denied(lines)) {
        // Text in a line is not a rule until it parses as one.
        let why = why_not(&denied);
        let rule = denied.missing_rule.as_deref().filter(|_| why.is_none());
        let call = calls
            .get(&denied.what)
            .filter(|call| givable.contains(*call));
        match (denied.wall, rule, call) {
            (WallName::Network, ..) if denied.cause == Some(KnownCause::Published) => {
                if let Some(port) = denied.port {
                    need(&mut inbound, &port.to_string(), &denied);
                }
            }
            (WallName::Network, Some(rule), _) => need(&mut rules, rule, &denied),
            (WallName::Syscalls, _, Some(call)) => need(&mut names, call, &denied),
            _ => left_out.push(Refusal {
                is_hint: denied.missing_rule.is_none() && denied.hint.is_some(),
                wall: denied.wall,
                what: denied.what,
                reason: denied.reason,
                left_out_since: why.unwrap_or_else(|| WALLS.to_owned()),
            }),
        }
    }
    Suggestion {
        network: smallest(rules),
        inbound: inbound.into_values().collect(),
        connect: loopback::ports(lines.iter().copied()),
        syscalls: names.into_values().collect(),
        left_out,
        mounts: mounts::of(lines),
        learns,
        tool: lines
            .first()
            .map_or(Tool::Engine, |line| line.context.tool()),
    }
}

/// The names of the denied calls, by their words in the report.
fn called(lines: &[&LogLine]) -> BTreeMap<String, String> {
    let named = lines.iter().filter_map(|line| match &line.event.what {
        EventDetail::Syscall { name, .. } => {
            Some((super::words::what(&line.event.what), name.to_string()))
        }
        _ => None,
    });
    named.collect()
}

/// The port of a rule that names none.
const HTTPS: u16 = 443;

/// For walls that no field opens.
const WALLS: &str = "allowing it would give up a wall";
/// For what no rule opens: faults of form, closed addresses, values that must not leave.
const FORM: &str = "no rule opens it: the reason says why";

/// Why nothing is suggested. For a host the rule's advice says so, for others the hint of the denial.
fn why_not(denied: &DenialGroup) -> Option<String> {
    let why = match (&denied.missing_rule, &denied.hint) {
        (Some(rule), _) => return Advice::of(rule).why_not(rule),
        (None, Some(hint)) => hint,
        (None, None) if denied.wall == WallName::Network => FORM,
        (None, None) => WALLS,
    };
    Some(why.to_owned())
}

fn need(all: &mut BTreeMap<String, Addition>, value: &str, denied: &DenialGroup) {
    let addition = all.entry(value.to_owned()).or_insert_with(|| Addition {
        value: value.to_owned(),
        needed_by: Vec::new(),
        times: 0,
        expired: false,
        only_looked_up: true,
        ports: BTreeSet::new(),
        tool: denied.tool,
    });
    addition.expired |= denied.cause == Some(KnownCause::RuleExpired);
    addition.only_looked_up &= denied.name.is_some();
    addition.ports.extend(denied.port);
    addition.needed_by.push(denied.what.clone());
    addition.times = addition.times.saturating_add(denied.times);
}

/// Drops the bare name of a host that also has a rule with a port, if only the name was looked up: the rule with a port
/// allows lookups too. A denial on port 443 needs the bare name.
fn smallest(rules: BTreeMap<String, Addition>) -> Vec<Addition> {
    let with_ports: BTreeSet<String> = rules
        .keys()
        .filter_map(|rule| rule.rsplit_once(':').map(|(host, _)| host.to_owned()))
        .collect();
    let all = rules.into_iter();
    let kept = all
        .filter(|(rule, addition)| !with_ports.contains(rule) || addition.ports.contains(&HTTPS));
    kept.map(|(_, addition)| addition).collect()
}

impl Suggestion {
    /// Whether there is nothing to add.
    pub fn is_empty(&self) -> bool {
        self.network.is_empty() && self.inbound.is_empty() && self.syscalls.is_empty()
    }

    /// The tool that gives the network of the added rules its policy.
    pub fn tool_of_network(&self) -> Option<Tool> {
        self.network.first().map(|addition| addition.tool)
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |indent: &str, words: &str| {
            writeln!(text, "{indent}{}", escape(words)).expect("a String takes every text");
        };
        let refused = match self.learns {
            true => "learned or denied",
            false => "denied",
        };
        let fields = [
            (Field::NetworkAllow, &self.network),
            (Field::NetworkInbound, &self.inbound),
            (Field::SyscallsAllow, &self.syscalls),
        ];
        if self.is_empty() && self.connect.is_empty() && self.left_out.is_empty() {
            line("", "no rule is missing");
        }
        for (field, additions) in fields.iter().filter(|(_, all)| !all.is_empty()) {
            line("", &format!("{field}:"));
            for addition in *additions {
                let (value, times) = (&addition.value, addition.times);
                let needed = addition.needed_by.join(", ");
                let ssh = match addition.only_looked_up {
                    true => addition.tool.for_other_ports(value),
                    false => String::new(),
                };
                let expired = match addition.expired {
                    true => "; its rule has expired, this one has no end",
                    false => "",
                };
                line(
                    "  ",
                    &format!("{value}  for {times} {refused}: {needed}{ssh}{expired}"),
                );
            }
            let values: Vec<&str> = additions.iter().map(|a| a.value.as_str()).collect();
            let tool = additions
                .first()
                .map_or(self.tool, |addition| addition.tool);
            let typed = match field {
                Field::SyscallsAllow => tool.calls(&values),
                field => tool.adds(*field, &values),
            };
            line("  ", &format!("as {}: {typed}", tool.calls_it()));
        }
        if !self.connect.is_empty() {
            let ports: Vec<String> = self.connect.iter().map(u16::to_string).collect();
            let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
            let field = Field::NetworkConnect;
            line("", &format!("{field}, for servers of this machine:"));
            line(
                "  ",
                &format!("{}  refused at localhost inside", ports.join(", ")),
            );
            let typed = self.tool.adds(field, &ports);
            line("  ", &format!("as {}: {typed}", self.tool.calls_it()));
        }
        if !self.left_out.is_empty() {
            line("", "denied, left out:");
        }
        for refusal in &self.left_out {
            let wall = refusal.wall.as_str();
            line(
                "  ",
                &format!("{wall}  {}: {}", refusal.what, refusal.reason),
            );
            let since = &refusal.left_out_since;
            match refusal.is_hint {
                true => line("    ", &format!("for you to decide: {since}")),
                false => line("    ", &format!("left out: {since}")),
            }
        }
        self.mounts.text(line);
        text
    }

    /// A policy file that adds this to `base`. `run` names the run for its reader.
    pub fn policy(&self, base: &str, run: &str) -> String {
        let mut text = format!(
            "# Rules that would have allowed what run {} was denied, by `agentbox suggest`.\n",
            escape(run)
        );
        let toml = |value: &str| toml::Value::from(value).to_string();
        writeln!(text, "base = {}", toml(base)).expect("a String takes every text");
        let of_inbound = match self.network.is_empty() {
            true => "\n[network]\ninbound",
            false => "inbound",
        };
        let lists = [
            ("\n[network]\nmode = \"allowlist\"\nallow", &self.network),
            (of_inbound, &self.inbound),
            ("\n[syscalls]\nallow", &self.syscalls),
        ];
        for (head, additions) in lists.iter().filter(|(_, all)| !all.is_empty()) {
            text += &format!("{head} = [\n  \"+\",\n");
            for addition in *additions {
                let needed: Vec<String> = addition.needed_by.iter().map(|by| escape(by)).collect();
                let expired = match addition.expired {
                    true => "; its rule has expired, this one has no end",
                    false => "",
                };
                let needed = needed.join(", ");
                text += &format!("  {}, # {needed}{expired}\n", toml(&addition.value));
            }
            text += "]\n";
        }
        if !self.left_out.is_empty() {
            text += "\n# Refused, and not in this policy:\n";
        }
        for refusal in &self.left_out {
            let (what, since) = (escape(&refusal.what), escape(&refusal.left_out_since));
            text += &format!("# {} {what}: {since}\n", refusal.wall.as_str());
        }
        text += &self.mounts.comments();
        if self.learns {
            text += "\n[report]\nlearn = \"off\"\n";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ConnectionKind, Context, Event, SCHEMA, Verdict};
    use super::*;

    fn line(wall: WallName, what: EventDetail, rule: Option<&str>) -> LogLine {
        LogLine {
            schema: SCHEMA.to_owned(),
            seq: 1,
            time: "2026-01-02T03:04:05.678Z".into(),
            context: Context::default(),
            event: Event {
                missing_rule: rule.map(Into::into),
                reason: Some("a reason".into()),
                ..Event::new(wall, Verdict::Denied, what)
            },
            prev: String::new(),
        }
    }

    fn call(name: &str) -> LogLine {
        let what = EventDetail::Syscall {
            name: name.into(),
            call: format!("{name}(1, ...)").into(),
            errno: "EPERM".into(),
        };
        line(WallName::Syscalls, what, None)
    }

    fn host(host: &str, port: Option<u16>, rule: Option<&str>) -> LogLine {
        line(
            WallName::Network,
            EventDetail::attempt(ConnectionKind::Http, host, port),
            rule,
        )
    }

    fn suggested(lines: &[LogLine]) -> Suggestion {
        let lines: Vec<&LogLine> = lines.iter().collect();
        of(&lines, &["ptrace".to_owned()].into())
    }

    #[test]
    fn an_expired_rule_is_suggested_again_and_said_to_be_one() {
        let mut late = host("a.test", Some(443), Some("a.test"));
        late.event.cause = Some(KnownCause::RuleExpired.into());
        let seen = suggested(&[late, host("b.test", Some(443), Some("b.test"))]);
        let expired: Vec<bool> = seen.network.iter().map(|one| one.expired).collect();
        assert_eq!(expired, [true, false]);
        let text = seen.text();
        let line =
            "  a.test  for 1 denied: a.test:443; its rule has expired, this one has no end\n";
        assert!(text.contains(line), "{text}");
        assert_eq!(text.matches("has expired").count(), 1, "{text}");
    }

    #[test]
    fn a_rule_is_suggested_for_a_host_but_not_for_an_escape() {
        let seen = suggested(&[
            host("a.test", Some(443), Some("a.test")),
            host("a.test", Some(443), Some("a.test")),
            host("b.test", Some(22), Some("b.test:22")),
            host("169.254.169.254", Some(80), Some("169.254.169.254:80")),
            call("ptrace"),
            call("mount"),
        ]);
        let values = |all: &[Addition]| -> Vec<(String, u64)> {
            all.iter().map(|a| (a.value.clone(), a.times)).collect()
        };
        assert_eq!(
            values(&seen.network),
            [("a.test".to_owned(), 2), ("b.test:22".to_owned(), 1)]
        );
        assert_eq!(values(&seen.syscalls), [("ptrace".to_owned(), 1)]);
        let left: Vec<&str> = seen.left_out.iter().map(|r| r.what.as_str()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(left.iter().any(|what| what.contains("169.254.169.254")));
        assert!(left.iter().any(|what| what.contains("mount")));
        let text = seen.text();
        assert!(
            text.contains("dev.agentbox.network.allow=+,a.test,b.test:22"),
            "{text}"
        );
        for words in [
            "left out: a cloud gives its machine's credentials there",
            "left out: allowing it would give up",
        ] {
            assert!(text.contains(words), "{text}");
        }
    }

    /// Former fault: a local database without `--connect` left no trace.
    #[test]
    fn a_refused_port_of_the_loopback_is_suggested_as_a_question() {
        let lines = [5432, 6379].map(|port| {
            let mut line = host("x", None, None);
            line.event = loopback::refused(port);
            line.context.engine = Some("wrap".into());
            line
        });
        let seen = suggested(&lines);
        assert!(seen.is_empty());
        let text = "network.connect, for servers of this machine:\n  \
                    5432, 6379  refused at localhost inside\n  as an option: --connect 5432 --connect 6379\n";
        assert_eq!(seen.text(), text);
    }

    /// A published port that leads nowhere is missing in `network.inbound`.
    #[test]
    fn a_published_port_is_suggested_to_lead_in() {
        let what = EventDetail::attempt(ConnectionKind::Outside, "", Some(8000));
        let mut port = line(WallName::Network, what, None);
        port.event.cause = Some(KnownCause::Published.into());
        for lines in [
            vec![port.clone()],
            vec![
                port,
                host("a.test", Some(443), Some("a.test")),
                call("ptrace"),
            ],
        ] {
            let seen = suggested(&lines);
            let text = seen.text();
            assert!(
                text.contains("dev.agentbox.network.inbound=+,8000\n"),
                "{text}"
            );
            assert!(seen.left_out.is_empty(), "{text}");
            let policy = seen.policy("standard", "run");
            let read: toml::Table = policy.parse().unwrap();
            assert_eq!(
                read["network"]["inbound"][1].as_str(),
                Some("8000"),
                "{policy}"
            );
        }
    }

    /// The denials of a podman pod's network are those of its first container, whose remedies are its own.
    #[test]
    fn a_member_of_a_podman_pod_is_suggested_the_pods_policy() {
        let own = call("ptrace");
        let mut of_pod = host("a.test", Some(443), Some("a.test"));
        of_pod.context.engine = Some(Tool::PODMAN_POD.into());
        let text = suggested(&[own, of_pod]).text();
        assert!(
            text.contains("pod restart POD: network.allow=+,a.test\n"),
            "{text}"
        );
        assert!(
            text.contains("as an annotation: dev.agentbox.syscalls"),
            "{text}"
        );
    }

    /// In the words of the run's own tool.
    #[test]
    fn a_run_of_wrap_is_suggested_options() {
        let lines = [host("a.test", Some(443), Some("a.test")), call("ptrace")];
        let text = suggested(&lines).text();
        assert!(
            text.contains("as an annotation: dev.agentbox.syscalls.profile=debug"),
            "{text}"
        );
        for (engine, typed) in [
            (
                "docker",
                "as an option of docker run (before Docker 26: a runtime with --policy) or podman run: --annotation dev.agentbox.network.allow=+,a.test\n",
            ),
            (
                "cri-o",
                "as an annotation of the pod (metadata.annotations): dev.agentbox.network.allow: \"+,a.test\"\n",
            ),
        ] {
            let of_engine = lines.clone().map(|mut line| {
                line.context.engine = Some(engine.into());
                line
            });
            let text = suggested(&of_engine).text();
            assert!(text.contains(typed), "{text}");
        }
        let of_wrap = lines.map(|mut line| {
            line.context.engine = Some(Tool::WRAP.into());
            line
        });
        let text = suggested(&of_wrap).text();
        assert!(text.contains("as an option: --allow a.test\n"), "{text}");
        assert!(
            text.contains("as an option: --set syscalls.profile=debug\n"),
            "{text}"
        );
        assert!(!text.contains("annotation"), "{text}");
    }

    #[test]
    fn a_request_whose_form_is_at_fault_gives_up_no_wall() {
        let text = suggested(&[host("a.test", Some(443), None)]).text();
        let why = "left out: no rule opens it: the reason says why\n";
        assert!(text.contains(why), "{text}");
        let text = suggested(&[call("reboot")]).text();
        let why = "left out: allowing it would give up a wall\n";
        assert!(text.contains(why), "{text}");
    }

    #[test]
    fn a_request_and_a_call_are_suggested_as_separate_rules() {
        let call = "mcp:https://a.test/mcp tools/call:search";
        let request = "GET https://a.test/x";
        let mut other = host("a.test", Some(443), Some(request));
        other.event.reason = Some(format!("{request}: a reason").into());
        let seen = suggested(&[
            host("a.test", Some(443), Some(call)),
            other,
            host("192.0.2.1", Some(80), Some("GET http://192.0.2.1/x")),
        ]);
        let values: Vec<&str> = seen.network.iter().map(|a| a.value.as_str()).collect();
        assert_eq!(values, [request, call]);
        assert_eq!(seen.left_out.len(), 1);
    }

    #[test]
    fn an_omitted_denial_has_its_reason_and_does_not_block_the_rest() {
        let seen = suggested(&[
            host("a.test", Some(443), Some("a.test")),
            host("db", Some(5432), Some("db:5432")),
            host("metadata.goog", Some(80), Some("metadata.goog:80")),
            host("x\ny.local", Some(80), Some("y.local:80")),
        ]);
        let left = seen.left_out.iter();
        let left: Vec<&str> = left.map(|one| one.left_out_since.as_str()).collect();
        assert_eq!(left.len(), 3, "{left:?}");
        assert!(
            left.iter()
                .any(|why| why.contains("service:db:5432") && why.contains("internal:db:5432")),
            "{left:?}"
        );
        let text = seen.policy("standard", "run");
        let read: toml::Table = text.parse().unwrap();
        assert_eq!(read["network"]["allow"][1].as_str(), Some("a.test"));
        let comments: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("# network "))
            .collect();
        assert_eq!(comments.len(), 3, "{text}");
        assert!(
            comments
                .iter()
                .any(|line| line.contains("a name without a dot")),
            "{text}"
        );
    }

    #[test]
    fn a_name_that_was_only_looked_up_needs_no_separate_rule() {
        let values = |lines: &[LogLine]| -> Vec<String> {
            let network = suggested(lines).network.into_iter();
            network.map(|addition| addition.value).collect()
        };
        let name = host("a.test", None, Some("a.test"));
        let other = host("a.test", Some(22), Some("a.test:22"));
        let secure = host("a.test", Some(443), Some("a.test"));
        assert_eq!(values(&[name.clone(), other.clone()]), ["a.test:22"]);
        assert_eq!(
            values(&[name, other.clone(), secure]),
            ["a.test", "a.test:22"]
        );
        // The workload chose this name. It is no port.
        let odd = host("a.test:443", None, Some("a.test"));
        assert_eq!(values(&[odd, other]), ["a.test:22"]);
    }

    #[test]
    fn a_line_that_does_not_parse_as_a_rule_is_never_in_a_policy() {
        for bad in [
            "*",
            "*.test",
            "a.test:*",
            "192.0.2.1",
            "192.0.2.0/24",
            "internal:a.test",
            "metadata",
            "metadata.google.internal:80",
            "metadata.goog",
            "instance-data.ec2.internal",
            "host.docker.internal:80",
            "db",
            "a.test\"]\nmode = \"open",
            "",
            "a b",
            "@anything goes",
        ] {
            let seen = suggested(&[host("a.test", Some(443), Some(bad))]);
            assert!(seen.is_empty(), "{bad:?}: {seen:?}");
        }
        let quoted = suggested(&[
            host("a.test\n[x]", Some(443), Some("a.test")),
            call("ptrace"),
        ]);
        let text = quoted.policy("standard", "x\ny");
        let read: toml::Table = text.parse().unwrap();
        assert_eq!(read["network"]["allow"][1].as_str(), Some("a.test"));
        assert_eq!(read["syscalls"]["allow"][1].as_str(), Some("ptrace"));
        assert_eq!(read.len(), 3, "{text}");
    }

    #[test]
    fn without_denials_nothing_is_suggested() {
        let seen = suggested(&[]);
        assert!(seen.is_empty());
        assert_eq!(seen.text(), "no rule is missing\n");
    }
}
