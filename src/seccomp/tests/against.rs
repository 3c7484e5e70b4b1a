//! Our side alone, against two references: the plain meaning of the TOML, and seccompiler.

use std::collections::{BTreeMap, BTreeSet};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::super::interp::{ARCH_I386, ARCH_X86_64, SyscallData, outcomes, run};
use super::super::program::{FilterProgram, Instruction};
use super::super::rule::{Condition, Op, Rule, SyscallVerdict, Width};
use super::{call, errno, interesting_numbers, interesting_values, ours, source};

/// Argument lists around a rule's values: all combinations of its values, and each argument alone with every
/// interesting value.
pub(super) fn interesting_args(rule: &Rule) -> Vec<[u64; 6]> {
    let mut named: [BTreeSet<u64>; 6] = std::array::from_fn(|_| BTreeSet::from([0]));
    for condition in rule.cases.iter().flat_map(|case| case.when.iter()) {
        let values = &mut named[usize::from(condition.arg)];
        values.extend([condition.value, condition.value | 1 << 32]);
        if let Op::MaskedEq(mask) = condition.op {
            values.extend([mask, condition.value | !mask, condition.value | 0x80800]);
        }
    }
    let mut lists = vec![[0; 6]];
    for (index, values) in named.iter().enumerate() {
        lists = lists
            .into_iter()
            .flat_map(|list| {
                values.iter().map(move |value| {
                    let mut list = list;
                    list[index] = *value;
                    list
                })
            })
            .collect();
    }
    let everything: Vec<Vec<u64>> = named
        .iter()
        .map(|values| {
            if values.len() > 1 {
                interesting_values(values.iter().copied())
            } else {
                Vec::new()
            }
        })
        .collect();
    let combinations = lists.clone();
    // Skipping some combinations keeps the test under a second, and still covers each value.
    for list in combinations.iter().step_by(1 + combinations.len() / 64) {
        for (index, values) in everything.iter().enumerate() {
            lists.extend(values.iter().map(|value| {
                let mut list = *list;
                list[index] = *value;
                list
            }));
        }
    }
    lists.push([u64::MAX; 6]);
    lists
}

#[test]
fn the_program_means_what_the_toml_says() {
    let filter = ours(&[], &[], None);
    let rules = source::base();
    let unknown = Rule::always(errno(38));
    for number in interesting_numbers() {
        let rule = rules.get(&number).map_or(&unknown, |(_, rule, _)| rule);
        for args in interesting_args(rule) {
            let expected = if number & 0x4000_0000 != 0 && number != u32::MAX {
                SyscallVerdict::KillProcess
            } else {
                rule.verdict(&args)
            };
            let call = SyscallData {
                number,
                arch: ARCH_X86_64,
                args,
            };
            assert_eq!(filter.verdict(&call), expected, "{call:x?}");
        }
    }
}

fn seccompiler_condition(condition: &Condition) -> SeccompCondition {
    let len = match condition.width {
        Width::Int => SeccompCmpArgLen::Dword,
        Width::Long => SeccompCmpArgLen::Qword,
    };
    let op = match condition.op {
        Op::Eq => SeccompCmpOp::Eq,
        Op::Ne => SeccompCmpOp::Ne,
        Op::Lt => SeccompCmpOp::Lt,
        Op::Le => SeccompCmpOp::Le,
        Op::Gt => SeccompCmpOp::Gt,
        Op::Ge => SeccompCmpOp::Ge,
        Op::MaskedEq(mask) => SeccompCmpOp::MaskedEq(mask),
    };
    SeccompCondition::new(condition.arg, len, op, condition.value).unwrap()
}

