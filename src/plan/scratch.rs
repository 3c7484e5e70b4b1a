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
        (_, Some(why)) => match without_disk(plan, why) {
            Some(warning) => warnings.push(warning),
            None => {
                return Err(PlanError::NoDisk {
                    policy: policy.name.to_string(),
                    why: why.clone(),
                });
            }
        },
    }
    Ok(())
}

/// The node has no disk for scratch data: moves them to memory and returns the warning about that; `None` if the policy demands
/// a disk.
pub fn without_disk(plan: &mut FilesystemPlan, why: &str) -> Option<Warning> {
    match plan.scratch_on {
        ScratchOn::Disk => None,
        ScratchOn::Auto | ScratchOn::Memory => {
            plan.scratch_place = ScratchStorage::Memory;
            plan.scratch_bytes = plan.scratch_bytes.min(MOST_MEMORY);
            Some(Warning::InMemory {
                why: why.to_owned(),
            })
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::sample;

    #[test]
    fn without_a_disk_memory_is_used_unless_the_policy_demands_a_disk() {
        let mut plan = sample().filesystem;
        plan.scratch_place = ScratchStorage::Disk;
        plan.scratch_bytes = 2 * MOST_MEMORY;
        let before = plan.clone();
        plan.scratch_on = ScratchOn::Disk;
        assert_eq!(without_disk(&mut plan, "full"), None);
        plan.scratch_on = before.scratch_on;
        assert_eq!(plan, before);
        for on in [ScratchOn::Auto, ScratchOn::Memory] {
            let mut plan = FilesystemPlan {
                scratch_on: on,
                ..before.clone()
            };
            let why = "full".to_owned();
            let warning = without_disk(&mut plan, &why);
            assert_eq!(warning, Some(Warning::InMemory { why }));
            assert_eq!(plan.scratch_place, ScratchStorage::Memory);
            assert_eq!(plan.scratch_bytes, MOST_MEMORY);
        }
    }
}
