//! PURE. The network wall of a container.

use std::collections::{BTreeMap, BTreeSet};

use super::{NetworkPlan, PlanError, SidecarLimits};
use crate::egress::{Asking, Budget, Rules, proxy_port};
use crate::plan::Isolates;
use crate::plan::PlannedNamespace;
use crate::plan::namespaces::HOST_NETWORK;
use crate::policy::inbound::MOST_INBOUND;
use crate::policy::{
    Network, NetworkMode, OnUnknown, PolicyName, Resolved, Switch, Upstream, UpstreamNames,
};
use std::path::Path;

/// The stub's port.
const DNS_PORT: u16 = 53;

/// Connections beyond the budget that may wait for their first bytes.
pub const UNDECIDED: u64 = 64;

/// The ports that the wall listens on besides those of rules where hosts may be asked for: HTTP and HTTPS.
const ASKED: [u16; 2] = [80, 443];

/// The proxy's port in records that do not name it.
pub(super) fn usual_proxy() -> u16 {
    proxy_port(&BTreeSet::new())
}

/// The port of the proxy that refuses everything. Programs do not listen on it, and the kernel does not give it out,
/// since a container without rules cannot move the proxy away from its own servers.
fn refusing_port(inbound: &BTreeSet<u16>) -> u16 {
    const UNUSUAL: u16 = 64_128;
    (UNUSUAL..u16::MAX)
        .find(|port| !inbound.contains(port))
        .unwrap_or(UNUSUAL)
}

/// What the inner namespace offers and the sidecar lets through.
pub fn plan(resolved: &Resolved, sysctl: BTreeMap<String, String>, sysfs: bool) -> NetworkPlan {
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
        connections,
        connections_per_minute,
        upload,
        hosts,
        cool_down,
        budgets_kept,
        inbound,
    } = &resolved.policy.network;
    let listed = || Rules {
        allow: allow.clone(),
        deny: deny.clone(),
        search: Vec::new(),
    };
    let rules = match mode {
        NetworkMode::Allowlist => listed(),
        // A policy may be narrowed to a mode that reaches nothing whatever it lists.
        NetworkMode::None | NetworkMode::Local => Rules::default(),
    };
    let asks = *mode == NetworkMode::Allowlist && *on_unknown == OnUnknown::Ask;
    let mut ports = rules.ports();
    if asks {
        ports.extend(ASKED);
    }
    let refusing = *mode == NetworkMode::Local;
    let inbound: BTreeSet<u16> = inbound.iter().filter_map(|item| item.port()).collect();
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
        ports,
        asking: asks.then(|| Asking {
            seconds: ask_seconds.get(),
            limits: resolved.network_limits.clone(),
        }),
        rules,
        proxy_env: *mode != NetworkMode::None && *proxy_env == Switch::On,
        own_names: Vec::new(),
        budget: Budget {
            connections: connections.get(),
            connections_per_minute: connections_per_minute.get(),
            upload_bytes: upload.bytes(),
            hosts: hosts.get(),
            cool_down_seconds: cool_down.get(),
        },
        budgets_kept: budgets_kept.get(),
        sysctl,
        sysfs,
        upstream: None,
        inbound,
        shared: None,
    }
}

/// Refuses ports that would lead somewhere else than to the container's own programs, or in from somewhere else than the
/// engine's network for it.
pub(super) fn check_inbound(
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
    } else if namespaces
        .iter()
        .any(|n| n.is_at(Isolates::Network, Path::new(HOST_NETWORK)))
    {
        "the container has the host's network, and the ports would be the host's own".to_owned()
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
pub(super) fn check_denials(policy: &PolicyName, network: &NetworkPlan) -> Result<(), PlanError> {
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
pub fn unseen_denial(rules: &Rules) -> Option<String> {
    let denial = rules.denied_addresses().next()?;
    Some(format!(
        "it has {denial}, and the node's upstream proxy resolves the names (network.upstream-names = \"proxy\"), so nobody \
         here sees whether a name leads there: let the node resolve them (upstream-names = \"vetted\"), or deny names"
    ))
}

/// What a connection keeps, in the sidecar and in the kernel.
const CONNECTION_BYTES: u64 = 32 << 10;
/// The same through a proxy that speaks TLS: a buffer of 16 KiB each way, what rustls may not have sent yet (64 KiB) and has
/// received (a record and its plaintext, 34 KiB).
const TLS_CONNECTION_BYTES: u64 = 192 << 10;

/// What the sidecar itself may take. Without connections it sleeps; with them it is one thread.
pub fn sidecar(network: &Network, upstream: Option<&Upstream>) -> SidecarLimits {
    let waits = SidecarLimits {
        memory_bytes: 64 << 20,
        pids: 16,
        cpu_percent: 50,
        files: 1024,
    };
    let inbound = network.inbound.iter().any(|item| item.port().is_some());
    match network.mode {
        // A listener for each port, and three descriptors for each connection.
        NetworkMode::Local if inbound => SidecarLimits {
            cpu_percent: 100,
            ..waits
        },
        NetworkMode::None | NetworkMode::Local => waits,
        NetworkMode::Allowlist => {
            let connections = u64::from(network.connections.get());
            let each = match upstream {
                Some(upstream) if upstream.tls => TLS_CONNECTION_BYTES,
                _ => CONNECTION_BYTES,
            };
            SidecarLimits {
                memory_bytes: waits.memory_bytes + connections * each,
                cpu_percent: 100,
                // Two for each connection, and those whose wish is not known yet; listeners, the resolver, a timer for a few long streams.
                files: 2 * (connections + UNDECIDED) + 256 + if inbound { 512 } else { 0 },
                ..waits
            }
        }
    }
}
