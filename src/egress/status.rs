//! The state of a container's network, from its sidecar to `agentbox network`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{Budget, SecretUses};
use crate::rules::{EgressRules, Host, HostName};

/// The state of a container's network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkStatus {
    /// The rules in force.
    pub rules: EgressRules,
    /// The ports on which the sidecar listens inside, for any address, besides those of DNS and the proxy.
    #[serde(default)]
    pub ports: BTreeSet<u16>,
    /// Ports of the loopback inside that lead to services (`network.connect`).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub services: BTreeSet<u16>,
    /// Approvals, if `network.on-unknown` is ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asking: Option<AskStatus>,
    /// The limits.
    pub budget: Budget,
    /// The use so far.
    pub used: BudgetUse,
    /// The node's secrets, added to its requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretUses>,
    /// Open connections, the oldest first.
    pub connections: Vec<LiveConnection>,
    /// The number of open connections that are not listed.
    pub more_connections: usize,
    /// Inbound ports and connections.
    #[serde(default)]
    pub inbound: InboundStatus,
    /// Allowed connections so far.
    pub allowed: u64,
    /// Refusals so far, by a word for the reason.
    pub denied: BTreeMap<String, u64>,
    /// Refusals without a line in the violation log.
    pub log_lines_left_out: u64,
}

/// The used part of a [`Budget`], outbound and inbound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BudgetUse {
    /// Open connections.
    pub connections: u32,
    /// Bytes sent so far.
    pub upload_bytes: u64,
    /// Names looked up so far.
    pub hosts: usize,
}

/// An open connection, for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LiveConnection {
    /// Its host.
    pub host: Host,
    /// Its port.
    pub port: u16,
    /// When it was allowed (RFC 3339, UTC).
    pub since: String,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
}

/// Pending connections and decisions, for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AskStatus {
    /// How long a connection waits.
    pub seconds: u32,
    /// The waiting connections, the oldest first.
    pub waiting: Vec<WaitingConnection>,
    /// Approvals in force.
    pub approved: Vec<String>,
    /// Denials.
    pub denied: Vec<String>,
}

/// A waiting connection, for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WaitingConnection {
    /// Its number in this container.
    pub id: u64,
    /// Its host.
    pub host: HostName,
    /// Its port.
    pub port: u16,
    /// Seconds since it began to wait.
    pub waited: u64,
    /// Seconds that are left.
    pub left: u64,
    /// The client's own port.
    pub client_port: Option<u16>,
    /// The client's pid in the runtime's namespace and its name, if the runtime finds it; the sidecar cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<(i32, String)>,
}

/// Inbound traffic, for display.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InboundStatus {
    /// Each port, with its traffic so far.
    pub ports: BTreeMap<u16, InboundTotal>,
    /// Open connections, the oldest first.
    pub connections: Vec<InboundConnection>,
}

/// The traffic of one port so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InboundTotal {
    /// Accepted connections.
    pub connections: u64,
    /// Bytes that left the container.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
}

/// An open inbound connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InboundConnection {
    /// The port.
    pub port: u16,
    /// The client's address, if still known.
    pub from: Option<IpAddr>,
    /// When it was accepted (RFC 3339, UTC).
    pub since: String,
    /// Bytes that left the container.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
}
