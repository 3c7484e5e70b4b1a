//! Checks of the process's own state, in the kernel, before it executes the container's code.
//!
//! Only prctl(2) and capget(2): the container's /proc could be anything.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

use oci_spec::runtime::Spec;

use super::error::EnforceError;
use super::owner::{GroupsOutcome, Ruler};
use super::{capabilities as sets, process};
use crate::plan::CapabilitySets;
use crate::sys::user_namespace::Ids;

/// The capability sets are the planned ones.
pub fn capabilities(planned: &CapabilitySets) -> Result<(), EnforceError> {
    let found = sets::current()?;
    if found == *planned {
        return Ok(());
    }
    Err(EnforceError::Verify {
        what: "the set of capabilities",
        planned: format!("{planned:?}"),
        found: format!("{found:?}"),
    })
}

/// no_new_privs is on: libcontainer ignores errors of setting it.
pub fn no_new_privs() -> Result<(), EnforceError> {
    let found = rustix::thread::no_new_privs().map_err(EnforceError::step("read no_new_privs"))?;
    if found {
        return Ok(());
    }
    Err(EnforceError::Verify {
        what: "no_new_privs",
        planned: true.to_string(),
        found: found.to_string(),
    })
}

/// No process without CAP_SYS_PTRACE can trace this one.
pub fn hidden_from_tracers() -> Result<(), EnforceError> {
    let found = rustix::process::dumpable_behavior()
        .map_err(EnforceError::step("read the dumpable bit"))?;
    if found == rustix::process::DumpableBehavior::NotDumpable {
        return Ok(());
    }
    Err(EnforceError::Verify {
        what: "the dumpable bit",
        planned: "not dumpable".to_owned(),
        found: format!("{found:?}"),
    })
}

/// The effective group differs from the real one.
pub fn borrowed_group() -> Result<(), EnforceError> {
    let real = rustix::process::getgid();
    if rustix::process::getegid() != real {
        return Ok(());
    }
    Err(EnforceError::Verify {
        what: "the effective group",
        planned: "another one than the real one".to_owned(),
        found: real.as_raw().to_string(),
    })
}

/// No user may read this program, so that the kernel makes a process that executes it undumpable.
pub fn unreadable(program: BorrowedFd<'_>) -> Result<(), EnforceError> {
    let step = EnforceError::step("read the mode of the program");
    let mode = rustix::fs::fstat(program).map_err(step)?.st_mode & 0o7777;
    match mode & 0o444 {
        0 => Ok(()),
        _ => Err(EnforceError::Verify {
            what: "the mode of the program",
            planned: "readable by no user".to_owned(),
            found: format!("{mode:o}"),
        }),
    }
}

/// A seccomp filter is loaded.
pub fn seccomp() -> Result<(), EnforceError> {
    let found = rustix::thread::secure_computing_mode()
        .map_err(EnforceError::step("read the seccomp mode"))?;
    if found == rustix::thread::SecureComputingMode::Filter {
        return Ok(());
    }
    Err(EnforceError::Verify {
        what: "the seccomp mode",
        planned: "filter".to_owned(),
        found: format!("{found:?}"),
    })
}

/// The supplementary groups are the spec's, and none of the runtime's caller.
///
/// If a user namespace forbids setgroups(2), the caller's groups stay. Then there must be none but the process's own
/// group, which it has anyway. Without a policy extra groups are accepted, as in runc.
pub fn groups(
    spec: &Spec,
    planned: &[u32],
    set: GroupsOutcome,
    ruler: Ruler,
) -> Result<(), EnforceError> {
    let own = process::gid(spec);
    let found = crate::sys::user::groups().map_err(EnforceError::step("read the groups"))?;
    let forbidden = set == GroupsOutcome::Forbidden;
    let lenient = forbidden && ruler == Ruler::Engine;
    // None can have been added since `create`: setgroups(2) is forbidden there.
    let kept = set == GroupsOutcome::Persons;
    if lenient || kept || are_planned(planned, own, &found, set) {
        return Ok(());
    }
    let why = if forbidden {
        " of the runtime's caller, because this user namespace forbids setgroups(2): start the runtime without \
         supplementary groups, or map its groups with newgidmap"
    } else {
        ""
    };
    Err(EnforceError::Verify {
        what: "the list of supplementary groups",
        planned: format!("{planned:?}"),
        found: format!("{found:?}{why}"),
    })
}

/// All ids of the process are this user's.
pub fn person(planned: Ids) -> Result<(), EnforceError> {
    let step = || EnforceError::step("read the ids");
    let uids = crate::sys::process::user_ids().map_err(step())?;
    let gids = crate::sys::process::group_ids().map_err(step())?;
    if uids == [planned.uid; 3] && gids == [planned.gid; 3] {
        return Ok(());
    }
    Err(EnforceError::Verify {
        what: "the user",
        planned: format!("{planned:?}"),
        found: format!("{uids:?} {gids:?}"),
    })
}

/// In any order, each once.
fn are_planned(planned: &[u32], own: u32, found: &[u32], set: GroupsOutcome) -> bool {
    let others = |groups: &[u32]| -> BTreeSet<u32> {
        let all = groups.iter().copied();
        all.filter(|g| set == GroupsOutcome::Done || *g != own)
            .collect()
    };
    others(planned) == others(found)
}

#[cfg(test)]
mod tests {
    use super::GroupsOutcome::{Done, Forbidden};
    use super::*;

    #[test]
    fn a_program_that_can_be_read_is_not_hidden() {
        use std::os::fd::AsFd;
        let own = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(unreadable(own.as_fd()).is_err());
        let (_reader, unreadable_file) = std::io::pipe().unwrap();
        // A pipe's mode is its owner's 0600.
        assert!(unreadable(unreadable_file.as_fd()).is_err());
    }

    #[test]
    fn no_group_of_the_caller_is_left() {
        assert!(are_planned(&[], 0, &[], Done));
        assert!(are_planned(&[8, 7, 7], 0, &[7, 8], Done));
        for (planned, found) in [
            (&[][..], &[0][..]),
            (&[], &[27]),
            (&[7], &[7, 27]),
            (&[7, 8], &[7]),
        ] {
            assert!(!are_planned(planned, 0, found, Done), "{found:?}");
        }
    }

    #[test]
    fn where_groups_cannot_be_set_only_the_processes_own_may_stay() {
        assert!(are_planned(&[], 1000, &[1000], Forbidden));
        assert!(are_planned(&[1000, 7], 1000, &[7], Forbidden));
        assert!(!are_planned(&[], 1000, &[1000, 27], Forbidden));
        // An unmapped group shows as the overflow group, and still gives rights outside.
        assert!(!are_planned(&[], 1000, &[65534], Forbidden));
    }
}
