//! PURE. The place and size of scratch data.

use super::error::PlanError;
use super::facts::HostFacts;
use super::filesystem::{FilesystemPlan, ScratchStorage};
use super::warning::Warning;
use crate::policy::{Policy, ScratchOn};

/// The most memory to use if the policy did not choose memory.
pub const MOST_MEMORY: u64 = 1 << 30;

/// Decides where scratch data is stored, by the policy and the node.
pub(super) fn place(
    policy: &Policy,
    host: &HostFacts,
    plan: &mut FilesystemPlan,
    warnings: &mut Vec<Warning>,
) -> Result<(), PlanError> {
    if !plan.needs_scratch() {
        return Ok(());
    }
    match (plan.scratch_on, &host.no_disk) {
        (ScratchOn::Memory, _) => {}
        (_, None) => plan.scratch_place = ScratchStorage::Disk,
        (ScratchOn::Auto, Some(why)) => warnings.push(in_memory_instead(plan, why)),
        (ScratchOn::Disk, Some(why)) => {
            return Err(PlanError::NoDisk {
                policy: policy.name.to_string(),
                why: why.clone(),
            });
        }
    }
    Ok(())
}

/// Moves scratch data from disk to memory, and returns the warning about that.
pub fn in_memory_instead(plan: &mut FilesystemPlan, why: &str) -> Warning {
    plan.scratch_place = ScratchStorage::Memory;
    plan.scratch_bytes = plan.scratch_bytes.min(MOST_MEMORY);
    Warning::InMemory {
        why: why.to_owned(),
    }
}

/// The most bytes in one tmpfs of the engine.
pub(super) fn most_of_a_tmpfs(policy: &Policy) -> u64 {
    let scratch = policy.filesystem.scratch.bytes();
    match policy.filesystem.scratch_on {
        ScratchOn::Memory => scratch,
        ScratchOn::Auto | ScratchOn::Disk => scratch.min(MOST_MEMORY),
    }
}
