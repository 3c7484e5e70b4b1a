//! Connections from outside to ports on which nothing listens: probes, `docker run -p`, hostPort and port-forward
//! without `network.inbound`.
//!
//! The kernel refuses them unseen. To see each would take a raw socket in the engine's network, with which a hijacked
//! sidecar could listen and forge packets; so no process has one. The kernel counts the resets that it sent in that
//! network. The sidecar polls the count and logs a line ([`open`]).

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use crate::network::resets_sent;
use crate::runtime::state::record::{ProcessId, Record};

/// The file of that count, for the current network namespace of a process only; `None` if /proc has none.
pub fn open(pid: i32) -> Option<OwnedFd> {
    let file = fs::File::open(format!("/proc/{pid}/net/snmp"));
    file.inspect_err(|e| log::debug!("the kernel's count of resets: {e}"))
        .ok()
        .map(OwnedFd::from)
}

/// How many resets the kernel has sent in the engine's network, if known. They include refused connections from
/// outside, and nothing else if the sidecar has no connections of its own.
pub fn resets(record: &Record) -> Option<u64> {
    let own = record.sidecar.as_ref().map(ProcessId::from);
    // A member's own sidecar is in the inner network.
    let shared = record.shared_network().map(|shared| ProcessId {
        pid: shared.sidecar_pid,
        start_time: shared.sidecar_start,
    });
    // This sidecar is in the engine's network.
    let sidecar = shared.or(own)?;
    // `wrap`, or a container that requested the node's network: resets there are not only this container's.
    if namespace(&sidecar.pid.to_string())? == namespace("self")? {
        return None;
    }
    let text = fs::read_to_string(format!("/proc/{}/net/snmp", sidecar.pid)).ok()?;
    // Checked last: a pid that was used again in between has another start time.
    sidecar.is_alive().then(|| resets_sent(&text)).flatten()
}

/// What identifies a process's network namespace.
fn namespace(process: &str) -> Option<(u64, u64)> {
    let file = fs::metadata(format!("/proc/{process}/ns/net")).ok()?;
    Some((file.dev(), file.ino()))
}
