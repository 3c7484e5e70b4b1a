//! The engine's side alone, against a plain reading of the profile.

use std::collections::BTreeMap;

use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder,
    LinuxSeccompOperator, LinuxSyscall,
};

use super::super::interp::{ARCH_I386, ARCH_X86_64, SyscallData};
use super::super::{FilterInput, Note, SeccompError, SyscallVerdict, compile};
use super::{BUNDLES, bundle, call, engine_alone, errno, interesting_numbers, profile};
use crate::kernel::syscall::{NONE, ROWS, SyscallRow};

/// xorshift64: the same profiles on every run.
pub(super) struct TestRandom(u64);

impl TestRandom {
    pub(super) fn new(seed: u64) -> Self {
        TestRandom(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

const ACTIONS: [LinuxSeccompAction; 7] = [
    LinuxSeccompAction::ScmpActAllow,
    LinuxSeccompAction::ScmpActErrno,
    LinuxSeccompAction::ScmpActLog,
    LinuxSeccompAction::ScmpActTrap,
    LinuxSeccompAction::ScmpActTrace,
    LinuxSeccompAction::ScmpActKill,
    LinuxSeccompAction::ScmpActKillProcess,
];

const VALUES: [u64; 10] = [
    0,
    1,
    2,
    8,
    40,
    0x2_0008,
    0x7e02_0000,
    0xffff_ffff,
    1 << 32,
    0x1234_5678_9abc_def0,
];

/// A profile with any action, operator and argument.
pub(super) fn random_profile(random: &mut TestRandom) -> LinuxSeccomp {
    let mut profile = LinuxSeccomp::default();
    profile.set_default_action(random.pick(&ACTIONS));
    profile.set_architectures(Some(vec![
        Arch::ScmpArchX86_64,
        Arch::ScmpArchX86,
        Arch::ScmpArchX32,
    ]));
    let operators = [
        LinuxSeccompOperator::ScmpCmpNe,
        LinuxSeccompOperator::ScmpCmpLt,
        LinuxSeccompOperator::ScmpCmpLe,
        LinuxSeccompOperator::ScmpCmpEq,
        LinuxSeccompOperator::ScmpCmpGe,
        LinuxSeccompOperator::ScmpCmpGt,
        LinuxSeccompOperator::ScmpCmpMaskedEq,
    ];
    let mut syscalls = Vec::new();
    for row in ROWS {
        for _ in 0..random.below(3) {
            let action = random.pick(&ACTIONS);
            let mut syscall = LinuxSyscall::default();
            syscall.set_names(vec![row.name.to_owned()]);
            syscall.set_action(action).set_errno_ret(Some(7));
            let args = (0..random.below(4)).map(|_| {
                LinuxSeccompArgBuilder::default()
                    .index(random.below(6))
                    .op(random.pick(&operators))
                    .value(random.pick(&VALUES))
                    .value_two(random.pick(&VALUES))
                    .build()
                    .unwrap()
            });
            let args: Vec<_> = args.collect();
            // A few calls only, or the program would not fit.
            let args = if row.name.len() % 4 == 0 {
                args
            } else {
                Vec::new()
            };
            syscall.set_args((!args.is_empty()).then_some(args));
            syscalls.push(syscall);
        }
    }
    profile.set_syscalls(Some(syscalls));
    profile
}

fn action(action: LinuxSeccompAction, errno: Option<u32>) -> SyscallVerdict {
    SyscallVerdict::from_raw(action.as_u32(errno))
}

fn holds(arg: &LinuxSeccompArg, args: &[u64; 6], is_wide: bool) -> bool {
    let fit = |value: u64| if is_wide { value } else { value & 0xffff_ffff };
    let (have, value) = (fit(args[arg.index()]), fit(arg.value()));
    match arg.op() {
        LinuxSeccompOperator::ScmpCmpNe => have != value,
        LinuxSeccompOperator::ScmpCmpLt => have < value,
        LinuxSeccompOperator::ScmpCmpLe => have <= value,
        LinuxSeccompOperator::ScmpCmpEq => have == value,
        LinuxSeccompOperator::ScmpCmpGe => have >= value,
        LinuxSeccompOperator::ScmpCmpGt => have > value,
        LinuxSeccompOperator::ScmpCmpMaskedEq => {
            have & value == fit(arg.value_two().unwrap_or(0)) & value
        }
    }
}

fn matches(rule: &LinuxSyscall, args: &[u64; 6], is_wide: bool) -> bool {
    let conditions = rule.args().clone().unwrap_or_default();
    let mut indices: Vec<usize> = conditions.iter().map(LinuxSeccompArg::index).collect();
    indices.sort_unstable();
    if indices.windows(2).any(|pair| pair[0] == pair[1]) {
        return conditions.iter().any(|arg| holds(arg, args, is_wide));
    }
    conditions.iter().all(|arg| holds(arg, args, is_wide))
}

type Column = fn(&SyscallRow) -> u16;
const COLUMNS: [Column; 3] = [|row| row.x86_64, |row| row.i386, |row| row.x32];

/// A profile's rules by number, for x86_64, i386 and x32: a simple lookup by name.
struct ProfileLookup<'a> {
    profile: &'a LinuxSeccomp,
    rules: [BTreeMap<u32, Vec<&'a LinuxSyscall>>; 3],
}

impl<'a> ProfileLookup<'a> {
    fn new(profile: &'a LinuxSeccomp) -> Self {
        let mut rules = [BTreeMap::new(), BTreeMap::new(), BTreeMap::new()];
        for rule in profile.syscalls().iter().flatten() {
            for row in ROWS
                .iter()
                .filter(|row| rule.names().iter().any(|name| name == row.name))
            {
                for (map, column) in rules.iter_mut().zip(COLUMNS) {
                    if column(row) != NONE {
                        map.entry(u32::from(column(row)))
                            .or_insert_with(Vec::new)
                            .push(rule);
                    }
                }
            }
        }
        ProfileLookup { profile, rules }
    }

    /// The profile's verdict about a call, read rule by rule. Without multiplexed i386 calls.
    fn verdict(&self, call: &SyscallData) -> SyscallVerdict {
        let default = action(
            self.profile.default_action(),
            self.profile.default_errno_ret(),
        );
        let listed = |arch| {
            self.profile
                .architectures()
                .as_ref()
                .is_some_and(|list| list.contains(&arch))
        };
        let has_x32 = listed(Arch::ScmpArchX32);
        let is_x32 = call.number & 0x4000_0000 != 0;
        let (rules, number) = match call.arch {
            ARCH_X86_64 if is_x32 => (&self.rules[2], call.number & !0x4000_0000),
            ARCH_X86_64 => (&self.rules[0], call.number),
            ARCH_I386 if listed(Arch::ScmpArchX86) => (&self.rules[1], call.number),
            _ => return SyscallVerdict::KillThread,
        };
        let permissive = matches!(
            default,
            SyscallVerdict::Allow | SyscallVerdict::Log | SyscallVerdict::Trace(_)
        );
        let asked = call.arch != ARCH_X86_64 || !is_x32 || has_x32;
        if !permissive
            && asked
            && rules
                .last_key_value()
                .is_some_and(|(last, _)| number > *last)
        {
            return errno(38);
        }
        if call.arch == ARCH_X86_64
            && call.number >= 0x4000_0000
            && !has_x32
            && call.number != u32::MAX
        {
            return SyscallVerdict::KillThread;
        }
        if call.arch == ARCH_X86_64 && call.number >= 0x8000_0000 {
            return default;
        }
        let mut mine = rules.get(&number).cloned().unwrap_or_default();
        mine.retain(|rule| action(rule.action(), rule.errno_ret()) != default);
        let is_wide = call.arch == ARCH_X86_64 && !is_x32;
        let unconditional = mine.iter().find(|rule| rule.args().is_none());
        let matching = || {
            let matching = mine
                .iter()
                .filter(|rule| matches(rule, &call.args, is_wide));
            matching
                .map(|rule| action(rule.action(), rule.errno_ret()))
                .reduce(SyscallVerdict::stricter)
        };
        let unconditional = unconditional.map(|rule| action(rule.action(), rule.errno_ret()));
        unconditional.or_else(matching).unwrap_or(default)
    }
}

fn argument_lists() -> Vec<[u64; 6]> {
    let mut lists = vec![[0; 6], [u64::MAX; 6]];
    for value in VALUES {
        for near in [
            value.wrapping_sub(1),
            value,
            value.wrapping_add(1),
            value | 1 << 32,
        ] {
            lists.push([near; 6]);
            lists.push([near, 0, near, 1, near, 2]);
        }
    }
    lists
}

#[test]
fn a_profile_means_what_a_plain_reading_of_it_says() {
    let mut random = TestRandom::new(3);
    let lists = argument_lists();
    for round in 0..8 {
        let mut profile = random_profile(&mut random);
        if round % 2 == 1 {
            profile.set_architectures(None);
        }
        let (filter, plain) = (engine_alone(&profile), ProfileLookup::new(&profile));
        for number in interesting_numbers() {
            for args in lists.iter().skip(round % 3).step_by(3) {
                for arch in [ARCH_X86_64, ARCH_I386] {
                    if arch == ARCH_I386 && matches!(number, 102 | 117) {
                        continue;
                    }
                    let call = SyscallData {
                        number,
                        arch,
                        args: *args,
                    };
                    assert_eq!(
                        filter.verdict(&call),
                        plain.verdict(&call),
                        "{round} {call:x?}"
                    );
                }
            }
        }
    }
}

#[test]
fn dockers_profile_is_compiled_as_runc_would() {
    let filter = engine_alone(&bundle("docker26-run"));
    assert_eq!(filter.verdict(&call("read", [0; 6])), SyscallVerdict::Allow);
    assert_eq!(filter.verdict(&call("mount", [0; 6])), errno(1));
    assert_eq!(filter.verdict(&call("clone3", [0; 6])), errno(38));
    assert_eq!(
        filter.verdict(&call("clone", [0x1000_0000, 0, 0, 0, 0, 0])),
        errno(1)
    );
    assert_eq!(
        filter.verdict(&call("clone", [0x11, 0, 0, 0, 0, 0])),
        SyscallVerdict::Allow
    );
    assert_eq!(
        filter.verdict(&call("socket", [40, 1, 0, 0, 0, 0])),
        errno(1)
    );
    // Docker compares 64 bits, and so do we without a policy: unconfined means the engine's spec.
    assert_eq!(
        filter.verdict(&call("socket", [40 | 1 << 32, 1, 0, 0, 0, 0])),
        SyscallVerdict::Allow
    );
    let i386 = |number, args| {
        filter.verdict(&SyscallData {
            number,
            arch: ARCH_I386,
            args,
        })
    };
    assert_eq!(i386(3, [0; 6]), SyscallVerdict::Allow);
    assert_eq!(i386(21, [0; 6]), errno(1));
    assert_eq!(i386(102, [1, 0, 0, 0, 0, 0]), SyscallVerdict::Allow);
    assert_eq!(i386(1000, [0; 6]), errno(38));
    let x32 = |number: u32| {
        filter.verdict(&SyscallData {
            number: number | 0x4000_0000,
            arch: ARCH_X86_64,
            args: [0; 6],
        })
    };
    assert_eq!(x32(0), SyscallVerdict::Allow);
    assert_eq!(x32(520), SyscallVerdict::Allow);
    assert_eq!(x32(59), errno(1));
    assert_eq!(
        filter.verdict(&SyscallData {
            number: 600,
            arch: ARCH_X86_64,
            args: [0; 6]
        }),
        errno(38)
    );
    assert_eq!(
        filter.verdict(&SyscallData {
            number: 0,
            arch: 0xc000_00b7,
            args: [0; 6]
        }),
        SyscallVerdict::KillThread
    );
}

#[test]
fn a_rule_on_a_socket_call_reaches_i386s_multiplexer_too() {
    let only_sockets = profile(
        r#"{"defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_X86"], "syscalls": [
            {"names": ["connect", "send", "shmat"], "action": "SCMP_ACT_ALLOW"}]}"#,
    );
    let filter = engine_alone(&only_sockets);
    let verdict = |number, first| {
        filter.verdict(&SyscallData {
            number,
            arch: ARCH_I386,
            args: [first, 0, 0, 0, 0, 0],
        })
    };
    assert_eq!(verdict(362, 0), SyscallVerdict::Allow);
    assert_eq!(verdict(102, 3), SyscallVerdict::Allow);
    assert_eq!(verdict(102, 9), SyscallVerdict::Allow);
    assert_eq!(verdict(102, 1), errno(1));
    assert_eq!(verdict(117, 21), SyscallVerdict::Allow);
    assert_eq!(verdict(117, 22), errno(1));
}

#[test]
fn an_unknown_name_is_skipped_in_an_allow_and_an_error_in_a_deny() {
    let allow = r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
        {"names": ["read", "brand_new_call", "riscv_flush_icache"], "action": "SCMP_ACT_ALLOW"}]}"#;
    assert_eq!(
        engine_alone(&profile(allow)).notes,
        [Note::UnknownName("brand_new_call".to_owned())]
    );
    let deny = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["mount", "brand_new_call"], "action": "SCMP_ACT_ERRNO"}]}"#;
    let error = compile(&FilterInput {
        ours: None,
        engine: Some(&profile(deny)),
    })
    .unwrap_err();
    assert_eq!(
        error,
        SeccompError::UnknownDeny {
            name: "brand_new_call".to_owned()
        }
    );
    // A call of another architecture cannot be made here, so denying it changes nothing.
    let elsewhere = deny.replace("brand_new_call", "pciconfig_read");
    assert_eq!(
        engine_alone(&profile(&elsewhere)).verdict(&call("mount", [0; 6])),
        errno(1)
    );
}

