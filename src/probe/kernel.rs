//! Facts about the kernel and the machine.

use std::collections::BTreeSet;

use crate::cgroup::delegated;
use crate::cgroup::hierarchies::Hierarchies;
use crate::plan::{HostFacts, PersonFacts, PersonsCgroup};
use crate::scratch::possible;
use crate::sys::{kernel, user_namespace};

/// Reads the host facts.
pub fn host() -> HostFacts {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let version = kernel::version();
    let memory = rustix::system::sysinfo();
    let processors = rustix::thread::sched_getaffinity(None);
    // The caller is root of a namespace with one user.
    let person = user_namespace::only_user().ok().flatten();
    let delegated = person.and_then(|_| delegated::of_self());
    HostFacts {
        landlock_abi: crate::sys::process::landlock_abi().unwrap_or(0),
        seccomp: crate::sys::signal::can_kill_by_seccomp(),
        wait_killable: crate::sys::seccomp::can_wait_killable(),
        overlayfs: knows_file_system("overlay"),
        controllers: match (&person, &delegated) {
            (None, _) => controllers(),
            // Mounted hierarchies are for root; this user has only the delegated one.
            (Some(_), Some(delegated)) => delegated.controllers.clone(),
            (Some(_), None) => BTreeSet::new(),
        },
        memory_bytes: memory.totalram.saturating_mul(u64::from(memory.mem_unit)),
        processors: processors.map_or(1, |set| set.count()),
        core_socket: std::fs::read("/proc/sys/kernel/core_pattern")
            .is_ok_and(|pattern| pattern.starts_with(b"@")),
        core_bytes: kernel::core_bytes(),
        no_disk: match person {
            Some(_) => Some("only root can make one".to_owned()),
            None => possible::why_not(),
        },
        person: person.map(|person| PersonFacts {
            groups: other_groups(person.gid),
            cgroup: match &delegated {
                Some(_) => PersonsCgroup::Given,
                None if delegated::is_possible() => PersonsCgroup::NotGiven,
                None => PersonsCgroup::Version1,
            },
        }),
        release,
        version,
    }
}

/// The controllers of the hierarchies in the usual places of engines. An unreadable hierarchy has none: a limit that
/// cannot be enforced is refused.
fn controllers() -> BTreeSet<String> {
    let Ok(found) = Hierarchies::of_node() else {
        return BTreeSet::new();
    };
    if let (true, Some(root)) = (found.is_unified(), found.v2()) {
        // The root of cgroup v2 has this file (cgroups(7)).
        let text = std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        return text.split_whitespace().map(str::to_owned).collect();
    }
    ["cpu", "memory", "pids"]
        .into_iter()
        .filter(|name| !found.usual_v1(&[name]).is_empty())
        .map(str::to_owned)
        .collect()
}

/// How many groups the caller has besides the mapped one.
fn other_groups(own: u32) -> usize {
    let groups = crate::sys::user::groups().unwrap_or_default();
    // The mapped group shows as 0; each other group shows as the overflow group.
    groups.iter().filter(|g| **g != 0 && **g != own).count()
}

/// Whether fsopen(2) knows a file system. The call loads its module if needed.
fn knows_file_system(name: &str) -> bool {
    rustix::mount::fsopen(name, rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC).is_ok()
}
