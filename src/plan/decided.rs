//! PURE. What was decided for one container: the plan, and the policy behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::filesystem::FilesystemPlan;
use super::limits::LimitsPlan;
use super::namespace::PlannedNamespace;
use super::network::{NetworkPlan, SidecarLimits};
use super::privileges::CapabilitySets;
use super::reason::OmittedItem;
use super::report::ReportPlan;
use super::sidecar::SERVING_CPU_PERCENT;
use super::syscalls::SyscallPlan;
use super::time::{ExecTime, TimePlan};
use super::warning::Warning;
use crate::policy::{Capability, Loosening, NetworkMode, Policy};

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
            policy.network.allow = rules.without_policys();
            let temporary = &mut policy.network.temporary;
            temporary.retain(|one| rules.ends_by_policy(&one.item));
            policy.network.deny.clone_from(&rules.deny);
        }
        policy
    }
}

/// What will be enforced for one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// The file system wall.
    pub filesystem: FilesystemPlan,
    /// The network wall.
    pub network: NetworkPlan,
    /// Names of system calls added to, and taken from, the base rules.
    pub syscalls: SyscallPlan,
    /// Capabilities of the init process.
    pub capabilities: CapabilitySets,
    /// The most capabilities that any process of the container may have; `exec` is cut down to these.
    pub capability_limit: BTreeSet<Capability>,
    /// Namespaces that libcontainer makes or joins, as `type` or `type=path`.
    pub namespaces: Vec<PlannedNamespace>,
    /// Device nodes beyond the usual eight that the node's file allows.
    pub devices: BTreeSet<PathBuf>,
    /// The limit of core files. With 1 a crash starts no program of the node. With 0 it does, as without agentbox.
    #[serde(
        default = "super::process::no_core",
        skip_serializing_if = "super::process::is_no_core"
    )]
    pub core_bytes: u64,
    /// How much of the node the container may use.
    pub limits: LimitsPlan,
    /// When it ends, if it has a time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<TimePlan>,
    /// How long each `exec` may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_time: Option<ExecTime>,
    /// What annotations may request beyond the policy.
    pub leave: Option<Loosening>,
    /// The ceilings, and who set each.
    pub ceilings: Vec<String>,
    /// Limits of the sidecar process.
    pub sidecar: SidecarLimits,
    /// What the container can read about its walls.
    #[serde(default, skip_serializing_if = "ReportPlan::is_nothing")]
    pub report: ReportPlan,
    /// What was requested and not granted, besides mounts: capabilities, devices, settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_given: Vec<OmittedItem>,
    /// What is weaker than a reader may expect, and why.
    pub warnings: Vec<Warning>,
}

impl Plan {
    /// Records the ports that the engine publishes. One may be opened later, and then the sidecar has the work of one that
    /// was named at `create`.
    pub fn note_published(&mut self, published: BTreeMap<u16, BTreeSet<u16>>) {
        self.network.note_published(published);
        if self.network.is_served_by_own() && !self.network.dials_nothing() {
            self.sidecar.cpu_percent = SERVING_CPU_PERCENT;
        }
    }
}
