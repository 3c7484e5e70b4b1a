//! Both sides in one program: never weaker than either, whatever the engine's profile and the policy say.

use super::super::interp::{ARCH_X86_64, SyscallData};
use super::super::ours::is_logged;
use super::super::rule::PLAIN;
use super::super::{
    DenyMode, FilterInput, FilterPolicy, LinuxSeccomp, Note, NotifyListener, SeccompError,
    SyscallFilter, SyscallVerdict, compile,
};
use super::engine::{TestRandom, random_profile};
use super::{
    BUNDLES, bundle, call, engine_alone, errno, interesting_numbers, names, ours, profile, source,
};
use crate::kernel::SyscallName;
use crate::policy::SyscallProfile;

/// Arguments in some rule.
const ARGS: [[u64; 6]; 12] = [
    [0; 6],
    [u64::MAX; 6],
    [1, 1, 0, 0, 0, 0],
    [2, 1, 6, 0, 0, 0],
    [16, 3, 9, 0, 0, 0],
    [16, 3, 0, 0, 0, 0],
    [40, 1, 0, 0, 0, 0],
    [38 | 1 << 32, 5, 0, 0, 0, 0],
    [0x7e02_0000, 0x5412 | 1 << 32, 0x6000, 0, 0, 0],
    [0x2_0008, 0x6000, 0, 0, 0, 0],
    [0xffff_ffff, 8, 0, 0, 0, 0],
    [8, 2, 3, 4, 5, 6],
];

#[test]
fn the_stricter_side_wins_and_ours_names_the_errno() {
    let allow_all_but = profile(
        r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
            {"names": ["read", "bpf"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5},
            {"names": ["write", "io_uring_setup"], "action": "SCMP_ACT_KILL_PROCESS"},
            {"names": ["lseek"], "action": "SCMP_ACT_LOG"},
            {"names": ["socket"], "action": "SCMP_ACT_TRAP", "args": [{"index": 0, "value": 38, "op": "SCMP_CMP_EQ"}]}
        ]}"#,
    );
    let filter = ours(&[], &[], Some(&allow_all_but));
    assert_eq!(filter.verdict(&call("read", [0; 6])), errno(5));
    assert_eq!(filter.verdict(&call("bpf", [0; 6])), errno(1));
    assert_eq!(
        filter.verdict(&call("write", [0; 6])),
        SyscallVerdict::KillProcess
    );
    assert_eq!(
        filter.verdict(&call("io_uring_setup", [0; 6])),
        SyscallVerdict::KillProcess
    );
    assert_eq!(filter.verdict(&call("lseek", [0; 6])), SyscallVerdict::Log);
    assert_eq!(
        filter.verdict(&call("socket", [38, 5, 0, 0, 0, 0])),
        SyscallVerdict::Trap
    );
    assert_eq!(
        filter.verdict(&call("socket", [17, 3, 0, 0, 0, 0])),
        errno(97)
    );
    assert_eq!(
        filter.verdict(&call("socket", [1, 1, 0, 0, 0, 0])),
        SyscallVerdict::Allow
    );
    assert_eq!(
        filter.verdict(&call("close", [0; 6])),
        SyscallVerdict::Allow
    );
}

#[test]
fn a_merged_filter_is_never_weaker_than_either_side() {
    let mut random = TestRandom::new(1);
    let profiles = BUNDLES
        .iter()
        .map(|name| bundle(name))
        .chain((0..20).map(|_| random_profile(&mut random)));
    let alone = ours(&[], &[], None);
    for engine in profiles.collect::<Vec<_>>() {
        let (theirs, both) = (engine_alone(&engine), ours(&[], &[], Some(&engine)));
        for number in interesting_numbers() {
            for args in ARGS {
                let call = SyscallData {
                    number,
                    arch: ARCH_X86_64,
                    args,
                };
                let (a, b) = (alone.verdict(&call), theirs.verdict(&call));
                assert_eq!(
                    both.verdict(&call),
                    a.stricter(b),
                    "{call:x?}: ours {a}, the engine's {b}"
                );
            }
        }
    }
}

