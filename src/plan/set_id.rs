//! PURE. Whether files can be made set-user-ID or set-group-ID: where none can reach the node but as its directory's owner's.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::idmap::{IdmapOutcome, ids_of};
use super::{BindAccess, BundleFacts, FilesystemPlan, MappedIds, SourceIds, passwd};
use crate::policy::{Field, SetIdRule, Switch, annotation_key};

/// Where engines mount the memory that they made for a container.
const SHM: &str = "/dev/shm";

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
            Self::Descriptor { .. } => "hand in a pipe: COMMAND | cat >FILE".to_owned(),
            Self::Wrap => "privileges.set-id = \"on\" in the policy".to_owned(),
        }
    }
}

/// Whether set-user-ID files can be made; if `auto` says no, why. No such file may reach the node as another user's than the
/// owner of the directory in which it lies.
pub(super) fn decide(
    rule: SetIdRule,
    bundle: &BundleFacts,
    plan: &FilesystemPlan,
) -> (Switch, Option<SetIdCause>) {
    match rule {
        SetIdRule::Off => (Switch::Off, None),
        SetIdRule::On => (Switch::On, None),
        SetIdRule::Auto => match cause(bundle, plan) {
            None => (Switch::On, None),
            cause => (Switch::Off, cause),
        },
    }
}

fn cause(bundle: &BundleFacts, plan: &FilesystemPlan) -> Option<SetIdCause> {
    if !bundle.wrapped.is_empty() || plan.kept.is_some() {
        return Some(SetIdCause::Wrap);
    }
    if let Some(fd) = bundle.handed_file {
        return Some(SetIdCause::Descriptor { fd });
    }
    plan.mounts.iter().find_map(|mount| {
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
    })
}

/// Whether a group is a user's own by a list of users (passwd(5)): a set-group-ID file then gives nothing that its owner lacks.
pub fn is_own_group(passwd: &str, uid: u32, gid: u32) -> bool {
    let mut own = passwd::lines(passwd)
        .filter(|user| user.uid == uid)
        .peekable();
    gid != 0 && own.peek().is_some() && own.all(|user| user.gid == gid)
}
