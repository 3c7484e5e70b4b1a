//! Capability sets: those of the set-up, and the drop to the planned ones. And groups.

use std::collections::BTreeSet;
use std::io;

use oci_spec::runtime::{Capability as SpecCapability, LinuxCapabilities, Process};
use rustix::io::Errno;
use rustix::thread::{self, CapabilitySet};

use super::capabilities::bit;
use super::error::EnforceError;
use super::owner::GroupsOutcome;
use super::verify;
use crate::plan::CapabilitySets;
use crate::policy::Capability;
use crate::sys::user::set_effective_group;
use crate::sys::user_namespace::{self, Ids};

/// The capabilities that the steps from [`SetupRights::limit`] to [`drop_to`] need, and why.
const SETUP: &[SpecCapability] = &[
    SpecCapability::SysAdmin, // setns, mounts, loading filters without no_new_privs
    SpecCapability::Setpcap,  // dropping from the bounding set
    SpecCapability::NetAdmin, // entering the inner network namespace of a user namespace
    SpecCapability::NetBindService, // listeners of the wall on ports below 1024
    SpecCapability::Chown,    // private directories owned like the image's
    SpecCapability::Fowner,   // and with its modes
    SpecCapability::DacOverride, // whatever the user of the container is
    SpecCapability::Setuid,   // joining a user namespace as its user (exec)
    SpecCapability::Setgid,   // and setting its groups (all)
];

/// The rights of a process that the Executor sets, and libcontainer does not: it would make a system call for each
/// capability that a kernel knows, and thirty to look whether it may set groups.
#[derive(Debug, Default)]
pub struct SetupRights {
    /// What it has until [`drop_to`].
    capabilities: CapabilitySets,
    /// The program's supplementary groups.
    pub(super) groups: Vec<u32>,
}

impl SetupRights {
    /// Takes them out of the process that libcontainer gets, which has the capabilities of [`for_setup`].
    pub fn take(process: &mut Process) -> Self {
        let capabilities = CapabilitySets::of(process.capabilities().as_ref());
        process.set_capabilities(None);
        let mut user = process.user().clone();
        let groups = user.additional_gids().clone().unwrap_or_default();
        user.set_additional_gids(None);
        process.set_user(user);
        Self {
            capabilities,
            groups,
        }
    }

    /// The first step of our code in the process. The bounding set stays until [`drop_to`]: only execve(2) asks for it.
    pub(super) fn limit(&self) -> Result<(), EnforceError> {
        set(&self.capabilities).map_err(EnforceError::step("limit the capabilities of the set-up"))
    }
}

/// The sets for the set-up: `sets`, the set-up's, and `more`. [`drop_to`] drops the rest before execve.
pub fn for_setup(sets: &LinuxCapabilities, more: &[SpecCapability]) -> LinuxCapabilities {
    let mut out = sets.clone();
    let with = |set: &Option<oci_spec::runtime::Capabilities>| {
        let mut set = set.clone().unwrap_or_default();
        set.extend(SETUP.iter().chain(more).copied());
        Some(set)
    };
    out.set_bounding(with(sets.bounding()));
    out.set_effective(with(sets.effective()));
    out.set_permitted(with(sets.permitted()));
    out
}

/// Keeps the container's processes from tracing this one, or accessing its memory, until it executes the program.
///
/// libcontainer has made it undumpable. After a change of user `fs.suid_dumpable` decides, which is 1 on nodes under
/// debugging. Until the drop its capabilities keep weaker processes away. Afterwards only this bit does, and the filter
/// comes last (ptrace(2), "Ptrace access mode checking").
pub fn hide_from_tracers() -> Result<(), EnforceError> {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .map_err(EnforceError::step("become undumpable"))
}

/// Groups that a process can hold for a moment; a user namespace may map only some of them.
const BORROWED: [u32; 4] = [65534, 1, 2, 0];

/// Keeps the container's processes from tracing this one also after execve(2), up to [`give_group_back`].
///
/// A program that its user may read is dumpable when it begins, unless the executing process has different effective
/// and real groups (`begin_new_exec` and `commit_creds` of the kernel; `fs.suid_dumpable` must not be 1 for that).
/// Under no_new_privs most kernels then restore the real group themselves.
pub fn borrow_group() -> Result<(), EnforceError> {
    let step = "hide from tracers over execve(2)";
    let own = rustix::process::getgid().as_raw();
    let mut last = io::Error::from(io::ErrorKind::InvalidInput);
    for group in BORROWED.into_iter().filter(|group| *group != own) {
        match set_effective_group(group) {
            Ok(()) => return verify::borrowed_group(),
            Err(error) => last = error,
        }
    }
    // A user namespace with a single group has none to borrow.
    Err(EnforceError::step(step)(last))
}

/// Restores the group, in the executed program: its ids are those of every exec process again, and it stays hidden.
pub fn give_group_back() -> io::Result<()> {
    set_effective_group(rustix::process::getgid().as_raw())?;
    // After the change of ids, when fs.suid_dumpable applies.
    Ok(rustix::process::set_dumpable_behavior(
        rustix::process::DumpableBehavior::NotDumpable,
    )?)
}

/// Sets no_new_privs: libcontainer ignores errors of setting it. Setting it twice is harmless.
pub fn set_no_new_privs() -> Result<(), EnforceError> {
    rustix::thread::set_no_new_privs(true).map_err(EnforceError::step("set no_new_privs"))
}

