//! Capabilities and no_new_privs, as the kernel reports them.

use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use crate::policy::Capability;
use crate::verify::probe::{Attempt, Finding, Probe, ProbedWall};
use crate::verify::promise::Promise;

/// The probes.
pub const PROBES: &[Probe] = &[
    Probe {
        id: "no-new-privs",
        wall: ProbedWall::Privileges,
        threats: &["S15"],
        tried: "read no_new_privs from the kernel",
        expected: "set",
        means: "a set-user-ID program of the image can raise the container's privileges",
        remedy: "recreate the container under a policy",
        promised: |p| p.walls.is_some(),
        attempt: Attempt::Finds(no_new_privs),
    },
    Probe {
        id: "capabilities",
        wall: ProbedWall::Privileges,
        threats: &["S15", "F18", "N17"],
        tried: "read the effective, permitted, inheritable, ambient and bounding capabilities from the kernel",
        expected: "none beyond the policy's privileges.capabilities",
        means: "processes of the container have privileges that the policy does not grant",
        remedy: "recreate the container; `agentbox explain ID` lists the planned capabilities",
        promised: |p| p.walls.is_some(),
        attempt: Attempt::Finds(capabilities),
    },
];

fn no_new_privs(_: &Promise) -> Finding {
    match rustix::thread::no_new_privs() {
        Ok(true) => Finding::held("set"),
        Ok(false) => Finding::not_held("not set"),
        Err(error) => Finding::not_tried(format!("prctl: {error}")),
    }
}

/// A capability that the kernel does not know (EINVAL, capabilities(7)) is in no set.
fn has(answer: Result<bool, Errno>) -> Result<bool, Errno> {
    match answer {
        Err(Errno::INVAL) => Ok(false),
        other => other,
    }
}

fn capabilities(promise: &Promise) -> Finding {
    let sets = match rustix::thread::capabilities(None) {
        Ok(sets) => sets,
        Err(error) => return Finding::not_tried(format!("capget: {error}")),
    };
    let may = |one: Capability| promise.has(|walls| walls.capabilities.contains(&one));
    let mut faults = Vec::new();
    for one in Capability::all().filter(|one| !may(*one)) {
        let bit = CapabilitySet::from_bits_retain(1 << one.number());
        let read = has(rustix::thread::capability_is_in_bounding_set(bit)).and_then(|bounding| {
            Ok((
                bounding,
                has(rustix::thread::capability_is_in_ambient_set(bit))?,
            ))
        });
        let (bounding, ambient) = match read {
            Ok(read) => read,
            Err(errno) => return Finding::not_tried(format!("prctl, {one}: {errno}")),
        };
        faults.extend(fault(
            one,
            [
                ("effective", sets.effective.contains(bit)),
                ("permitted", sets.permitted.contains(bit)),
                ("inheritable", sets.inheritable.contains(bit)),
                ("ambient", ambient),
                ("bounding", bounding),
            ],
        ));
    }
    Finding::of_faults(
        &faults,
        format!(
            "none beyond the policy's; effective: {:#x}",
            sets.effective.bits()
        ),
    )
}

/// The sets that hold a capability which the policy does not give; `None` if none does.
fn fault(capability: Capability, sets: [(&str, bool); 5]) -> Option<String> {
    let held = sets.iter().filter(|(_, holds)| *holds);
    let names: Vec<&str> = held.map(|(name, _)| *name).collect();
    (!names.is_empty()).then(|| format!("{capability} ({})", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_in_any_set_is_a_fault() {
        let names = [
            "effective",
            "permitted",
            "inheritable",
            "ambient",
            "bounding",
        ];
        let one: Capability = "CAP_SYS_ADMIN".parse().unwrap();
        assert_eq!(fault(one, names.map(|name| (name, false))), None);
        for holder in names {
            let found = fault(one, names.map(|name| (name, name == holder)));
            assert_eq!(found, Some(format!("{one} ({holder})")));
        }
        let all = fault(one, names.map(|name| (name, true)));
        assert_eq!(all, Some(format!("{one} ({})", names.join(", "))));
    }

    #[test]
    fn a_capability_that_the_kernel_does_not_know_is_in_no_set() {
        assert_eq!(has(Err(Errno::INVAL)), Ok(false));
        assert_eq!(has(Err(Errno::PERM)), Err(Errno::PERM));
        assert_eq!(has(Ok(true)), Ok(true));
    }
}
