//! PURE. The policy's effect on a process: the init process, and each exec process.

use std::collections::BTreeSet;

use oci_spec::runtime::{
    Capabilities, LinuxCapabilities, PosixRlimit, PosixRlimitBuilder, PosixRlimitType, Process,
};

use super::decided::Plan;
use super::privileges::CapabilitySets;
use super::{environment, neutral};
use crate::policy::Capability;

/// The process as it may run under the plan: no_new_privs, limited capabilities, no core dumps, no raised priority.
///
/// RLIMIT_CORE is 1, soft and hard: with 0 a `core_pattern` that is a pipe still starts its helper, as root on
/// the host (core(5), "Piping core dumps to a program"). It is 0 only where the user of `wrap` cannot raise it.
pub fn confine(mut process: Process, plan: &Plan) -> Process {
    let sets = CapabilitySets::of(process.capabilities().as_ref()).limited(&plan.capability_limit);
    process.set_capabilities(Some(to_spec(&sets)));
    process.set_no_new_privileges(Some(true));
    neutral::process(&mut process);
    let mut limits: Vec<PosixRlimit> = process.rlimits().clone().unwrap_or_default();
    limits.retain(|l| l.typ() != PosixRlimitType::RlimitCore);
    limits.push(core_limit(plan.core_bytes));
    process.set_rlimits(Some(limits));
    environment::set(&mut process, &plan.network);
    process
}

/// The limit with which a crash starts no program of the node.
pub(super) fn no_core() -> u64 {
    1
}

pub(super) fn is_no_core(bytes: &u64) -> bool {
    *bytes == no_core()
}

/// What `explain` says of core files: the words for both limits.
pub fn core_words(core_bytes: u64) -> &'static str {
    match core_bytes {
        0 => {
            "a crash starts the node's core_pattern program as without agentbox, since the caller's hard limit of core files is 0"
        }
        _ => "no core dumps",
    }
}

fn core_limit(bytes: u64) -> PosixRlimit {
    PosixRlimitBuilder::default()
        .typ(PosixRlimitType::RlimitCore)
        .hard(bytes)
        .soft(bytes)
        .build()
        .expect("all three fields of a limit are set")
}

/// The sets in the spec's type.
pub fn to_spec(sets: &CapabilitySets) -> LinuxCapabilities {
    let parse = |set: &BTreeSet<Capability>| -> Capabilities {
        let names = set.iter().map(|capability| capability.short_name());
        names.filter_map(|name| name.parse().ok()).collect()
    };
    let mut out = LinuxCapabilities::default();
    out.set_bounding(Some(parse(&sets.bounding)));
    out.set_effective(Some(parse(&sets.effective)));
    out.set_permitted(Some(parse(&sets.permitted)));
    out.set_inheritable(Some(parse(&sets.inheritable)));
    out.set_ambient(Some(parse(&sets.ambient)));
    out
}