#[test]
fn profiles_that_the_kernel_or_runc_refuses_are_errors() {
    for (json, error) in [
        (
            r#"{"defaultAction": "SCMP_ACT_NOTIFY"}"#,
            SeccompError::NotifyByDefault,
        ),
        (
            r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["write"], "action": "SCMP_ACT_NOTIFY"}]}"#,
            SeccompError::NotifyOnWrite,
        ),
        (
            r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["read"], "action": "SCMP_ACT_ERRNO",
                "args": [{"index": 6, "value": 0, "op": "SCMP_CMP_EQ"}]}]}"#,
            SeccompError::ArgumentIndex {
                name: "read".to_owned(),
                index: 6,
            },
        ),
        (
            r#"{"defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"]}"#,
            SeccompError::NothingToWaitFor,
        ),
    ] {
        let compiled = compile(&FilterInput {
            ours: None,
            engine: Some(&profile(json)),
        });
        assert_eq!(compiled, Err(error));
    }
}

#[test]
fn a_profile_too_long_for_a_program_is_an_error() {
    let args: Vec<String> = (0..5000)
        .map(|value| {
            format!(
                r#"{{"index": 0, "value": {}, "op": "SCMP_CMP_EQ"}}"#,
                value * 3
            )
        })
        .collect();
    let json = format!(
        r#"{{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
            {{"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [{}]}}]}}"#,
        args.join(",")
    );
    let compiled = compile(&FilterInput {
        ours: None,
        engine: Some(&profile(&json)),
    });
    assert!(
        matches!(compiled, Err(SeccompError::Program(_))),
        "{compiled:?}"
    );
}

#[test]
fn without_a_list_of_flags_speculation_is_as_with_runc() {
    let profile = profile(r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#);
    assert_eq!(engine_alone(&profile).flags, 0b100);
}

#[test]
fn flags_are_passed_on() {
    let flags = |flags: &str, action: &str| {
        let json = format!(
            r#"{{"defaultAction": "SCMP_ACT_ALLOW", "flags": [{flags}],
                "syscalls": [{{"names": ["mkdir"], "action": "{action}"}}]}}"#
        );
        engine_alone(&profile(&json)).flags
    };
    assert_eq!(flags("", "SCMP_ACT_ERRNO"), 0);
    assert_eq!(
        flags(
            r#""SECCOMP_FILTER_FLAG_LOG", "SECCOMP_FILTER_FLAG_SPEC_ALLOW""#,
            "SCMP_ACT_ERRNO"
        ),
        0b110
    );
    assert_eq!(
        flags(r#""SECCOMP_FILTER_FLAG_TSYNC""#, "SCMP_ACT_ERRNO"),
        0,
        "one thread needs no synchronising"
    );
    assert_eq!(
        flags(
            r#""SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV""#,
            "SCMP_ACT_NOTIFY"
        ),
        0b10_1000
    );
}

#[test]
fn every_fixture_compiles_alone_and_keeps_hot_calls_free_of_checks() {
    for name in BUNDLES {
        let filter = engine_alone(&bundle(name));
        let summary = filter.describe();
        assert!(
            filter.program.instructions().len() < 700,
            "{name}: {}",
            filter.program.instructions().len()
        );
        assert!(summary.checked.len() <= 4, "{name}: {:?}", summary.checked);
    }
}
