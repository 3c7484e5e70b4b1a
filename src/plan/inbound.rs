//! PURE. Ports that lead into a container: at `create`, and opened later.

use std::collections::BTreeSet;

use super::error::PlanError;
use super::namespace::PlannedNamespace;
use super::namespaces::has_hosts_network;
use super::network::NetworkPlan;
use crate::policy::inbound::MOST_INBOUND;
use crate::policy::{Field, NetworkMode, PolicyName, Tool};

impl NetworkPlan {
    /// What lets a published port in, when the container is made.
    pub fn lets_in(&self, port: u16, tool: Tool) -> String {
        let inbound = tool.sets(Field::NetworkInbound, &port.to_string());
        match self.mode {
            NetworkMode::None => {
                let mode = NetworkMode::Local.to_string();
                format!("{inbound} with {}", tool.sets(Field::NetworkMode, &mode))
            }
            NetworkMode::Local | NetworkMode::Allowlist => inbound,
        }
    }

    /// The command that opens it while the container runs; `None` if no port can lead in.
    pub fn opens_live(&self, port: u16, id: &str) -> Option<String> {
        (self.mode != NetworkMode::None)
            .then(|| format!("agentbox update {id} --inbound-add {port}"))
    }

    /// The first port that is the engine's number outside for another port, and that port, which leads nowhere yet.
    fn published_port(&self, ports: &BTreeSet<u16>) -> Option<(u16, u16)> {
        let published = |asked: &u16| {
            let mut nowhere = self.leads_nowhere.iter();
            let is_inside = self.leads_nowhere.contains_key(asked) || self.inbound.contains(asked);
            let of = nowhere.find(|(inside, outside)| {
                !is_inside && outside.contains(asked) && !ports.contains(inside)
            });
            of.map(|(inside, _)| (*asked, *inside))
        };
        ports.iter().find_map(published)
    }

    /// The network of a running container with these inbound ports too, if they can be opened there. `namespaces` are
    /// the container's.
    pub fn opening(
        &self,
        ports: &BTreeSet<u16>,
        policy: &PolicyName,
        namespaces: &[PlannedNamespace],
    ) -> Result<Self, PlanError> {
        let why = if has_hosts_network(namespaces) && !ports.is_subset(&self.inbound) {
            let each = ports.iter().map(|port| format!("--publish {port}"));
            let each = each.collect::<Vec<_>>().join(" ");
            format!(
                "its ports would be the host's own, open at every address; a running `wrap` opens no more ports: start it with {each}"
            )
        } else if self.refusing && self.dials_nothing() {
            "under network.mode=local its sidecar cannot connect, as no published port was known: name the port when the container \
             is made"
                .to_owned()
        } else if let Some((asked, port)) = self.published_port(ports) {
            format!(
                "the engine publishes port {port} of the container as {asked}: --inbound-add {port} (or {port},{asked} for both)"
            )
        } else if let Some(port) = ports.iter().find(|port| self.connect.contains_key(port)) {
            format!("port {port} inside leads out to a service (network.connect)")
        } else if ports.contains(&self.proxy_port) {
            let port = self.proxy_port;
            format!("on port {port} the proxy of the container listens")
        } else {
            let mut next = self.clone();
            next.inbound.extend(ports);
            next.leads_nowhere.retain(|port, _| !ports.contains(port));
            check(policy, &next, namespaces)?;
            return Ok(next);
        };
        Err(PlanError::Inbound {
            policy: policy.to_string(),
            why,
        })
    }
}

/// Refuses ports that would not lead to the container's own programs, or that could be reached from outside the
/// engine's network for it.
pub(super) fn check(
    policy: &PolicyName,
    network: &NetworkPlan,
    namespaces: &[PlannedNamespace],
) -> Result<(), PlanError> {
    let ports = &network.inbound;
    let walls = |port: &&u16| {
        network.mode == NetworkMode::Allowlist && network.own_ports().any(|own| own == **port)
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
        && has_hosts_network(namespaces)
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
