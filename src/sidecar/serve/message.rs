//! The messages of the control socket: what the runtime's verbs send to a running sidecar, and its replies.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::proxy::Proxy;
use crate::egress::NetworkStatus;
use crate::egress::tried::TriedPorts;
use crate::rules::{ApprovalTerm, EgressRules, HostName};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlRequest {
    /// Take the engine's settings for names; once, before the program runs.
    #[serde(rename = "pin")]
    EngineNames(EngineNames),
    /// The engine's names for a container that joins the network.
    Hosts(Vec<(HostName, IpAddr)>),
    /// From these ports `verify` tries what must be refused.
    Tried(TriedPorts),
    /// Report the current state.
    Status,
    /// The operator's decision about a connection that waits, or will.
    Decide(AskDecision),
    /// Apply new rules.
    Rules {
        /// The rules.
        rules: EgressRules,
        /// Ports that had no listener so far. The listeners come along, one for each, in their order.
        ports: BTreeSet<u16>,
    },
    /// Open these inbound ports. A listener of the engine's network comes along for each, in their order, then the
    /// sockets to dial inside with, if there were none so far.
    Inbound(BTreeSet<u16>),
}

/// The operator's decision about connections to one port of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AskDecision {
    /// The connection.
    pub of: AskDecisionTarget,
    /// How long it is approved; `None`: it is denied.
    pub approve: Option<ApprovalTerm>,
}

/// The subject of a decision: a connection that the operator saw, and no other that waits since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AskDecisionTarget {
    /// The connection with this number in the list.
    Waiting(u64),
    /// This host and port, even if no connection to it waits.
    Endpoint(HostName, u16),
    /// A host without a port decides nothing: the reply lists what waits for it.
    Host(HostName),
}

/// The engine's resolv.conf and hosts file and the upstream proxy, read when the container starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EngineNames {
    /// The resolvers.
    pub nameservers: Vec<IpAddr>,
    /// The search list, only for internal names.
    pub search: Vec<HostName>,
    /// The engine's hosts file.
    pub hosts: Vec<(HostName, IpAddr)>,
    /// Closed addresses in addition to those that are found: the upstream proxy's.
    #[serde(default)]
    pub closed: BTreeSet<IpAddr>,
    /// The upstream proxy.
    #[serde(default)]
    pub proxy: Option<Proxy>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlReply {
    /// Done.
    Done,
    /// Not done, for this reason.
    Failed(String),
    /// The current state.
    Status(Box<NetworkStatus>),
    /// The decision is in force.
    Decided {
        /// The host.
        host: HostName,
        /// The port.
        port: u16,
        /// Connections that were closed.
        closed: usize,
    },
    /// The new rules are in force.
    Changed {
        /// Connections outside of them, which were closed.
        closed: usize,
    },
}
