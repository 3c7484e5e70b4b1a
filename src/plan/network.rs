//! PURE. The network wall of a container.

use std::collections::BTreeMap;

use super::NetworkPlan;
use crate::egress::{Budget, Rules};
use crate::policy::{Network, NetworkMode, Switch};

/// What the inner namespace offers and the sidecar lets through.
pub fn plan(network: &Network, sysctl: BTreeMap<String, String>, sysfs: bool) -> NetworkPlan {
    // No `..`: a field added to the policy does not compile until it is planned.
    let Network {
        mode,
        allow,
        deny,
        // It is for ceilings, which were compared when the policy was resolved.
        limit: _,
        proxy_env,
        connections,
        connections_per_minute,
        upload,
        hosts,
    } = network;
    let listed = || Rules {
        allow: allow.clone(),
        deny: deny.clone(),
    };
    NetworkPlan {
        mode: *mode,
        rules: match mode {
            NetworkMode::Allowlist => listed(),
            // A policy may be narrowed to a mode that reaches nothing whatever it lists.
            NetworkMode::None | NetworkMode::Local => Rules::default(),
        },
        proxy_env: *mode == NetworkMode::Allowlist && *proxy_env == Switch::On,
        budget: Budget {
            connections: connections.get(),
            connections_per_minute: connections_per_minute.get(),
            upload_bytes: upload.bytes(),
            hosts: hosts.get(),
        },
        sysctl,
        sysfs,
    }
}
