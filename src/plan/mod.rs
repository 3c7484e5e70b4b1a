//! PURE. `plan(policy, spec, facts) -> Plan`: what will be enforced for one container, complete and resolved.
//!
//! A [`Plan`] answers a reviewer's question ("can it write /etc? which capabilities?") without the policy, the spec
//! or the kernel at hand. No `Option` means "default", no pattern is left, and everything is sorted, so that equal
//! plans are equal bytes. It is saved with the container's state; `exec`, `update` and `explain` read it back.

mod access;
pub mod anonymous;
pub mod audit;
pub mod connect;
mod decided;
pub mod environment;
mod ephemeral;
mod error;
pub mod facts;
mod file;
mod filesystem;
pub mod git;
pub mod git_config;
pub mod git_link;
pub mod git_reference;
mod git_remote;
mod guard;
mod guarded_mount;
mod hidden_paths;
mod home;
pub mod hooks;
mod host;
pub mod idmap;
pub mod ids;
mod inbound;
pub mod join;
mod judge;
pub mod keys;
pub mod layers;
pub mod limits;
mod mount;
pub mod mounts;
pub mod names;
mod namespace;
pub mod namespaces;
mod neighbour;
pub mod network;
pub mod neutral;
pub mod never;
mod notice;
mod options;
pub mod own_network;
pub mod passwd;
mod person;
pub mod pod;
pub mod privileges;
pub mod process;
pub mod protect;
pub mod reach;
mod reason;
pub mod report;
mod root;
pub mod scratch;
pub mod secrets;
pub mod set_id;
pub mod settings;
mod sidecar;
pub mod signing;
pub mod sockets;
mod sort;
mod sorted_mounts;
pub mod support;
mod syscalls;
#[cfg(test)]
pub(crate) mod tests;
pub mod text;
pub mod time;
pub mod tokens;
pub mod trust;
pub mod volumes;
mod warning;
pub mod workspace;
pub mod wrap_plan;
pub mod wrapped;

use std::collections::BTreeSet;
use std::path::PathBuf;

use oci_spec::runtime::{Linux, Process, Spec};

use self::set_id::owners;
use self::wrap_plan::WrapEnforcement;
use crate::egress::own::own_names;
use crate::policy::{Capability, LeftOut, Policy, ResolvedPolicy};
pub use decided::{DecidedPlan, Plan};
pub use error::PlanError;
pub use facts::{
    BundleFacts, FoundCredential, Home, HostFacts, RootOrigin, SourceFacts, VisibleFile,
    VisibleKind,
};
pub use file::{FileIdentity, FileKind, FileSystem, FollowedLink, HiddenDirectory, RepositoryTop};
pub use filesystem::{
    CredentialDirectory, EphemeralContent, EphemeralMount, FilesystemPlan, ImageBase,
    ScratchStorage, VisibleFiles,
};
pub use git::{Exclude, GitState, UntrackedFile};
pub use git_remote::{KnownGit, NamedRemotes};
pub use guarded_mount::{GuardedMount, GuardedPart};
pub use host::KernelNeed;
pub use ids::{MappedIds, SourceIds};
pub use limits::LimitsPlan;
pub use mount::{
    BindAccess, BindMount, KernelFileSystem, KernelMount, MountError, MountKind, OmittedMount,
    PlannedMount, ProgramMode, SourceIdentity, Tmpfs,
};
pub use namespace::{NamespaceError, NamespaceType, PlannedNamespace};
pub use neighbour::{Neighbour, NeighbourNetwork, NetworkState};
pub use network::{NetworkPlan, ServiceTarget, SharedNetwork, SidecarLimits};
pub use person::{PersonFacts, PersonsCgroup};
pub use privileges::CapabilitySets;
pub use protect::{FoundProtected, ProtectedFiles, ProtectedPath, StartSearch};
pub use reason::{MountReason, OmittedItem};
pub use report::{AuditPlan, AuditedNetwork, ReportPlan};
pub use set_id::SetIdCause;
pub use sidecar::MOST_TIMED_EXECS;
pub use syscalls::{CallReasons, SyscallPlan};
pub use time::{ExecTime, TimePlan};
pub use warning::Warning;

