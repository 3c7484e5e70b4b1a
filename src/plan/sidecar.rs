//! The limits of the sidecar itself, by the work that it has.

use super::network::{LISTENERS, SidecarLimits, UNDECIDED};
use super::time::ExecTime;
use crate::policy::{Network, NetworkMode, ResolvedPolicy, TlsWay, Upstream};

/// A listener of denied calls for each process of `exec`, and its pidfd.
const EXECS: u64 = 2 * LISTENERS as u64;
/// The memory of a connection, in the sidecar and in the kernel.
const CONNECTION_BYTES: u64 = 32 << 10;
/// The same through a proxy that speaks TLS, and by TLS to a host with request rules. A buffer of 16 KiB each way; data
/// that rustls may not have sent yet (64 KiB) and has received (a record and its plaintext, 34 KiB); and the reader's
/// share of a body that a host does not take (80 KiB).
const TLS_CONNECTION_BYTES: u64 = 272 << 10;

/// The reader's buffers for MCP messages and for answers with lists (`src/sidecar/reader/held_body.rs`), twice: a buffer
/// that grew may be half empty.
const HELD_BYTES: u64 = 64 << 20;

/// The most processes of `exec` with a time limit at a time. Any value from 32 to 512 works; 128 is a guess.
pub const MOST_TIMED_EXECS: u32 = 128;
/// Their timekeepers: two for each.
const KEEPERS: u32 = 2 * MOST_TIMED_EXECS;
/// The memory of one.
const KEEPER_BYTES: u64 = 512 << 10;

impl SidecarLimits {
    /// The same, with these.
    fn with_keepers(self, limit: Option<ExecTime>) -> Self {
        match limit {
            Some(_) => Self {
                memory_bytes: self.memory_bytes + u64::from(KEEPERS) * KEEPER_BYTES,
                pids: self.pids + KEEPERS,
                ..self
            },
            None => self,
        }
    }
}

/// One thread that relays connections.
pub(super) const SERVING_CPU_PERCENT: u32 = 100;

/// The limits of a container's sidecar, with the timekeepers of `exec` in its cgroup.
pub fn of(resolved: &ResolvedPolicy, limit: Option<ExecTime>) -> SidecarLimits {
    let alone = sidecar(&resolved.policy.network, resolved.upstream.as_ref());
    alone.with_keepers(limit)
}

/// The limits of the sidecar itself. Without connections it sleeps; with them it is one thread.
pub fn sidecar(network: &Network, upstream: Option<&Upstream>) -> SidecarLimits {
    let waits = SidecarLimits {
        memory_bytes: 64 << 20,
        pids: 16,
        cpu_percent: 50,
        files: 1024 + EXECS,
    };
    let connects = network.connect.iter().any(|item| item.port().is_some());
    let inbound = network.inbound.iter().any(|item| item.port().is_some());
    match network.mode {
        // A listener for each port, and three descriptors for each connection.
        NetworkMode::Local if inbound && !connects => SidecarLimits {
            cpu_percent: SERVING_CPU_PERCENT,
            ..waits
        },
        NetworkMode::Local if !connects => waits,
        NetworkMode::None => waits,
        NetworkMode::Allowlist | NetworkMode::Local => {
            let connections = u64::from(network.connections.get());
            let mut rules = network.allowed_at_first().chain(&network.deny);
            let requests = rules.any(|rule| rule.request().is_some());
            let tls = requests || upstream.is_some_and(|upstream| upstream.tls);
            let opened = requests && network.tls == TlsWay::Open;
            let each = match (tls, opened) {
                // The client's side too.
                (_, true) => 2 * TLS_CONNECTION_BYTES,
                (true, false) => TLS_CONNECTION_BYTES,
                (false, false) => CONNECTION_BYTES,
            };
            let held = if requests { HELD_BYTES } else { 0 };
            // The reader's connection for it, and the end of the stream that it carries.
            let of_requests = if requests { 2 } else { 0 };
            SidecarLimits {
                memory_bytes: waits.memory_bytes + held + connections * each,
                cpu_percent: SERVING_CPU_PERCENT,
                // Two for each connection, including undecided ones; listeners, the resolver, a timer for a few long
                // streams, the share of exec processes, and inbound ports, which `update` may add.
                files: (2 + of_requests) * (connections + UNDECIDED) + EXECS + 512 + 512,
                ..waits
            }
        }
    }
}