#[test]
fn adding_an_allow_never_removes_a_deny_and_a_deny_never_allows() {
    let mut random = TestRandom::new(2);
    let all: Vec<SyscallName> = SyscallName::all().collect();
    let docker = bundle("docker26-run");
    let some = |random: &mut TestRandom| -> Vec<&'static str> {
        (0..random.below(12))
            .map(|_| all[random.below(all.len())].as_str())
            .collect()
    };
    for _ in 0..12 {
        let engine = (random.below(2) == 0).then_some(&docker);
        let (allow, more, mut deny) = (some(&mut random), some(&mut random), some(&mut random));
        deny.retain(|name| {
            !matches!(
                *name,
                "execve" | "close" | "read" | "write" | "exit" | "exit_group"
            )
        });
        deny.retain(|name| !matches!(*name, "rt_sigreturn" | "sendmsg" | "fcntl"));
        let without = ours(&allow, &[], engine);
        let with = ours(&allow, &deny, engine);
        let wider = ours(&[&allow[..], &more[..]].concat(), &deny, engine);
        for name in &all {
            for args in ARGS {
                let call = SyscallData {
                    number: name.number(),
                    arch: ARCH_X86_64,
                    args,
                };
                let (before, denied, after) = (
                    without.verdict(&call),
                    with.verdict(&call),
                    wider.verdict(&call),
                );
                assert!(
                    !before.is_stricter_than(denied),
                    "{name}: a deny allowed it"
                );
                assert!(
                    !after.is_stricter_than(denied),
                    "{name}: an allow made it stricter"
                );
                if deny.contains(&name.as_str()) {
                    assert!(
                        denied.is_denial() && after.is_denial(),
                        "{name}: denied by name"
                    );
                }
            }
        }
    }
}

#[test]
fn notify_answers_the_same_errnos_through_the_listener() {
    let (allow, deny) = (names(&["ptrace"]), names(&["memfd_create"]));
    for engine in [None, Some(bundle("docker26-run"))] {
        let filter = |denials| {
            let ours = FilterPolicy {
                allow: &allow,
                deny: &deny,
                set_id: true,
                attributes: true,
                profile: SyscallProfile::Agent,
                devices: false,
                denials,
            };
            compile(&FilterInput {
                ours: Some(ours),
                engine: engine.as_ref(),
            })
            .unwrap()
            .unwrap()
        };
        let (errnos, notify) = (filter(DenyMode::Errno), filter(DenyMode::Notify));
        assert_eq!((errnos.flags, notify.flags), (0, 1 << 3 | 1 << 5));
        assert_eq!(notify.listener, NotifyListener::Sidecar);
        for number in interesting_numbers() {
            for args in ARGS {
                let call = SyscallData {
                    number,
                    arch: ARCH_X86_64,
                    args,
                };
                let mut expected = errnos.verdict(&call);
                if let SyscallVerdict::Errno(errno) = expected
                    && (!PLAIN.contains(&errno) || is_logged(number))
                {
                    expected = SyscallVerdict::Notify(errno);
                }
                assert_eq!(notify.verdict(&call), expected, "{call:x?}");
            }
        }
    }
}

/// Former fault: mount(2) was logged, and fsopen(2) was not.
#[test]
fn attacks_answered_as_unknown_calls_are_logged_and_probes_of_libraries_are_not() {
    let (allow, deny) = (names(&[]), names(&[]));
    let ours = FilterPolicy {
        allow: &allow,
        deny: &deny,
        set_id: true,
        attributes: true,
        profile: SyscallProfile::Agent,
        devices: false,
        denials: DenyMode::Notify,
    };
    let filter = compile(&FilterInput {
        ours: Some(ours),
        engine: None,
    })
    .unwrap()
    .unwrap();
    for name in [
        "fsopen",
        "fsmount",
        "move_mount",
        "open_tree",
        "mount_setattr",
        "io_uring_setup",
        "vmsplice",
        "memfd_secret",
        "modify_ldt",
    ] {
        assert_eq!(
            filter.verdict(&call(name, [0; 6])),
            SyscallVerdict::Notify(38),
            "{name}"
        );
    }
    for name in ["clone3", "statmount", "get_mempolicy", "process_madvise"] {
        assert_eq!(filter.verdict(&call(name, [0; 6])), errno(38), "{name}");
    }
}

