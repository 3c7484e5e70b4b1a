//! Generated from the other files of `policies/syscalls`, which have the words, as `base.rs` is from `base.toml`.
//!
//! `AGENTBOX_BLESS=1 cargo test base_rs_is_what_base_toml_says` writes this file.

use std::borrow::Cow;

use super::rule::{Case, Condition, Op, Rule, Verdict, Width};

/// The rule of one call.
pub(super) struct More {
    pub number: u16,
    pub rule: Rule,
}

const fn deny(number: u16, errno: u16) -> More {
    More { number, rule: Rule::always(Verdict::Errno(errno)) }
}

const fn check(number: u16, cases: &'static [Case], errno: u16) -> More {
    More { number, rule: Rule { cases: Cow::Borrowed(cases), otherwise: Verdict::Errno(errno) } }
}

/// In place of the base where the container has devices of the node's choice.
pub(super) static DEVICES: &[More] = &[
    check(16, &DEVICES_IOCTL, 1), // ioctl
];

static DEVICES_IOCTL: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Ne, value: 0x5412 }, Condition { arg: 1, width: Width::Int, op: Op::Ne, value: 0x541c }, Condition { arg: 1, width: Width::Int, op: Op::Ne, value: 0x5423 }, Condition { arg: 1, width: Width::Int, op: Op::Ne, value: 0xaa00 }]), then: Verdict::Allow },
];

/// Besides the base where no file may be made set-user-ID or set-group-ID.
pub(super) static SET_ID: &[More] = &[
    check(2, &SET_ID_OPEN, 1), // open
    check(85, &SET_ID_CREAT, 1), // creat
    check(90, &SET_ID_CHMOD, 1), // chmod
    check(91, &SET_ID_FCHMOD, 1), // fchmod
    check(133, &SET_ID_MKNOD, 1), // mknod
    check(257, &SET_ID_OPENAT, 1), // openat
    check(259, &SET_ID_MKNODAT, 1), // mknodat
    check(268, &SET_ID_FCHMODAT, 1), // fchmodat
    deny(437, 38), // openat2
    check(452, &SET_ID_FCHMODAT2, 1), // fchmodat2
];

static SET_ID_OPEN: [Case; 2] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Int, op: Op::MaskedEq(0xc00), value: 0x0 }]), then: Verdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0x400040), value: 0x0 }]), then: Verdict::Allow },
];

static SET_ID_CREAT: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xc00), value: 0x0 }]), then: Verdict::Allow },
];

static SET_ID_CHMOD: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xc00), value: 0x0 }]), then: Verdict::Allow },
];

static SET_ID_FCHMOD: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xc00), value: 0x0 }]), then: Verdict::Allow },
];

static SET_ID_MKNOD: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xc00), value: 0x0 }]), then: Verdict::Allow },
];

static SET_ID_OPENAT: [Case; 2] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 3, width: Width::Int, op: Op::MaskedEq(0xc00), value: 0x0 }]), then: Verdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Int, op: Op::MaskedEq(0x400040), value: 0x0 }]), then: Verdict::Allow },
];

static SET_ID_MKNODAT: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Int, op: Op::MaskedEq(0xc00), value: 0x0 }]), then: Verdict::Allow },
];

static SET_ID_FCHMODAT: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Int, op: Op::MaskedEq(0xc00), value: 0x0 }]), then: Verdict::Allow },
];

static SET_ID_FCHMODAT2: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Int, op: Op::MaskedEq(0xc00), value: 0x0 }]), then: Verdict::Allow },
];
