//! PURE. `plan(policy, spec, facts) -> Plan`: what will be enforced for one container, complete and resolved.
//!
//! A [`Plan`] answers a reviewer's question ("can it write /etc? which capabilities?") without the policy, the spec
//! or the kernel at hand. No `Option` means "default", no pattern is left, and everything is sorted, so that equal
//! plans are equal bytes. It is saved with the container's state; `exec`, `update` and `explain` read it back.

pub mod anonymous;
mod ephemeral;
mod error;
pub mod facts;
mod filesystem;
pub mod git;
pub mod hooks;
pub mod join;
mod judge;
pub mod limits;
pub mod mountinfo;
pub mod mounts;
pub mod names;
mod namespace;
pub mod namespaces;
pub mod network;
pub mod neutral;
pub mod never;
mod options;
pub mod privileges;
pub mod process;
pub mod reach;
pub mod scratch;
pub mod settings;
mod sort;
pub mod support;
#[cfg(test)]
pub(crate) mod tests;
pub mod text;
pub mod tokens;
pub mod volumes;
pub mod workspace;
pub mod wrapped;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use oci_spec::runtime::Spec;
use serde::{Deserialize, Serialize};

use crate::egress::own::own_names;
use crate::policy::{Leave, LeftOut, NetworkMode, Policy, Resolved};
pub use error::PlanError;
pub use facts::{
    BundleFacts, FileKind, FileSystem, Home, HostFacts, Inside, Link, Neighbour, NeighbourNetwork,
    NetworkState, Seen, SeenAs, SourceFacts,
};
pub use filesystem::{Ephemeral, EphemeralContent, FilesystemPlan, ScratchPlace, SeenIn};
pub use git::{Exclude, InGit, Untracked};
pub use limits::LimitsPlan;
pub use mounts::{PlannedMount, Pruned};
pub use namespace::{Isolates, NamespaceError, PlannedNamespace};
pub use network::{NetworkPlan, SharedNetwork, SidecarLimits};
pub use privileges::CapabilitySets;

/// What will be enforced for one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// The policy as resolved, every field decided.
    pub policy: Policy,
    /// Field of the policy -> where its value came from, in words.
    pub origins: BTreeMap<String, String>,
    /// The file system wall.
    pub filesystem: FilesystemPlan,
    /// The network wall.
    pub network: NetworkPlan,
    /// Names of system calls added to, and taken from, the base rules.
    pub syscalls: SyscallPlan,
    /// Capabilities of the first process.
    pub capabilities: CapabilitySets,
    /// Capabilities that no process of the container may have beyond; `exec` is cut down to these.
    pub capability_limit: BTreeSet<String>,
    /// Namespaces that libcontainer makes or joins, as `type` or `type=path`.
    pub namespaces: Vec<PlannedNamespace>,
    /// Device nodes beyond the usual eight that the node's file allows.
    pub devices: BTreeSet<PathBuf>,
    /// What the container may take of the node.
    #[serde(default)]
    pub limits: LimitsPlan,
    /// What annotations may ask for beyond the policy; not in records of before there was leave.
    #[serde(default)]
    pub leave: Option<Leave>,
    /// The ceilings, and who set each.
    #[serde(default)]
    pub ceilings: Vec<String>,
    /// Limits of the sidecar process.
    pub sidecar: SidecarLimits,
    /// What was asked for and is not given, beside mounts: capabilities, devices, settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_given: Vec<String>,
    /// What is weaker than a reader might expect, and why.
    pub warnings: Vec<String>,
}

impl Plan {
    /// All that was asked for and is not given, in words, mounts first.
    pub fn left_out(&self) -> Vec<String> {
        let mounts = self.filesystem.pruned.iter().map(|m| {
            let (at, from) = (text::of(&m.destination), text::of(&m.source));
            format!("the mount at {at} (from {from}): {}", m.why)
        });
        mounts.chain(self.not_given.iter().cloned()).collect()
    }
}

/// The syscall wall, beside the base rules and the engine's own profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SyscallPlan {
    /// Allowed beyond the base rules.
    pub allow: BTreeSet<String>,
    /// Denied whatever the base rules say.
    pub deny: BTreeSet<String>,
    /// Whether the engine's profile is merged in.
    pub engine_profile: bool,
}

