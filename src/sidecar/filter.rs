//! The sidecar's own seccomp filter: what its poll loop needs, and death for everything else.
//!
//! Death and not an errno: this is our program, so a call that is not listed means that somebody
//! else's code runs in it, and a dead sidecar is a closed network.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

/// The loop: wait, hear, answer, close.
const LOOP: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll, // what rustix's poll is where the architecture has it
    libc::SYS_ppoll,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_close,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // deadlines, where the vDSO has no clock
];

/// Memory, the one line on standard error, and leaving.
const REST: &[libc::c_long] = &[
    libc::SYS_write,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,          // Rust's lock around standard error
    libc::SYS_sigaltstack,    // Rust's runtime on the way out
    libc::SYS_rt_sigprocmask, // abort(3)
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Compiles the filter; pure, and done before the confinement begins.
pub(super) fn compile() -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = LOOP
        .iter()
        .chain(REST)
        .map(|nr| (*nr, Vec::new()))
        .collect();
    // Memory for data only.
    rules.insert(libc::SYS_mmap, vec![masked(2, libc::PROT_EXEC, 0)?]);
    // To read back that this filter is loaded.
    rules.insert(libc::SYS_prctl, vec![equal(0, libc::PR_GET_SECCOMP)?]);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::KillProcess,
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?;
    filter.try_into()
}

fn equal(argument: u8, value: libc::c_int) -> Result<SeccompRule, BackendError> {
    rule(argument, SeccompCmpOp::Eq, value)
}

fn masked(
    argument: u8,
    mask: libc::c_int,
    value: libc::c_int,
) -> Result<SeccompRule, BackendError> {
    let mask = u64::from(mask.unsigned_abs());
    rule(argument, SeccompCmpOp::MaskedEq(mask), value)
}

fn rule(argument: u8, op: SeccompCmpOp, value: libc::c_int) -> Result<SeccompRule, BackendError> {
    let value = u64::from(value.unsigned_abs());
    // The kernel looks at 32 bits of an int, so the filter does too.
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)?;
    SeccompRule::new(vec![condition])
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_filter_compiles_and_is_short() {
        let program = super::compile().unwrap();
        assert!((10..200).contains(&program.len()), "{}", program.len());
    }
}
