//! PURE. Whether files can be made set-user-ID or set-group-ID: only if those on the node are their directory owner's.

use std::fmt;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Spec;
use serde::{Deserialize, Serialize};

use super::error::PlanError;
use super::facts::{BundleFacts, HostFacts};
use super::file::FileKind;
use super::filesystem::FilesystemPlan;
use super::idmap::{self, ids_of};
use super::ids::{IdmapOutcome, MappedIds, SourceIds};
use super::join::short;
use super::mount::{BindAccess, PlannedMount};
use super::namespace::{NamespaceType, PlannedNamespace};
use super::passwd;
use super::pod::pod_role;
use super::reason::MountReason;
use super::warning::Warning;
use crate::engines::annotation::SANDBOX;
use crate::policy::{Field, Policy, SetIdRule, Switch, Tool};

/// The mount point of a container's shared memory.
const SHM: &str = "/dev/shm";

/// The setting that allows such files on any mounts.
const ON: &str = "privileges.set-id = \"on\" in a policy file of the node";

/// The programs that hold a pod's network for podman: they run nothing else.
const HOLDERS: [&str; 2] = ["/catatonit", "/pause"];

/// Why set-user-ID files cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum SetIdCause {
    /// The policy itself refuses them.
    Policy,
    /// This mount could keep such files, as root's.
    Mount {
        /// The mount point.
        at: PathBuf,
    },
    /// This mount could keep such files: root's, made by a process with the owner's number.
    SeveralOwners {
        /// The mount point.
        at: PathBuf,
    },
    /// This mount could keep such files for a group that is not the owner's own.
    Group {
        /// The mount point.
        at: PathBuf,
    },
    /// Another container could pass its own file through a socket in this directory: a volume, or read-only here.
    Shared {
        /// The mount point.
        at: PathBuf,
    },
    /// Another container could do so through what they share: an abstract socket of the network, memory, /proc.
    Namespaces,
    /// It holds a pod's network, and does nothing else.
    Pod,
    /// A file of the node was passed in; its mode could be changed.
    Descriptor {
        /// The descriptor's number.
        fd: i32,
    },
    /// `wrap` shows the node's own system.
    Wrap,
}

impl fmt::Display for SetIdCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy => f.write_str("the policy does not let it"),
            Self::Mount { at } => write!(
                f,
                "{} can be written, and root's files there are root's on the node",
                at.display()
            ),
            Self::SeveralOwners { at } => write!(
                f,
                "{} can be written, and has files of several owners",
                at.display()
            ),
            Self::Group { at } => write!(
                f,
                "{} can be written, and its group is not its owner's own",
                at.display()
            ),
            Self::Shared { at } => write!(
                f,
                "{} is a directory of the node, and a container that makes a socket there can hand over its own files",
                at.display()
            ),
            Self::Namespaces => f.write_str(
                "it shares namespaces with another container, which can hand over its own files by a socket or /proc",
            ),
            Self::Pod => f.write_str("it only holds a pod's network"),
            Self::Descriptor { fd } => write!(f, "descriptor {fd} leads to a file of the node"),
            Self::Wrap => f.write_str("`wrap` shows the node's own system"),
        }
    }
}

impl SetIdCause {
    /// What would allow such files.
    pub fn cure(&self, tool: Tool) -> String {
        match self {
            Self::Policy => format!(
                "{}, if the ceiling allows it; or {ON}",
                tool.names(&tool.sets(Field::PrivilegesSetId, "auto"))
            ),
            Self::Mount { .. } => format!(
                "let its ids be mapped: an ordinary user owns it, the container's user is root, and {} (\"on\" for more than \
                 the workspace); or mount it read-only",
                tool.sets(Field::FilesystemIdmap, "auto")
            ),
            Self::SeveralOwners { at } => format!(
                "give all of it one owner (chown -R, outside or at {} inside), and start again",
                at.display()
            ),
            Self::Group { .. } => "chgrp it to the owner's own group, and start again".to_owned(),
            Self::Shared { .. } => format!(
                "mount only the files that are needed, and keep a cache in the workspace; or {ON}, if no hostile container shares \
                 the directory"
            ),
            Self::Namespaces => {
                format!(
                    "give it a network, processes and IPC of its own; or {ON}, if no hostile container shares them"
                )
            }
            Self::Pod => ON.to_owned(),
            Self::Descriptor { .. } => "hand in a pipe: COMMAND | cat >FILE".to_owned(),
            Self::Wrap => ON.to_owned(),
        }
    }
}

