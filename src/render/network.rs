//! PURE. The state of a container's network as text.

use std::fmt::Write;

use serde::Serialize;

use super::identity::ContainerIdentity;
use crate::egress::{LiveConnection, NetworkStatus};
use crate::policy::NetworkMode;
use crate::rules::{ClockReading, EgressRule};
use crate::text::escape;

/// A container and its network.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerNetwork {
    /// The container's id.
    pub id: String,
    /// The names that its engine gave it.
    pub identity: ContainerIdentity,
    /// The container whose network namespace it shares, if not its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_of: Option<String>,
    /// The mode of its inner namespace; `None` under `unconfined`.
    pub mode: Option<NetworkMode>,
    /// Learn mode: public names without a rule are allowed (`report.learn`).
    pub learn: bool,
    /// Seconds that an unlisted name waits for approval; `None` if it does not wait.
    #[serde(skip)]
    pub waits: Option<u32>,
    /// Refused connections from outside, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<UnansweredConnections>,
    /// The time, for what is left of rules and secrets.
    #[serde(skip)]
    pub now: ClockReading,
    /// The status from its sidecar, if it serves connections.
    #[serde(flatten)]
    pub status: Option<NetworkStatus>,
}

/// Inbound connections that no program accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnansweredConnections {
    /// Resets that the kernel sent in the engine's network namespace.
    pub resets: u64,
    /// What they may be, and how to allow inbound connections.
    pub hint: &'static str,
}

impl UnansweredConnections {
    /// For this number of resets; `None` for 0.
    pub fn of(resets: u64) -> Option<Self> {
        const HINT: &str = "connections from outside to ports that network.inbound does not name are among them: published \
                            ports, probes, hostPort and port-forward need their port there";
        (resets > 0).then_some(Self { resets, hint: HINT })
    }
}

/// The status as text.
pub fn text(subject: &ContainerNetwork) -> String {
    let mut out = format!("container {}", subject.id);
    let words = subject.identity.words();
    if !words.is_empty() {
        out += &format!(" ({words})");
    }
    if let Some(first) = &subject.network_of {
        out += &format!(", in the network of container {first}");
    }
    out += ": ";
    match (subject.mode, &subject.status) {
        (None, _) => out += "unconfined, none of agentbox's walls\n",
        (Some(mode), None) => {
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(
                out,
                "network.mode is {mode}: the loopback interface and nothing else"
            );
        }
        (Some(mode), Some(status)) => {
            let learn = if subject.learn { ", LEARN MODE" } else { "" };
            let _ = writeln!(out, "network.mode is {mode}{learn}");
            if mode == NetworkMode::Allowlist {
                rules(&mut out, status, subject.now);
                asking(&mut out, subject, status);
            } else {
                out += "no host is reached, and programs inside get this reason; inbound ports and services are open\n";
            }
            for port in &status.services {
                let _ = writeln!(
                    out,
                    "localhost:{port} inside leads to a service (network.connect)"
                );
            }
            counts(&mut out, status, subject.now);
            inbound(&mut out, status);
            connections(&mut out, status);
        }
    }
    if let Some(UnansweredConnections { resets, hint }) = &subject.outside {
        let _ = writeln!(
            out,
            "resets sent in the engine's network: {resets} ({hint})"
        );
    }
    out
}

fn rules(out: &mut String, status: &NetworkStatus, now: ClockReading) {
    let end_of = |rule: &EgressRule| match status.rules.ends.get(rule) {
        Some(end) => format!("  {}", end.words(now)),
        None => String::new(),
    };
    let mut list = |head: &str, rules: &std::collections::BTreeSet<EgressRule>| {
        let _ = writeln!(
            out,
            "{head}:{}",
            if rules.is_empty() { " nothing" } else { "" }
        );
        for rule in rules {
            let _ = writeln!(out, "  {rule}{}", end_of(rule));
        }
    };
    list("allowed", &status.rules.allow);
    list("denied whatever is allowed", &status.rules.deny);
    for (rule, end) in &status.rules.ends {
        if !status.rules.allow.contains(rule) {
            let _ = writeln!(out, "expired at {}: {rule}", end.date());
        }
    }
}

fn asking(out: &mut String, subject: &ContainerNetwork, status: &NetworkStatus) {
    if subject.learn {
        out.push_str(
            "an unlisted public name is allowed and recorded (report.learn); addresses and private names are denied at once\n",
        );
        return;
    }
    let Some(asking) = &status.asking else {
        let _ = match subject.waits {
            Some(seconds) => writeln!(out, "an unlisted name waited {seconds} s for approval"),
            None => writeln!(out, "unlisted names are denied at once"),
        };
        return;
    };
    let _ = writeln!(
        out,
        "an unlisted name waits {} s for approval; waiting now: {}",
        asking.seconds,
        asking.waiting.len()
    );
    for (word, list) in [
        ("approved", &asking.approved),
        ("denied by the operator", &asking.denied),
    ] {
        for one in list {
            let _ = writeln!(out, "  {word}: {}", escape(one));
        }
    }
}

