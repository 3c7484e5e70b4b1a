//! Names of system calls, as a policy spells them, and how a ceiling limits them.
//!
//! A name is checked by its grammar alone; the caller of [`super::resolve`] has the table of names.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ceiling_rule::{AtMost, CeilingRule, Excess, PartOf};
use super::text::{ValueError, string_form};
use super::{Policy, SyscallProfile, Syscalls};

/// The name of a system call: `[a-z0-9_]{1,40}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SyscallName(String);

impl SyscallName {
    /// The name as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SyscallName {
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        let fits = (1..=40).contains(&value.len())
            && value
                .bytes()
                .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        if fits {
            Ok(Self(value.to_owned()))
        } else {
            Err(ValueError::grammar(
                value,
                "a system call's name: 1 to 40 of a-z, 0-9 and _",
            ))
        }
    }
}

impl fmt::Display for SyscallName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

string_form!(SyscallName);

/// System calls: those that the ceiling allows itself, and those that it lets be allowed.
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

/// Calls that a policy lets be allowed where it is a ceiling.
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

/// A profile of system calls. What `debug` adds, a ceiling may let be allowed call by call.
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

/// The calls that a ceiling lets be allowed.
fn calls_within(ceiling: &Syscalls) -> BTreeSet<SyscallName> {
    ceiling.allow.union(&ceiling.limit).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_names_and_nothing_else() {
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
