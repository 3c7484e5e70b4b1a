//! PURE. Settings of a process that a policy removes: those that favour the container over others on the node, and
//! those that no wall covers. They are left out, not refused, because programs run as well without them. The plan names
//! them.

use oci_spec::runtime::{
    IOPriorityClass, Linux, LinuxIOPriority, LinuxResources, LinuxSchedulerPolicy, PosixRlimitType,
    Process, Scheduler, Spec,
};

use super::reason::OmittedItem;

/// The default priority within the best-effort class (ioprio_set(2)).
const USUAL_IO_PRIORITY: i64 = 4;

/// Files of cgroup v2 that only limit the container itself. `memory.min` and `cpuset.cpus.partition` take from others;
/// `cgroup.*` change the tree.
const UNIFIED: &[&str] = &[
    "cpu.idle",
    "cpu.max",
    "cpu.max.burst",
    "cpu.uclamp.max",
    "cpu.weight",
    "cpu.weight.nice",
    "cpuset.cpus",
    "cpuset.mems",
    "io.bfq.weight",
    "io.max",
    "io.weight",
    "memory.high",
    "memory.max",
    "memory.oom.group",
    "memory.swap.high",
    "memory.swap.max",
    "memory.zswap.max",
    "misc.max",
    "pids.max",
    "rdma.max",
];

/// Removes from a process what favours it over others, and returns the names of the removed settings.
pub fn process(process: &mut Process) -> Vec<String> {
    let mut taken = Vec::new();
    if process.oom_score_adj().is_some_and(|score| score < 0) {
        // The kernel would kill the node's own services first.
        process.set_oom_score_adj(Some(0));
        taken.push("process.oomScoreAdj below 0".to_owned());
    }
    if process.scheduler().as_ref().is_some_and(is_urgent) {
        process.set_scheduler(None);
        taken.push("process.scheduler".to_owned());
    }
    if process.io_priority().is_some_and(is_urgent_io) {
        process.set_io_priority(None);
        taken.push("process.ioPriority".to_owned());
    }
    // With them the process could do the same without a capability.
    let urgent = [PosixRlimitType::RlimitRtprio, PosixRlimitType::RlimitNice];
    let mut limits = process.rlimits().clone().unwrap_or_default();
    let before = limits.len();
    limits.retain(|l| !urgent.contains(&l.typ()));
    if limits.len() != before {
        process.set_rlimits(Some(limits));
        taken.push("RLIMIT_RTPRIO and RLIMIT_NICE".to_owned());
    }
    taken
}

fn is_urgent(scheduler: &Scheduler) -> bool {
    use LinuxSchedulerPolicy::{SchedBatch, SchedIdle, SchedOther};
    let ordinary = [SchedOther, SchedBatch, SchedIdle].contains(scheduler.policy());
    !ordinary || scheduler.nice().is_some_and(|nice| nice < 0) || scheduler.flags().is_some()
}

fn is_urgent_io(priority: LinuxIOPriority) -> bool {
    match priority.class() {
        IOPriorityClass::IoprioClassRt => true,
        IOPriorityClass::IoprioClassBe => priority.priority() < USUAL_IO_PRIORITY,
        IOPriorityClass::IoprioClassIdle => false,
    }
}

/// Removes from the Linux section what no wall covers.
pub fn linux(linux: &mut Linux) -> Vec<String> {
    let mut taken = Vec::new();
    let mut took = |there: bool, name: &str| {
        if there {
            taken.push(name.to_owned());
        }
    };
    took(linux.personality().is_some(), "linux.personality");
    took(linux.intel_rdt().is_some(), "linux.intelRdt");
    took(linux.memory_policy().is_some(), "linux.memoryPolicy");
    took(linux.time_offsets().is_some(), "linux.timeOffsets");
    linux.set_personality(None);
    linux.set_intel_rdt(None);
    linux.set_memory_policy(None);
    linux.set_time_offsets(None);
    if let Some(mut limits) = linux.resources().clone() {
        taken.extend(resources(&mut limits));
        linux.set_resources(Some(limits));
    }
    taken
}

/// Removes from the limits what is no limit.
pub fn resources(resources: &mut LinuxResources) -> Vec<String> {
    let mut taken = Vec::new();
    if let Some(mut unified) = resources.unified().clone() {
        let other = |name: &&String| !is_limit(name);
        let mut others: Vec<String> = unified.keys().filter(other).cloned().collect();
        others.sort();
        unified.retain(|name, _| is_limit(name));
        let named = |name: String| format!("linux.resources.unified {name:?}");
        taken.extend(others.into_iter().map(named));
        resources.set_unified(Some(unified));
    }
    if let Some(mut cpu) = resources.cpu().clone()
        && (cpu.realtime_runtime().is_some() || cpu.realtime_period().is_some())
    {
        cpu.set_realtime_runtime(None);
        cpu.set_realtime_period(None);
        resources.set_cpu(Some(cpu));
        taken.push("linux.resources.cpu.realtimeRuntime and realtimePeriod".to_owned());
    }
    if resources.network().is_some() {
        // Classes of the node's own traffic control. No traffic leaves the container through them.
        resources.set_network(None);
        taken.push("linux.resources.network".to_owned());
    }
    taken
}

fn is_limit(name: &str) -> bool {
    let huge = name.strip_prefix("hugetlb.");
    let huge = huge.is_some_and(|rest| rest.ends_with(".max") && !rest.contains('/'));
    huge || UNIFIED.contains(&name)
}

/// What a policy removes from a spec.
pub(super) fn not_given(spec: &Spec) -> impl Iterator<Item = OmittedItem> {
    let from_process = spec.process().clone().map(|mut p| process(&mut p));
    let from_linux = spec.linux().clone().map(|mut l| linux(&mut l));
    let taken = from_process.into_iter().chain(from_linux).flatten();
    taken.map(|name| OmittedItem::Setting { name })
}
