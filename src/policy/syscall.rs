//! Names of system calls in policies, and how a ceiling limits them.
//!
//! Only the syntax of a name is checked here; the caller of [`super::resolve`] has the table of names.

use std::collections::BTreeSet;

use super::ceiling_rule::{AtMost, CeilingRule, Excess, PartOf};
use super::{Policy, SyscallProfile, Syscalls};
use crate::text::text_type;

text_type! {
    /// The name of a system call: `[a-z0-9_]{1,40}`.
    SyscallName,
    "a system call's name: 1 to 40 of a-z, 0-9 and _",
    |text| {
        let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        (1..=40).contains(&text.len()) && text.bytes().all(known)
    }
}

/// System calls: those that the ceiling allows itself, and those in its `limit`.
pub(super) struct CallsOf;

impl CeilingRule<BTreeSet<SyscallName>> for CallsOf {
    #[cfg(test)]
    const WITHIN: &'static str = "part of the ceiling's `allow` and `limit` together";

    fn excess(
        asked: &BTreeSet<SyscallName>,
        _: &BTreeSet<SyscallName>,
        ceiling: &Policy,
    ) -> Option<Excess> {
        PartOf::excess(asked, &calls_within(&ceiling.syscalls), ceiling)
    }

    fn narrowed(
        own: &BTreeSet<SyscallName>,
        _: &BTreeSet<SyscallName>,
        ceiling: &Policy,
    ) -> BTreeSet<SyscallName> {
        PartOf::narrowed(own, &calls_within(&ceiling.syscalls), ceiling)
    }
}

/// Calls in the `limit` of a policy.
pub(super) struct LimitedCallsOf;

impl CeilingRule<BTreeSet<SyscallName>> for LimitedCallsOf {
    #[cfg(test)]
    const WITHIN: &'static str = <CallsOf as CeilingRule<BTreeSet<SyscallName>>>::WITHIN;

    const NARROWS_CHOSEN: bool = true;

    fn excess(
        asked: &BTreeSet<SyscallName>,
        most: &BTreeSet<SyscallName>,
        ceiling: &Policy,
    ) -> Option<Excess> {
        CallsOf::excess(asked, most, ceiling)
    }

    fn narrowed(
        own: &BTreeSet<SyscallName>,
        most: &BTreeSet<SyscallName>,
        ceiling: &Policy,
    ) -> BTreeSet<SyscallName> {
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
fn calls_within(ceiling: &Syscalls) -> BTreeSet<SyscallName> {
    ceiling.allow.union(&ceiling.limit).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_are_accepted() {
        for good in ["read", "_llseek", "clone3", "rt_sigtimedwait_time64"] {
            assert_eq!(good.parse::<SyscallName>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            "Read",
            "read ",
            "*",
            "read,write",
            "a-b",
            &"a".repeat(41),
        ] {
            assert!(bad.parse::<SyscallName>().is_err(), "{bad}");
        }
    }
}
