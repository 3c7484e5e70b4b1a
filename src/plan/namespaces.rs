//! PURE. The container's namespaces. Those that reach out of it are refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{Linux, LinuxNamespace, LinuxNamespaceType as Type};

use super::error::PlanError;
use super::facts::BundleFacts;
use super::join::NetworkJoin;
use super::namespace::{NamespaceType, PlannedNamespace};
use super::neighbour::Neighbour;
use super::reason::OmittedItem;
use super::warning::Warning;
use crate::policy::{NamespaceKind, ResolvedPolicy, Tool, exceeds};

/// The namespaces that libcontainer makes or joins.
///
/// The network namespace here is the engine's. The container's own is made in addition and entered at `start`.
/// A missing cgroup namespace (Docker's default on cgroup v1) is added, not refused.
pub(super) fn plan(
    resolved: &ResolvedPolicy,
    linux: &Linux,
    bundle: &BundleFacts,
    joined: Option<&NetworkJoin<'_>>,
) -> Result<Vec<PlannedNamespace>, PlanError> {
    let given = linux.namespaces().as_deref().unwrap_or_default();
    let own_users = given.iter().all(|n| n.typ() != Type::User);
    let judge = Judge {
        resolved,
        neighbours: &bundle.neighbours,
        host_users: own_users,
    };
    let mut out = Vec::new();
    for (typ, kind, isolates) in [
        (Type::Pid, Some(NamespaceKind::Pid), NamespaceType::Pid),
        (Type::Ipc, Some(NamespaceKind::Ipc), NamespaceType::Ipc),
        (Type::Uts, Some(NamespaceKind::Uts), NamespaceType::Uts),
        (Type::Mount, None, NamespaceType::Mount),
    ] {
        match given.iter().find(|n| n.typ() == typ) {
            None if judge.node_allows(kind) => {}
            None if isolates == NamespaceType::Uts && is_host_network(given, bundle) => {
                return Err(PlanError::HostNetwork(resolved.policy.name.to_string()));
            }
            None => return Err(refused(resolved, "host's".into(), isolates)),
            Some(ns) => out.push(judge.own_or_allowed(ns, kind, isolates)?),
        }
    }
    let cgroup = given.iter().find(|n| n.typ() == Type::Cgroup);
    out.push(
        cgroup.map_or(Ok(PlannedNamespace::new(NamespaceType::Cgroup)), |ns| {
            judge.own_or_allowed(ns, Some(NamespaceKind::Cgroup), NamespaceType::Cgroup)
        })?,
    );
    if let Some(ns) = given.iter().find(|n| n.typ() == Type::User) {
        out.push(judge.own_or_allowed(ns, Some(NamespaceKind::User), NamespaceType::User)?);
    }
    if given.iter().any(|n| n.typ() == Type::Time) {
        out.push(PlannedNamespace::new(NamespaceType::Time));
    }
    out.push(joined.map_or_else(|| network(given), NetworkJoin::namespace));
    out.sort();
    Ok(out)
}

/// Decides whether a namespace may be joined.
struct Judge<'a> {
    resolved: &'a ResolvedPolicy,
    neighbours: &'a BTreeMap<PathBuf, Vec<Neighbour>>,
    /// The container has no user namespace.
    host_users: bool,
}