/// Our allowlist, compiled by seccompiler. It has one verdict besides the default, so this only compares allow and
/// deny.
fn by_seccompiler() -> FilterProgram {
    let mut allowed: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for (number, (name, rule, _)) in source::base() {
        let cases: Vec<_> = rule.cases.iter().collect();
        let allows = cases
            .iter()
            .take_while(|case| case.then == SyscallVerdict::Allow)
            .count();
        assert!(
            cases[allows..].iter().all(|case| case.then.is_denial()),
            "{name}: an allow after a denial"
        );
        if rule.otherwise == SyscallVerdict::Allow || allows > 0 {
            let conditions = |when: &[Condition]| when.iter().map(seccompiler_condition).collect();
            let rules = cases[..allows]
                .iter()
                .map(|case| SeccompRule::new(conditions(&case.when)).unwrap());
            allowed.insert(i64::from(number), rules.collect());
        }
    }
    let filter = SeccompFilter::new(
        allowed,
        SeccompAction::Errno(1),
        SeccompAction::Allow,
        TargetArch::x86_64,
    )
    .unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    let instruction = |i: seccompiler::sock_filter| Instruction {
        code: i.code,
        jt: i.jt,
        jf: i.jf,
        k: i.k,
    };
    FilterProgram::new(program.into_iter().map(instruction).collect()).unwrap()
}

#[test]
fn seccompiler_allows_exactly_what_our_program_allows() {
    let (filter, reference) = (ours(&[], &[], None), by_seccompiler());
    let rules = source::base();
    let unknown = Rule::always(errno(38));
    for number in interesting_numbers() {
        for args in interesting_args(rules.get(&number).map_or(&unknown, |(_, rule, _)| rule)) {
            let call = SyscallData {
                number,
                arch: ARCH_X86_64,
                args,
            };
            let (have, want) = (filter.verdict(&call), run(&reference, &call));
            assert_eq!(
                have == SyscallVerdict::Allow,
                want == SyscallVerdict::Allow,
                "{call:x?}: {have} and {want}"
            );
        }
    }
    assert!(filter.program.instructions().len() < reference.instructions().len() / 2);
}

#[test]
fn every_call_of_a_foreign_architecture_kills() {
    let filter = ours(&["socket"], &[], None);
    for arch in [ARCH_I386, 0x4000_0028, 0xc000_00b7, 0, u32::MAX] {
        for number in interesting_numbers() {
            assert_eq!(
                filter.verdict(&SyscallData {
                    number,
                    arch,
                    args: [0; 6]
                }),
                SyscallVerdict::KillProcess
            );
        }
    }
}

#[test]
fn x32_kills_and_minus_one_is_only_no_call() {
    let filter = ours(&[], &[], None);
    let verdict = |number| {
        filter.verdict(&SyscallData {
            number,
            arch: ARCH_X86_64,
            args: [0; 6],
        })
    };
    assert_eq!(verdict(0x4000_0000), SyscallVerdict::KillProcess);
    assert_eq!(verdict(0x4000_0000 | 520), SyscallVerdict::KillProcess);
    assert_eq!(verdict(0xffff_fffe), SyscallVerdict::KillProcess);
    assert_eq!(verdict(u32::MAX), errno(38));
    assert_eq!(verdict(0x8000_0000), errno(38));
    assert_eq!(verdict(470), errno(38));
}

