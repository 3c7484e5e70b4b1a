//! Connections from outside to ports that nobody answers: probes, `docker run -p`, hostPort and port-forward without
//! `network.inbound`.
//!
//! The kernel refuses them before anybody sees them. Seeing each of them takes a raw socket in the engine's network.
//! A hijacked sidecar could listen and forge packets with it, so nobody has one. The kernel counts the resets that it
//! sent in that network; the sidecar polls the count and writes a line ([`open`]).

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use crate::network::resets_sent;
use crate::runtime::state::record::{ProcessId, Record};

/// The file of that count, for the network namespace that a process is in now and for no other; nothing where /proc has none.
pub fn open(pid: i32) -> Option<OwnedFd> {
    let file = fs::File::open(format!("/proc/{pid}/net/snmp"));
    file.inspect_err(|e| log::debug!("the kernel's count of resets: {e}"))
        .ok()
        .map(OwnedFd::from)
}

/// How many resets the kernel has sent in the engine's network, where that can be known: refused connections from outside are
/// among them, and all of them are that where the sidecar has no connections of its own.
pub fn resets(record: &Record) -> Option<u64> {
    let own = record.sidecar.as_ref().map(ProcessId::from);
    // A member's own sidecar is in the inner network.
    let shared = record.shared_network().map(|shared| ProcessId {
        pid: shared.sidecar_pid,
        start_time: shared.sidecar_start,
    });
    // It is there and nowhere else.
    let sidecar = shared.or(own)?;
    // A container of `wrap`, or one that was to have the node's network: what the kernel sent there is everybody's.
    if namespace(&sidecar.pid.to_string())? == namespace("self")? {
        return None;
    }
    let text = fs::read_to_string(format!("/proc/{}/net/snmp", sidecar.pid)).ok()?;
    // Asked last: a number that was used again in between has another start time.
    sidecar.is_alive().then(|| resets_sent(&text)).flatten()
}

/// What makes a process's network namespace the same as another's.
fn namespace(process: &str) -> Option<(u64, u64)> {
    let file = fs::metadata(format!("/proc/{process}/ns/net")).ok()?;
    Some((file.dev(), file.ino()))
}