/// Translates a policy into what will be enforced for this spec on this host.
pub fn plan(
    resolved: &ResolvedPolicy,
    spec: &Spec,
    bundle: &BundleFacts,
    host: &HostFacts,
) -> Result<DecidedPlan, PlanError> {
    let asked = SpecParts::of(spec)?;
    let SpecParts { linux, process, .. } = asked;
    let mut warnings = Vec::new();
    let joined = join::find(resolved, linux, bundle, &mut warnings)?;
    let governing = join::governing(joined.as_ref(), resolved);
    // No `..`: a field added to `Policy` does not compile until it is planned.
    let Policy {
        name: _,
        filesystem: _,
        network: _,
        syscalls,
        privileges,
        limits: _, // Planned with those of the ceilings, below.
        time: _,
        report,
        annotations: _, // What they may request is not enforced.
    } = &governing.policy;
    host.require(&governing.policy, &governing.node_allow, &bundle.wrapped)?;
    hooks::check(&governing, spec, bundle)?;
    let namespaces = namespaces::plan(&governing, linux, bundle, joined.as_ref())?;
    let devices = privileges::devices(&governing, linux, bundle)?;
    let mut filesystem = mounts::plan(&governing, spec, bundle, &mut warnings)?;
    scratch::place(&governing.policy, host, &mut filesystem, &mut warnings)?;
    refuse_left_out(&governing.policy, &filesystem)?;
    let facts = set_id::OwnerFacts::new(bundle, host, &namespaces, governing.tool);
    let policy = &governing.policy;
    let set_id = owners(policy, spec, facts, &mut filesystem, &mut warnings)?;
    let capability_limit = privileges::limit(privileges, set_id.switch);
    let mut not_given = asked.not_given(&capability_limit, &devices, &filesystem);
    not_given.extend(namespaces::network_not_given(resolved.tool, &namespaces));
    let bounds = bounds(&governing, host, bundle.wrapped.by, &mut warnings)?;
    let sysctl = namespaces::net_sysctl(linux, &mut warnings);
    let own_names = own_names(spec.hostname().as_deref());
    let network = match &joined {
        Some(joined) => joined.network(&sysctl, own_names, &mut warnings),
        None => own_network::own(
            &governing,
            sysctl,
            own_names,
            &filesystem,
            &namespaces,
            bundle,
        )?,
    };
    warnings.extend(own_network::warnings(&governing, &network));
    let report = ReportPlan::of(report, &network, &mut filesystem, &mut warnings);
    let syscalls = SyscallPlan::of(syscalls, privileges, linux, set_id);
    let exec_time = time::plan_exec(&governing, host, bundle, (&syscalls, &capability_limit))?;
    let plan = Plan {
        filesystem,
        network,
        report,
        syscalls,
        capabilities: CapabilitySets::of(process.capabilities().as_ref())
            .limited(&capability_limit),
        capability_limit,
        namespaces,
        devices,
        core_bytes: host.core_bytes,
        limits: bounds,
        time: time::plan(&governing, spec, bundle, host)?,
        sidecar: sidecar::of(&governing, exec_time),
        exec_time,
        leave: Some(governing.leave.clone()),
        ceilings: governing.ceilings.iter().map(ToString::to_string).collect(),
        not_given,
        warnings,
    };
    Ok(DecidedPlan {
        origins: join::origins(&governing, joined.as_ref()),
        resolved: governing.into_owned().policy,
        plan,
    })
}

/// How much of the node the container may use: the smallest of all its limits.
fn bounds(
    governing: &ResolvedPolicy,
    host: &HostFacts,
    by: WrapEnforcement,
    warnings: &mut Vec<Warning>,
) -> Result<LimitsPlan, PlanError> {
    let all = governing.bounds.iter().chain([&governing.policy.limits]);
    let bounds = LimitsPlan::smallest(all, host);
    match (&host.person, by) {
        // Without a cgroup no limit can be enforced: `wrap` reports that or refuses.
        (_, WrapEnforcement::Rules) => Ok(bounds),
        (Some(person), WrapEnforcement::Mounts) => {
            bounds.of_person((*person, &host.controllers), governing, warnings)
        }
        (None, WrapEnforcement::Mounts) => bounds.require(&governing.policy, host).map(|()| bounds),
    }
}

/// The sections of a spec that every container needs.
#[derive(Clone, Copy)]
struct SpecParts<'a> {
    spec: &'a Spec,
    linux: &'a Linux,
    process: &'a Process,
}

impl<'a> SpecParts<'a> {
    fn of(spec: &'a Spec) -> Result<Self, PlanError> {
        let linux = spec.linux().as_ref().ok_or(PlanError::Missing("linux"))?;
        let process = spec.process().as_ref();
        let process = process.ok_or(PlanError::Missing("process"))?;
        match spec.root() {
            Some(_) => Ok(Self {
                spec,
                linux,
                process,
            }),
            None => Err(PlanError::Missing("root")),
        }
    }

    /// What was requested and not granted, besides mounts.
    fn not_given(
        self,
        capabilities: &BTreeSet<Capability>,
        devices: &BTreeSet<PathBuf>,
        filesystem: &FilesystemPlan,
    ) -> Vec<OmittedItem> {
        let mut all: Vec<OmittedItem> = neutral::not_given(self.spec).collect();
        all.extend(privileges::not_given(self.process, capabilities));
        all.extend(privileges::devices_not_given(self.linux, devices));
        all.extend(mounts::options_not_given(self.spec, filesystem));
        all
    }
}

/// Under `filesystem.left-out = "error"` no container starts with an omitted mount.
fn refuse_left_out(policy: &Policy, filesystem: &FilesystemPlan) -> Result<(), PlanError> {
    let left_out = &filesystem.pruned;
    if left_out.is_empty() || policy.filesystem.left_out == LeftOut::Report {
        return Ok(());
    }
    let told = |m: &OmittedMount| format!("the mount at {} ({})", m.destination.display(), m.why);
    Err(PlanError::LeftOut {
        policy: policy.name.to_string(),
        what: left_out.iter().map(told).collect::<Vec<_>>().join("; "),
    })
}
