#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]
//! sched_setattr(2).

use std::io;

/// The kernel's structure, without its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchedulerAttributes {
    /// `SCHED_*`
    pub policy: u32,
    /// `SCHED_FLAG_*`
    pub flags: u64,
    /// For `SCHED_OTHER` and `SCHED_BATCH`.
    pub nice: i32,
    /// For `SCHED_FIFO` and `SCHED_RR`.
    pub priority: u32,
    /// For `SCHED_DEADLINE`, in nanoseconds.
    pub runtime: u64,
    /// As above.
    pub deadline: u64,
    /// As above.
    pub period: u64,
}

/// Sets the scheduling of the calling thread.
pub fn set(attributes: SchedulerAttributes) -> io::Result<()> {
    let size = u32::try_from(size_of::<libc::sched_attr>()).map_err(io::Error::other)?;
    let attributes = libc::sched_attr {
        size,
        sched_policy: attributes.policy,
        sched_flags: attributes.flags,
        sched_nice: attributes.nice,
        sched_priority: attributes.priority,
        sched_runtime: attributes.runtime,
        sched_deadline: attributes.deadline,
        sched_period: attributes.period,
    };
    // SAFETY: the kernel reads as many bytes as the structure says that it has, and writes none that the size covers.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
