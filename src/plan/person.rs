//! PURE. What a caller without root's rights lacks.

use serde::{Deserialize, Serialize};

/// A caller without root's rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PersonFacts {
    /// How many supplementary groups they have, which nobody can take away.
    pub groups: usize,
    /// Whether they have a cgroup in which to make others.
    #[serde(default)]
    pub cgroup: PersonsCgroup,
}

/// A cgroup of a person's own ([`crate::cgroup::delegated`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PersonsCgroup {
    /// None, though the node's cgroups could be given.
    #[default]
    NotGiven,
    /// None, since those of version 1 are root's.
    Version1,
    /// One, with the controllers of [`super::HostFacts::controllers`].
    Given,
}

impl PersonsCgroup {
    /// Why a limit is not held, as the end of a sentence.
    pub(super) fn lacking(self) -> &'static str {
        match self {
            Self::NotGiven => {
                "making a cgroup for them takes root's rights, or a systemd of the user's that answers (busctl --user)"
            }
            Self::Version1 => {
                "making a cgroup for them takes root's rights on a node with cgroup v1"
            }
            Self::Given => "the cgroup that the user's systemd gave has no controller for them",
        }
    }
}