#[test]
fn an_engine_with_its_own_listener_keeps_it_and_our_denials_stay_errnos() {
    let engine = profile(
        r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
            {"names": ["mkdir", "mount"], "action": "SCMP_ACT_NOTIFY"}]}"#,
    );
    let (allow, deny) = (names(&[]), names(&[]));
    let ours = FilterPolicy {
        allow: &allow,
        deny: &deny,
        set_id: true,
        attributes: true,
        profile: SyscallProfile::Agent,
        devices: false,
        denials: DenyMode::Notify,
    };
    let filter = compile(&FilterInput {
        ours: Some(ours),
        engine: Some(&engine),
    })
    .unwrap()
    .unwrap();
    assert_eq!(filter.notes, [Note::EngineNotifies]);
    assert_eq!(
        (filter.flags, filter.listener),
        (1 << 3, NotifyListener::Agent)
    );
    assert_eq!(
        filter.verdict(&call("mkdir", [0; 6])),
        SyscallVerdict::Notify(0)
    );
    // The engine's listener could answer CONTINUE: our denial comes first.
    assert_eq!(filter.verdict(&call("mount", [0; 6])), errno(1));
}

/// A process that makes such a call between loading the filter and sending the listener away would wait for itself.
#[test]
fn a_profile_that_denies_the_hand_over_gets_no_listener() {
    let (allow, deny) = (names(&[]), names(&[]));
    for name in ["sendmsg", "close", "fcntl", "read"] {
        let engine = profile(&format!(
            r#"{{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
                {{"names": ["{name}"], "action": "SCMP_ACT_ERRNO", "args": [{{"index": 0, "value": 77, "op": "SCMP_CMP_EQ"}}]}}]}}"#,
        ));
        let ours = FilterPolicy {
            allow: &allow,
            deny: &deny,
            set_id: true,
            attributes: true,
            profile: SyscallProfile::Agent,
            devices: false,
            denials: DenyMode::Notify,
        };
        let filter = compile(&FilterInput {
            ours: Some(ours),
            engine: Some(&engine),
        });
        let filter = filter.unwrap().unwrap();
        assert_eq!(filter.notes, [Note::HandOverDenied(name.parse().unwrap())]);
        assert_eq!((filter.flags, filter.listener), (0, NotifyListener::Nobody));
        assert_eq!(filter.verdict(&call("mount", [0; 6])), errno(1));
    }
}

#[test]
fn a_policy_cannot_deny_what_the_runtime_itself_still_calls() {
    let (allow, deny) = (names(&[]), names(&["execve"]));
    let ours = FilterPolicy {
        allow: &allow,
        deny: &deny,
        set_id: true,
        attributes: true,
        profile: SyscallProfile::Agent,
        devices: false,
        denials: DenyMode::Errno,
    };
    let error = compile(&FilterInput {
        ours: Some(ours),
        engine: None,
    })
    .unwrap_err();
    assert_eq!(
        error,
        SeccompError::DeniesRuntime {
            name: "execve".parse().unwrap()
        }
    );
}

#[test]
fn real_profiles_merge_into_short_programs() {
    assert!(ours(&[], &[], None).program.instructions().len() < 500);
    for name in BUNDLES {
        let engine = bundle(name);
        let merged = ours(&[], &[], Some(&engine));
        assert!(
            merged.program.instructions().len() < 600,
            "{name}: {}",
            merged.program.instructions().len()
        );
        let summary = merged.describe();
        let denied: usize = summary.denied.values().sum();
        assert_eq!(
            summary.allowed + summary.checked.len() + denied,
            SyscallName::all().count()
        );
        assert!(summary.allowed > 250, "{name}: {summary:?}");
        assert!(summary.checked.contains(&"socket".parse().unwrap()));
    }
}

