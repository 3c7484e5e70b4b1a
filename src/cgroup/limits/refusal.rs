//! Why a limit of a running container cannot be set.

/// Why a limit cannot be set. If runc refuses the same, the words are runc's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitRefusal {
    /// The limit's controller is not mounted.
    #[error("this node has no cgroup controller {0:?}")]
    NoController(String),
    /// cgroup v2 has no such limit: the request, with its verb.
    #[error("{0} cgroup v1")]
    NeedsV1(&'static str),
    /// `unified` on cgroup v1.
    #[error("`unified` needs cgroup v2, and this node has cgroup v1")]
    UnifiedOnV1,
    /// The kernel accepts no new rdma limits.
    #[error("limits of rdma cannot be changed")]
    Rdma,
    /// Out of range.
    #[error("memory.swappiness {0} is not 0 to 100")]
    Swappiness(u64),
    /// The kernel reduced the shares.
    #[error("the maximum allowed cpu-shares is {0}")]
    SharesAbove(u64),
    /// The kernel raised the shares.
    #[error("the minimum allowed cpu-shares is {0}")]
    SharesBelow(u64),
    /// A path in place of a name.
    #[error("unified: {0:?} is no file name")]
    NoFileName(String),
    /// `checkBeforeUpdate` is set, and more memory is in use.
    #[error("unable to set memory limit to {limit} (current usage: {used})")]
    BelowUsage {
        /// In bytes.
        limit: i64,
        /// In bytes.
        used: i64,
    },
    /// The limit of memory and swap together is below that of memory.
    #[error("memory+swap limit should be >= memory limit")]
    SwapBelowMemory,
    /// A new limit of memory above the present one of memory and swap.
    #[error(
        "unable to set memory limit to {limit}: memory and swap together are limited to {both}; set both (--memory, --memory-swap)"
    )]
    MemoryAboveBoth {
        /// In bytes.
        limit: i64,
        /// In bytes.
        both: i64,
    },
    /// The limit of swap alone needs a limit of memory.
    #[error("unable to set swap limit without memory limit")]
    SwapWithoutMemory,
}
