//! Counters of the kernel that the sidecar reads while the container runs: attempts by address, and limits that were
//! reached. The timekeeper reads one: packets sent.

use std::fs::File;
use std::os::fd::OwnedFd;

use crate::audit::CountedLimit;
use crate::cgroup::controllers::Controllers;
use crate::cgroup::oom::{self, LimitFiles};
use crate::plan::Plan;
use crate::policy::NetworkMode;
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::store::ContainerPaths;
use crate::sidecar::{CountKind, KernelCount};
use crate::sys::procfs;

/// A limit of a container, and the file in which the kernel counts how often it was reached.
pub struct LimitCounter {
    /// The limit.
    pub limit: CountedLimit,
    /// Its files in the cgroup.
    pub files: LimitFiles,
    /// The policy's value.
    pub bound: Option<u64>,
}

/// The limits that the container's cgroup has.
pub fn limits(controllers: &Controllers, plan: Option<&Plan>) -> Vec<LimitCounter> {
    let bounds = plan.map(|plan| &plan.limits);
    let memory = oom::memory_files(controllers).map(|files| LimitCounter {
        limit: CountedLimit::Memory,
        files,
        bound: bounds.and_then(|bounds| bounds.memory_bytes),
    });
    let pids = oom::pids_files(controllers).map(|files| LimitCounter {
        limit: CountedLimit::Pids,
        files,
        bound: bounds.and_then(|bounds| bounds.pids.map(u64::from)),
    });
    memory.into_iter().chain(pids).collect()
}

/// The same, for the sidecar. Counters that this kernel lacks are left out.
pub(super) fn of_limits(
    controllers: Option<&Controllers>,
    plan: Option<&Plan>,
) -> Vec<KernelCount> {
    let all = controllers.map(|controllers| limits(controllers, plan));
    let open = |one: LimitCounter| {
        let LimitFiles { events, limit } = one.files;
        let files = [events, limit].map(File::open);
        let files: Result<Vec<File>, _> = files.into_iter().collect();
        let files = files
            .inspect_err(|error| log::debug!("{} is not counted: {error}", one.limit.field()))
            .ok()?;
        Some(KernelCount {
            of: CountKind::Limit(one.limit, one.bound),
            files: files.into_iter().map(OwnedFd::from).collect(),
        })
    };
    all.into_iter().flatten().filter_map(open).collect()
}

/// The files with the packets that the network of a process sends, IPv4's and IPv6's; empty if /proc has none.
pub fn of_traffic(process: ProcessId) -> Vec<OwnedFd> {
    let open = |name: &str| File::open(format!("/proc/{}/net/{name}", process.pid)).ok();
    let files: Vec<File> = ["snmp", "snmp6"].into_iter().map_while(open).collect();
    // Looked at last: another process may have its number by then.
    let files = files.into_iter().filter(|_| process.is_alive());
    files.map(OwnedFd::from).collect()
}

/// Attempts by address in a namespace of this mode, from its snmp and snmp6 files.
pub(super) fn of_addresses(mode: NetworkMode, counters: Vec<OwnedFd>) -> Vec<KernelCount> {
    let of = match mode {
        NetworkMode::None | NetworkMode::Local => [CountKind::Unrouted, CountKind::UnroutedV6],
        NetworkMode::Allowlist => [CountKind::Unanswered, CountKind::UnansweredV6],
    };
    let counted = of.into_iter().zip(counters);
    counted
        .map(|(of, file)| KernelCount {
            of,
            files: vec![file],
        })
        .collect()
}

/// How many processes of a container the kernel has killed for its limit of memory; asked while its cgroup exists.
pub fn killed_for_memory(place: &ContainerPaths) -> u64 {
    let record = Record::read(&place.dir()).ok();
    let controllers = record.and_then(|record| record.controllers);
    let files = controllers.and_then(|controllers| oom::memory_files(&controllers));
    let text = files.and_then(|files| procfs::text(files.events).ok());
    text.and_then(|text| oom::killed(&text)).unwrap_or(0)
}
