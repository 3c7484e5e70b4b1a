//! `update`: runc's options for limits, and agentbox's own for network rules.

use std::path::PathBuf;

use clap::Args;

use crate::policy::Lifetime;

/// `update`
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Update {
    /// Replace the network rules; close connections they do not allow
    #[arg(long, value_name = "RULES")]
    pub network_allow: Option<String>,
    /// Add rules and presets, comma-separated, within the ceiling
    #[arg(long, value_name = "RULES", conflicts_with = "network_allow")]
    pub network_add: Option<String>,
    /// Expire added rules, and close connections, after this time (10m)
    #[arg(
        long = "for",
        value_name = "DURATION",
        requires = "network_add",
        conflicts_with = "until"
    )]
    pub lasting: Option<Lifetime>,
    /// Expire added rules at HH:MM (local) or a date (2026-12-01T18:00:00Z)
    #[arg(long, value_name = "TIME", requires = "network_add")]
    pub until: Option<String>,
    /// Remove rules and presets
    #[arg(long, value_name = "RULES", conflicts_with = "network_allow")]
    pub network_remove: Option<String>,
    /// Replace the deny rules added to the policy's own
    #[arg(long, value_name = "RULES")]
    pub network_deny: Option<String>,
    /// Open inbound ports, comma-separated, within the ceiling
    #[arg(
        long,
        value_name = "PORTS",
        conflicts_with_all = ["network_allow", "network_add", "network_remove", "network_deny"]
    )]
    pub inbound_add: Option<String>,
    /// Take all limits from an OCI `resources` file [`-`: standard input]
    #[arg(long, short, value_name = "FILE")]
    pub resources: Option<PathBuf>,
    /// Block I/O weight, 10 to 1000
    #[arg(long, value_name = "N")]
    pub blkio_weight: Option<u16>,
    /// Period of the CPU quota, in microseconds
    #[arg(long, value_name = "USEC")]
    pub cpu_period: Option<u64>,
    /// CPU time in each period, in microseconds [-1: no limit]
    #[arg(long, value_name = "USEC", allow_negative_numbers = true)]
    pub cpu_quota: Option<i64>,
    /// CPU time that can be saved up, in microseconds
    #[arg(long, value_name = "USEC")]
    pub cpu_burst: Option<u64>,
    /// CPU weight relative to other containers, 2 to 262144
    #[arg(long, alias = "cpu-shares", value_name = "N")]
    pub cpu_share: Option<u64>,
    /// Period of the real-time quota, in microseconds
    #[arg(long, value_name = "USEC")]
    pub cpu_rt_period: Option<u64>,
    /// Real-time CPU time in each period, in microseconds
    #[arg(long, value_name = "USEC", allow_negative_numbers = true)]
    pub cpu_rt_runtime: Option<i64>,
    /// CPUs to use, such as 0-3,7
    #[arg(long, value_name = "LIST")]
    pub cpuset_cpus: Option<String>,
    /// Memory nodes to use, such as 0-1
    #[arg(long, value_name = "LIST")]
    pub cpuset_mems: Option<String>,
    /// 1: run only on an idle CPU; 0: as usual
    #[arg(long, value_name = "0|1")]
    pub cpu_idle: Option<i64>,
    /// Memory limit in bytes or with a unit (64M) [-1: no limit]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub memory: Option<String>,
    /// Soft memory limit
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub memory_reservation: Option<String>,
    /// Limit of memory and swap together
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub memory_swap: Option<String>,
    /// Obsolete; ignored
    #[arg(long, value_name = "BYTES", hide = true, allow_hyphen_values = true)]
    pub kernel_memory: Option<String>,
    /// Obsolete; ignored
    #[arg(long, value_name = "BYTES", hide = true, allow_hyphen_values = true)]
    pub kernel_memory_tcp: Option<String>,
    /// Number of processes and threads; -1 for no limit
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub pids_limit: Option<i64>,
    /// Not supported: the Intel RDT schema cannot be changed later
    #[arg(long, value_name = "SCHEMA")]
    pub l3_cache_schema: Option<String>,
    /// Not supported: the Intel RDT schema cannot be changed later
    #[arg(long, value_name = "SCHEMA")]
    pub mem_bw_schema: Option<String>,
    /// Container name, id or its first 12 characters
    pub id: String,
}

impl Update {
    /// Whether it changes rules or opens ports, which no engine requests.
    pub fn changes_rules(&self) -> bool {
        let changes = [
            &self.network_allow,
            &self.network_add,
            &self.network_remove,
            &self.network_deny,
            &self.inbound_add,
        ];
        changes.iter().any(|change| change.is_some())
    }
}