/// F-H2 (docs/threats.md F16, F24): the limit of core files is the only one that cannot be changed, in any spelling and
/// under any profile. The attempt is not reported, neither to the program nor to a listener.
#[test]
fn the_limit_of_core_files_is_never_changed() {
    let (allow, deny) = (names(&[]), names(&[]));
    let logging = FilterPolicy {
        allow: &allow,
        deny: &deny,
        set_id: true,
        attributes: true,
        profile: SyscallProfile::Agent,
        devices: false,
        denials: DenyMode::Notify,
    };
    let logging = FilterInput {
        ours: Some(logging),
        engine: None,
    };
    let engine = bundle("docker26-run");
    for filter in [
        ours(&[], &[], None),
        ours(&[], &[], Some(&engine)),
        compile(&logging).unwrap().unwrap(),
    ] {
        let pointer = 0x7fff_0000_0000;
        for resource in [4, 4 | 1 << 32] {
            let set = call("setrlimit", [resource, pointer, 0, 0, 0, 0]);
            assert_eq!(filter.verdict(&set), errno(0));
            // The pointer's low half may be zero.
            for new in [1, pointer, 1 << 32] {
                let set = call("prlimit64", [0, resource, new, 0, 0, 0]);
                assert_eq!(filter.verdict(&set), errno(0));
            }
            let get = call("prlimit64", [0, resource, 0, pointer, 0, 0]);
            assert_eq!(filter.verdict(&get), SyscallVerdict::Allow);
        }
        for resource in [0, 3, 5, 7, 15] {
            let set = call("prlimit64", [0, resource, pointer, 0, 0, 0]);
            assert_eq!(filter.verdict(&set), SyscallVerdict::Allow);
            let set = call("setrlimit", [resource, pointer, 0, 0, 0, 0]);
            assert_eq!(filter.verdict(&set), SyscallVerdict::Allow);
        }
    }
}

/// F-H5 (docs/threats.md F21): in addition to base.toml, never in place of it.
#[test]
fn set_id_bits_are_refused_in_every_call_that_sets_a_mode() {
    let (allow, deny) = (names(&["chmod"]), names(&["creat"]));
    let compiled = |set_id| {
        let ours = FilterPolicy {
            allow: &allow,
            deny: &deny,
            set_id,
            attributes: true,
            profile: SyscallProfile::Agent,
            devices: false,
            denials: DenyMode::Errno,
        };
        let engine = bundle("docker26-run");
        compile(&FilterInput {
            ours: Some(ours),
            engine: Some(&engine),
        })
        .unwrap()
        .unwrap()
    };
    let (with, without) = (compiled(false), compiled(true));
    let checked: Vec<_> = super::source::more("SET_ID")
        .into_values()
        .filter(|(name, rule, _)| !rule.cases.is_empty() && name.as_str() != "creat")
        .map(|(name, rule, _)| (name.as_str(), usize::from(rule.cases[0].when[0].arg)))
        .collect();
    assert_eq!(checked.len(), 8);
    for (name, mode) in checked {
        // The other arguments: O_CREAT for open(2), and harmless values.
        let with_mode = |bits: u64| {
            let mut args = [0x40; 6];
            args[mode] = bits;
            call(name, args)
        };
        for bits in [0o4755, 0o2755, 0o6000, 0o4000, 0o2000, 0o4755 | 1 << 32] {
            assert_eq!(with.verdict(&with_mode(bits)), errno(1), "{name} {bits:o}");
            assert_eq!(
                without.verdict(&with_mode(bits)),
                SyscallVerdict::Allow,
                "{name}"
            );
        }
        for bits in [0o755, 0o1777, 0, 0o644 | 1 << 42] {
            assert_eq!(
                with.verdict(&with_mode(bits)),
                SyscallVerdict::Allow,
                "{name}"
            );
        }
    }
    // Without O_CREAT the mode's register may hold anything.
    for name in ["open", "openat"] {
        assert_eq!(
            with.verdict(&call(name, [0, 0, 0, 0o7777, 0, 0])),
            SyscallVerdict::Allow
        );
    }
    assert_eq!(
        with.verdict(&call("open", [0, 0, 0o7777, 0, 0, 0])),
        SyscallVerdict::Allow
    );
    // O_TMPFILE is __O_TMPFILE and O_DIRECTORY.
    let temporary = call("openat", [0, 0, 0x41_0002, 0o4755, 0, 0]);
    assert_eq!(with.verdict(&temporary), errno(1));
    assert_eq!(with.verdict(&call("openat2", [0; 6])), errno(38));
    assert_eq!(with.verdict(&call("creat", [0; 6])), errno(1));
    let device = call("mknod", [0, 0o60644, 0, 0, 0, 0]);
    assert_eq!(without.verdict(&device), errno(1));
}

