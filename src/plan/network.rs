//! PURE. The network wall of a container.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{FilesystemPlan, PlanError, secrets};
use crate::egress::ssh::SSH;
use crate::egress::{AskRules, Budget, EgressRules, TlsHosts, proxy_port};
use crate::plan::NamespaceType;
use crate::plan::PlannedNamespace;
use crate::plan::namespaces::HOST_NETWORK;
use crate::policy::inbound::MOST_INBOUND;
use crate::policy::request::FieldPattern;
use crate::policy::{
    HoneyValue, Network, NetworkMode, NetworkPrefix, NodeSecret, OnUnknown, Policy, PolicyName,
    ResolvedPolicy, Switch, TlsWay, Upstream, UpstreamNames,
};

/// The network wall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkPlan {
    /// What the inner namespace offers.
    pub mode: NetworkMode,
    /// What is reached through the sidecar; nothing unless the mode is `allowlist`.
    pub rules: EgressRules,
    /// The TCP ports that the wall listens on inside, bound at `create`: those that the rules named then, and SSH's.
    #[serde(default)]
    pub ports: BTreeSet<u16>,
    /// The port of the explicit proxy on 127.0.0.1.
    pub proxy_port: u16,
    /// What may be asked for, where that is not denied at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asking: Option<AskRules>,
    /// Whether processes are told of the proxy.
    pub proxy_env: bool,
    /// The cluster's networks, as the node's file names them: where rules `service:` lead besides the engine's own.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub services: BTreeSet<NetworkPrefix>,
    /// Fields of requests that are sent on besides the known ones, as the node's file names them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub request_fields: BTreeSet<FieldPattern>,
    /// Whether the stub and the proxy run to refuse everything with the reason: under the mode `local`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refusing: bool,
    /// What the container itself is called: its host name, and those of whoever shares its network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_names: Vec<String>,
    /// Where TLS is opened so that requests are seen: `None` where it never is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<TlsHosts>,
    /// The certificate of the container's authority for that (PEM), from `create` on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
    /// The most that one container's connections may take.
    pub budget: Budget,
    /// `net.*` settings for the inner namespace.
    pub sysctl: BTreeMap<String, String>,
    /// Whether the container has a sysfs, which is then replaced by the inner namespace's.
    pub sysfs: bool,
    /// The node's proxy, which the sidecar dials through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
    /// The node's secrets that are put into its requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<NodeSecret>,
    /// The node's honey values, which programs inside find and do not send.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub honey: Vec<HoneyValue>,
    /// Ports of the engine's network that lead to the same ports of the loopback inside.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub inbound: BTreeSet<u16>,
    /// Of those the ones that `wrap --publish` names: they are reached at these addresses of the node alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub published: BTreeMap<u16, BTreeSet<SocketAddr>>,
    /// Ports that the engine publishes and that lead nowhere, since `inbound` has not got them, and the node's ports for them, as
    /// far as the engine's file says.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub leads_nowhere: BTreeMap<u16, BTreeSet<u16>>,
    /// The network of another container that this one is in: all of this is the other one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<SharedNetwork>,
}

/// The network of a container that others join: its inner namespace and its sidecar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SharedNetwork {
    /// The container's id.
    pub container: String,
    /// The inner namespace, by a process that is in it. What counts is the cookie.
    pub path: PathBuf,
    /// The inner namespace's cookie: every member makes sure that it is there before it executes anything.
    pub cookie: u64,
    /// The sidecar's number in the runtime's pid namespace.
    pub sidecar_pid: i32,
    /// When the sidecar started, in clock ticks after boot.
    pub sidecar_start: u64,
}

impl NetworkPlan {
    /// Takes note of the ports that the engine publishes.
    pub fn note_published(&mut self, mut published: BTreeMap<u16, BTreeSet<u16>>) {
        published.retain(|port, _| !self.inbound.contains(port));
        self.leads_nowhere = published;
    }

    /// Whether names that no rule lists are allowed and recorded.
    pub fn learns(&self) -> bool {
        self.asking.as_ref().is_some_and(|asking| asking.learns)
    }

    /// The hosts to which TLS is opened, where there are any.
    pub fn opens(&self) -> Option<&TlsHosts> {
        self.opened.as_ref().filter(|opened| !opened.is_empty())
    }