/// The decision about set-user-ID files.
pub(super) struct SetId {
    /// Whether they can be made.
    pub(super) switch: Switch,
    /// Why not, if `auto` decides against it.
    pub(super) cause: Option<SetIdCause>,
    /// Whether extended attributes can be set.
    pub(super) attributes: Switch,
}

/// The value in plans from before this field.
pub(super) fn on() -> Switch {
    Switch::On
}

pub(super) fn is_on(switch: &Switch) -> bool {
    *switch == on()
}

/// The facts that [`owners`] needs besides the policy and the mounts.
#[derive(Clone, Copy)]
pub(super) struct OwnerFacts<'a> {
    bundle: &'a BundleFacts,
    host: &'a HostFacts,
    namespaces: &'a [PlannedNamespace],
    tool: Tool,
}

impl<'a> OwnerFacts<'a> {
    pub(super) fn new(
        bundle: &'a BundleFacts,
        host: &'a HostFacts,
        namespaces: &'a [PlannedNamespace],
        tool: Tool,
    ) -> Self {
        Self {
            bundle,
            host,
            namespaces,
            tool,
        }
    }
}

/// Decides who owns root's files, and whether files can be made set-user-ID.
pub(super) fn owners(
    policy: &Policy,
    spec: &Spec,
    facts: OwnerFacts<'_>,
    plan: &mut FilesystemPlan,
    warnings: &mut Vec<Warning>,
) -> Result<SetId, PlanError> {
    let OwnerFacts {
        bundle,
        host,
        namespaces,
        tool,
    } = facts;
    let container = idmap::IdmapContext {
        policy: &policy.filesystem,
        spec,
        by: bundle.wrapped.by,
        host,
    };
    idmap::place(container, bundle, plan, warnings)?;
    check_neighbours(bundle, plan, tool)?;
    let rule = policy.privileges.set_id;
    let (switch, cause) = decide(rule, spec, bundle, plan, namespaces);
    Ok(SetId {
        switch,
        cause,
        attributes: attributes(switch, bundle, plan),
    })
}

/// Whether set-user-ID files can be made; if `auto` decides against it, why. No such file may reach the node as another
/// user's than the owner's of its directory.
///
/// A container's root is the node's: a descriptor from a container with an unmapped mount is as good as that mount.
/// Descriptors pass over sockets in directories and a network's abstract sockets; shared processes give /proc/PID/root.
/// A mapped workspace counts as this container's alone: no kernel call shows who else has it (docs/policy.md).
fn decide(
    rule: SetIdRule,
    spec: &Spec,
    bundle: &BundleFacts,
    plan: &FilesystemPlan,
    namespaces: &[PlannedNamespace],
) -> (Switch, Option<SetIdCause>) {
    match rule {
        SetIdRule::Off => (Switch::Off, None),
        SetIdRule::On => (Switch::On, None),
        SetIdRule::Auto => match cause(spec, bundle, plan, namespaces) {
            None => (Switch::On, None),
            cause => (Switch::Off, cause),
        },
    }
}

fn cause(
    spec: &Spec,
    bundle: &BundleFacts,
    plan: &FilesystemPlan,
    namespaces: &[PlannedNamespace],
) -> Option<SetIdCause> {
    if is_wrap(bundle, plan) {
        return Some(SetIdCause::Wrap);
    }
    if let Some(fd) = bundle.handed_file {
        return Some(SetIdCause::Descriptor { fd });
    }
    if holds_a_pod(spec) {
        return Some(SetIdCause::Pod);
    }
    let mut mounts = plan.mounts.iter();
    let written = mounts.find_map(|mount| written(bundle, mount));
    let mut mounts = plan.mounts.iter();
    let shared = || shares(bundle, namespaces).then_some(SetIdCause::Namespaces);
    written
        .or_else(shared)
        .or_else(|| mounts.find_map(may_be_shared))
}

/// Whether it shares its network, processes or memory with another container.
fn shares(bundle: &BundleFacts, namespaces: &[PlannedNamespace]) -> bool {
    let own = |kind| namespaces.iter().any(|one| one.is_new(kind));
    let joins = bundle.neighbours.values().any(|inside| !inside.is_empty());
    joins || !own(NamespaceType::Pid) || !own(NamespaceType::Ipc)
}

fn is_wrap(bundle: &BundleFacts, plan: &FilesystemPlan) -> bool {
    !bundle.wrapped.is_empty() || plan.kept.is_some()
}

/// Whether it only holds a pod's namespaces. Containers that join it are refused if it could make such files
/// ([`Neighbour::sets_ids`](super::Neighbour)).
fn holds_a_pod(spec: &Spec) -> bool {
    let process = spec.process().as_ref();
    let program = process.and_then(|process| process.args().as_ref()?.first());
    let holds = program.is_some_and(|program| HOLDERS.contains(&program.as_str()));
    holds || pod_role(spec) == Some(SANDBOX)
}

