//! PURE. Services of this machine that the workload reaches (`wrap --connect`).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use serde::Deserialize;

use super::error::PlanError;
use super::filesystem::FilesystemPlan;
use super::network::{DNS_PORT, NetworkPlan, ServiceTarget};
use super::sockets::{self, ClosedListeners, DatabaseSockets, EngineSockets};
use super::wrap_plan::WrapPlan;
use crate::data::table;
use crate::policy::connect::MOST_SERVICES;
use crate::policy::{ConnectService, NetworkMode, Policy};
use crate::rules::{Decision, EgressRules, Host, NetworkRule, closed};

/// The machine's loopback, in the order of trying: most servers listen on the first.
pub const LOOPBACK: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

/// The machine's loopback in the log, of either family.
pub const LOCALHOST: &str = "localhost";

/// The deny rule that covers a service of this machine: by an address, or by the name that the log has for it.
pub fn denied_by(rules: &EgressRules, port: u16) -> Option<&NetworkRule> {
    let addresses = LOOPBACK.into_iter().map(Host::Address);
    let mut hosts = addresses.chain(LOCALHOST.parse::<Host>());
    hosts.find_map(|host| rules.denies(&host, port))
}

/// `policies/services.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListedServices {
    unoffered: Vec<u16>,
    port: Vec<ClosedPorts>,
    pub(super) socket: Vec<DatabaseSockets>,
    pub(super) engine: Vec<EngineSockets>,
    pub(super) listener: Vec<ClosedListeners>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClosedPorts {
    ports: Vec<u16>,
    why: String,
}

pub(super) static LISTED: LazyLock<ListedServices> = LazyLock::new(|| {
    table!("services")
        .read()
        .expect("a test parses the built-in list")
});

/// The services by their ports. Of two with one port, [`check`] refuses the policy.
pub(super) fn services(policy: &Policy) -> BTreeMap<u16, ServiceTarget> {
    if policy.network.mode == NetworkMode::None {
        return BTreeMap::new();
    }
    let items = policy.network.connect.iter();
    let services = items.filter_map(|item| {
        Some(match item {
            ConnectService::Port(port) => (port.get(), ServiceTarget::Machine),
            ConnectService::Host(host, port) => (port.get(), ServiceTarget::Host(host.clone())),
            ConnectService::Socket(_) | ConnectService::Any => return None,
        })
    });
    services.collect()
}

/// Refuses services that cannot be reached, or must not be.
pub(super) fn check(
    policy: &Policy,
    network: &NetworkPlan,
    filesystem: &FilesystemPlan,
    wrapped: &WrapPlan,
) -> Result<(), PlanError> {
    let items = policy.network.connect.iter();
    let items: Vec<&ConnectService> = items.filter(|item| item.is_one()).collect();
    let refused = |why: String| PlanError::Connect {
        policy: policy.name.to_string(),
        why,
    };
    if items.is_empty() {
        return Ok(());
    }
    if wrapped.is_empty() {
        let why =
            "only `agentbox wrap` reaches services of the machine: list hosts in network.allow";
        return Err(refused(why.to_owned()));
    }
    if policy.network.mode == NetworkMode::None {
        let why = "network.mode is none: use local or allowlist (--set network.mode=local)";
        return Err(refused(why.to_owned()));
    }
    if items.len() > MOST_SERVICES {
        let named = items.len();
        return Err(refused(format!(
            "at most {MOST_SERVICES} services may be named, these are {named}"
        )));
    }
    // Under mode `local` the plan has no rules, but the user's denials count.
    let denials = EgressRules {
        deny: policy.network.deny.clone(),
        ..EgressRules::default()
    };
    let denied = |item: &&ConnectService| {
        let port = item.port()?;
        let is_machines = matches!(item, ConnectService::Port(_));
        let rule = denied_by(&denials, port).filter(|_| is_machines)?;
        Some(format!("network.deny has {rule}, which wins over {item}"))
    };
    let why = items.iter().find_map(denied);
    let why = why.or_else(|| items.iter().find_map(|item| why_not(item, &items, network)));
    let why = why.or_else(|| sockets::why_not(&network.sockets, filesystem));
    match why {
        Some(why) => Err(refused(why)),
        None => Ok(()),
    }
}

