//! PURE. Namespaces: which the container gets, and which are refused because they reach out of it.

use std::collections::BTreeMap;
use std::path::Path;

use oci_spec::runtime::{Linux, LinuxNamespace, LinuxNamespaceType as Type};

use super::PlanError;
use crate::policy::{NamespaceKind, Resolved};

/// The namespaces that libcontainer makes or joins, as `type` or `type=path`.
///
/// The network namespace here is the engine's: the container's own is made beside it and entered at `start`.
/// A missing cgroup namespace (Docker's default on cgroup v1) is added rather than refused.
pub(super) fn plan(resolved: &Resolved, linux: &Linux) -> Result<Vec<String>, PlanError> {
    let given = linux.namespaces().as_deref().unwrap_or_default();
    let mut out = Vec::new();
    for (typ, kind, name) in [
        (Type::Pid, Some(NamespaceKind::Pid), "pid"),
        (Type::Ipc, Some(NamespaceKind::Ipc), "ipc"),
        (Type::Uts, Some(NamespaceKind::Uts), "uts"),
        (Type::Mount, None, "mount"),
    ] {
        let allowed = kind.is_some_and(|k| resolved.node_allow.namespaces.contains(&k));
        match given.iter().find(|n| n.typ() == typ) {
            None if allowed => {}
            None => return Err(refused(resolved, "host's".into(), name)),
            Some(ns) => out.push(own_or_allowed(resolved, ns, allowed, name)?),
        }
    }
    let cgroup = given.iter().find(|n| n.typ() == Type::Cgroup);
    let foreign_cgroup = resolved
        .node_allow
        .namespaces
        .contains(&NamespaceKind::Cgroup);
    out.push(cgroup.map_or(Ok("cgroup".to_owned()), |ns| {
        own_or_allowed(resolved, ns, foreign_cgroup, "cgroup")
    })?);
    if let Some(ns) = given.iter().find(|n| n.typ() == Type::User) {
        let allowed = resolved
            .node_allow
            .namespaces
            .contains(&NamespaceKind::User);
        out.push(own_or_allowed(resolved, ns, allowed, "user")?);
    }
    if given.iter().any(|n| n.typ() == Type::Time) {
        out.push("time".to_owned());
    }
    out.push(network(given));
    out.sort();
    Ok(out)
}

/// The engine's network namespace; for the host's, the one that the runtime is in.
fn network(given: &[LinuxNamespace]) -> String {
    match given.iter().find(|n| n.typ() == Type::Network) {
        Some(ns) => match ns.path() {
            Some(path) => format!("network={}", path.display()),
            None => "network".to_owned(),
        },
        // Always listed: libcontainer lets `exec` skip a namespace that the spec does not list.
        None => "network=/proc/self/ns/net".to_owned(),
    }
}

fn own_or_allowed(
    resolved: &Resolved,
    ns: &LinuxNamespace,
    allowed: bool,
    name: &'static str,
) -> Result<String, PlanError> {
    match ns.path() {
        None => Ok(name.to_owned()),
        Some(path) if allowed => Ok(format!("{name}={}", path.display())),
        Some(path) => Err(refused(resolved, foreign(path), name)),
    }
}

fn foreign(path: &Path) -> String {
    format!("foreign ({})", path.display())
}

fn refused(resolved: &Resolved, whose: String, kind: &'static str) -> PlanError {
    PlanError::Namespace {
        policy: resolved.policy.name.to_string(),
        whose,
        kind,
    }
}

/// Whether a setting is of the network namespace. sysctl(8) takes `/` for `.`, and so does libcontainer.
pub fn is_net(key: &str) -> bool {
    key.split(['.', '/']).next() == Some("net")
}

/// The spec's `net.*` settings for the inner namespace.
pub(super) fn net_sysctl(linux: &Linux, warnings: &mut Vec<String>) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for (key, value) in linux.sysctl().iter().flatten().filter(|(k, _)| is_net(k)) {
        if key == "net.ipv4.ping_group_range" {
            // Docker opens ping sockets to everyone; the wall keeps them closed.
            continue;
        }
        if key.starts_with("net.ipv4.conf.") || key.starts_with("net.ipv6.conf.") {
            warnings.push(format!(
                "sysctl {key} is not applied: the container has no interface but lo"
            ));
            continue;
        }
        out.insert(key.clone(), value.clone());
    }
    out
}