/// (what, call, arguments, verdict), in the order of the threat list.
const ANSWERS: &[(&str, [u64; 6], u16)] = &[
    // S01 to S03
    ("io_uring_setup", [0; 6], 38),
    ("ptrace", [0; 6], 1),
    ("process_vm_writev", [0; 6], 1),
    ("pidfd_getfd", [0; 6], 1),
    ("kcmp", [0; 6], 1),
    ("bpf", [0; 6], 1),
    ("perf_event_open", [0; 6], 1),
    ("userfaultfd", [0; 6], 1),
    // S04: every CLONE_NEW*, also with high bits
    ("unshare", [0x1000_0000, 0, 0, 0, 0, 0], 1),
    ("setns", [0; 6], 1),
    ("clone3", [0; 6], 38),
    ("clone", [0x0002_0000, 0, 0, 0, 0, 0], 1),
    ("clone", [0x0200_0000, 0, 0, 0, 0, 0], 1),
    ("clone", [0x0400_0000, 0, 0, 0, 0, 0], 1),
    ("clone", [0x0800_0000, 0, 0, 0, 0, 0], 1),
    ("clone", [0x1000_0000, 0, 0, 0, 0, 0], 1),
    ("clone", [0x2000_0000, 0, 0, 0, 0, 0], 1),
    ("clone", [0x4000_0000, 0, 0, 0, 0, 0], 1),
    ("clone", [0x1000_0000 | 1 << 32, 0, 0, 0, 0, 0], 1),
    (
        "clone",
        [0x7e02_0011 | 0xffff_ffff_0000_0000, 0, 0, 0, 0, 0],
        1,
    ),
    // S05 to S07
    ("mount", [0; 6], 1),
    ("umount2", [0; 6], 1),
    ("pivot_root", [0; 6], 1),
    ("fsopen", [0; 6], 38),
    ("open_tree_attr", [0; 6], 38),
    ("keyctl", [0; 6], 1),
    ("open_by_handle_at", [0; 6], 1),
    ("name_to_handle_at", [0; 6], 1),
    // S08
    ("personality", [0x0040_0000, 0, 0, 0, 0, 0], 1),
    ("personality", [0x0004_0000, 0, 0, 0, 0, 0], 1),
    ("personality", [0x0040_0000 | 1 << 32, 0, 0, 0, 0, 0], 1),
    // S09
    ("modify_ldt", [0; 6], 38),
    ("iopl", [3, 0, 0, 0, 0, 0], 1),
    ("settimeofday", [0; 6], 1),
    ("finit_module", [0; 6], 1),
    ("remap_file_pages", [0; 6], 38),
    ("mbind", [0; 6], 38),
    ("vmsplice", [0; 6], 38),
    ("memfd_secret", [0; 6], 38),
    // S10
    ("ioctl", [0, 0x5412, 0, 0, 0, 0], 1),
    ("ioctl", [0, 0x5412 | 1 << 32, 0, 0, 0, 0], 1),
    ("ioctl", [0, 0x5412 | 0xffff_ffff_0000_0000, 0, 0, 0, 0], 1),
    ("ioctl", [0, 0x541c | 1 << 63, 0, 0, 0, 0], 1),
    ("ioctl", [0, 0x5423, 0, 0, 0, 0], 1),
    ("ioctl", [0, 0xaa00, 0, 0, 0, 0], 1),
    // S12: AF_ALG, AF_VSOCK, AF_PACKET, raw and packet types with flags, other protocols
    ("socket", [38, 5, 0, 0, 0, 0], 97),
    ("socket", [38 | 1 << 32, 5, 0, 0, 0, 0], 97),
    ("socket", [40, 1, 0, 0, 0, 0], 97),
    ("socket", [17, 3, 0, 0, 0, 0], 97),
    ("socket", [2, 3, 1, 0, 0, 0], 1),
    ("socket", [2, 3 | 0x80000 | 0x800, 255, 0, 0, 0], 1),
    ("socket", [10, 3 | 0x80000, 58, 0, 0, 0], 1),
    ("socket", [2, 10, 768, 0, 0, 0], 1),
    ("socket", [2, 2, 1, 0, 0, 0], 93),
    ("socket", [10, 2, 58, 0, 0, 0], 93),
    ("socket", [2, 2, 136, 0, 0, 0], 93),
    ("socket", [2, 2, 115, 0, 0, 0], 93),
    ("socket", [2, 1, 132, 0, 0, 0], 93),
    ("socket", [2, 5, 132, 0, 0, 0], 93),
    ("socket", [2, 6, 33, 0, 0, 0], 93),
    ("socket", [2, 1, 262, 0, 0, 0], 93),
    ("socket", [2, 1, 256, 0, 0, 0], 93),
    ("socket", [16, 3, 9, 0, 0, 0], 93),
    ("socket", [16, 3, 12, 0, 0, 0], 93),
    ("socket", [1, 3, 0, 0, 0, 0], 93),
    ("socketpair", [2, 1, 0, 0, 0, 0], 97),
    ("socketpair", [30, 1, 0, 0, 0, 0], 97),
    // S13, S14
    ("seccomp", [1, 8, 0, 0, 0, 0], 1),
    ("seccomp", [1, 8 | 1 << 32, 0, 0, 0, 0], 1),
    ("seccomp", [1, 32, 0, 0, 0, 0], 1),
    ("seccomp", [0; 6], 1),
    ("prctl", [35, 0, 0, 0, 0, 0], 1),
    ("prctl", [35 | 1 << 32, 0, 0, 0, 0, 0], 1),
    ("prctl", [28, 0, 0, 0, 0, 0], 1),
    ("prctl", [59, 0, 0, 0, 0, 0], 1),
    ("prctl", [22, 1, 0, 0, 0, 0], 1),
    ("prctl", [67, 1, 0, 0, 0, 0], 22),
    ("arch_prctl", [0x2003, 0, 0, 0, 0, 0], 22),
    // F06
    ("mknod", [0, 0x6000 | 0o644, 0, 0, 0, 0], 1),
    ("renameat2", [0, 0, 0, 0, 4, 0], 22),
    ("renameat2", [0, 0, 0, 0, 5 | 1 << 32, 0], 22),
    ("mknodat", [0, 0, 0x2000 | 1 << 32, 0, 0, 0], 1),
];

