//! PURE. A container in another one's network: a pod's, or `--network container:X`.
//!
//! They share one inner namespace and one sidecar. The sidecar cannot tell them apart, so each can reach what any of
//! them can. So the first container's policy governs, and another joins only if its own policy allows as much. No
//! container gets more than either policy allows.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use oci_spec::runtime::{Linux, LinuxNamespaceType as Type};

use super::error::PlanError;
use super::facts::BundleFacts;
use super::namespace::{NamespaceType, PlannedNamespace};
use super::neighbour::{Neighbour, NeighbourNetwork, NetworkState};
use super::network::{NetworkPlan, SharedNetwork};
use super::warning::Warning;
use crate::policy::{
    ExceededField, Field, NamespaceKind, Network, OnUnknown, Origin, Policy, ResolvedPolicy,
    Switch, exceeds,
};
use crate::rules::NetworkLimit;

/// The network of another container that a container joins.
#[derive(Debug)]
pub struct NetworkJoin<'a> {
    shared: &'a SharedNetwork,
    plan: &'a NetworkPlan,
    policy: &'a Network,
}

/// The network that a spec names, if it belongs to a container of this runtime. `None` if it is the engine's own, or if
/// the node's file gives the container its own loopback instead of a refused network.
pub(super) fn find<'a>(
    resolved: &ResolvedPolicy,
    linux: &Linux,
    bundle: &'a BundleFacts,
    warnings: &mut Vec<Warning>,
) -> Result<Option<NetworkJoin<'a>>, PlanError> {
    let given = linux.namespaces().as_deref().unwrap_or_default();
    let named = given.iter().find(|n| n.typ() == Type::Network);
    let Some(path) = named.and_then(|n| n.path().as_deref()) else {
        return Ok(None);
    };
    let inside = bundle.neighbours.get(path).map_or(&[][..], Vec::as_slice);
    let Some(whose) = whose(path, inside) else {
        return Ok(None);
    };
    let users = match given.iter().any(|n| n.typ() == Type::User) {
        true => Users::Own,
        false => Users::Nodes,
    };
    let why = match join(resolved, inside, users) {
        Ok((joined, less)) => {
            warnings.extend(less.into_iter().map(|less| Warning::LessThanAsked {
                field: less.field,
                asked: less.asked,
                there: less.allowed,
                container: joined.shared.container.clone(),
            }));
            return Ok(Some(joined));
        }
        Err(why) => why,
    };
    if !resolved
        .node_allow
        .namespaces
        .contains(&NamespaceKind::Network)
    {
        return Err(PlanError::SharedNetwork {
            policy: resolved.policy.name.to_string(),
            whose,
            why,
        });
    }
    warnings.push(Warning::NotShared { whose, why });
    Ok(None)
}

/// The length of an engine's id, and of the part that engines print.
const LONG_ID: usize = 64;
const SHORT_ID: usize = 12;

/// The short form of a long id, which engines print and accept. It leaves room for the reason in a message.
pub fn short(id: &str) -> &str {
    let beginning = id.get(..SHORT_ID).filter(|_| id.len() == LONG_ID);
    beginning.unwrap_or(id)
}

/// The owner of the network at a path; `None` if the engine made it for this container.
fn whose(path: &Path, inside: &[Neighbour]) -> Option<String> {
    if let Some(neighbour) = inside.first() {
        return Some(format!("container {}", short(&neighbour.id)));
    }
    // A process's namespace: engines name their own networks by a file.
    let of_process = path.starts_with("/proc") && !path.starts_with("/proc/self");
    of_process.then(|| path.display().to_string())
}

/// The user namespace of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Users {
    Nodes,
    Own,
}

/// The network of the containers inside, and where this container requests more than that network allows.
fn join<'a>(
    resolved: &ResolvedPolicy,
    inside: &'a [Neighbour],
    users: Users,
) -> Result<(NetworkJoin<'a>, Vec<ExceededField>), String> {
    let mut firsts = Vec::new();
    for neighbour in inside {
        let (Some(policy), Some(network)) = (&neighbour.policy, &neighbour.network) else {
            return Err(format!(
                "container {} has no walls (unconfined)",
                neighbour.id
            ));
        };
        let mut isolated = neighbour.namespaces.iter().map(|n| n.isolates);
        if users == Users::Own || isolated.any(|kind| kind == NamespaceType::User) {
            return Err("one of them has a user namespace".to_owned());
        }
        if network.plan.shared.is_none() {
            firsts.push((neighbour, policy, network));
        }
    }
    let [(first, policy, NeighbourNetwork { plan, state })] = firsts[..] else {
        return Err(match firsts.is_empty() {
            true => "no running container of agentbox has made it (a pod's first container, as podman's infra container, must run \
                     under agentbox too)"
                .to_owned(),
            false => "several containers have a network of their own there".to_owned(),
        });
    };
    let shared = match state {
        NetworkState::Standing(shared) => shared,
        NetworkState::NotStarted => {
            return Err(format!("container {} has not been started", first.id));
        }
        NetworkState::Dead => return Err(format!("the sidecar of container {} is gone", first.id)),
    };
    let policy = &policy.network;
    let less = compare(resolved, policy)?;
    compare_asking(resolved, plan)?;
    let joined = NetworkJoin {
        shared,
        plan,
        policy,
    };
    Ok((joined, less))
}

/// Why these network rules would allow a member more than its own policy does, if they would.
pub fn refuses(member: &ResolvedPolicy, theirs: &Network) -> Option<String> {
    compare(member, theirs).err()
}

