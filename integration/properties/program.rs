//! Properties of any policy's filter program, beside Docker's profile or alone.

use std::collections::BTreeSet;

use agentbox::kernel::SyscallName;
use agentbox::plan::SyscallPlan;
use agentbox::policy::{Switch, SyscallProfile, Syscalls};
use agentbox::runtime::{RuntimeError, filter};
use agentbox::seccomp::{self, ARCH_X86_64, DenyMode, SeccompError, SyscallData, SyscallFilter};
use oci_spec::runtime::LinuxSeccomp;

use super::Dice;
use crate::fixtures;

const ARGUMENTS: [u64; 8] = [0, 1, 2, 16, 38, 0x5412, 0x10_0000, u64::MAX];

fn call(dice: &mut Dice, number: u32) -> SyscallData {
    let args = std::array::from_fn(|_| dice.pick(&ARGUMENTS));
    SyscallData {
        number,
        arch: ARCH_X86_64,
        args,
    }
}

/// Compiles; removes names that no policy can deny from `deny`.
fn compiled(syscalls: &mut Syscalls, engine: Option<&LinuxSeccomp>) -> SyscallFilter {
    for _ in 0..64 {
        let planned = SyscallPlan {
            allow: syscalls.allow.clone(),
            deny: syscalls.deny.clone(),
            profile: syscalls.profile,
            set_id: Switch::Off,
            set_id_cause: None,
            attributes: Switch::Off,
            engine_profile: engine.is_some(),
        };
        let asked = filter::FilterRequest {
            syscalls: &planned,
            devices: false,
            denials: DenyMode::Errno,
        };
        match filter::compile(Some(asked), engine) {
            Ok(filter) => return filter.unwrap(),
            Err(RuntimeError::Seccomp(SeccompError::DeniesRuntime { name })) => {
                syscalls
                    .deny
                    .retain(|denied| denied.as_str() != name.as_str());
            }
            Err(other) => panic!("{other}"),
        }
    }
    panic!("more than 64 calls cannot be denied");
}

fn names() -> Vec<SyscallName> {
    SyscallName::all().collect()
}

#[test]
fn an_allow_never_removes_a_deny_and_changes_no_other_call() {
    let mut dice = Dice::new(0x0123_4567_89ab_cdef);
    let spec = fixtures::bundle("docker26-run");
    let docker = spec.linux().as_ref().unwrap().seccomp().clone().unwrap();
    let alone = seccomp::compile(&seccomp::FilterInput {
        ours: None,
        engine: Some(&docker),
    });
    let alone = alone.unwrap().unwrap();
    let names = names();
    for round in 0..16 {
        let engine = (round % 2 == 0).then_some(&docker);
        let mut base = Syscalls {
            profile: SyscallProfile::Agent,
            allow: BTreeSet::new(),
            deny: dice.some(&names, 12).into_iter().collect(),
            limit: BTreeSet::new(),
        };
        let before = compiled(&mut base, engine);
        let allow: BTreeSet<_> = dice.some(&names, 6).into_iter().collect();
        let mut more = Syscalls {
            profile: SyscallProfile::Agent,
            allow: allow.clone(),
            deny: base.deny.clone(),
            limit: BTreeSet::new(),
        };
        let after = compiled(&mut more, engine);
        for name in &names {
            let call = call(&mut dice, name.number());
            let (was, is) = (before.verdict(&call), after.verdict(&call));
            if base.deny.contains(name) {
                assert!(was.is_denial() && is.is_denial(), "{name}: {was:?} {is:?}");
            } else if !allow.contains(name) {
                assert_eq!(was, is, "{name}");
            }
            if engine.is_some() && alone.verdict(&call).is_denial() {
                assert!(
                    is.is_denial(),
                    "{name} is allowed over the engine's profile"
                );
            }
        }
    }
}

#[test]
fn a_profile_lets_through_what_the_tighter_ones_do_and_more() {
    let mut dice = Dice::new(0x0f1e_2d3c_4b5a_6978);
    let spec = fixtures::bundle("docker26-run");
    let docker = spec.linux().as_ref().unwrap().seccomp().clone().unwrap();
    let names = names();
    for round in 0..8 {
        let engine = (round % 2 == 0).then_some(&docker);
        let base = Syscalls {
            profile: SyscallProfile::Agent,
            allow: dice.some(&names, 6).into_iter().collect(),
            deny: dice.some(&names, 6).into_iter().collect(),
            limit: BTreeSet::new(),
        };
        let filters = SyscallProfile::ALL.iter().map(|profile| {
            let mut syscalls = Syscalls {
                profile: *profile,
                ..base.clone()
            };
            compiled(&mut syscalls, engine)
        });
        let filters: Vec<SyscallFilter> = filters.collect();
        let mut tighter = 0;
        for name in names.iter().cycle().take(names.len() * 24) {
            let call = call(&mut dice, name.number());
            let denied = filters
                .iter()
                .map(|filter| filter.verdict(&call).is_denial());
            let denied: Vec<bool> = denied.collect();
            assert!(
                denied.is_sorted_by(|tight, loose| tight >= loose),
                "{name}: {denied:?}"
            );
            tighter += u32::from(denied[0] && !denied[1]);
        }
        assert!(tighter > 0);
    }
}
