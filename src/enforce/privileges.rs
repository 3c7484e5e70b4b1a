//! Capability sets: libcontainer's, with those of the set-up, and the drop to the planned ones. And groups.

use std::collections::BTreeSet;
use std::io;

use caps::{CapSet, Capability, CapsHashSet};
use oci_spec::runtime::{Capability as SpecCapability, LinuxCapabilities};

use super::{EnforceError, verify};
use crate::plan::CapabilitySets;
use crate::policy;
use crate::sys::user::set_effective_group;
use crate::sys::user_namespace::{self, Ids};

/// The capabilities that the steps between libcontainer's own drop and ours need, and why.
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

/// The sets for libcontainer: `sets`, the set-up's, and `more`. [`drop_to`] drops the rest before execve.
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
    let wanted = parse(&sets.bounding)?;
    let bounding = caps::read(None, CapSet::Bounding).map_err(failed("read the bounding set"))?;
    for extra in bounding.difference(&wanted) {
        caps::drop(None, CapSet::Bounding, *extra).map_err(failed("drop from the bounding set"))?;
    }
    caps::clear(None, CapSet::Ambient).map_err(failed("clear the ambient set"))?;
    // Effective must be a subset of permitted at each step.
    caps::set(None, CapSet::Effective, &parse(&sets.effective)?)
        .map_err(failed("set the effective capabilities"))?;
    caps::set(None, CapSet::Permitted, &parse(&sets.permitted)?)
        .map_err(failed("set the permitted capabilities"))?;
    caps::set(None, CapSet::Inheritable, &parse(&sets.inheritable)?)
        .map_err(failed("set the inheritable capabilities"))?;
    for capability in parse(&sets.ambient)? {
        caps::raise(None, CapSet::Ambient, capability)
            .map_err(failed("raise an ambient capability"))?;
    }
    Ok(())
}

/// Leaves the calling process CAP_KILL, if it has that, and no other capability.
pub fn keep_kill() -> Result<(), EnforceError> {
    let step = "give up the capabilities";
    let has = caps::has_cap(None, CapSet::Effective, Capability::CAP_KILL).map_err(failed(step))?;
    let left: CapsHashSet = has.then_some(Capability::CAP_KILL).into_iter().collect();
    caps::clear(None, CapSet::Ambient).map_err(failed(step))?;
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &left).map_err(failed(step))?;
    }
    caps::clear(None, CapSet::Inheritable).map_err(failed(step))
}

/// Whose supplementary groups a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupsOutcome {
    /// The spec's.
    Done,
    /// The caller's: the user namespace forbids setgroups(2) (user_namespaces(7)).
    Forbidden,
    /// The user's, who runs `wrap` without root's rights and cannot drop them. The plan says so.
    Persons,
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

/// The sets of the calling process, as the kernel reports them.
pub fn current() -> Result<CapabilitySets, EnforceError> {
    let read = |set| -> Result<BTreeSet<policy::Capability>, EnforceError> {
        let found = caps::read(None, set).map_err(failed("read the capabilities"))?;
        let found = found.into_iter().map(|c| c.to_string().parse());
        found.collect::<Result<_, _>>().map_err(unknown)
    };
    let (permitted, inheritable) = (read(CapSet::Permitted)?, read(CapSet::Inheritable)?);
    // The kernel keeps in the ambient set only what is in both (capabilities(7)); to ask takes a call for each capability.
    let ambient = match permitted.is_disjoint(&inheritable) {
        true => BTreeSet::new(),
        false => read(CapSet::Ambient)?,
    };
    Ok(CapabilitySets {
        bounding: read(CapSet::Bounding)?,
        effective: read(CapSet::Effective)?,
        permitted,
        inheritable,
        ambient,
    })
}

fn parse(set: &BTreeSet<policy::Capability>) -> Result<CapsHashSet, EnforceError> {
    set.iter()
        .map(|capability| {
            capability
                .as_str()
                .parse::<Capability>()
                .map_err(failed("parse a capability"))
        })
        .collect()
}

fn unknown(error: policy::ValueError) -> EnforceError {
    EnforceError::step("read the capabilities")(std::io::Error::other(error))
}

fn failed(step: &'static str) -> impl FnOnce(caps::errors::CapsError) -> EnforceError {
    move |e| EnforceError::Step {
        step: step.to_owned(),
        source: std::io::Error::other(e.to_string()),
    }
}
