//! `update`: runc's options for limits, and our own for the network's rules.

use std::path::PathBuf;

use clap::Args;

/// `update`
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Update {
    /// Rules and presets that the container may reach from now on, comma separated, in place of what it lists now; within
    /// the ceiling, and on ports that its wall listens on. Connections that are no longer allowed are closed
    #[arg(long, value_name = "RULES")]
    pub network_allow: Option<String>,
    /// Rules and presets that it may reach besides what it lists now; within the ceiling
    #[arg(long, value_name = "RULES", conflicts_with = "network_allow")]
    pub network_add: Option<String>,
    /// Rules and presets that it lists now and may not reach any more
    #[arg(long, value_name = "RULES", conflicts_with = "network_allow")]
    pub network_remove: Option<String>,
    /// Rules that it may not reach whatever is allowed, in place of those it added to its policy's
    #[arg(long, value_name = "RULES")]
    pub network_deny: Option<String>,
    /// File with OCI `resources` JSON, `-` for standard input; all other options are then ignored
    #[arg(long, short, value_name = "FILE")]
    pub resources: Option<PathBuf>,
    /// Weight of block input and output, 10 to 1000
    #[arg(long, value_name = "N")]
    pub blkio_weight: Option<u16>,
    /// Period of the hard limit of processor time, in microseconds
    #[arg(long, value_name = "USEC")]
    pub cpu_period: Option<u64>,
    /// Processor time in each period, in microseconds; -1 for no limit
    #[arg(long, value_name = "USEC", allow_negative_numbers = true)]
    pub cpu_quota: Option<i64>,
    /// Processor time that may be saved up beyond the quota, in microseconds
    #[arg(long, value_name = "USEC")]
    pub cpu_burst: Option<u64>,
    /// Processor weight relative to other containers, 2 to 262144
    #[arg(long, alias = "cpu-shares", value_name = "N")]
    pub cpu_share: Option<u64>,
    /// Period of the real-time limit, in microseconds
    #[arg(long, value_name = "USEC")]
    pub cpu_rt_period: Option<u64>,
    /// Real-time processor time in each period, in microseconds
    #[arg(long, value_name = "USEC", allow_negative_numbers = true)]
    pub cpu_rt_runtime: Option<i64>,
    /// Processors to use
    #[arg(long, value_name = "LIST")]
    pub cpuset_cpus: Option<String>,
    /// Memory nodes to use
    #[arg(long, value_name = "LIST")]
    pub cpuset_mems: Option<String>,
    /// 1: run only when nothing else wants the processor; 0: as usual
    #[arg(long, value_name = "0|1")]
    pub cpu_idle: Option<i64>,
    /// Memory limit in bytes, or with a unit: 64M; -1 for none
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub memory: Option<String>,
    /// Soft memory limit
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub memory_reservation: Option<String>,
    /// Limit of memory and swap together
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub memory_swap: Option<String>,
    /// Obsolete, without effect
    #[arg(long, value_name = "BYTES", hide = true, allow_hyphen_values = true)]
    pub kernel_memory: Option<String>,
    /// Obsolete, without effect
    #[arg(long, value_name = "BYTES", hide = true, allow_hyphen_values = true)]
    pub kernel_memory_tcp: Option<String>,
    /// Number of processes and threads; -1 for no limit
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub pids_limit: Option<i64>,
    /// Intel RDT schema of the L3 cache; refused, it cannot be changed later
    #[arg(long, value_name = "SCHEMA")]
    pub l3_cache_schema: Option<String>,
    /// Intel RDT schema of memory bandwidth; refused, it cannot be changed later
    #[arg(long, value_name = "SCHEMA")]
    pub mem_bw_schema: Option<String>,
    /// Container: its id, its name, or the beginning of its id
    pub id: String,
}