#[test]
fn every_attack_of_the_threat_list_gets_its_errno() {
    let filter = ours(&[], &[], None);
    for (name, args, number) in ANSWERS {
        assert_eq!(
            filter.verdict(&call(name, *args)),
            errno(*number),
            "{name} {args:x?}"
        );
    }
}

#[test]
fn calls_of_ordinary_programs_are_allowed() {
    let filter = ours(&[], &[], None);
    for (name, args) in [
        ("socket", [1, 1 | 0x80000, 0, 0, 0, 0]),
        ("socket", [2, 1 | 0x80000 | 0x800, 6, 0, 0, 0]),
        ("socket", [10, 2 | 0x800, 0, 0, 0, 0]),
        ("socket", [2, 2, 17, 0, 0, 0]),
        ("socket", [16, 3 | 0x80000, 0, 0, 0, 0]),
        ("socketpair", [1, 1 | 0x80000, 0, 0, 0, 0]),
        // glibc's pthread_create and posix_spawn, musl's posix_spawn, fork
        ("clone", [0x003d_0f00, 0, 0, 0, 0, 0]),
        ("clone", [0x4111, 0, 0, 0, 0, 0]),
        ("clone", [0x0120_0011, 0, 0, 0, 0, 0]),
        // CLONE_NEWTIME's bit is clone(2)'s exit signal
        ("clone", [0x80, 0, 0, 0, 0, 0]),
        ("ioctl", [0, 0x5401, 0, 0, 0, 0]),
        ("ioctl", [0, 0x5413, 0, 0, 0, 0]),
        ("ioctl", [0, 0x4004_9409, 0, 0, 0, 0]),
        ("personality", [0xffff_ffff, 0, 0, 0, 0, 0]),
        ("personality", [u64::MAX, 0, 0, 0, 0, 0]),
        ("prctl", [15, 0, 0, 0, 0, 0]),
        ("prctl", [0x5356_4d41, 0, 0, 0, 0, 0]),
        ("prctl", [22, 2, 0, 0, 0, 0]),
        ("seccomp", [1, 1, 0, 0, 0, 0]),
        ("arch_prctl", [0x1002, 0, 0, 0, 0, 0]),
        ("mknod", [0, 0x1000 | 0o600, 0, 0, 0, 0]),
        ("renameat2", [0, 0, 0, 0, 2, 0]),
        ("execve", [0; 6]),
        ("memfd_create", [0; 6]),
    ] {
        assert_eq!(
            filter.verdict(&call(name, args)),
            SyscallVerdict::Allow,
            "{name} {args:x?}"
        );
    }
}

#[test]
fn a_policy_allows_whole_calls_and_its_denials_win() {
    let filter = ours(
        &["ptrace", "socket", "keyctl", "read"],
        &["keyctl", "memfd_create", "io_uring_setup"],
        None,
    );
    assert_eq!(
        filter.verdict(&call("ptrace", [0; 6])),
        SyscallVerdict::Allow
    );
    assert_eq!(
        filter.verdict(&call("socket", [38, 5, 0, 0, 0, 0])),
        SyscallVerdict::Allow
    );
    assert_eq!(filter.verdict(&call("keyctl", [0; 6])), errno(1));
    assert_eq!(filter.verdict(&call("memfd_create", [0; 6])), errno(1));
    // The base's errno stays if the base denies the call.
    assert_eq!(filter.verdict(&call("io_uring_setup", [0; 6])), errno(38));
    // Nothing else changed.
    assert_eq!(filter.verdict(&call("bpf", [0; 6])), errno(1));
    let decided = outcomes(&filter.program, ARCH_X86_64, 41);
    assert_eq!(
        decided,
        BTreeSet::from([SyscallVerdict::Allow]),
        "no checks are left on socket"
    );
}
