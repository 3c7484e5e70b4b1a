//! Generated from the other files of `policies/syscalls`, as `base.rs` is from `base.toml`.
//!
//! `AGENTBOX_BLESS=1 cargo test base_rs_is_what_base_toml_says` writes this file.

use std::borrow::Cow;

use super::rule::{Case, Condition, Op, Rule, SyscallVerdict, Width};

/// The rule of one call.
pub(super) struct ExtraRule {
    pub number: u16,
    pub reason: &'static str,
    pub rule: Rule,
}

const fn allow(number: u16, reason: &'static str) -> ExtraRule {
    ExtraRule { number, reason, rule: Rule::always(SyscallVerdict::Allow) }
}

const fn deny(number: u16, errno: u16, reason: &'static str) -> ExtraRule {
    ExtraRule { number, reason, rule: Rule::always(SyscallVerdict::Errno(errno)) }
}

const fn check(number: u16, cases: &'static [Case], errno: u16, reason: &'static str) -> ExtraRule {
    ExtraRule { number, reason, rule: Rule { cases: Cow::Borrowed(cases), otherwise: SyscallVerdict::Errno(errno) } }
}

/// In place of the base where the container has devices of the node's choice.
pub(super) static DEVICES: &[ExtraRule] = &[
    check(16, &DEVICES_IOCTL, 1, "whatever the node's devices need, but not what types into, reprograms or pastes into a terminal that is not ours, nor userfaultfd by another name"), // ioctl
];

static DEVICES_IOCTL: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Ne, value: 0x5412 }, Condition { arg: 1, width: Width::Int, op: Op::Ne, value: 0x541c }, Condition { arg: 1, width: Width::Int, op: Op::Ne, value: 0x5423 }, Condition { arg: 1, width: Width::Int, op: Op::Ne, value: 0xaa00 }]), then: SyscallVerdict::Allow },
];

/// Besides the base where no file may be made set-user-ID or set-group-ID.
pub(super) static SET_ID: &[ExtraRule] = &[
    check(2, &SET_ID_OPEN, 1, "no set-user-ID or set-group-ID file"), // open
    check(85, &SET_ID_CREAT, 1, "no set-user-ID or set-group-ID file"), // creat
    check(90, &SET_ID_CHMOD, 1, "no set-user-ID or set-group-ID file"), // chmod
    check(91, &SET_ID_FCHMOD, 1, "no set-user-ID or set-group-ID file"), // fchmod
    check(133, &SET_ID_MKNOD, 1, "no set-user-ID or set-group-ID file"), // mknod
    check(257, &SET_ID_OPENAT, 1, "no set-user-ID or set-group-ID file"), // openat
    check(259, &SET_ID_MKNODAT, 1, "no set-user-ID or set-group-ID file"), // mknodat
    check(268, &SET_ID_FCHMODAT, 1, "no set-user-ID or set-group-ID file"), // fchmodat
    deny(437, 38, "its mode is behind a pointer, where a filter cannot look; programs fall back to openat(2)"), // openat2
    check(452, &SET_ID_FCHMODAT2, 1, "no set-user-ID or set-group-ID file"), // fchmodat2
];

static SET_ID_OPEN: [Case; 2] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Int, op: Op::MaskedEq(0xc00), value: 0x0 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0x400040), value: 0x0 }]), then: SyscallVerdict::Allow },
];

static SET_ID_CREAT: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xc00), value: 0x0 }]), then: SyscallVerdict::Allow },
];

static SET_ID_CHMOD: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xc00), value: 0x0 }]), then: SyscallVerdict::Allow },
];

static SET_ID_FCHMOD: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xc00), value: 0x0 }]), then: SyscallVerdict::Allow },
];

static SET_ID_MKNOD: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xc00), value: 0x0 }]), then: SyscallVerdict::Allow },
];

static SET_ID_OPENAT: [Case; 2] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 3, width: Width::Int, op: Op::MaskedEq(0xc00), value: 0x0 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Int, op: Op::MaskedEq(0x400040), value: 0x0 }]), then: SyscallVerdict::Allow },
];

static SET_ID_MKNODAT: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Int, op: Op::MaskedEq(0xc00), value: 0x0 }]), then: SyscallVerdict::Allow },
];

static SET_ID_FCHMODAT: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Int, op: Op::MaskedEq(0xc00), value: 0x0 }]), then: SyscallVerdict::Allow },
];

static SET_ID_FCHMODAT2: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Int, op: Op::MaskedEq(0xc00), value: 0x0 }]), then: SyscallVerdict::Allow },
];

