//! Our rules as tables, out of policies/syscalls: build.rs writes them, and a test holds that they are what the TOML says.

use std::borrow::Cow;

use super::rule::{Case, Condition, Op, Rule, SyscallVerdict, Width};

/// The base's rule of one call.
pub(super) struct BaseRule {
    pub number: u16,
    /// An index into [`REASONS`].
    pub reason: u16,
    pub rule: Rule,
}

/// Another list's rule of one call.
pub(super) struct ExtraRule {
    pub number: u16,
    pub reason: &'static str,
    pub rule: Rule,
}

const fn allow() -> Rule {
    Rule::always(SyscallVerdict::Allow)
}

const fn deny(errno: u16) -> Rule {
    Rule::always(SyscallVerdict::Errno(errno))
}

const fn check(cases: &'static [Case], errno: u16) -> Rule {
    Rule {
        cases: Cow::Borrowed(cases),
        otherwise: SyscallVerdict::Errno(errno),
    }
}

include!(concat!(env!("OUT_DIR"), "/syscalls.rs"));