fn counts(out: &mut String, status: &NetworkStatus, now: ClockReading) {
    let NetworkStatus {
        rules: _,
        ports: _,
        services: _,
        asking: _,
        budget,
        used,
        secrets,
        connections: _,
        more_connections: _,
        inbound: _,
        allowed,
        denied,
        log_lines_left_out,
    } = status;
    let _ = writeln!(
        out,
        "used: {} of {} connections at once, {} of {} bytes sent, {} of {} names; at most {} new connections in a minute",
        used.connections,
        budget.connections,
        used.upload_bytes,
        budget.upload_bytes,
        used.hosts,
        budget.hosts,
        budget.connections_per_minute,
    );
    for one in secrets {
        let limit = one
            .limit
            .map_or_else(String::new, |limit| format!(" of {limit}"));
        let end = match one.end {
            Some(end) => format!("; {}", end.words(now)),
            None => String::new(),
        };
        let _ = writeln!(
            out,
            "secret {}: {}{limit} requests had it{end}",
            escape(&one.name),
            one.used
        );
    }
    let total = denied
        .values()
        .fold(0_u64, |sum, count| sum.saturating_add(*count));
    let _ = writeln!(out, "allowed so far: {allowed}; denied so far: {total}");
    for (kind, count) in denied {
        let _ = writeln!(out, "  {}: {count}", escape(kind));
    }
    if *log_lines_left_out > 0 {
        let _ = writeln!(
            out,
            "denials without a line in the log: {log_lines_left_out}"
        );
    }
}

fn inbound(out: &mut String, status: &NetworkStatus) {
    for (port, total) in &status.inbound.ports {
        let _ = writeln!(
            out,
            "port {port} leads in: {} connections so far, {} bytes sent, {} received",
            total.connections, total.sent, total.received
        );
    }
}