/// The cause that a writable mount gives, if it does.
fn written(bundle: &BundleFacts, mount: &PlannedMount) -> Option<SetIdCause> {
    // First: most mounts of a container are read-only, and finding a source's ids takes as long as there are sources.
    let bind = mount
        .bind()
        .filter(|bind| bind.access == BindAccess::ReadWrite)?;
    let at = mount.destination.clone();
    let own_group = match ids_of(bundle, mount) {
        // The engine's own for this container: no other bind is kept there.
        Some(SourceIds { inert: true, .. }) if at == Path::new(SHM) => return None,
        Some(SourceIds {
            mapped: Some(IdmapOutcome::To { own_group, .. }),
            ..
        }) => *own_group,
        _ => false,
    };
    match (bind.access, bind.ids) {
        // Writes to a private mount go to the container's scratch. Other users of the node cannot enter a volume.
        (BindAccess::ReadOnly | BindAccess::Private, _) => None,
        _ if mount.why == MountReason::Volume => None,
        (BindAccess::ReadWrite, MappedIds::Node) => Some(SetIdCause::Mount { at }),
        (BindAccess::ReadWrite, MappedIds::Swapped { .. }) => {
            Some(SetIdCause::SeveralOwners { at })
        }
        (BindAccess::ReadWrite, MappedIds::OwnerAlone { .. }) => match own_group {
            true => None,
            false => Some(SetIdCause::Group { at }),
        },
    }
}

/// A directory that another container may have too: a volume, or one that is read-only, whose sockets can be connected to
/// anyway. Not those below an overlay, which has its own inodes.
fn may_be_shared(mount: &PlannedMount) -> Option<SetIdCause> {
    let bind = mount.bind()?;
    let shared = bind.access == BindAccess::ReadOnly || mount.why == MountReason::Volume;
    (shared && bind.judged.kind == FileKind::Directory).then(|| SetIdCause::Shared {
        at: mount.destination.clone(),
    })
}

/// Refuses a container that writes with the node's ids if a neighbour may make set-user-ID files under `auto`. In a
/// volume, another container runs them.
fn check_neighbours(
    bundle: &BundleFacts,
    plan: &FilesystemPlan,
    tool: Tool,
) -> Result<(), PlanError> {
    let mut all = bundle.neighbours.values().flatten();
    let mut mounts = plan.mounts.iter();
    let volume = mounts.find(|m| m.why == MountReason::Volume && m.is_writable());
    let volume = volume.map(|mount| mount.destination.as_path());
    let place = unmapped(bundle, plan).or(volume);
    match (all.find(|one| one.sets_ids), place) {
        (Some(other), Some(place)) => Err(PlanError::SetIdNeighbour {
            id: short(&other.id).to_owned(),
            place: place.to_owned(),
            tool,
        }),
        _ => Ok(()),
    }
}

/// The first mount that could keep a file of any account of the node.
fn unmapped<'a>(bundle: &BundleFacts, plan: &'a FilesystemPlan) -> Option<&'a Path> {
    let mut mounts = plan.mounts.iter();
    let any = |cause| {
        matches!(
            cause,
            SetIdCause::Mount { .. } | SetIdCause::SeveralOwners { .. }
        )
    };
    let found = mounts.find(|mount| written(bundle, mount).is_some_and(any));
    found.map(|mount| mount.destination.as_path())
}

/// Whether extended attributes can be set. Not if set-user-ID files are refused and a mount has the node's groups: a
/// set-group-ID file that its group may not execute keeps the bit when it is given to another group, and an access list
/// (acl(5)) then lets that group execute it. No other call does, and a filter cannot tell attributes apart. `wrap`'s
/// command has only its user's groups.
fn attributes(set_id: Switch, bundle: &BundleFacts, plan: &FilesystemPlan) -> Switch {
    let refused =
        set_id == Switch::Off && !is_wrap(bundle, plan) && unmapped(bundle, plan).is_some();
    match refused {
        true => Switch::Off,
        false => Switch::On,
    }
}

/// Whether passwd(5) gives a group to this user: a set-group-ID file then adds nothing to the owner's rights.
pub fn is_own_group(passwd: &str, uid: u32, gid: u32) -> bool {
    let mut own = passwd::lines(passwd)
        .filter(|user| user.uid == uid)
        .peekable();
    gid != 0 && own.peek().is_some() && own.all(|user| user.gid == gid)
}