/// Refuses a network that allows more than this container's policy: one member cannot get less than the others.
fn compare(resolved: &ResolvedPolicy, theirs: &Network) -> Result<Vec<ExceededField>, String> {
    let governed = with_network(&resolved.policy, theirs);
    let own = match exceeds(&governed, &resolved.policy).into_iter().next() {
        None => return Ok(exceeds(&resolved.policy, &governed)),
        Some(field) => field,
    };
    let over = match is_asked_for(resolved) {
        true => Some(own),
        // The container requests only to join the other's network. An annotation could have requested the same rules,
        // up to the ceilings.
        false => {
            let mut limits = resolved.limits.iter();
            limits.find_map(|limit| exceeds(&governed, limit).into_iter().next())
        }
    };
    match over {
        None => Ok(Vec::new()),
        Some(ExceededField {
            field,
            asked,
            allowed,
        }) => Err(format!(
            "its {field} has {asked}, allowed here is {allowed}, and one sidecar cannot give a member less: use the same \
             annotations"
        )),
    }
}

/// Refuses a network in which a human may approve more than this container's ceilings allow, or any approval if the
/// container requested none.
fn compare_asking(resolved: &ResolvedPolicy, theirs: &NetworkPlan) -> Result<(), String> {
    let Some(asking) = &theirs.asking else {
        return Ok(());
    };
    let same = "give both the same policy and the same network annotations";
    let learns = asking.learns && resolved.policy.report.learn == Switch::On;
    let denies = resolved.policy.network.on_unknown == OnUnknown::Deny;
    if denies && !learns && is_asked_for(resolved) {
        let there = match asking.learns {
            true => "report.learn is on",
            false => "network.on-unknown is ask",
        };
        return Err(format!(
            "its {there}, and here network.on-unknown is deny: {same}"
        ));
    }
    for own in &resolved.network_limits {
        let within = |theirs: &NetworkLimit| theirs.rules.iter().all(|rule| own.covers_limit(rule));
        if !asking.limits.iter().any(within) {
            return Err(format!(
                "its network.on-unknown is ask, and more may be approved there than the ceiling {} lets this container \
                 reach: {same}",
                own.ceiling
            ));
        }
    }
    Ok(())
}

/// Whether the container's own annotations set its network rules.
fn is_asked_for(resolved: &ResolvedPolicy) -> bool {
    let annotated = |origin: &Origin| matches!(origin, Origin::Annotation(_));
    let mut fields = resolved.origins.iter();
    // A node file that chose the default policy has chosen its network rules too.
    annotated(&resolved.chosen_by)
        || resolved.chosen_by == Origin::Node
        || fields.any(|(field, origin)| is_of_the_network(field) && annotated(origin))
}

/// Whether a field belongs to the network wall.
pub(super) fn is_of_the_network(field: &Field) -> bool {
    field.as_str().starts_with("network.")
}

fn with_network(policy: &Policy, network: &Network) -> Policy {
    Policy {
        network: network.clone(),
        ..policy.clone()
    }
}

/// The policy that governs: with the rules of the network that is joined.
pub(super) fn governing<'a>(
    joined: Option<&NetworkJoin<'_>>,
    resolved: &'a ResolvedPolicy,
) -> Cow<'a, ResolvedPolicy> {
    match joined {
        Some(joined) => Cow::Owned(joined.adopt(resolved)),
        None => Cow::Borrowed(resolved),
    }
}

impl NetworkJoin<'_> {
    /// The policy with the governing network's rules.
    fn adopt(&self, resolved: &ResolvedPolicy) -> ResolvedPolicy {
        ResolvedPolicy {
            policy: with_network(&resolved.policy, self.policy),
            ..resolved.clone()
        }
    }

    /// The origin of the network's fields.
    pub(super) fn origin(&self) -> String {
        format!("the network of container {}", self.shared.container)
    }

    /// The namespace that libcontainer joins.
    pub(super) fn namespace(&self) -> PlannedNamespace {
        PlannedNamespace::at(NamespaceType::Network, &self.shared.path)
    }

    /// What is enforced there.
    pub(super) fn network(
        &self,
        sysctl: &BTreeMap<String, String>,
        own_names: Vec<String>,
        warnings: &mut Vec<Warning>,
    ) -> NetworkPlan {
        for key in sysctl.keys() {
            warnings.push(Warning::SettingOfAnother {
                sysctl: key.clone(),
                container: self.shared.container.clone(),
            });
        }
        // A pod's containers have the host name of the first one, and only the first one's spec contains it.
        let mut names = self.plan.own_names.clone();
        for name in own_names {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        NetworkPlan {
            own_names: names,
            // A sysfs that is mounted there already shows it.
            sysfs: false,
            // Its user's sockets are in that container alone, and its user's agent signs for it alone.
            sockets: BTreeSet::new(),
            signing: None,
            shared: Some(self.shared.clone()),
            ..self.plan.clone()
        }
    }
}

/// The origin of each field; in another container's network, that network is the origin of the network's fields.
pub(super) fn origins(
    resolved: &ResolvedPolicy,
    joined: Option<&NetworkJoin<'_>>,
) -> BTreeMap<String, String> {
    let all = resolved.origins.iter();
    all.map(|(field, origin)| match joined {
        Some(joined) if is_of_the_network(field) => (field.to_string(), joined.origin()),
        _ => (field.to_string(), origin.to_string()),
    })
    .collect()
}