/// F21: an access list lets another group execute a set-group-ID file.
#[test]
fn attributes_are_refused_as_on_a_file_system_without_them() {
    let none = names(&[]);
    for attributes in [true, false] {
        let ours = FilterPolicy {
            allow: &none,
            deny: &none,
            set_id: false,
            attributes,
            profile: SyscallProfile::Agent,
            devices: false,
            denials: DenyMode::Errno,
        };
        let engine = bundle("docker26-run");
        let filter = compile(&FilterInput {
            ours: Some(ours),
            engine: Some(&engine),
        });
        let filter = filter.unwrap().unwrap();
        for name in ["setxattr", "lsetxattr", "fsetxattr"] {
            let expected = match attributes {
                true => SyscallVerdict::Allow,
                false => errno(95),
            };
            assert_eq!(filter.verdict(&call(name, [0; 6])), expected, "{name}");
        }
        assert_eq!(
            filter.verdict(&call("getxattr", [0; 6])),
            SyscallVerdict::Allow
        );
        assert_eq!(
            filter.verdict(&call("chmod", [0, 0o2755, 0, 0, 0, 0])),
            errno(1)
        );
    }
}

/// Unlisted requests are unknown, except for drivers of devices that the node grants.
#[test]
fn ioctls_are_listed_unless_a_device_needs_its_own() {
    let (allow, deny) = (names(&[]), names(&[]));
    let compiled = |devices| {
        let ours = FilterPolicy {
            allow: &allow,
            deny: &deny,
            set_id: false,
            attributes: true,
            profile: SyscallProfile::Agent,
            devices,
            denials: DenyMode::Errno,
        };
        compile(&FilterInput {
            ours: Some(ours),
            engine: None,
        })
        .unwrap()
        .unwrap()
    };
    let ioctl = |request: u64| call("ioctl", [0, request, 0, 0, 0, 0]);
    for devices in [false, true] {
        let filter = compiled(devices);
        for forbidden in [0x5412, 0x541c, 0x5423, 0xaa00, 0x5412 | 1 << 32] {
            assert_eq!(filter.verdict(&ioctl(forbidden)), errno(1), "{forbidden:x}");
        }
        for listed in [0x5401, 0x541b, 0x5451, 0x4004_9409] {
            assert_eq!(filter.verdict(&ioctl(listed)), SyscallVerdict::Allow);
        }
        // FS_IOC_SETFLAGS, FITRIM, KVM_CREATE_VM
        for other in [0x4008_6602, 0xc018_5879, 0xae01] {
            let expected = if devices {
                SyscallVerdict::Allow
            } else {
                errno(25)
            };
            assert_eq!(filter.verdict(&ioctl(other)), expected, "{other:x}");
        }
    }
}

fn under(profile: SyscallProfile, allow: &[&str], engine: Option<&LinuxSeccomp>) -> SyscallFilter {
    let (allow, deny) = (names(allow), names(&[]));
    let ours = FilterPolicy {
        allow: &allow,
        deny: &deny,
        set_id: true,
        attributes: true,
        profile,
        devices: true,
        denials: DenyMode::Notify,
    };
    let filter = compile(&FilterInput {
        ours: Some(ours),
        engine,
    });
    filter.unwrap().unwrap()
}

