//! PURE. Maps of ids for a mount, as values (mount_setattr(2), MOUNT_ATTR_IDMAP).

use serde::{Deserialize, Serialize};

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
