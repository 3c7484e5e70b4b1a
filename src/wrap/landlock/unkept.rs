//! Why these walls cannot keep a policy on this kernel: values in, the first refusal out.

use anyhow::{Result, bail};

use super::yama::PtraceScope;
use super::{cannot, filter};
use crate::plan::{DecidedPlan, Plan};

/// Why a policy is refused, if it is.
pub fn refusal(decided: &DecidedPlan, abi: u32, scope: PtraceScope) -> Option<String> {
    cannot::refusal(decided, abi)
        .or_else(|| {
            let publishes = !decided.plan.network.inbound.is_empty();
            scope.refusal().filter(|_| publishes)
        })
        .or_else(|| {
            let name = filter::denied_anyway(&decided.plan).pop_first()?;
            Some(format!(
                "syscalls.allow has {name}, which would undo a wall here"
            ))
        })
}

/// Refuses a honey value that ends a container.
pub fn refuse_honey_that_ends(plan: &Plan) -> Result<()> {
    if plan.network.honey_ends() {
        bail!(
            "--walls landlock cannot end a container for a honeytoken of the node's file (then = \"end\"): use other walls, or \
             then = \"log\""
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{sample, sample_policy};
    use crate::wrap::LANDLOCK_LEAST_ABI;

    fn refused(plan: &Plan, abi: u32, scope: PtraceScope) -> Option<String> {
        let decided = DecidedPlan {
            plan: plan.clone(),
            resolved: sample_policy(),
            origins: Default::default(),
        };
        refusal(&decided, abi, scope)
    }

    /// A plan that these walls keep.
    fn plain() -> Plan {
        let mut plan = sample();
        plan.filesystem.mounts.clear();
        plan.devices = [].into();
        plan
    }

    #[test]
    fn a_stricter_yama_refuses_published_ports_and_nothing_else() {
        let mut plan = plain();
        let strict = [PtraceScope::Capability, PtraceScope::Nobody];
        for scope in strict.into_iter().chain([PtraceScope::Ancestors]) {
            assert_eq!(refused(&plan, LANDLOCK_LEAST_ABI, scope), None);
        }
        plan.network.inbound = [3000].into();
        plan.network.published = [(3000, ["127.0.0.1:3000".parse().unwrap()].into())].into();
        let ancestors = refused(&plan, LANDLOCK_LEAST_ABI, PtraceScope::Ancestors);
        assert_eq!(ancestors, None);
        for scope in strict {
            let why = refused(&plan, LANDLOCK_LEAST_ABI, scope).unwrap();
            assert!(why.contains("ptrace_scope"), "{why}");
        }
    }

    #[test]
    fn a_call_that_would_undo_a_wall_is_refused_after_what_the_kernel_lacks() {
        let mut plan = plain();
        plan.syscalls.allow.insert("shmget".parse().unwrap());
        let scope = PtraceScope::Ancestors;
        let why = refused(&plan, LANDLOCK_LEAST_ABI, scope).unwrap();
        assert_eq!(
            why,
            "syscalls.allow has shmget, which would undo a wall here"
        );
        let old = refused(&plan, LANDLOCK_LEAST_ABI - 1, scope).unwrap();
        assert!(old.contains("ABI 3"), "{old}");
    }
}