/// Calls with different verdicts in `agent` and `paranoid`, and `paranoid`'s errno.
const PARANOIDS: [(&str, [u64; 6], u16); 14] = [
    ("mmap", [0, 4096, 7, 0x22, u64::MAX, 0], 1),
    ("mmap", [0, 4096, 5, 0x22, u64::MAX, 0], 1),
    ("mmap", [0, 4096, 6, 0x2, 3, 0], 1),
    ("mprotect", [0x1000, 4096, 5, 0, 0, 0], 1),
    ("mprotect", [0x1000, 4096, 4 | 0x0100_0000, 0, 0, 0], 1),
    ("pkey_mprotect", [0x1000, 4096, 7, 0, 0, 0], 1),
    ("shmat", [0, 0, 0x8000, 0, 0, 0], 1),
    ("memfd_create", [0, 0, 0, 0, 0, 0], 1),
    ("memfd_create", [0, 0x18, 0, 0, 0, 0], 1),
    ("ioctl", [0, 0x540c, 0, 0, 0, 0], 25),
    ("ioctl", [0, 0xc020_4600, 0, 0, 0, 0], 25),
    ("prctl", [13, 0, 0, 0, 0, 0], 22),
    ("fcntl", [0, 10, 0, 0, 0, 0], 22),
    ("fcntl", [0, 1024 | 1 << 32, 0, 0, 0, 0], 22),
];

#[test]
fn paranoid_lists_requests_and_executes_no_memory() {
    let engine = bundle("docker26-run");
    for engine in [None, Some(&engine)] {
        let agent = under(SyscallProfile::Agent, &[], engine);
        let paranoid = under(SyscallProfile::Paranoid, &[], engine);
        // fcntl is checked, except for the requests that the listener's hand-over needs.
        assert_eq!(
            paranoid.listener,
            NotifyListener::Sidecar,
            "{:?}",
            paranoid.notes
        );
        for (name, args, errno) in PARANOIDS {
            let call = call(name, args);
            let answer = match errno {
                1 => SyscallVerdict::Notify(errno),
                _ => SyscallVerdict::Errno(errno),
            };
            assert_eq!(
                agent.verdict(&call),
                SyscallVerdict::Allow,
                "{name}({args:x?})"
            );
            assert_eq!(paranoid.verdict(&call), answer, "{name}({args:x?})");
        }
        for (name, args) in [
            ("mmap", [0, 4096, 3, 0x22, u64::MAX, 0]),
            ("mmap", [0, 4096, 5, 0x802, 3, 0]),
            ("mprotect", [0x1000, 4096, 1, 0, 0, 0]),
            ("shmat", [0; 6]),
            ("memfd_create", [0, 0x9, 0, 0, 0, 0]),
            ("ioctl", [0, 0x5401, 0, 0, 0, 0]),
            ("fcntl", [0, 1030, 0, 0, 0, 0]),
        ] {
            let verdict = paranoid.verdict(&call(name, args));
            assert_eq!(verdict, SyscallVerdict::Allow, "{name}({args:x?})");
        }
        // A call that is allowed by name is allowed with any arguments.
        let more = under(SyscallProfile::Paranoid, &["mprotect"], engine);
        let jit = call("mprotect", [0x1000, 4096, 5, 0, 0, 0]);
        assert_eq!(more.verdict(&jit), SyscallVerdict::Allow);
        let typed = call("ioctl", [0, 0x5412, 0, 0, 0, 0]);
        assert_eq!(paranoid.verdict(&typed), SyscallVerdict::Notify(1));
    }
}

#[test]
fn debug_adds_what_its_file_says_and_ceilings_know_of() {
    let listed: Vec<&str> = source::more("DEBUG")
        .values()
        .map(|(name, _, _)| name.as_str())
        .collect();
    let mut known = SyscallProfile::Debug.adds().to_vec();
    known.sort_by_key(|name| name.parse::<SyscallName>().unwrap().number());
    assert_eq!(listed, known);
    let (agent, debug) = (
        under(SyscallProfile::Agent, &[], None),
        under(SyscallProfile::Debug, &[], None),
    );
    for name in SyscallName::all() {
        let call = call(name.as_str(), [0; 6]);
        let is_added = listed.contains(&name.as_str());
        assert_eq!(
            debug.verdict(&call) == SyscallVerdict::Allow,
            is_added || agent.verdict(&call) == SyscallVerdict::Allow,
            "{name}"
        );
        assert_eq!(
            is_added,
            debug.verdict(&call) != agent.verdict(&call),
            "{name}"
        );
    }
}
