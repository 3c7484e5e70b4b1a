//! PURE. The network wall of a container.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::signing::SigningPlan;
use crate::egress::Budget;
use crate::egress::names::{REFUSING_STUB, SYNTHETIC_V4};
use crate::policy::connect::ServiceSocket;
use crate::policy::{HoneyValue, NetworkMode, NodeSecret, Upstream};
use crate::rules::request::FieldPattern;
use crate::rules::{AskRules, EgressRules, Host, NetworkPrefix, TlsHosts};

/// The network wall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkPlan {
    /// What the inner namespace offers.
    pub mode: NetworkMode,
    /// What can be reached through the sidecar; nothing unless the mode is `allowlist`.
    pub rules: EgressRules,
    /// The TCP ports that the wall listens on inside, bound at `create`: those of the rules at that time, and SSH's.
    #[serde(default)]
    pub ports: BTreeSet<u16>,
    /// The port of the explicit proxy on 127.0.0.1.
    pub proxy_port: u16,
    /// What may be approved on request; `None` if unlisted hosts are denied at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asking: Option<AskRules>,
    /// Whether the proxy variables are set.
    pub proxy_env: bool,
    /// The cluster's networks from the node's file: `service:` rules lead there and to the engine's own.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub services: BTreeSet<NetworkPrefix>,
    /// Extra request header fields to forward, from the node's file.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub request_fields: BTreeSet<FieldPattern>,
    /// Whether the stub and the proxy run only to refuse everything with the reason: in mode `local`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refusing: bool,
    /// The container's own names: its host name, and those of the containers that share its network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_names: Vec<String>,
    /// The hosts whose TLS is opened to read requests; `None` if TLS is never opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<TlsHosts>,
    /// The certificate of the container's authority for that (PEM); set at `create`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
    /// The most that one container's connections may use.
    pub budget: Budget,
    /// `net.*` settings for the inner namespace.
    pub sysctl: BTreeMap<String, String>,
    /// Whether the container has a sysfs; the inner namespace's replaces it.
    pub sysfs: bool,
    /// The upstream proxy, which the sidecar dials through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
    /// The node's secrets that are added to its requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<NodeSecret>,
    /// The node's honey values: the workload can find them, but must not send them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub honey: Vec<HoneyValue>,
    /// Ports of the engine's network that lead to the same ports of the inner loopback.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub inbound: BTreeSet<u16>,
    /// The inbound ports of `wrap --publish`: they are reached only at these addresses of the node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub published: BTreeMap<u16, BTreeSet<SocketAddr>>,
    /// Ports of the loopback inside that lead to services of the machine, or of a host that rules allow.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub connect: BTreeMap<u16, ServiceTarget>,
    /// Unix sockets of databases of the machine, at the same paths inside.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub sockets: BTreeSet<ServiceSocket>,
    /// Signatures with keys of the user's SSH agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing: Option<SigningPlan>,
    /// Ports that the engine publishes but that lead nowhere, because `inbound` lacks them; with the node's ports for
    /// them, as far as the engine's file names these.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub leads_nowhere: BTreeMap<u16, BTreeSet<u16>>,
    /// The other container whose network this one joins: all other fields are that container's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<SharedNetwork>,
}

/// The network of a container that others join: its inner namespace and its sidecar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SharedNetwork {
    /// The container's id.
    pub container: String,
    /// The inner namespace, through a process in it. The cookie identifies it.
    pub path: PathBuf,
    /// The inner namespace's cookie: every member checks it before it executes anything.
    pub cookie: u64,
    /// The sidecar's pid in the runtime's pid namespace.
    pub sidecar_pid: i32,
    /// When the sidecar started, in clock ticks after boot.
    pub sidecar_start: u64,
}

impl NetworkPlan {
    /// Records the ports that the engine publishes.
    pub(super) fn note_published(&mut self, mut published: BTreeMap<u16, BTreeSet<u16>>) {
        published.retain(|port, _| !self.inbound.contains(port));
        self.leads_nowhere = published;
    }

    /// Whether names that no rule lists are allowed and recorded.
    pub fn learns(&self) -> bool {
        self.asking.as_ref().is_some_and(|asking| asking.learns)
    }

    /// The hosts whose TLS is opened, if there are any.
    pub fn opens(&self) -> Option<&TlsHosts> {
        self.opened.as_ref().filter(|opened| !opened.is_empty())
    }

    /// The TCP ports at which the wall listens inside.
    pub fn own_ports(&self) -> impl Iterator<Item = u16> {
        self.ports
            .iter()
            .copied()
            .chain([DNS_PORT, self.proxy_port])
    }

    /// Whether the sidecar of this network has anything to serve, inside or outside.
    pub fn is_served(&self) -> bool {
        self.mode == NetworkMode::Allowlist || self.refusing || !self.inbound.is_empty()
    }

    /// The sidecar's stub for names; `None` if there is none.
    pub fn name_server(&self) -> Option<Ipv4Addr> {
        match self.mode {
            NetworkMode::Allowlist => Some(SYNTHETIC_V4),
            NetworkMode::Local if self.refusing => Some(REFUSING_STUB),
            NetworkMode::Local | NetworkMode::None => None,
        }
    }

    /// Whether the sidecar dials nothing under mode `local`, neither inside nor outside. A published port may be opened
    /// later ([`Self::opening`]).
    pub fn dials_nothing(&self) -> bool {
        self.inbound.is_empty() && self.connect.is_empty() && self.leads_nowhere.is_empty()
    }

    /// The same for the container's own sidecar: in another one's network it has none that serves.
    pub fn is_served_by_own(&self) -> bool {
        self.shared.is_none() && self.is_served()
    }
}

/// Limits of the sidecar's own cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SidecarLimits {
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
    /// Share of one processor, per cent.
    pub cpu_percent: u32,
    /// Open files.
    pub files: u64,
}

/// The stub's port.
pub(super) const DNS_PORT: u16 = 53;

/// The most listeners of denied calls that a sidecar holds at once, one for each living process of `exec`: the process
/// limit of `strict`. Each costs the sidecar some 250 bytes of its own and the kernel's memory.
pub const LISTENERS: usize = 1024;

/// The most connections beyond the budget that may wait for their first bytes.
pub const UNDECIDED: u64 = 64;

/// Where a port of the loopback inside leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServiceTarget {
    /// To the same port of the machine's loopback.
    Machine,
    /// To the same port of this host, as the rules allow.
    Host(Host),
}
