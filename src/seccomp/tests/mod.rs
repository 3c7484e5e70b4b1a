//! Tests of the whole: the data, the compiler against two references, both sides merged, and the kernel itself.

mod against;
mod engine;
mod merge;
mod source;

use crate::kernel::SyscallName;
use std::collections::BTreeSet;

use super::interp::ARCH_X86_64;
use super::{
    DenyMode, FilterInput, FilterPolicy, LinuxSeccomp, SyscallData, SyscallFilter, SyscallVerdict,
    compile,
};

fn names(names: &[&str]) -> BTreeSet<SyscallName> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn ours(allow: &[&str], deny: &[&str], engine: Option<&LinuxSeccomp>) -> SyscallFilter {
    let (allow, deny) = (names(allow), names(deny));
    let ours = FilterPolicy {
        allow: &allow,
        deny: &deny,
        set_id: true,
        attributes: true,
        profile: crate::policy::SyscallProfile::Agent,
        devices: false,
        denials: DenyMode::Errno,
    };
    compile(&FilterInput {
        ours: Some(ours),
        engine,
    })
    .unwrap()
    .unwrap()
}

fn engine_alone(engine: &LinuxSeccomp) -> SyscallFilter {
    compile(&FilterInput {
        ours: None,
        engine: Some(engine),
    })
    .unwrap()
    .unwrap()
}

fn call(name: &str, args: [u64; 6]) -> SyscallData {
    let number = name.parse::<SyscallName>().unwrap().number();
    SyscallData {
        number,
        arch: ARCH_X86_64,
        args,
    }
}

/// A profile that a real engine wrote.
fn bundle(name: &str) -> LinuxSeccomp {
    let json = match name {
        "docker26-run" => include_str!("../../../integration/fixtures/bundles/docker26-run.json"),
        "docker20-run" => include_str!("../../../integration/fixtures/bundles/docker20-run.json"),
        "docker28-run" => include_str!("../../../integration/fixtures/bundles/docker28-run.json"),
        "podman43-run" => include_str!("../../../integration/fixtures/bundles/podman43-run.json"),
        "podman54-run" => include_str!("../../../integration/fixtures/bundles/podman54-run.json"),
        "cri21-container" => {
            include_str!("../../../integration/fixtures/bundles/cri21-container.json")
        }
        _ => unreachable!("{name} is no fixture"),
    };
    let spec: oci_spec::runtime::Spec = serde_json::from_str(json).unwrap();
    spec.linux().as_ref().unwrap().seccomp().clone().unwrap()
}

const BUNDLES: [&str; 6] = [
    "docker20-run",
    "docker26-run",
    "docker28-run",
    "podman43-run",
    "podman54-run",
    "cri21-container",
];

/// A profile written in a test.
fn profile(json: &str) -> LinuxSeccomp {
    serde_json::from_str(json).unwrap()
}

#[test]
fn without_rules_there_is_no_filter() {
    assert_eq!(
        compile(&FilterInput {
            ours: None,
            engine: None
        }),
        Ok(None)
    );
}

/// Interesting numbers to test.
fn interesting_numbers() -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..=600).collect();
    numbers.extend((0..=600).map(|number| number | 0x4000_0000));
    numbers.extend([
        0x3fff_ffff,
        0x7fff_ffff,
        0x8000_0000,
        0x8000_0001,
        0xbfff_ffff,
        0xc000_0000,
        0xffff_fffe,
        u32::MAX,
    ]);
    numbers
}

/// Values around those in a rule, with and without a high half, and every single bit.
fn interesting_values(named: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut values: BTreeSet<u64> = (0..64).map(|bit| 1 << bit).collect();
    values.extend([0, u64::MAX, u64::from(u32::MAX)]);
    for value in named {
        for near in [value.wrapping_sub(1), value, value.wrapping_add(1)] {
            values.extend([
                near,
                near | 1 << 32,
                near | 1 << 63,
                near & 0xffff_ffff,
                near ^ 0x8000_0000,
            ]);
        }
    }
    values.into_iter().collect()
}

fn errno(number: u16) -> SyscallVerdict {
    SyscallVerdict::Errno(number)
}
