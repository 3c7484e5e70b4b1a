//! PURE. What a caller without root's rights lacks.

use serde::{Deserialize, Serialize};

/// A caller without root's rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PersonFacts {
    /// The number of supplementary groups, which cannot be dropped.
    pub groups: usize,
    /// Whether the caller has a cgroup in which to make others.
    #[serde(default)]
    pub cgroup: PersonsCgroup,
}

/// A cgroup of the caller's own ([`crate::cgroup::delegated`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PersonsCgroup {
    /// None, though the node's cgroups can be delegated.
    #[default]
    NotGiven,
    /// None: cgroups of version 1 are root's.
    Version1,
    /// One, with the controllers of [`super::HostFacts::controllers`].
    Given,
}

impl PersonsCgroup {
    /// Why a limit is not enforced, as the end of a sentence.
    pub(super) fn lacking(self) -> &'static str {
        match self {
            Self::NotGiven => {
                "making a cgroup takes root's rights, or a systemd of the user's that answers (busctl --user)"
            }
            Self::Version1 => "making a cgroup takes root's rights on a node with cgroup v1",
            Self::Given => "the cgroup that the user's systemd gave lacks the controller",
        }
    }
}
