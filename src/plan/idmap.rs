//! PURE. Who owns, on the node, the files that root makes in a writable mount.
//!
//! A mapped mount (mount_setattr(2), MOUNT_ATTR_IDMAP) shows the node's ids as other ids, one to one. If root inside is
//! the owner outside, the owner's number inside must belong to another id.

use oci_spec::runtime::{LinuxNamespaceType, Spec};
use serde::{Deserialize, Serialize};

use super::wrapped::WrapEnforcement;
use super::{BindAccess, BundleFacts, FilesystemPlan, HostFacts, PlanError, PlannedMount, Warning};
use crate::policy::{Filesystem, IdMapRule};

/// The range that systemd reserves for files of other systems' users ("foreign UIDs"): no account of a node is in it.
const FOREIGN: u32 = 0x7ffe_0000;
/// The size of that range: as many ids as a container has.
const FOREIGN_COUNT: u32 = 0x1_0000;
/// The largest id; the one above it means no id.
const LARGEST: u32 = u32::MAX - 1;

/// The ids that a bind mount shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum MappedIds {
    /// The node's.
    #[default]
    Node,
    /// The owner is root inside. Other users of the node have no id inside. Other users inside have an id of the
    /// foreign range outside.
    OwnerAlone {
        /// The owner on the node.
        uid: u32,
        /// The directory's group there.
        gid: u32,
    },
    /// The owner and root are swapped; all other ids are the node's.
    Swapped {
        /// The owner on the node.
        uid: u32,
        /// The directory's group there.
        gid: u32,
    },
}

impl MappedIds {
    /// The maps of users and of groups, in the format of user_namespaces(7): id on the node, id inside, count.
    pub fn maps(self) -> Option<(String, String)> {
        match self {
            Self::Node => None,
            Self::OwnerAlone { uid, gid } => Some((alone(uid), alone(gid))),
            Self::Swapped { uid, gid } => Some((swapped(uid), swapped(gid))),
        }
    }

    /// The map for a directory of this owner and group: `OwnerAlone` if no entry belongs to another user of the node.
    pub fn of(uid: u32, gid: u32, entries: &[(u32, u32)]) -> Self {
        let is_alone = |&(user, group): &(u32, u32)| holds(uid, user) && holds(gid, group);
        match entries.iter().all(is_alone) {
            true => Self::OwnerAlone { uid, gid },
            false => Self::Swapped { uid, gid },
        }
    }
}

/// Whether the map for the owner alone contains an id of the node.
fn holds(owner: u32, id: u32) -> bool {
    id == owner || (!is_foreign(owner) && is_foreign(id) && id != FOREIGN)
}

fn is_foreign(id: u32) -> bool {
    (FOREIGN..FOREIGN + FOREIGN_COUNT).contains(&id)
}

fn alone(owner: u32) -> String {
    let rest = format!("{} 1 {}\n", FOREIGN + 1, FOREIGN_COUNT - 1);
    match is_foreign(owner) {
        // Only the owner's line: the two ranges would overlap.
        true => format!("{owner} 0 1\n"),
        false => format!("{owner} 0 1\n{rest}"),
    }
}

fn swapped(owner: u32) -> String {
    if owner == 0 {
        return format!("0 0 {}\n", u32::MAX);
    }
    let mut all = format!("{owner} 0 1\n0 {owner} 1\n");
    if owner > 1 {
        all += &format!("1 1 {}\n", owner - 1);
    }
    if owner < LARGEST {
        let next = owner + 1;
        all += &format!("{next} {next} {}\n", LARGEST - owner);
    }
    all
}

/// The owner of a mount's source, and how its ids can be mapped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceIds {
    /// Its owner on the node.
    pub uid: u32,
    /// Its group there.
    pub gid: u32,
    /// It is in memory, and no set-user-ID program runs from there (`nosuid`).
    pub inert: bool,
    /// The result of the attempt to map it; `None` before the attempt.
    pub mapped: Option<IdmapOutcome>,
}

/// The result of the attempt to map a mount's ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum IdmapOutcome {
    /// It can be mapped.
    To {
        /// The map.
        ids: MappedIds,
        /// According to the node's list of users, the group is the owner's own.
        own_group: bool,
    },
    /// It cannot be mapped, and why.
    Cannot(String),
}