/// Drops the calling process to exactly `sets`.
///
/// The bounding set first, which needs SETPCAP. Ambient capabilities last, since the kernel takes only permitted and
/// inheritable ones (capabilities(7)).
pub fn drop_to(sets: &CapabilitySets) -> Result<(), EnforceError> {
    let kept: CapabilitySet = sets.bounding.iter().map(|c| bit(*c)).collect();
    drop_from_bounding(kept).map_err(EnforceError::step("drop from the bounding set"))?;
    thread::clear_ambient_capability_set().map_err(EnforceError::step("clear the ambient set"))?;
    set(sets).map_err(EnforceError::step("set the capabilities"))?;
    for capability in &sets.ambient {
        thread::configure_capability_in_ambient_set(bit(*capability), true)
            .map_err(EnforceError::step("raise an ambient capability"))?;
    }
    Ok(())
}

/// Drops all but these from the bounding set, up to the kernel's last capability: a kernel may know more than we do.
/// Dropping one that is gone does nothing. Without SETPCAP the kernel refuses that too.
fn drop_from_bounding(kept: CapabilitySet) -> Result<(), Errno> {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(one) {
            continue;
        }
        let dropped = thread::remove_capability_from_bounding_set(one);
        let gone = dropped.or_else(|error| match error {
            Errno::PERM => match thread::capability_is_in_bounding_set(one)? {
                true => Err(error),
                false => Ok(()),
            },
            _ => Err(error),
        });
        match gone {
            // It has no capability of this number, and none of a higher one.
            Err(Errno::INVAL) => return Ok(()),
            other => other?,
        }
    }
    Ok(())
}

/// Leaves the calling process CAP_KILL, if it has that, and no other capability.
pub fn keep_kill() -> Result<(), EnforceError> {
    let step = || EnforceError::step("give up the capabilities");
    thread::clear_ambient_capability_set().map_err(step())?;
    let mut sets = thread::capabilities(None).map_err(step())?;
    let left = sets.effective & CapabilitySet::KILL;
    (sets.effective, sets.permitted) = (left, left);
    sets.inheritable = CapabilitySet::empty();
    thread::set_capabilities(None, sets).map_err(step())
}

/// Gives the process exactly these supplementary groups. libcontainer calls setgroups(2) only if the spec names some.
/// Otherwise the groups of the runtime's caller would stay, `root` and `sudo` among them.
pub fn set_groups(groups: &[u32]) -> Result<GroupsOutcome, EnforceError> {
    match crate::sys::user::set_groups(groups) {
        Ok(()) => Ok(GroupsOutcome::Done),
        // CAP_SETGID is in `SETUP`.
        Err(e) if e.raw_os_error() == Some(libc::EPERM) && groups.is_empty() => {
            Ok(GroupsOutcome::Forbidden)
        }
        Err(e) => Err(EnforceError::step("set the supplementary groups")(e)),
    }
}

/// Makes the process the user again: in a user namespace below the one in which it was root, with no rights over mounts
/// or the network. It has all capabilities there until they are dropped.
pub fn become_person(person: Ids) -> Result<(), EnforceError> {
    let step = "become the person who called";
    user_namespace::unshare_user().map_err(EnforceError::step(step))?;
    user_namespace::map_one(person, Ids { uid: 0, gid: 0 }).map_err(EnforceError::step(step))?;
    verify::person(person)
}

/// Sets the effective, permitted and inheritable sets in one call, also those of capabilities that we do not know.
fn set(sets: &CapabilitySets) -> Result<(), Errno> {
    let bits = |set: &BTreeSet<Capability>| set.iter().map(|c| bit(*c)).collect();
    let sets = thread::CapabilitySets {
        effective: bits(&sets.effective),
        permitted: bits(&sets.permitted),
        inheritable: bits(&sets.inheritable),
    };
    thread::set_capabilities(None, sets)
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::{LinuxCapabilitiesBuilder, ProcessBuilder, UserBuilder};

    use super::*;

    fn sets(all: &[SpecCapability]) -> LinuxCapabilities {
        let set: oci_spec::runtime::Capabilities = all.iter().copied().collect();
        LinuxCapabilitiesBuilder::default()
            .bounding(set.clone())
            .effective(set.clone())
            .permitted(set.clone())
            .inheritable(set.clone())
            .ambient(set)
            .build()
            .unwrap()
    }

    #[test]
    fn the_setup_gets_its_capabilities_in_three_sets_and_hands_none_on() {
        let own = sets(&[SpecCapability::Kill]);
        let setup = for_setup(&own, &[SpecCapability::SysChroot]);
        for set in [setup.bounding(), setup.effective(), setup.permitted()] {
            let set = set.as_ref().unwrap();
            assert!(SETUP.iter().all(|one| set.contains(one)));
            assert!(set.contains(&SpecCapability::Kill));
            assert!(set.contains(&SpecCapability::SysChroot));
            assert_eq!(set.len(), SETUP.len() + 2);
        }
        // execve(2) hands these two on.
        assert_eq!(setup.inheritable(), own.inheritable());
        assert_eq!(setup.ambient(), own.ambient());
    }

    #[test]
    fn libcontainer_gets_neither_capabilities_nor_groups() {
        let user = UserBuilder::default().uid(7u32).additional_gids([8, 9]);
        let mut process = ProcessBuilder::default()
            .capabilities(sets(&[SpecCapability::Kill]))
            .user(user.build().unwrap())
            .build()
            .unwrap();
        let rights = SetupRights::take(&mut process);
        assert!(process.capabilities().is_none());
        assert_eq!(process.user().additional_gids(), &None);
        assert_eq!(process.user().uid(), 7);
        assert_eq!(rights.groups, [8, 9]);
        assert_eq!(rights.capabilities.effective.len(), 1);
    }
}