    /// Whether the sidecar of this network has anybody to answer, inside or outside.
    pub fn is_served(&self) -> bool {
        self.mode == NetworkMode::Allowlist || self.refusing || !self.inbound.is_empty()
    }

    /// Likewise of the container's own sidecar: in another one's network it has none that serves.
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
const DNS_PORT: u16 = 53;

/// Listeners of denied calls that a sidecar holds at once, one for each process of `exec` that lives: as many as `strict` lets a container
/// have processes. Each costs the sidecar some 250 bytes of its own and the kernel's memory.
pub const LISTENERS: usize = 1024;

/// Connections beyond the budget that may wait for their first bytes.
pub const UNDECIDED: u64 = 64;

/// The ports that the wall listens on besides those of rules where hosts may be asked for: HTTP and HTTPS.
const ASKED: [u16; 2] = [80, 443];

/// The port of the proxy that refuses everything. Programs do not listen on it, and the kernel does not give it out,
/// since a container without rules cannot move the proxy away from its own servers.
fn refusing_port(inbound: &BTreeSet<u16>) -> u16 {
    const UNUSUAL: u16 = 64_128;
    (UNUSUAL..u16::MAX)
        .find(|port| !inbound.contains(port))
        .unwrap_or(UNUSUAL)
}

/// The ports on which the wall listens for hosts: those of rules, those that may be asked for, and SSH's. Git by SSH is the most
/// usual wish that no rule names, and is so refused with its reason and a line of the log.
fn listened(rules: &EgressRules, asked: &[u16], inbound: &BTreeSet<u16>) -> BTreeSet<u16> {
    let mut ports = rules.ports();
    ports.extend(asked);
    if !inbound.contains(&SSH) {
        ports.insert(SSH);
    }
    ports
}

/// What the inner namespace offers and the sidecar lets through.
pub fn plan(resolved: &ResolvedPolicy, sysctl: BTreeMap<String, String>) -> NetworkPlan {
    // No `..`: a field added to the policy does not compile until it is planned.
    let Network {
        mode,
        allow,
        deny,
        // It is for ceilings, which were compared when the policy was resolved.
        limit: _,
        on_unknown,
        ask_seconds,
        proxy_env,
        tls,
        connections,
        connections_per_minute,
        upload,
        hosts,
        cool_down,
        inbound,
    } = &resolved.policy.network;
    let rules = match mode {
        NetworkMode::Allowlist => EgressRules {
            allow: allow.clone(),
            deny: deny.clone(),
            search: Vec::new(),
        },
        // A policy may be narrowed to a mode that reaches nothing whatever it lists.
        NetworkMode::None | NetworkMode::Local => EgressRules::default(),
    };
    let learns = resolved.policy.report.learn == Switch::On;
    let asks = *mode == NetworkMode::Allowlist && (learns || *on_unknown == OnUnknown::Ask);
    let refusing = *mode == NetworkMode::Local;
    let inbound: BTreeSet<u16> = inbound.iter().filter_map(|item| item.port()).collect();
    let ports = match mode {
        NetworkMode::Allowlist if asks => listened(&rules, &ASKED, &inbound),
        NetworkMode::Allowlist => listened(&rules, &[], &inbound),
        NetworkMode::None | NetworkMode::Local => BTreeSet::new(),
    };
    NetworkPlan {
        mode: *mode,
        proxy_port: match refusing {
            true => refusing_port(&inbound),
            false => proxy_port(&ports),
        },
        refusing,
        services: match *mode {
            NetworkMode::Allowlist => resolved.services.clone(),
            NetworkMode::None | NetworkMode::Local => BTreeSet::new(),
        },
        request_fields: resolved.request_fields.clone(),
        ports,
        asking: asks.then(|| AskRules {
            seconds: ask_seconds.get(),
            limits: resolved.network_limits.clone(),
            learns,
            secret_hosts: BTreeSet::new(),
        }),
        opened: (*tls == TlsWay::Open).then(|| TlsHosts::of(&rules)),
        rules,
        proxy_env: *mode != NetworkMode::None && *proxy_env == Switch::On,
        own_names: Vec::new(),
        authority: None,
        budget: Budget {
            connections: connections.get(),
            connections_per_minute: connections_per_minute.get(),
            upload_bytes: upload.bytes(),
            hosts: hosts.get(),
            cool_down_seconds: cool_down.get(),
        },
        sysctl,
        sysfs: false,
        upstream: None,
        secrets: Vec::new(),
        honey: Vec::new(),
        inbound,
        published: BTreeMap::new(),
        leads_nowhere: BTreeMap::new(),
        shared: None,
    }
}

/// The network of a container that shares nobody's.
pub(super) fn own(
    resolved: &ResolvedPolicy,
    sysctl: BTreeMap<String, String>,
    own_names: Vec<String>,
    filesystem: &FilesystemPlan,
    namespaces: &[PlannedNamespace],
    published: &BTreeMap<u16, BTreeSet<SocketAddr>>,
) -> Result<NetworkPlan, PlanError> {
    let Policy { name, network, .. } = &resolved.policy;
    let planned = NetworkPlan {
        // Only where something is reached at all.
        upstream: (network.mode == NetworkMode::Allowlist)
            .then(|| resolved.upstream.clone())
            .flatten(),
        own_names,
        sysfs: filesystem.has_sysfs(),
        published: published.clone(),
        ..plan(resolved, sysctl)
    };
    if resolved.policy.report.learn == Switch::On && planned.mode != NetworkMode::Allowlist {
        return Err(PlanError::Learn {
            policy: name.to_string(),
        });
    }
    check_inbound(name, &planned, namespaces)?;
    check_denials(name, &planned)?;
    let secrets = secrets::planned(name, &resolved.secrets, &planned.rules)?;
    let honey = secrets::baits(name, &resolved.honey, &secrets)?;
    let asking = secrets::left_closed(planned.asking, &secrets);
    Ok(NetworkPlan {
        secrets,
        honey,
        asking,
        ..planned
    })
}

/// Refuses ports that would lead somewhere else than to the container's own programs, or in from somewhere else than the
/// engine's network for it.
fn check_inbound(
    policy: &PolicyName,
    network: &NetworkPlan,
    namespaces: &[PlannedNamespace],
) -> Result<(), PlanError> {
    let ports = &network.inbound;
    let walls = |port: &&u16| {
        network.mode == NetworkMode::Allowlist
            && (network.ports.contains(port) || [DNS_PORT, network.proxy_port].contains(port))
    };
    let why = if ports.is_empty() {
        return Ok(());
    } else if network.mode == NetworkMode::None {
        "network.mode is none: nothing leads in either; use local or allowlist".to_owned()
    } else if ports.len() > MOST_INBOUND {
        let named = ports.len();
        format!("at most {MOST_INBOUND} ports may be named, these are {named}")
    } else if !ports
        .iter()
        .all(|port| network.published.contains_key(port))
        && namespaces
            .iter()
            .any(|n| n.is_at(NamespaceType::Network, Path::new(HOST_NETWORK)))
    {
        "it has the host's network, and the ports would be the host's own at every address: for `wrap` use --publish".to_owned()
    } else if let Some(port) = ports.iter().find(walls) {
        format!(
            "on port {port} the wall itself listens inside (a port of the rules, of DNS or of the proxy), and a \
             connection to it would lead out again"
        )
    } else {
        return Ok(());
    };
    Err(PlanError::Inbound {
        policy: policy.to_string(),
        why,
    })
}

/// Refuses denials of addresses where the node's proxy resolves the names: where a name leads is nobody's to see then.
fn check_denials(policy: &PolicyName, network: &NetworkPlan) -> Result<(), PlanError> {
    let sends_names = |upstream: &Upstream| upstream.names == UpstreamNames::Proxy;
    let unseen = network.upstream.as_ref().is_some_and(sends_names);
    match unseen_denial(&network.rules).filter(|_| unseen) {
        None => Ok(()),
        Some(why) => Err(PlanError::Denial {
            policy: policy.to_string(),
            why,
        }),
    }
}

/// Why these rules are refused where the node's proxy resolves the names, if they are.
pub fn unseen_denial(rules: &EgressRules) -> Option<String> {
    let denial = rules.denied_addresses().next()?;
    Some(format!(
        "it has {denial}, and the node's upstream proxy resolves the names (network.upstream-names = \"proxy\"), so nobody \
         here sees whether a name leads there: let the node resolve them (upstream-names = \"vetted\"), or deny names"
    ))
}
