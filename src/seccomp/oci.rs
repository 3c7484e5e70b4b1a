//! Translates the terms of an OCI profile to ours: actions, operators, arguments, flags.

use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompFilterFlag, LinuxSeccompOperator,
};

use super::SeccompError;
use super::profile::Scope;
use super::rule::{Condition, Op, SyscallVerdict, Width};

/// `SECCOMP_FILTER_FLAG_LOG`
const LOG: u64 = 1 << 1;
/// `SECCOMP_FILTER_FLAG_SPEC_ALLOW`
const SPEC_ALLOW: u64 = 1 << 2;
/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`
pub(super) const NEW_LISTENER: u64 = 1 << 3;
/// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`
pub(super) const WAIT_KILLABLE_RECV: u64 = 1 << 5;

/// The x86 ABI of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Abi {
    X86_64,
    I386,
    X32,
}

impl Abi {
    /// libseccomp compares all 64 bits on x86_64, and the low 32 on the ABIs with 32-bit longs.
    const fn width(self) -> Width {
        match self {
            Abi::X86_64 => Width::Long,
            Abi::I386 | Abi::X32 => Width::Int,
        }
    }
}

/// The conditions of a rule. All must hold, but a rule that names an argument twice counts as several rules (runc's
/// `matchCall`).
pub(super) fn alternatives(
    name: &str,
    args: &[LinuxSeccompArg],
    abi: Abi,
) -> Result<Vec<Vec<Condition>>, SeccompError> {
    let mut conditions = Vec::with_capacity(args.len());
    let mut seen = [false; 6];
    let mut repeats = false;
    for arg in args {
        let Some(seen) = seen.get_mut(arg.index()) else {
            return Err(SeccompError::ArgumentIndex {
                name: name.to_owned(),
                index: arg.index(),
            });
        };
        repeats |= std::mem::replace(seen, true);
        conditions.push(condition(arg, abi));
    }
    if repeats {
        Ok(conditions.into_iter().map(|one| vec![one]).collect())
    } else {
        Ok(vec![conditions])
    }
}

fn condition(arg: &LinuxSeccompArg, abi: Abi) -> Condition {
    let width = abi.width();
    let fit = |value: u64| {
        if width == Width::Int {
            value & 0xffff_ffff
        } else {
            value
        }
    };
    let (value, two) = (fit(arg.value()), fit(arg.value_two().unwrap_or(0)));
    let (op, value) = match arg.op() {
        LinuxSeccompOperator::ScmpCmpNe => (Op::Ne, value),
        LinuxSeccompOperator::ScmpCmpLt => (Op::Lt, value),
        LinuxSeccompOperator::ScmpCmpLe => (Op::Le, value),
        LinuxSeccompOperator::ScmpCmpEq => (Op::Eq, value),
        LinuxSeccompOperator::ScmpCmpGe => (Op::Ge, value),
        LinuxSeccompOperator::ScmpCmpGt => (Op::Gt, value),
        // Here `value` is the mask; libseccomp drops bits of the datum outside of the mask.
        LinuxSeccompOperator::ScmpCmpMaskedEq => (Op::MaskedEq(value), two & value),
    };
    let arg = u8::try_from(arg.index()).expect("alternatives() checked that it is below 6");
    Condition {
        arg,
        width,
        op,
        value,
    }
}

/// runc's `getAction`: EPERM if no errno or trace message is given.
pub(super) fn verdict(action: LinuxSeccompAction, data: Option<u32>) -> SyscallVerdict {
    // runc keeps 16 bits, as the kernel does.
    let data = (data.unwrap_or(1) & 0xffff) as u16;
    match action {
        LinuxSeccompAction::ScmpActKill | LinuxSeccompAction::ScmpActKillThread => {
            SyscallVerdict::KillThread
        }
        LinuxSeccompAction::ScmpActKillProcess => SyscallVerdict::KillProcess,
        LinuxSeccompAction::ScmpActTrap => SyscallVerdict::Trap,
        LinuxSeccompAction::ScmpActErrno => SyscallVerdict::Errno(data),
        LinuxSeccompAction::ScmpActNotify => SyscallVerdict::Notify(0),
        LinuxSeccompAction::ScmpActTrace => SyscallVerdict::Trace(data),
        LinuxSeccompAction::ScmpActLog => SyscallVerdict::Log,
        LinuxSeccompAction::ScmpActAllow => SyscallVerdict::Allow,
    }
}

/// Whether the engine's agent answers calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Agent {
    /// No rule uses it.
    Unused,
    /// Some rule uses it.
    Asked,
}

pub(super) fn flags(
    seccomp: &LinuxSeccomp,
    scope: Scope,
    agent: Agent,
) -> Result<u64, SeccompError> {
    let mut flags = match agent {
        Agent::Asked => NEW_LISTENER,
        Agent::Unused => 0,
    };
    if scope == Scope::Listed && seccomp.flags().is_none() {
        // runc's default if the profile has no list of flags, not even an empty one. A policy does not switch off the
        // kernel's protection against speculative loads.
        flags |= SPEC_ALLOW;
    }
    for flag in seccomp.flags().iter().flatten() {
        flags |= match flag {
            // For all threads: the loading process has only one, and execve would end others. As runc.
            LinuxSeccompFilterFlag::SeccompFilterFlagTsync => 0,
            LinuxSeccompFilterFlag::SeccompFilterFlagLog => LOG,
            LinuxSeccompFilterFlag::SeccompFilterFlagSpecAllow => SPEC_ALLOW,
            LinuxSeccompFilterFlag::SeccompFilterFlagWaitKillableRecv if agent == Agent::Asked => {
                WAIT_KILLABLE_RECV
            }
            LinuxSeccompFilterFlag::SeccompFilterFlagWaitKillableRecv => {
                return Err(SeccompError::NothingToWaitFor);
            }
        };
    }
    Ok(flags)
}