fn connections(out: &mut String, status: &NetworkStatus) {
    for one in &status.inbound.connections {
        let from = one
            .from
            .map_or_else(|| "an unknown address".to_owned(), |from| from.to_string());
        let _ = writeln!(
            out,
            "open now: {from} to port {}  since {}  {} sent  {} received",
            one.port,
            escape(&one.since),
            one.sent,
            one.received,
        );
    }
    if status.connections.is_empty() && !status.inbound.connections.is_empty() {
        return;
    }
    if status.connections.is_empty() {
        out.push_str("open now: nothing\n");
        return;
    }
    out.push_str("open now:\n");
    let port = |one: &LiveConnection| crate::rules::endpoint(&one.host, one.port);
    let width = status.connections.iter().map(|c| port(c).len()).max();
    for one in &status.connections {
        let _ = writeln!(
            out,
            "  {:width$}  since {}  {} sent  {} received",
            port(one),
            escape(&one.since),
            one.sent,
            one.received,
            width = width.unwrap_or(0),
        );
    }
    if status.more_connections > 0 {
        let _ = writeln!(out, "  and {} more", status.more_connections);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::Budget;
    use crate::egress::{
        AskStatus, BudgetUse, InboundConnection, InboundStatus, InboundTotal, SecretUses,
    };
    use crate::rules::{EgressRules, Expiry};

    fn end(seconds: u32) -> Expiry {
        Expiry::after(seconds, ClockReading::default()).unwrap()
    }

    fn subject() -> ContainerNetwork {
        ContainerNetwork {
            id: "c1".to_owned(),
            identity: ContainerIdentity::default(),
            network_of: None,
            mode: Some(NetworkMode::Allowlist),
            learn: false,
            waits: Some(30),
            outside: UnansweredConnections::of(4),
            now: ClockReading::default(),
            status: Some(NetworkStatus {
                rules: EgressRules {
                    allow: ["a.test".parse().unwrap(), "c.test".parse().unwrap()].into(),
                    deny: ["b.test:22".parse().unwrap()].into(),
                    search: Vec::new(),
                    ends: [
                        ("c.test".parse().unwrap(), end(90)),
                        ("d.test".parse().unwrap(), end(0)),
                    ]
                    .into(),
                    ..EgressRules::default()
                },
                ports: [443].into(),
                services: [5432].into(),
                asking: Some(AskStatus {
                    seconds: 30,
                    waiting: Vec::new(),
                    approved: vec!["new.test:443 once".to_owned()],
                    denied: vec!["bad.test:443".to_owned()],
                }),
                budget: Budget {
                    connections: 5,
                    connections_per_minute: 60,
                    upload_bytes: 1000,
                    hosts: 7,
                    cool_down_seconds: 0,
                },
                used: BudgetUse {
                    connections: 1,
                    upload_bytes: 10,
                    hosts: 2,
                },
                secrets: vec![SecretUses {
                    name: "model".to_owned(),
                    used: 3,
                    limit: Some(9),
                    end: Some(end(30)),
                }],
                connections: vec![LiveConnection {
                    host: "2001:db8::1".parse().unwrap(),
                    port: 443,
                    since: "2026-01-02T03:04:05Z".to_owned(),
                    sent: 3,
                    received: 4,
                }],
                more_connections: 6,
                inbound: InboundStatus {
                    ports: [(
                        8080,
                        InboundTotal {
                            connections: 2,
                            sent: 5,
                            received: 6,
                        },
                    )]
                    .into(),
                    connections: vec![InboundConnection {
                        port: 8080,
                        from: Some("192.0.2.7".parse().unwrap()),
                        since: "2026-01-02T03:04:05Z".to_owned(),
                        sent: 5,
                        received: 6,
                    }],
                },
                allowed: 9,
                denied: [("not-listed".to_owned(), 2), ("over-upload".to_owned(), 1)].into(),
                log_lines_left_out: 8,
            }),
        }
    }

    #[test]
    fn shows_the_rules_the_usage_and_the_refusals() {
        let text = text(&subject());
        for word in [
            "network.mode is allowlist",
            "  a.test\n",
            "  c.test  until 1970-01-01T00:01:30Z, 1 min 30 s left\n",
            "expired at 1970-01-01T00:00:00Z: d.test\n",
            "  b.test:22\n",
            "waits 30 s for approval; waiting now: 0",
            "  approved: new.test:443 once\n",
            "  denied by the operator: bad.test:443\n",
            "1 of 5 connections",
            "10 of 1000 bytes",
            "2 of 7 names",
            "secret model: 3 of 9 requests had it; until 1970-01-01T00:00:30Z, 0 min 30 s left\n",
            "allowed so far: 9; denied so far: 3",
            "  over-upload: 1\n",
            "without a line in the log: 8",
            "[2001:db8::1]:443  since 2026-01-02T03:04:05Z  3 sent  4 received",
            "and 6 more",
            "resets sent in the engine's network: 4 (connections from outside to ports that network.inbound does not name",
            "port 8080 leads in: 2 connections so far, 5 bytes sent, 6 received",
            "open now: 192.0.2.7 to port 8080  since 2026-01-02T03:04:05Z  5 sent  6 received",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }

    #[test]
    fn an_app_container_is_shown_with_the_network_of_its_pod() {
        let text = text(&ContainerNetwork {
            identity: ContainerIdentity {
                engine: "containerd k8s.io".to_owned(),
                name: Some("app".to_owned()),
                pod: Some("web".to_owned()),
                namespace: Some("team".to_owned()),
                image: None,
            },
            network_of: Some("s1".to_owned()),
            ..subject()
        });
        let head = "container c1 (containerd k8s.io, pod team/web, container app), in the network of container s1: \
             network.mode is allowlist";
        assert!(text.starts_with(head), "{text}");
    }

    /// Former fault: it said that names wait, and after the end that they are refused.
    #[test]
    fn learn_mode_is_described_correctly() {
        let learning = ContainerNetwork {
            learn: true,
            ..subject()
        };
        let said = text(&learning);
        for word in [
            "network.mode is allowlist, LEARN MODE",
            "allowed and recorded",
        ] {
            assert!(said.contains(word), "{said}");
        }
        assert!(!said.contains("for approval"), "{said}");
        assert_eq!(serde_json::to_value(&learning).unwrap()["learn"], true);
        let mut gone = subject();
        if let Some(status) = &mut gone.status {
            status.asking = None;
        }
        assert!(text(&gone).contains("waited 30 s for approval"));
        gone.waits = None;
        assert!(text(&gone).contains("denied at once"));
    }

    #[test]
    fn other_modes_have_nothing_to_show() {
        let plain = |mode| {
            text(&ContainerNetwork {
                mode,
                outside: UnansweredConnections::of(0),
                status: None,
                ..subject()
            })
        };
        assert!(plain(None).contains("unconfined"));
        assert!(plain(Some(NetworkMode::Local)).contains("is local"));
        // With inbound ports there is more than the loopback interface (N-M6).
        let local = text(&ContainerNetwork {
            mode: Some(NetworkMode::Local),
            ..subject()
        });
        assert!(
            local.contains("port 8080 leads in") && !local.contains("nothing else"),
            "{local}"
        );
        let json = serde_json::to_value(subject()).unwrap();
        assert_eq!(json["mode"], "allowlist");
        assert_eq!(json["connections"][0]["host"], "2001:db8::1");
    }
}