/// The container and its node, for decisions about id mappings.
#[derive(Clone, Copy)]
pub struct IdmapContext<'a> {
    /// The policy's rules for files.
    pub policy: &'a Filesystem,
    /// The container.
    pub spec: &'a Spec,
    /// How `wrap` enforces the policy.
    pub by: WrapEnforcement,
    /// The node.
    pub host: &'a HostFacts,
}

impl IdmapContext<'_> {
    /// Whether root inside is root outside, and there are mounts: an ordinary user's `wrap` maps its only user itself.
    fn is_roots(self) -> bool {
        let user = self.spec.process().as_ref().map(|process| process.user());
        let is_root = user.is_some_and(|user| (user.uid(), user.gid()) == (0, 0));
        is_root && self.host.person.is_none() && self.by == WrapEnforcement::Mounts
    }

    fn has_users_of_its_own(self) -> bool {
        let linux = self.spec.linux().as_ref();
        let namespaces = linux.and_then(|linux| linux.namespaces().as_ref());
        let mut namespaces = namespaces.into_iter().flatten();
        namespaces.any(|namespace| namespace.typ() == LinuxNamespaceType::User)
    }

    /// Whether to map a mount, if that is possible.
    fn wants(self, files: &FilesystemPlan, mount: &PlannedMount, ids: &SourceIds) -> bool {
        let is_written = mount
            .bind()
            .is_some_and(|bind| bind.access == BindAccess::ReadWrite);
        let is_meant = match self.policy.idmap {
            IdMapRule::Off => false,
            IdMapRule::Auto => {
                let workspace = files.workspace.as_ref();
                workspace == Some(&mount.destination) && !self.has_users_of_its_own()
            }
            IdMapRule::On => true,
        };
        is_written && is_meant && self.is_roots() && ids.uid != 0
    }

    /// Whether an attempt must show if a mount can be mapped.
    pub fn is_to_be_tried(
        self,
        files: &FilesystemPlan,
        mount: &PlannedMount,
        ids: &SourceIds,
    ) -> bool {
        self.wants(files, mount, ids) && ids.mapped.is_none() && !self.has_users_of_its_own()
    }
}

/// Decides for each mount of the plan which ids it shows.
pub(super) fn place(
    container: IdmapContext<'_>,
    bundle: &BundleFacts,
    plan: &mut FilesystemPlan,
    warnings: &mut Vec<Warning>,
) -> Result<(), PlanError> {
    let mut all = Vec::new();
    for (index, mount) in plan.mounts.iter().enumerate() {
        let Some(ids) = ids_of(bundle, mount).filter(|ids| container.wants(plan, mount, ids))
        else {
            continue;
        };
        let why = match &ids.mapped {
            _ if container.has_users_of_its_own() => "the container has its own user namespace",
            // Not yet: the plan is made again after the attempt.
            None => continue,
            Some(IdmapOutcome::To { ids, .. }) => {
                all.push((index, *ids));
                continue;
            }
            Some(IdmapOutcome::Cannot(why)) => why,
        };
        let place = mount.destination.clone();
        match container.policy.idmap {
            IdMapRule::On => {
                return Err(PlanError::NotMapped {
                    destination: place,
                    why: why.to_owned(),
                });
            }
            IdMapRule::Auto | IdMapRule::Off => warnings.push(Warning::RootsFiles {
                place,
                why: why.to_owned(),
            }),
        }
    }
    for (index, ids) in all {
        if let Some(bind) = plan.mounts.get_mut(index).and_then(PlannedMount::bind_mut) {
            bind.ids = ids;
        }
    }
    Ok(())
}

/// The ids of a bind mount's source.
pub(super) fn ids_of<'a>(bundle: &'a BundleFacts, mount: &PlannedMount) -> Option<&'a SourceIds> {
    let bind = mount.bind()?;
    let all = bundle.sources.iter().flatten();
    let mut all = all.flat_map(|facts| {
        let part = facts.home.as_ref().and_then(|home| home.working.as_deref());
        std::iter::once(facts).chain(part)
    });
    let found = all.find(|facts| bind.is_of(&facts.path, (facts.dev, facts.ino)));
    found.map(|facts| &facts.ids)
}
