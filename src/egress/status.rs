//! The state of a container's network, from its sidecar to `agentbox network`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{Budget, EgressRules, SecretUses};
use crate::policy::{Host, HostName};

/// What is going on in a container's network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkStatus {
    /// The rules that hold.
    pub rules: EgressRules,
    /// The ports that the wall listens on inside, whatever the address, besides DNS and the proxy's.
    #[serde(default)]
    pub ports: BTreeSet<u16>,
    /// What waits for a person, where something may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asking: Option<AskStatus>,
    /// What may be used.
    pub budget: Budget,
    /// What is, or has been.
    pub used: BudgetUse,
    /// The node's secrets that its requests get.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretUses>,
    /// The connections that are open, the oldest first.
    pub connections: Vec<LiveConnection>,
    /// How many more there are than are listed.
    pub more_connections: usize,
    /// What leads in.
    #[serde(default)]
    pub inbound: InboundStatus,
    /// Connections that were allowed so far.
    pub allowed: u64,
    /// Refusals so far, by their reason in a word.
    pub denied: BTreeMap<String, u64>,
    /// Refusals that the violation log has no line for.
    pub log_lines_left_out: u64,
}

/// How much of a [`Budget`] the connections use, outbound and inbound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BudgetUse {
    /// Connections that are open.
    pub connections: u32,
    /// Bytes sent so far.
    pub upload_bytes: u64,
    /// Names that were looked up so far.
    pub hosts: usize,
}

/// An open connection, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LiveConnection {
    /// Where it leads.
    pub host: Host,
    /// On which port.
    pub port: u16,
    /// When it was allowed (RFC 3339, UTC).
    pub since: String,
    /// Bytes that left.
    pub sent: u64,
    /// Bytes that came back.
    pub received: u64,
}

/// What waits, and what was decided, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AskStatus {
    /// How long a connection waits.
    pub seconds: u32,
    /// The connections that wait, the oldest first.
    pub waiting: Vec<WaitingConnection>,
    /// Approvals that hold.
    pub approved: Vec<String>,
    /// What a person denied.
    pub denied: Vec<String>,
}

/// A connection that waits, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WaitingConnection {
    /// Its number in this container.
    pub id: u64,
    /// Where it wants to.
    pub host: HostName,
    /// On which port.
    pub port: u16,
    /// Since how many seconds.
    pub waited: u64,
    /// For how many more.
    pub left: u64,
    /// The client's own port.
    pub client_port: Option<u16>,
    /// The client's pid in the runtime's namespace and its name, where the runtime finds it; the sidecar cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<(i32, String)>,
}

/// What leads in, as it is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InboundStatus {
    /// Each port, and what came by it so far.
    pub ports: BTreeMap<u16, InboundTotal>,
    /// The connections that are open, the oldest first.
    pub connections: Vec<InboundConnection>,
}

/// What came by one port so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InboundTotal {
    /// Connections that were let in.
    pub connections: u64,
    /// Bytes that left the container.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
}

/// An open connection from outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InboundConnection {
    /// The port.
    pub port: u16,
    /// Whose it is, where that is known still.
    pub from: Option<IpAddr>,
    /// When it was let in (RFC 3339, UTC).
    pub since: String,
    /// Bytes that left the container.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
}
