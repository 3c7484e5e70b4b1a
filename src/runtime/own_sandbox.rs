//! The way of a user without root's rights into a running sandbox of their own, for `exec` and `verify`.
//!
//! ```text
//! node's user namespace      the caller
//!   U1                       `wrap` made it ([`super::unprivileged`]); [`enter`] joins it, which the kernel allows its owner
//!     U2                     the init process; an exec process joins it last
//! ```
//! The record names the init process, and only the user can write it (`super::state::user_dirs`). Nevertheless the kernel is
//! asked each time whose namespaces these are: a number may be another process's by now.
//!
//! The init process is not dumpable. Its user namespace is opened by CAP_SYS_PTRACE in U1, which the owner has (ptrace(2),
//! "Ptrace access mode checking"). Yama restricts only attaching (PTRACE_MODE_ATTACH), which is not needed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::cli::GlobalOptions;
use crate::runtime::error::{RuntimeError, SandboxEntryError};
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::store::ContainerPaths;
use crate::runtime::unprivileged;
use crate::sys::user_namespace::{self, Ids};
use crate::sys::{process_id, procfs, user};

/// The user namespaces of a sandbox of `wrap`.
struct SandboxNamespaces {
    /// In which `wrap` is root.
    outer: OwnedFd,
    /// That of the init process.
    inner: OwnedFd,
    /// The init process.
    init: ProcessId,
}

impl SandboxNamespaces {
    /// Opens those of the process that the record names, and of no other that has its number by now.
    fn of(init: ProcessId) -> Result<Self, RuntimeError> {
        let alive = |now: bool| now.then_some(()).ok_or(RuntimeError::NotRunning);
        alive(init.is_alive())?;
        let opened = user_namespace::of_process(init.pid);
        alive(init.is_alive())?;
        let pid = init.pid;
        let inner = opened.map_err(|source| SandboxEntryError::Closed { pid, source })?;
        // Of the caller's own namespace, and of one above it, the kernel shows no parent.
        let outer = user_namespace::parent(inner.as_fd())
            .map_err(|_| foreign(init, "it is in this process's own namespace"))?;
        Ok(Self { outer, inner, init })
    }

    /// This user made both, and the outer one below the caller's own.
    fn check_maker(&self, uid: u32) -> Result<(), RuntimeError> {
        let maker = |one: &OwnedFd| {
            user_namespace::maker(one.as_fd()).map_err(RuntimeError::io(
                "look at the user namespaces of the sandbox",
            ))
        };
        if (maker(&self.outer)?, maker(&self.inner)?) != (uid, uid) {
            return Err(foreign(self.init, "another user made them"));
        }
        // The kernel shows none above the caller's own.
        let above = user_namespace::parent(self.outer.as_fd());
        match above.and_then(|above| is_own(&above)) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(foreign(
                self.init,
                "the outer one is not directly below this process's own",
            )),
        }
    }
}

fn foreign(init: ProcessId, why: &'static str) -> RuntimeError {
    SandboxEntryError::Foreign { pid: init.pid, why }.into()
}

fn is_own(namespace: &OwnedFd) -> io::Result<bool> {
    let own = user_namespace::of_process("self")?;
    user_namespace::is_same(namespace.as_fd(), own.as_fd())
}

/// Moves a caller without root's rights, which must have one thread, to the outer user namespace of a running sandbox of
/// theirs. Call [`super::seal::ensure`] next, which executes the program again there. Other callers stay where they are.
pub fn enter(global: &GlobalOptions, place: &ContainerPaths) -> Result<(), RuntimeError> {
    let Some(caller) = unprivileged::person().filter(|_| unprivileged::is_outside()) else {
        return Ok(());
    };
    // Until `start` lets go of it, the init process is in the outer namespace.
    let lock = place.lock_existing()?;
    let unknown = |error: RuntimeError| error.unknown_if_absent(place.id.as_str());
    let record = Record::read(&place.dir()).map_err(unknown)?;
    let init = record.init.ok_or(RuntimeError::NotRunning)?;
    let namespaces = SandboxNamespaces::of(init)?;
    namespaces.check_maker(caller.uid)?;
    refuse_groups(init)?;
    drop(lock);
    if record.controllers()?.unified().is_some() {
        // From another cgroup of the user's the kernel lets a process move to the sandbox's, and from a login session's not.
        unprivileged::settle();
    }
    unprivileged::join(global, namespaces.outer.as_fd())
}

