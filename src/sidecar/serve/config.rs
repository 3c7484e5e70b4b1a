//! The sidecar's configuration: a file that the runtime writes and hands over.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::around::EngineNetworks;
use crate::audit;
use crate::egress::names::Families;
use crate::egress::{Budget, CountedSecret};
use crate::network::Stub;
use crate::plan::{AuditedNetwork, ServiceTarget};
use crate::policy::HoneyValue;
use crate::rules::{AskRules, EgressRules, NetworkPrefix, TlsHosts};

/// The sidecar's configuration: a file that the runtime writes and hands over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServingConfig {
    /// What may be reached.
    pub rules: EgressRules,
    /// The node's secrets for its requests, without their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<CountedSecret>,
    /// The node's honey values, which must not leave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub honey: Vec<HoneyValue>,
    /// The hosts whose TLS is opened to read requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<TlsHosts>,
    /// What may be reached under a policy in audit mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audited: Option<AuditedNetwork>,
    /// What may be approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asking: Option<AskRules>,
    /// Its limits.
    pub budget: Budget,
    /// The container's name, for commands in messages to people.
    pub container: String,
    /// The context of each log line.
    pub context: audit::Context,
    /// The container's own names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_names: Vec<String>,
    /// The ports of the listeners inside, in their order; `None`: nothing leads out, and there are no listeners.
    pub ports: Option<Vec<u16>>,
    /// The inbound ports of the engine's network.
    #[serde(default)]
    pub inbound: BTreeSet<u16>,
    /// Inbound ports that listen only at these addresses. The others listen at every address.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub published: BTreeMap<u16, BTreeSet<SocketAddr>>,
    /// Ports of the loopback inside that lead to services.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub connect: BTreeMap<u16, ServiceTarget>,
    /// Ports that the engine publishes but that lead nowhere.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub leads_nowhere: BTreeSet<u16>,
    /// The address families of the namespace inside.
    pub families: Families,
    /// The cluster's networks, for rules `service:`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub services: BTreeSet<NetworkPrefix>,
    /// Whether rules `service:` also lead into the networks of the engine's namespace.
    pub engine_networks: EngineNetworks,
    /// Whether `update` can open ports inside that no rule names yet.
    #[serde(default)]
    pub late_ports: LatePorts,
    /// Nothing leads out, and clients are told so.
    #[serde(default)]
    pub refusing: bool,
}

/// Whether `update` can open ports inside for rules that it adds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LatePorts {
    /// Root enters the namespace and listens.
    Possible,
    /// The listeners of an ordinary user's run are those of its start.
    #[default]
    Impossible,
}

/// Inbound connections at once.
pub const DIALERS: usize = 64;

impl ServingConfig {
    /// The number of sockets of each family to dial inside with.
    pub fn dialers(&self) -> usize {
        if self.inbound.is_empty() { 0 } else { DIALERS }
    }

    /// Where the stub listens.
    pub fn stub(&self) -> Stub {
        match self.refusing {
            true => Stub::Refusing,
            false => Stub::Everywhere,
        }
    }

    /// The number of listeners inside: for DNS and the proxy, and one for each port.
    pub(in crate::sidecar) fn listeners(&self) -> usize {
        let ports = self.ports.as_ref();
        ports.map_or(0, |ports| self.stub().with_proxy() + ports.len())
    }

    /// The number of its sockets.
    pub(in crate::sidecar) fn sockets(&self) -> usize {
        self.listeners() + (self.dialers() * self.families.count())
    }
}
