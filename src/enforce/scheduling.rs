//! When and where the kernel runs an exec process: `process.scheduler`, `ioPriority`, `execCPUAffinity`, and
//! `linux.personality`. libcontainer sets them for init processes.

use libcontainer::config::PersonalityDomain;
use libcontainer::process::cpu_affinity::set_cpuset_affinity_from_string;
use libcontainer::syscall::syscall::create_syscall;
use oci_spec::runtime::{
    IOPriorityClass, LinuxPersonalityDomain, LinuxSchedulerFlag, LinuxSchedulerPolicy, Process,
    Scheduler, Spec,
};

use super::error::EnforceError;
use super::exec_process::in_words;
use crate::sys::scheduler::{self, SchedulerAttributes};

/// When a helper sets the processors of the process that it makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AffinityMoment {
    /// Before it enters the container's cgroups.
    Initial,
    /// Afterwards.
    Final,
}

/// Sets the processors on which the calling thread, and each process that it makes, may run.
pub(super) fn set_processors(
    process: Option<&Process>,
    moment: AffinityMoment,
) -> Result<(), EnforceError> {
    let affinity = process.and_then(|process| process.exec_cpu_affinity().as_ref());
    let list = affinity.and_then(|affinity| match moment {
        AffinityMoment::Initial => affinity.initial().as_deref(),
        AffinityMoment::Final => affinity.cpu_affinity_final().as_deref(),
    });
    list.map_or(Ok(()), |list| {
        set_cpuset_affinity_from_string(nix::unistd::Pid::this(), list)
            .map_err(in_words("set the processors of exec"))
    })
}

/// Sets the rest, in the process itself: a scheduler may end with a fork.
pub(super) fn set(spec: &Spec, process: &Process) -> Result<(), EnforceError> {
    if let Some(priority) = process.io_priority() {
        let class = match priority.class() {
            IOPriorityClass::IoprioClassRt => 1,
            IOPriorityClass::IoprioClassBe => 2,
            IOPriorityClass::IoprioClassIdle => 3,
        };
        create_syscall()
            .set_io_priority(class, priority.priority())
            .map_err(in_words("set the I/O priority"))?;
    }
    if let Some(scheduler) = process.scheduler() {
        scheduler::set(attributes(scheduler)).map_err(EnforceError::step("set the scheduler"))?;
    }
    let linux = spec.linux().as_ref();
    // `create` refuses flags.
    let Some(personality) = linux.and_then(|linux| linux.personality().as_ref()) else {
        return Ok(());
    };
    let domain = match personality.domain() {
        LinuxPersonalityDomain::PerLinux => PersonalityDomain::Linux,
        LinuxPersonalityDomain::PerLinux32 => PersonalityDomain::Linux32,
    };
    create_syscall()
        .personality(domain)
        .map_err(in_words("set the personality"))
}

/// The numbers of linux/sched.h.
fn attributes(scheduler: &Scheduler) -> SchedulerAttributes {
    let flag = |flag: &LinuxSchedulerFlag| match flag {
        LinuxSchedulerFlag::SchedResetOnFork => 0x01,
        LinuxSchedulerFlag::SchedFlagReclaim => 0x02,
        LinuxSchedulerFlag::SchedFlagDLOverrun => 0x04,
        LinuxSchedulerFlag::SchedFlagKeepPolicy => 0x08,
        LinuxSchedulerFlag::SchedFlagKeepParams => 0x10,
        LinuxSchedulerFlag::SchedFlagUtilClampMin => 0x20,
        LinuxSchedulerFlag::SchedFlagUtilClampMax => 0x40,
    };
    SchedulerAttributes {
        policy: match scheduler.policy() {
            LinuxSchedulerPolicy::SchedOther => 0,
            LinuxSchedulerPolicy::SchedFifo => 1,
            LinuxSchedulerPolicy::SchedRr => 2,
            LinuxSchedulerPolicy::SchedBatch => 3,
            LinuxSchedulerPolicy::SchedIso => 4,
            LinuxSchedulerPolicy::SchedIdle => 5,
            LinuxSchedulerPolicy::SchedDeadline => 6,
        },
        flags: scheduler
            .flags()
            .iter()
            .flatten()
            .map(flag)
            .fold(0, |all, one| all | one),
        nice: scheduler.nice().unwrap_or(0),
        priority: scheduler.priority().unwrap_or(0).unsigned_abs(),
        runtime: scheduler.runtime().unwrap_or(0),
        deadline: scheduler.deadline().unwrap_or(0),
        period: scheduler.period().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_scheduler_is_the_kernels_numbers() {
        let read = |text| attributes(&serde_json::from_value(text).unwrap());
        let batch = json!({ "policy": "SCHED_BATCH", "nice": 5, "flags": ["SCHED_RESET_ON_FORK"] });
        let expected = SchedulerAttributes {
            policy: 3,
            flags: 1,
            nice: 5,
            ..SchedulerAttributes::default()
        };
        assert_eq!(read(batch), expected);
        let deadline = json!({
            "policy": "SCHED_DEADLINE", "runtime": 1, "deadline": 2, "period": 3,
        });
        let expected = SchedulerAttributes {
            policy: 6,
            runtime: 1,
            deadline: 2,
            period: 3,
            ..SchedulerAttributes::default()
        };
        assert_eq!(read(deadline), expected);
    }
}
