//! PURE. The syscall wall of a plan, besides the base rules.

use std::collections::BTreeSet;

use oci_spec::runtime::Linux;
use serde::{Deserialize, Serialize};

use super::set_id::{SetId, SetIdCause};
use crate::kernel::SyscallName;
use crate::policy::{Privileges, SetIdRule, Switch, SyscallProfile, Syscalls};

/// The syscall wall, besides the base rules and the engine's own profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SyscallPlan {
    /// Allowed beyond the base rules, except for names that are also denied.
    pub allow: BTreeSet<SyscallName>,
    /// Denied whatever the base rules allow.
    pub deny: BTreeSet<SyscallName>,
    /// What is added to the base rules.
    #[serde(default = "agent", skip_serializing_if = "is_agent")]
    pub profile: SyscallProfile,
    /// Whether files may be made set-user-ID or set-group-ID.
    pub set_id: Switch,
    /// Why not, under `privileges.set-id = "auto"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_id_cause: Option<SetIdCause>,
    /// Whether extended attributes may be set.
    #[serde(
        default = "super::set_id::on",
        skip_serializing_if = "super::set_id::is_on"
    )]
    pub attributes: Switch,
    /// Whether the engine's profile is merged in.
    pub engine_profile: bool,
}

/// What a denied call alone does not tell, for the log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallReasons {
    /// Why no file of the container can be made set-user-ID, if that is so.
    pub set_id: Option<SetIdCause>,
    /// The calls that the policy adds to the base rules, by name or by its profile.
    pub allowed: BTreeSet<SyscallName>,
}

/// The profile of plans from before there were profiles.
fn agent() -> SyscallProfile {
    SyscallProfile::Agent
}

fn is_agent(profile: &SyscallProfile) -> bool {
    *profile == agent()
}

impl SyscallPlan {
    /// What a policy requests without an engine.
    pub fn alone(asked: &Syscalls, privileges: &Privileges) -> Self {
        let Syscalls {
            profile,
            allow,
            deny,
            // A ceiling's list allows nothing by itself.
            limit: _,
        } = asked;
        Self {
            allow: allow.clone(),
            deny: deny.clone(),
            profile: *profile,
            // `auto` depends on the mounts, and none are known here.
            set_id: match privileges.set_id {
                SetIdRule::On => Switch::On,
                SetIdRule::Off | SetIdRule::Auto => Switch::Off,
            },
            set_id_cause: None,
            attributes: Switch::On,
            engine_profile: false,
        }
    }

    pub(super) fn of(
        asked: &Syscalls,
        privileges: &Privileges,
        linux: &Linux,
        set_id: SetId,
    ) -> Self {
        Self {
            engine_profile: linux.seccomp().is_some(),
            set_id: set_id.switch,
            set_id_cause: set_id.cause,
            attributes: set_id.attributes,
            ..Self::alone(asked, privileges)
        }
    }

    /// What tells why a call is denied.
    pub fn reasons(&self) -> CallReasons {
        CallReasons {
            set_id: self.set_id_refused(),
            allowed: self.allowed(),
        }
    }

    fn allowed(&self) -> BTreeSet<SyscallName> {
        let of_profile = self.profile.adds().iter();
        let of_profile = of_profile.filter_map(|name| name.parse().ok());
        let all = of_profile.chain(self.allow.iter().copied());
        all.filter(|name| !self.deny.contains(name)).collect()
    }

    /// Why files cannot be made set-user-ID; `None` if they can.
    pub fn set_id_refused(&self) -> Option<SetIdCause> {
        let cause = self.set_id_cause.clone().unwrap_or(SetIdCause::Policy);
        (self.set_id == Switch::Off).then_some(cause)
    }
}
