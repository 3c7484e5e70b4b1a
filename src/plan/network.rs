//! PURE. The network wall of a container.

use std::collections::{BTreeMap, BTreeSet};

use super::{NetworkPlan, SidecarLimits};
use crate::egress::{Asking, Budget, Rules, proxy_port};
use crate::policy::{Network, NetworkMode, OnUnknown, Resolved, Switch};

/// Connections beyond the budget that may wait for their first bytes.
pub const UNDECIDED: u64 = 64;

/// The ports that the wall listens on besides those of rules where hosts may be asked for: HTTP and HTTPS.
const ASKED: [u16; 2] = [80, 443];

/// The proxy's port in records that do not name it.
pub(super) fn usual_proxy() -> u16 {
    proxy_port(&BTreeSet::new())
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
    } = &resolved.policy.network;
    let listed = || Rules {
        allow: allow.clone(),
        deny: deny.clone(),
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
    NetworkPlan {
        mode: *mode,
        proxy_port: proxy_port(&ports),
        ports,
        asking: asks.then(|| Asking {
            seconds: ask_seconds.get(),
            limits: resolved.network_limits.clone(),
        }),
        rules,
        proxy_env: *mode == NetworkMode::Allowlist && *proxy_env == Switch::On,
        budget: Budget {
            connections: connections.get(),
            connections_per_minute: connections_per_minute.get(),
            upload_bytes: upload.bytes(),
            hosts: hosts.get(),
            cool_down_seconds: cool_down.get(),
        },
        sysctl,
        sysfs,
        upstream: None,
        shared: None,
    }
}

/// What the sidecar itself may take. Without connections it sleeps; with them it is one thread.
pub fn sidecar(network: &Network) -> SidecarLimits {
    let waits = SidecarLimits {
        memory_bytes: 64 << 20,
        pids: 16,
        cpu_percent: 50,
        files: 1024,
    };
    match network.mode {
        NetworkMode::None | NetworkMode::Local => waits,
        NetworkMode::Allowlist => {
            let connections = u64::from(network.connections.get());
            SidecarLimits {
                // What a waiting connection keeps, here and in the kernel.
                memory_bytes: waits.memory_bytes + (connections * (32 << 10)),
                cpu_percent: 100,
                // Two for each connection, and those whose wish is not known yet; listeners, pipes, the resolver.
                files: 2 * (connections + UNDECIDED) + 256,
                ..waits
            }
        }
    }
}
