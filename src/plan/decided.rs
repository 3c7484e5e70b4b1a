//! PURE. What was decided for one container: the plan, and the policy behind it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Plan;
use crate::policy::{NetworkMode, Policy};

/// The plan of a container, and the origins of its values. Only the plan is enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecidedPlan {
    /// The policy as it was resolved, every field decided.
    pub resolved: Policy,
    /// Field of the policy -> origin of its value, in words.
    pub origins: BTreeMap<String, String>,
    /// What is enforced.
    pub plan: Plan,
}

impl DecidedPlan {
    /// The policy with the current network rules: `update` changes those of the plan.
    pub fn policy(&self) -> Policy {
        let mut policy = self.resolved.clone();
        // In other modes the plan has no rules, whatever the policy lists.
        if self.plan.network.mode == NetworkMode::Allowlist {
            let rules = &self.plan.network.rules;
            policy.network.allow.clone_from(&rules.allow);
            policy.network.deny.clone_from(&rules.deny);
        }
        policy
    }
}