/// Translates a policy into what will be enforced for this spec on this host.
pub fn plan(
    resolved: &Resolved,
    spec: &Spec,
    bundle: &BundleFacts,
    host: &HostFacts,
) -> Result<Plan, PlanError> {
    let linux = spec.linux().as_ref().ok_or(PlanError::Missing("linux"))?;
    let process = spec
        .process()
        .as_ref()
        .ok_or(PlanError::Missing("process"))?;
    if spec.root().is_none() {
        return Err(PlanError::Missing("root"));
    }
    let mut not_given: Vec<String> = neutral::not_given(spec).collect();
    let mut warnings = Vec::new();
    let joined = join::find(resolved, linux, bundle, &mut warnings)?;
    let adopted = joined.as_ref().map(|joined| joined.adopt(resolved));
    let resolved = adopted.as_ref().unwrap_or(resolved);
    let policy = &resolved.policy;
    host.require(policy, &resolved.node_allow)?;
    hooks::check(resolved, spec, bundle)?;
    let namespaces = namespaces::plan(resolved, linux, bundle, joined.as_ref())?;
    let devices = privileges::devices(resolved, linux, bundle)?;
    let mut filesystem = mounts::plan(resolved, spec, bundle, &mut warnings)?;
    scratch::place(policy, host, &mut filesystem, &mut warnings)?;
    let sysfs = filesystem
        .mounts
        .iter()
        .any(|m| m.destination == Path::new("/sys"));
    refuse_left_out(policy, &filesystem)?;
    let capability_limit = privileges::limit(policy);
    not_given.extend(privileges::not_given(process, &capability_limit));
    not_given.extend(privileges::devices_not_given(linux, &devices));
    not_given.extend(mounts::options_not_given(spec, &filesystem));
    // No `..`: a field added to `Policy` does not compile until it is planned.
    let Policy {
        name: _,
        filesystem: _,
        network: _,
        syscalls,
        privileges: _,
        limits,
        // What annotations may ask for is nothing that is enforced.
        annotations: _,
    } = policy;
    let crate::policy::Syscalls {
        allow,
        deny,
        // What a ceiling lets be allowed allows nothing.
        limit: _,
    } = syscalls;
    let bounds = LimitsPlan::smallest(resolved.bounds.iter().chain([limits]), host);
    bounds.require(policy, host)?;
    let sysctl = namespaces::net_sysctl(linux, &mut warnings);
    let own_names = own_names(spec.hostname().as_deref());
    let network = match &joined {
        Some(joined) => joined.network(&sysctl, own_names, &mut warnings),
        None => {
            let network = NetworkPlan {
                // Only where something is reached at all.
                upstream: (policy.network.mode == NetworkMode::Allowlist)
                    .then(|| resolved.upstream.clone())
                    .flatten(),
                own_names,
                ..network::plan(resolved, sysctl, sysfs)
            };
            network::check_inbound(&policy.name, &network, &namespaces)?;
            network::check_denials(&policy.name, &network)?;
            network
        }
    };
    Ok(Plan {
        origins: resolved
            .origins
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .map(|(k, v)| match &joined {
                Some(joined) if k.starts_with("network.") => (k, joined.origin()),
                _ => (k, v),
            })
            .collect(),
        filesystem,
        network,
        syscalls: SyscallPlan {
            allow: allow.iter().map(ToString::to_string).collect(),
            deny: deny.iter().map(ToString::to_string).collect(),
            engine_profile: linux.seccomp().is_some(),
        },
        capabilities: CapabilitySets::of(process.capabilities().as_ref())
            .limited(&capability_limit),
        capability_limit,
        namespaces,
        devices,
        limits: bounds,
        leave: Some(resolved.leave.clone()),
        ceilings: resolved.ceilings.iter().map(ToString::to_string).collect(),
        sidecar: network::sidecar(&policy.network, resolved.upstream.as_ref()),
        not_given,
        warnings,
        policy: policy.clone(),
    })
}

/// Under `filesystem.left-out = "error"` a mount is given or nothing starts.
fn refuse_left_out(policy: &Policy, filesystem: &FilesystemPlan) -> Result<(), PlanError> {
    let left_out = &filesystem.pruned;
    if left_out.is_empty() || policy.filesystem.left_out == LeftOut::Report {
        return Ok(());
    }
    let told = |m: &Pruned| format!("the mount at {} ({})", m.destination.display(), m.why);
    Err(PlanError::LeftOut {
        policy: policy.name.to_string(),
        what: left_out.iter().map(told).collect::<Vec<_>>().join("; "),
    })
}