/// Besides the base where that is so and a mount has the node's groups.
pub(super) static ATTRIBUTES: &[ExtraRule] = &[
    deny(188, 95, "no extended attribute: an access list would let another group of the node execute a set-group-ID file"), // setxattr
    deny(189, 95, "no extended attribute: an access list would let another group of the node execute a set-group-ID file"), // lsetxattr
    deny(190, 95, "no extended attribute: an access list would let another group of the node execute a set-group-ID file"), // fsetxattr
    deny(463, 95, "no extended attribute: an access list would let another group of the node execute a set-group-ID file"), // setxattrat
];

/// In place of the base under the profile `debug`.
pub(super) static DEBUG: &[ExtraRule] = &[
    allow(101, "debuggers: they reach processes of their own container and user, and a traced process stays behind the same filter"), // ptrace
    allow(310, "debuggers: they reach processes of their own container and user, and a traced process stays behind the same filter"), // process_vm_readv
    allow(311, "debuggers: they reach processes of their own container and user, and a traced process stays behind the same filter"), // process_vm_writev
];

/// In place of the base under the profile `paranoid`.
pub(super) static PARANOID: &[ExtraRule] = &[
    check(9, &PARANOID_MMAP, 1, "no memory that is writable and executable, and none that is executable and no file's (a run-time compiler needs it: syscalls.allow)"), // mmap
    check(10, &PARANOID_MPROTECT, 1, "memory that is there does not become executable (a run-time compiler needs it: syscalls.allow)"), // mprotect
    check(16, &PARANOID_IOCTL, 25, "requests of terminals, readiness, flags of descriptors, copies of files and names of interfaces, by a short list"), // ioctl
    check(30, &PARANOID_SHMAT, 1, "shared memory is not executed"), // shmat
    check(72, &PARANOID_FCNTL, 22, "descriptors, locks, pipes' sizes and seals; no leases, no notices and no signals for a file"), // fcntl
    check(157, &PARANOID_PRCTL, 22, "names, signals at a parent's end, no_new_privs, filters and limits of one's own, by a short list"), // prctl
    check(319, &PARANOID_MEMFD_CREATE, 1, "an anonymous file that cannot be executed: requires MFD_NOEXEC_SEAL"), // memfd_create
    check(329, &PARANOID_PKEY_MPROTECT, 1, "memory that is there does not become executable (a run-time compiler needs it: syscalls.allow)"), // pkey_mprotect
];

static PARANOID_MMAP: [Case; 2] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Long, op: Op::MaskedEq(0x4), value: 0x0 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Long, op: Op::MaskedEq(0x6), value: 0x4 }, Condition { arg: 3, width: Width::Long, op: Op::MaskedEq(0x20), value: 0x0 }]), then: SyscallVerdict::Allow },
];

static PARANOID_MPROTECT: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Long, op: Op::MaskedEq(0x4), value: 0x0 }]), then: SyscallVerdict::Allow },
];

static PARANOID_IOCTL: [Case; 33] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5401 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x541b }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5413 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5421 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5451 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5450 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x40049409 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x4020940d }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5402 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5403 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5404 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x540f }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5410 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x802c542a }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x402c542b }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x402c542c }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x402c542d }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5409 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5425 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x540b }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x540e }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5422 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5429 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5414 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x80045430 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x40045431 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5441 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8912 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8933 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5412 }]), then: SyscallVerdict::Errno(1) },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x541c }]), then: SyscallVerdict::Errno(1) },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5423 }]), then: SyscallVerdict::Errno(1) },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0xaa00 }]), then: SyscallVerdict::Errno(1) },
];

static PARANOID_SHMAT: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Int, op: Op::MaskedEq(0x8000), value: 0x0 }]), then: SyscallVerdict::Allow },
];

static PARANOID_FCNTL: [Case; 18] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x1 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x2 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x3 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x4 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x406 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x0 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x6 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x7 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x24 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x25 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x26 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x407 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x408 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x409 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x40a }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x403 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x404 }]), then: SyscallVerdict::Allow },
];

static PARANOID_PRCTL: [Case; 22] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0xf }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x10 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x53564d41 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x2 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x3 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x4 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x15 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x17 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x18 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x24 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x25 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x26 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x27 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x2f }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x41 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x42 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x16 }, Condition { arg: 1, width: Width::Long, op: Op::Eq, value: 0x2 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x16 }]), then: SyscallVerdict::Errno(1) },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1c }]), then: SyscallVerdict::Errno(1) },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x23 }]), then: SyscallVerdict::Errno(1) },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x3b }]), then: SyscallVerdict::Errno(1) },
];

static PARANOID_MEMFD_CREATE: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0x18), value: 0x8 }]), then: SyscallVerdict::Allow },
];

static PARANOID_PKEY_MPROTECT: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Long, op: Op::MaskedEq(0x4), value: 0x0 }]), then: SyscallVerdict::Allow },
];