/// Whether agentbox may name a port of the machine that the workload has tried inside. No policy leads to a closed one, and some
/// others give more than data.
pub fn is_offered(port: u16) -> bool {
    port != DNS_PORT && closed_ports(port).is_none() && !LISTED.unoffered.contains(&port)
}

/// The listed ports that this one is among.
fn closed_ports(port: u16) -> Option<&'static ClosedPorts> {
    let mut all = LISTED.port.iter();
    all.find(|closed| closed.ports.contains(&port))
}

/// What makes a port of the machine one that no policy leads to, as a clause.
pub fn closed_port(port: u16) -> Option<&'static str> {
    closed_ports(port).map(|closed| closed.why.as_str())
}

/// Why a service is refused; `None` if it is not.
fn why_not(
    item: &ConnectService,
    items: &[&ConnectService],
    network: &NetworkPlan,
) -> Option<String> {
    let port = item.port()?;
    if port == DNS_PORT {
        return Some(format!("port {port} inside is agentbox's own, for names"));
    }
    if network.inbound.contains(&port) {
        return Some(format!(
            "port {port} inside is published (network.inbound), so that the workload's own server has it"
        ));
    }
    if let Some(other) = items
        .iter()
        .find(|other| **other != item && other.port() == Some(port))
    {
        return Some(format!(
            "{item} and {other} have the same port, which leads to one service"
        ));
    }
    if let Some(closed) = closed_ports(port) {
        return Some(format!("port {port} is {}", closed.why));
    }
    match item {
        ConnectService::Host(host, _) => not_allowed(host, port, network),
        ConnectService::Port(_) | ConnectService::Socket(_) | ConnectService::Any => None,
    }
}

/// Why another host is not reached: rules decide about it, as if the workload named it.
fn not_allowed(host: &Host, port: u16, network: &NetworkPlan) -> Option<String> {
    let is_closed = match host {
        Host::Name(name) => closed::is_metadata(name),
        Host::Address(address) => closed::is_closed(*address),
    };
    if is_closed {
        return Some(format!(
            "{host} is a metadata service or link-local, where a cloud gives its machine's credentials"
        ));
    }
    match network.rules.decide(host, port) {
        Decision::Allow(_) => None,
        Decision::Deny(denial) => {
            let rule = match host {
                Host::Name(_) => format!("internal:{host}:{port}"),
                Host::Address(_) => format!("{host}:{port}"),
            };
            Some(format!(
                "no rule allows {host}, port {port} ({denial}): add --allow {rule}"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_give_more_than_data_are_not_offered() {
        assert!(![53, 2375, 6443, 22, 8001, 9222].into_iter().any(is_offered));
        assert!([5432, 3306, 8080].into_iter().all(is_offered));
    }

    #[test]
    fn a_service_is_denied_by_each_of_its_names() {
        let denied = |rule: &str| {
            let rules = EgressRules {
                deny: [rule.parse().unwrap()].into(),
                ..EgressRules::default()
            };
            denied_by(&rules, 5432).is_some()
        };
        for rule in [
            "localhost",
            "localhost:5432",
            "*",
            "127.0.0.1",
            "[::1]:5432",
        ] {
            assert!(denied(rule), "{rule}");
        }
        for rule in ["localhost:5433", "example.com", "10.0.0.0/8"] {
            assert!(!denied(rule), "{rule}");
        }
    }

    #[test]
    fn the_built_in_list_has_a_reason_for_each_port() {
        let mut all: Vec<u16> = LISTED
            .port
            .iter()
            .flat_map(|one| one.ports.clone())
            .collect();
        assert!(all.contains(&2375) && all.contains(&6443));
        assert!(LISTED.port.iter().all(|one| one.why.len() > 10));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "a port is listed twice");
    }
}
