//! PURE. Signatures with keys of the user's SSH agent (`wrap --ssh-agent`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::error::PlanError;
use super::network::NetworkPlan;
use super::wrap_plan::WrapPlan;
use crate::policy::ssh_key::MOST_SSH_KEYS;
use crate::policy::{OnUnknown, Policy, SshFingerprint, SshKey, Switch};

/// The agent's socket inside: its name in [`super::report::DENIED_IN`].
pub const SSH_SOCKET: &str = "ssh-agent";
/// Its path.
pub const SSH_SOCKET_AT: &str = "/run/agentbox/ssh-agent";
/// The variable by which programs find it.
pub const SSH_VARIABLE: &str = "SSH_AUTH_SOCK";

/// With which keys the workload signs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SigningPlan {
    /// The keys, as `ssh-add -l` prints them.
    pub keys: BTreeSet<SshFingerprint>,
}

impl SigningPlan {
    /// The keys of a policy; `None` if it has none.
    pub(super) fn of(policy: &Policy) -> Option<Self> {
        let listed = policy.network.ssh_keys.iter();
        let keys: BTreeSet<_> = listed.filter_map(SshKey::fingerprint).collect();
        (!keys.is_empty()).then_some(Self { keys })
    }
}

impl NetworkPlan {
    /// How many seconds the user has to confirm a signature, if each is confirmed: where connections to unlisted hosts wait
    /// for the user too. Learn mode asks nobody.
    pub fn confirms_signatures(&self) -> Option<u32> {
        let asking = self.asking.as_ref().filter(|asking| !asking.learns);
        asking.map(|asking| asking.seconds)
    }
}

/// Refuses keys where there is no user's agent.
pub(super) fn check(policy: &Policy, wrapped: &WrapPlan) -> Result<(), PlanError> {
    let refused = |why: String| PlanError::SshKeys {
        policy: policy.name.to_string(),
        why,
    };
    match SigningPlan::of(policy) {
        Some(_) if wrapped.is_empty() => Err(refused(
            "only `agentbox wrap` has a user, whose SSH agent signs: leave them out".to_owned(),
        )),
        Some(plan) if plan.keys.len() > MOST_SSH_KEYS => Err(refused(format!(
            "at most {MOST_SSH_KEYS} keys may be named, these are {}: name them with --ssh-agent=KEY",
            plan.keys.len()
        ))),
        Some(_) if asks(policy) && policy.report.learn == Switch::On => Err(refused(
            "learn mode asks nobody, so each signature would go unasked: leave --ask or the keys out".to_owned(),
        )),
        Some(_) | None => Ok(()),
    }
}

fn asks(policy: &Policy) -> bool {
    policy.network.on_unknown == OnUnknown::Ask
}

#[cfg(test)]
mod tests {
    use super::super::report::DENIED_IN;
    use super::*;

    #[test]
    fn the_socket_lies_in_agentboxs_directory() {
        assert_eq!(SSH_SOCKET_AT, format!("{DENIED_IN}/{SSH_SOCKET}"));
    }
}
