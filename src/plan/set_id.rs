//! PURE. Whether files can be made set-user-ID or set-group-ID: where none can reach the node but as its directory's owner's.

use std::fmt;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Spec;
use serde::{Deserialize, Serialize};

use super::idmap::{self, IdmapOutcome, ids_of};
use super::join::short;
use super::workspace::{SANDBOX, pod_role};
use super::{
    BindAccess, BundleFacts, FileKind, FilesystemPlan, HostFacts, MappedIds, NamespaceType,
    PlanError, PlannedMount, PlannedNamespace, SourceIds, Warning, passwd,
};
use crate::policy::{Field, Policy, SetIdRule, Switch, annotation_key};

/// Where engines mount the memory that they made for a container.
const SHM: &str = "/dev/shm";

/// What lets them be made whatever the mounts are.
const ON: &str = "privileges.set-id = \"on\" in the policy";

/// The programs that hold a pod's network where podman makes it: they run nothing else.
const HOLDERS: [&str; 2] = ["/catatonit", "/pause"];

/// Why set-user-ID files cannot be made although the policy leaves it to the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum SetIdCause {
    /// The policy does not leave it to the container.
    Policy,
    /// They could be left in this mount, as root's.
    Mount {
        /// Where it is.
        at: PathBuf,
    },
    /// They could be left in this mount: root's, by a process of the owner's number.
    SeveralOwners {
        /// Where it is.
        at: PathBuf,
    },
    /// They could be left in this mount for a group that is not the owner's own.
    Group {
        /// Where it is.
        at: PathBuf,
    },
    /// Another container could hand over a file of its own by a socket in this directory, which is only read here.
    Shared {
        /// Where it is.
        at: PathBuf,
    },
    /// Another container could do so by what they share: an abstract socket of the network, memory, /proc.
    Namespaces,
    /// It holds a pod's network, and does nothing else.
    Pod,
    /// A file of the node was handed in, whose mode could be changed.
    Descriptor {
        /// Its number.
        fd: i32,
    },
    /// The system is the node's own.
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
    /// What would let them be made.
    pub fn cure(&self) -> String {
        let field = annotation_key(Field::PrivilegesSetId);
        let mapped = annotation_key(Field::FilesystemIdmap);
        match self {
            Self::Policy => format!(
                "the annotation {field}=auto, where the ceiling has it; privileges.set-id = \"on\" in a policy file of the node"
            ),
            Self::Mount { .. } => format!(
                "let it be mapped: a directory that an ordinary user owns, root as the container's user, {mapped}=auto (on for other \
                 mounts than the workspace); or mount it read-only"
            ),
            Self::SeveralOwners { at } => format!(
                "give all of it one owner (chown -R, outside or at {} inside), and start again",
                at.display()
            ),
            Self::Group { .. } => "chgrp it to the owner's own group, and start again".to_owned(),
            Self::Shared { .. } => format!(
                "mount the files of it that are needed, or leave it out; {ON}, where no hostile container shares it"
            ),
            Self::Namespaces => {
                format!(
                    "give it a network, processes and IPC of its own; {ON}, where no hostile container shares them"
                )
            }
            Self::Pod => ON.to_owned(),
            Self::Descriptor { .. } => "hand in a pipe: COMMAND | cat >FILE".to_owned(),
            Self::Wrap => ON.to_owned(),
        }
    }
}

/// What is decided of set-user-ID files.
pub(super) struct SetId {
    /// Whether they can be made.
    pub(super) switch: Switch,
    /// Why not, if `auto` says no.
    pub(super) cause: Option<SetIdCause>,
    /// Whether extended attributes can be set.
    pub(super) attributes: Switch,
}

/// What plans of before there was a word on attributes meant.
pub(super) fn on() -> Switch {
    Switch::On
}

pub(super) fn is_on(switch: &Switch) -> bool {
    *switch == on()
}

/// What [`owners`] looks at besides the policy and the mounts.
#[derive(Clone, Copy)]
pub(super) struct OwnerFacts<'a> {
    bundle: &'a BundleFacts,
    host: &'a HostFacts,
    namespaces: &'a [PlannedNamespace],
}

impl<'a> OwnerFacts<'a> {
    pub(super) fn new(
        bundle: &'a BundleFacts,
        host: &'a HostFacts,
        namespaces: &'a [PlannedNamespace],
    ) -> Self {
        Self {
            bundle,
            host,
            namespaces,
        }
    }
}