/// The inner user namespace of a sandbox, for an exec process. This process must be root in the outer one.
pub fn inner(init: ProcessId) -> Result<OwnedFd, RuntimeError> {
    let namespaces = SandboxNamespaces::of(init)?;
    match is_own(&namespaces.outer) {
        Ok(true) => Ok(namespaces.inner),
        Ok(false) => Err(foreign(
            init,
            "this process is in the namespace of another sandbox",
        )),
        Err(error) => Err(RuntimeError::io("look at this process's user namespace")(
            error,
        )),
    }
}

/// The namespaces of the `wrap` that made a sandbox, by the kernel's names: the node's, and those that are root's of the
/// sandbox. In their place the init process's own mount namespace, if that belongs to another user namespace, as the node's
/// does: this process cannot see the node's own.
pub fn namespaces_of_wrap(init: ProcessId) -> io::Result<BTreeMap<String, String>> {
    let wrap = process_id::parent(init.pid)?;
    let link = |pid: i32, kind: &str| {
        let link = std::fs::read_link(format!("/proc/{pid}/ns/{kind}"))?;
        Ok::<_, io::Error>(link.to_string_lossy().into_owned())
    };
    let kinds = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];
    let mut all = kinds
        .into_iter()
        .map(|kind| Ok((kind.to_owned(), link(wrap, kind)?)))
        .collect::<io::Result<BTreeMap<_, _>>>()?;
    let mounts = user_namespace::mounts_of_process(init.pid)?;
    if !is_own(&user_namespace::owner_of(mounts.as_fd())?)? {
        all.insert("mnt".to_owned(), link(init.pid, "mnt")?);
    }
    match init.is_alive() {
        true => Ok(all),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Refuses a caller with a group that the init process does not have: in a user namespace a process keeps its groups
/// (user_namespaces(7)).
fn refuse_groups(init: ProcessId) -> Result<(), RuntimeError> {
    let path = format!("/proc/{}/status", init.pid);
    let step = || RuntimeError::io(format!("read the groups in {path}"));
    let status = procfs::lossy(&path).map_err(step())?;
    if !init.is_alive() {
        return Err(RuntimeError::NotRunning);
    }
    let theirs = groups_in(&status);
    let own = user::groups().map_err(step())?;
    let ids = crate::sys::process::group_ids().map_err(step())?;
    match own.into_iter().chain(ids).find(|one| !theirs.contains(one)) {
        Some(group) => Err(SandboxEntryError::Group(group).into()),
        None => Ok(()),
    }
}

/// The groups in /proc/PID/status (proc_pid_status(5)): the supplementary ones, and the ids. None if there are no such lines.
fn groups_in(status: &str) -> BTreeSet<u32> {
    let lines = status.lines().filter_map(|line| line.split_once(':'));
    let groups = lines.filter(|(name, _)| matches!(*name, "Gid" | "Groups"));
    let numbers = groups.flat_map(|(_, all)| all.split_ascii_whitespace());
    numbers.filter_map(|one| one.parse().ok()).collect()
}

/// The user whose rights an exec process of this container ends with, if its init process is in a user namespace below
/// this process's.
pub fn person_of(record: &Record) -> Option<Ids> {
    unprivileged::inside().filter(|_| record.plan().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> ProcessId {
        ProcessId::of(std::process::id().cast_signed()).unwrap()
    }

    #[test]
    fn a_process_of_the_nodes_own_namespace_is_no_sandbox() {
        let refused = inner(own()).unwrap_err().to_string();
        assert!(refused.contains("own namespace"), "{refused}");
        let earlier = ProcessId {
            start_time: own().start_time - 1,
            ..own()
        };
        assert!(matches!(inner(earlier), Err(RuntimeError::NotRunning)));
    }

    #[test]
    fn the_groups_of_a_process_are_its_ids_and_the_supplementary_ones() {
        let status =
            "Name:\tGroups: 7\nUid:\t5\t5\t5\t5\nGid:\t1\t1\t2\t1\nGroups:\t27 1000 \nNSpid:\t9\n";
        assert_eq!(groups_in(status), [1, 2, 27, 1000].into());
        assert!(groups_in("Groups:\t \n").is_empty());
        assert!(groups_in("").is_empty());
    }
}