impl Judge<'_> {
    fn node_allows(&self, kind: Option<NamespaceKind>) -> bool {
        kind.is_some_and(|k| self.resolved.node_allow.namespaces.contains(&k))
    }

    fn own_or_allowed(
        &self,
        ns: &LinuxNamespace,
        kind: Option<NamespaceKind>,
        isolates: NamespaceType,
    ) -> Result<PlannedNamespace, PlanError> {
        let Some(path) = ns.path() else {
            return Ok(PlannedNamespace::new(isolates));
        };
        if !self.node_allows(kind) {
            self.same_walls(path, kind, isolates)?;
        }
        Ok(PlannedNamespace::at(isolates, path))
    }

    /// Processes, queues and the host name may be shared among containers with the same walls. A process can act as the
    /// others in its pid namespace, so neither side may have more than the other.
    fn same_walls(
        &self,
        path: &Path,
        kind: Option<NamespaceKind>,
        isolates: NamespaceType,
    ) -> Result<(), PlanError> {
        let shareable = matches!(
            kind,
            Some(NamespaceKind::Pid | NamespaceKind::Ipc | NamespaceKind::Uts)
        );
        let neighbours = self.neighbours.get(path).map_or(&[][..], Vec::as_slice);
        // One of them must have made it: a namespace that it joined may be any, even the host's.
        let made_here = neighbours
            .iter()
            .any(|n| n.policy.is_some() && n.namespaces.iter().any(|n| n.is_new(isolates)));
        if !shareable || !made_here {
            return Err(refused(self.resolved, foreign(path), isolates));
        }
        neighbours.iter().try_for_each(|n| {
            self.difference(n).map_or(Ok(()), |why| {
                Err(PlanError::Neighbour {
                    policy: self.resolved.policy.name.to_string(),
                    kind: isolates.name(),
                    id: n.id.clone(),
                    why,
                })
            })
        })
    }

    /// How the walls of a container differ from this one's, if they do.
    fn difference(&self, other: &Neighbour) -> Option<String> {
        let Some(policy) = &other.policy else {
            return Some("it has no walls (unconfined)".to_owned());
        };
        let host_users = !other
            .namespaces
            .iter()
            .any(|n| n.isolates == NamespaceType::User);
        if !(host_users && self.host_users) {
            return Some("one of them has a user namespace".to_owned());
        }
        let more = exceeds(policy, &self.resolved.policy);
        let less = exceeds(&self.resolved.policy, policy);
        let field = more.first().or(less.first())?;
        Some(format!("its {} is not the same", field.field))
    }
}

/// Whether it is a pod with `hostNetwork`: a CRI engine gives it the host's uts namespace too.
fn is_host_network(given: &[LinuxNamespace], bundle: &BundleFacts) -> bool {
    bundle.cri && given.iter().all(|n| n.typ() != Type::Network)
}

/// The host's network namespace: the runtime's own.
const HOST_NETWORK: &str = "/proc/self/ns/net";

/// Whether the engine's network is the host's, as for `wrap`.
pub(super) fn has_hosts_network(planned: &[PlannedNamespace]) -> bool {
    let mut planned = planned.iter();
    planned.any(|n| n.is_at(NamespaceType::Network, Path::new(HOST_NETWORK)))
}

/// The host's network, which an engine's caller requested and no container gets. `wrap` always has it outside.
pub(super) fn network_not_given(tool: Tool, planned: &[PlannedNamespace]) -> Option<OmittedItem> {
    (tool != Tool::Wrap && has_hosts_network(planned)).then_some(OmittedItem::HostNetwork)
}

/// The engine's network namespace; for the host's, the runtime's own.
fn network(given: &[LinuxNamespace]) -> PlannedNamespace {
    match given.iter().find(|n| n.typ() == Type::Network) {
        // Always listed: libcontainer lets `exec` skip a namespace that the spec does not list.
        None => PlannedNamespace::at(NamespaceType::Network, HOST_NETWORK),
        Some(ns) => match ns.path() {
            None => PlannedNamespace::new(NamespaceType::Network),
            Some(path) => PlannedNamespace::at(NamespaceType::Network, path),
        },
    }
}

fn foreign(path: &Path) -> String {
    format!("foreign ({})", path.display())
}

fn refused(resolved: &ResolvedPolicy, whose: String, isolates: NamespaceType) -> PlanError {
    PlanError::Namespace {
        policy: resolved.policy.name.to_string(),
        whose,
        kind: isolates.name(),
    }
}

/// Whether a sysctl belongs to the network namespace. sysctl(8) accepts `/` for `.`, and so does libcontainer.
pub fn is_net(key: &str) -> bool {
    key.split(['.', '/']).next() == Some("net")
}

/// The spec's `net.*` settings for the inner namespace.
pub(super) fn net_sysctl(linux: &Linux, warnings: &mut Vec<Warning>) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for (key, value) in linux.sysctl().iter().flatten().filter(|(k, _)| is_net(k)) {
        if key == "net.ipv4.ping_group_range" {
            // Docker opens ping sockets to everyone; the wall keeps them closed.
            continue;
        }
        if key.starts_with("net.ipv4.conf.") || key.starts_with("net.ipv6.conf.") {
            warnings.push(Warning::SettingWithoutInterface {
                sysctl: key.clone(),
            });
            continue;
        }
        out.insert(key.clone(), value.clone());
    }
    out
}
