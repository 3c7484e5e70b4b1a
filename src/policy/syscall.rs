//! How a ceiling limits the system calls of a policy.

use std::collections::BTreeSet;

use super::ceiling_rule::{AtMost, CeilingRule, Excess, PartOf};
use super::{Policy, SyscallProfile, Syscalls};
use crate::kernel::SyscallName;

type Calls = BTreeSet<SyscallName>;

/// System calls: those that the ceiling allows itself, and those in its `limit`.
pub(super) struct CallsOf;

impl CeilingRule<Calls> for CallsOf {
    #[cfg(test)]
    const WITHIN: &'static str = "part of the ceiling's `allow` and `limit` together";

    fn excess(asked: &Calls, _: &Calls, ceiling: &Policy) -> Option<Excess> {
        PartOf::excess(asked, &calls_within(&ceiling.syscalls), ceiling)
    }

    fn narrowed(own: &Calls, _: &Calls, ceiling: &Policy) -> Calls {
        PartOf::narrowed(own, &calls_within(&ceiling.syscalls), ceiling)
    }
}

/// Calls in the `limit` of a policy.
pub(super) struct LimitedCallsOf;

impl CeilingRule<Calls> for LimitedCallsOf {
    #[cfg(test)]
    const WITHIN: &'static str = <CallsOf as CeilingRule<Calls>>::WITHIN;

    const NARROWS_CHOSEN: bool = true;

    fn excess(asked: &Calls, most: &Calls, ceiling: &Policy) -> Option<Excess> {
        CallsOf::excess(asked, most, ceiling)
    }

    fn narrowed(own: &Calls, most: &Calls, ceiling: &Policy) -> Calls {
        CallsOf::narrowed(own, most, ceiling)
    }
}

/// A profile of system calls. A ceiling may instead allow single calls of those that `debug` adds.
pub(super) struct ProfileOf;

impl CeilingRule<SyscallProfile> for ProfileOf {
    #[cfg(test)]
    const WITHIN: &'static str =
        "also `debug` under `agent` if the ceiling's `allow` and `limit` have its calls";

    fn excess(asked: &SyscallProfile, most: &SyscallProfile, ceiling: &Policy) -> Option<Excess> {
        AtMost::excess(asked, &most_profile(*most, ceiling), ceiling)
    }

    fn narrowed(own: &SyscallProfile, most: &SyscallProfile, ceiling: &Policy) -> SyscallProfile {
        AtMost::narrowed(own, &most_profile(*most, ceiling), ceiling)
    }
}

fn most_profile(most: SyscallProfile, ceiling: &Policy) -> SyscallProfile {
    let within = calls_within(&ceiling.syscalls);
    let has = |call: &&str| within.iter().any(|name| name.as_str() == *call);
    match most {
        SyscallProfile::Agent if SyscallProfile::Debug.adds().iter().all(has) => {
            SyscallProfile::Debug
        }
        _ => most,
    }
}

/// The calls that are within a ceiling.
fn calls_within(ceiling: &Syscalls) -> Calls {
    ceiling.allow.union(&ceiling.limit).copied().collect()
}
