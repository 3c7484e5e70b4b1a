//! PURE. The network of a container that joins no other one.

use std::collections::{BTreeMap, BTreeSet};

use super::error::PlanError;
use super::facts::BundleFacts;
use super::filesystem::FilesystemPlan;
use super::namespace::PlannedNamespace;
use super::network::{NetworkPlan, ServiceTarget};
use super::signing::{self, SigningPlan};
use super::warning::Warning;
use super::{connect, inbound, secrets, sockets};
use crate::egress::Budget;
use crate::egress::ssh::SSH;
use crate::policy::{
    Network, NetworkMode, OnUnknown, Policy, PolicyName, ResolvedPolicy, Switch, TemporaryRule,
    TlsWay, Upstream, UpstreamNames,
};
use crate::rules::{
    AskRules, ClockReading, EgressRules, NetworkLimit, NetworkPrefix, TlsHosts, proxy_port,
};

/// If hosts may be approved on request, the wall also listens on these ports: HTTP and HTTPS.
const ASKED: [u16; 2] = [80, 443];

/// The port of the proxy that refuses everything. Programs do not listen on it, and the kernel does not assign it: a
/// container without rules cannot move the proxy away from its own servers.
fn refusing_port(inbound: &BTreeSet<u16>, connect: &BTreeMap<u16, ServiceTarget>) -> u16 {
    const UNUSUAL: u16 = 64_128;
    (UNUSUAL..u16::MAX)
        .find(|port| !inbound.contains(port) && !connect.contains_key(port))
        .unwrap_or(UNUSUAL)
}

/// The ports on which the wall listens for hosts: those of rules, those for approval, and SSH's. Git over SSH is the
/// most common request without a rule; so it is denied with the reason and a log line.
fn listened(
    mode: NetworkMode,
    rules: &EgressRules,
    asked: &[u16],
    inbound: &BTreeSet<u16>,
) -> BTreeSet<u16> {
    if mode != NetworkMode::Allowlist {
        return BTreeSet::new();
    }
    let mut ports = rules.ports();
    ports.extend(asked);
    if !inbound.contains(&SSH) {
        ports.insert(SSH);
    }
    ports
}

/// The rules in force. A policy may be narrowed to a mode that reaches nothing, whatever it lists.
fn enforced(network: &Network, now: ClockReading) -> EgressRules {
    if network.mode != NetworkMode::Allowlist {
        return EgressRules::default();
    }
    let mut rules = EgressRules {
        allow: network.allow.clone(),
        deny: network.deny.clone(),
        ..EgressRules::default()
    };
    for TemporaryRule { item: rule, term } in &network.temporary {
        // A rule without an end is wider, and stays.
        let Some(end) = term.end(now).filter(|_| !network.allow.contains(rule)) else {
            continue;
        };
        rules.allow.insert(rule.clone());
        rules.ends.insert(rule.clone(), end);
        rules.ended_by_policy.insert(rule.clone());
    }
    rules
}

/// What a reader of the rules may not expect.
pub(super) fn warnings(resolved: &ResolvedPolicy, planned: &NetworkPlan) -> Vec<Warning> {
    let mut all = lasting(&resolved.policy.network);
    all.extend(secrets::not_seen(&resolved.secrets, planned));
    all
}

/// The temporary rules that rules without an end cover.
fn lasting(network: &Network) -> Vec<Warning> {
    let lasting = NetworkLimit::of_rules(String::new(), &network.allow);
    let rules = network.temporary.iter();
    let rules = rules.filter(|one| lasting.covers(&one.item));
    let rules = rules.map(ToString::to_string);
    rules.map(|rule| Warning::LastsAnyway { rule }).collect()
}

/// The cluster's networks, where hosts are reached at all.
fn services(resolved: &ResolvedPolicy) -> BTreeSet<NetworkPrefix> {
    match resolved.policy.network.mode {
        NetworkMode::Allowlist => resolved.services.clone(),
        NetworkMode::None | NetworkMode::Local => BTreeSet::new(),
    }
}

/// What the inner namespace offers and the sidecar allows, if the run begins now.
pub fn plan(
    resolved: &ResolvedPolicy,
    sysctl: BTreeMap<String, String>,
    now: ClockReading,
) -> NetworkPlan {
    // No `..`: a field added to the policy does not compile until it is planned.
    let Network {
        mode,
        // In the rules.
        allow: _,
        temporary: _,
        deny: _,
        // For ceilings, which were compared when the policy was resolved.
        limit: _,
        on_unknown,
        ask_seconds,
        proxy_env,
        user_secrets: _,
        tls,
        connections,
        connections_per_minute,
        upload,
        hosts,
        cool_down,
        inbound,
        connect: _,
        ssh_keys: _,
    } = &resolved.policy.network;
    let rules = enforced(&resolved.policy.network, now);
    let learns = resolved.policy.report.learn == Switch::On;
    let asks = *mode == NetworkMode::Allowlist && (learns || *on_unknown == OnUnknown::Ask);
    let refusing = *mode == NetworkMode::Local;
    let inbound: BTreeSet<u16> = inbound.iter().filter_map(|item| item.port()).collect();
    let connect = connect::services(&resolved.policy);
    let asked = if asks { &ASKED[..] } else { &[] };
    let mut ports = listened(*mode, &rules, asked, &inbound);
    ports.extend(connect.keys());
    NetworkPlan {
        mode: *mode,
        proxy_port: match refusing {
            true => refusing_port(&inbound, &connect),
            false => proxy_port(&ports),
        },
        refusing,
        services: services(resolved),
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
        connect,
        sockets: sockets::planned(&resolved.policy),
        signing: SigningPlan::of(&resolved.policy),
        leads_nowhere: BTreeMap::new(),
        shared: None,
    }
}

/// The network of a container that shares no other's.
pub(super) fn own(
    resolved: &ResolvedPolicy,
    sysctl: BTreeMap<String, String>,
    own_names: Vec<String>,
    filesystem: &FilesystemPlan,
    namespaces: &[PlannedNamespace],
    bundle: &BundleFacts,
) -> Result<NetworkPlan, PlanError> {
    let Policy { name, network, .. } = &resolved.policy;
    let wrapped = &bundle.wrapped;
    let planned = NetworkPlan {
        // Only if anything can be reached at all.
        upstream: (network.mode == NetworkMode::Allowlist)
            .then(|| resolved.upstream.clone())
            .flatten(),
        own_names,
        sysfs: filesystem.has_sysfs(),
        published: wrapped.published.clone(),
        ..plan(resolved, sysctl, bundle.now)
    };
    if resolved.policy.report.learn == Switch::On && planned.mode != NetworkMode::Allowlist {
        return Err(PlanError::Learn {
            policy: name.to_string(),
        });
    }
    connect::check(&resolved.policy, &planned, filesystem, wrapped)?;
    signing::check(&resolved.policy, wrapped)?;
    inbound::check(name, &planned, namespaces)?;
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

/// Refuses deny rules for addresses if the node's proxy resolves the names: agentbox then cannot see the addresses.
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

/// Why these rules are refused if the node's proxy resolves the names; `None` if they are not.
pub fn unseen_denial(rules: &EgressRules) -> Option<String> {
    let denial = rules.denied_addresses().next()?;
    Some(format!(
        "it has {denial}, and the upstream proxy resolves names, so agentbox does not see addresses: set upstream-names = \"vetted\" \
         in the node's file, or deny names"
    ))
}