/// Whose root's files are, and whether they can be made set-user-ID.
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
    } = facts;
    let container = idmap::IdmapContext {
        policy: &policy.filesystem,
        spec,
        by: bundle.wrapped.by,
        host,
    };
    idmap::place(container, bundle, plan, warnings)?;
    check_neighbours(bundle, plan)?;
    let rule = policy.privileges.set_id;
    let (switch, cause) = decide(rule, spec, bundle, plan, namespaces);
    Ok(SetId {
        switch,
        cause,
        attributes: attributes(switch, bundle, plan),
    })
}

/// Whether set-user-ID files can be made; if `auto` says no, why. No such file may reach the node as another user's than the
/// owner of the directory in which it lies.
///
/// A container's root is the node's, so a descriptor that comes over a socket from a container with an unmapped mount is as good
/// as that mount. Sockets come by directories and by a network's abstract names; with the processes comes /proc/PID/root. A mapped workspace is taken for this
/// container's alone: no call of the kernel's tells who else has it (docs/policy.md says what is not held).
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
        .or_else(|| mounts.find_map(is_only_read))
}

/// Whether another container's network, processes or memory are this one's too.
fn shares(bundle: &BundleFacts, namespaces: &[PlannedNamespace]) -> bool {
    let own = |kind| namespaces.iter().any(|one| one.is_new(kind));
    let joins = bundle.neighbours.values().any(|inside| !inside.is_empty());
    joins || !own(NamespaceType::Pid) || !own(NamespaceType::Ipc)
}

fn is_wrap(bundle: &BundleFacts, plan: &FilesystemPlan) -> bool {
    !bundle.wrapped.is_empty() || plan.kept.is_some()
}

/// Whether it is what a pod's containers join, and does nothing itself. They are refused where it could make such files
/// ([`Neighbour::sets_ids`](super::Neighbour)).
fn holds_a_pod(spec: &Spec) -> bool {
    let process = spec.process().as_ref();
    let program = process.and_then(|process| process.args().as_ref()?.first());
    let holds = program.is_some_and(|program| HOLDERS.contains(&program.as_str()));
    holds || pod_role(spec) == Some(SANDBOX)
}

/// What a file could be left as in a mount that is written.
fn written(bundle: &BundleFacts, mount: &PlannedMount) -> Option<SetIdCause> {
    let bind = mount.bind()?;
    let at = mount.destination.clone();
    let own_group = match ids_of(bundle, mount) {
        // The engine's own for this container: a bind of anything else is not kept there.
        Some(SourceIds { inert: true, .. }) if at == Path::new(SHM) => return None,
        Some(SourceIds {
            mapped: Some(IdmapOutcome::To { own_group, .. }),
            ..
        }) => *own_group,
        _ => false,
    };
    match (bind.access, bind.ids) {
        // What is written to a private one goes to the container's scratch.
        (BindAccess::ReadOnly | BindAccess::Private, _) => None,
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

/// A directory that is only read: sockets in it are connected to all the same. Those below an overlay are not, whose inodes are
/// its own.
fn is_only_read(mount: &PlannedMount) -> Option<SetIdCause> {
    let bind = mount.bind()?;
    let only_read = bind.access == BindAccess::ReadOnly;
    (only_read && bind.judged.kind == FileKind::Directory).then(|| SetIdCause::Shared {
        at: mount.destination.clone(),
    })
}

/// Refuses a container that writes as the node's accounts, beside one that makes set-user-ID files because it cannot.
fn check_neighbours(bundle: &BundleFacts, plan: &FilesystemPlan) -> Result<(), PlanError> {
    let mut all = bundle.neighbours.values().flatten();
    match (all.find(|one| one.sets_ids), unmapped(bundle, plan)) {
        (Some(other), Some(place)) => Err(PlanError::SetIdNeighbour {
            id: short(&other.id).to_owned(),
            place: place.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// The first mount in which a file of any account of the node can be left.
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

/// Whether extended attributes can be set. Not where no set-user-ID file can be made and a mount has the node's groups: a
/// set-group-ID file that its group may not execute keeps the bit when it is given to another group, and an access list
/// (acl(5)) then lets that group execute it. No other call does, and a filter cannot tell one attribute from another.
/// `wrap`'s command has no group but its person's.
fn attributes(set_id: Switch, bundle: &BundleFacts, plan: &FilesystemPlan) -> Switch {
    let refused =
        set_id == Switch::Off && !is_wrap(bundle, plan) && unmapped(bundle, plan).is_some();
    match refused {
        true => Switch::Off,
        false => Switch::On,
    }
}

/// Whether a group is a user's own by a list of users (passwd(5)): a set-group-ID file then gives nothing that its owner lacks.
pub fn is_own_group(passwd: &str, uid: u32, gid: u32) -> bool {
    let mut own = passwd::lines(passwd)
        .filter(|user| user.uid == uid)
        .peekable();
    gid != 0 && own.peek().is_some() && own.all(|user| user.gid == gid)
}
