//! Connections from outside to ports that nobody answers: probes, `docker run -p`, hostPort and port-forward without
//! `network.inbound`.
//!
//! The kernel refuses them before anybody sees them. Seeing each of them takes a raw socket in the engine's network, by which a
//! sidecar that is taken over could listen to it and forge what it likes: so nobody has one, and there is no line in the log.
//! What is there for nothing is the kernel's own count of the resets that it sent in that network.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::runtime::state::record::{ProcessId, Record};

/// How many resets the kernel has sent in the engine's network, where that can be known: refused connections from outside are
/// among them, and all of them are that where the sidecar has no connections of its own.
pub fn resets(record: &Record) -> Option<u64> {
    let own = record.sidecar.as_ref().map(ProcessId::from);
    let shared = record.shared_network().map(|shared| ProcessId {
        pid: shared.sidecar_pid,
        start_time: shared.sidecar_start,
    });
    // It is there and nowhere else.
    let sidecar = own.or(shared)?;
    // A container of `wrap`, or one that was to have the node's network: what the kernel sent there is everybody's.
    if namespace(&sidecar.pid.to_string())? == namespace("self")? {
        return None;
    }
    let text = fs::read_to_string(format!("/proc/{}/net/snmp", sidecar.pid)).ok()?;
    // Asked last: a number that was used again in between has another start time.
    sidecar.is_alive().then(|| of_snmp(&text)).flatten()
}

/// What makes a process's network namespace the same as another's.
fn namespace(process: &str) -> Option<(u64, u64)> {
    let file = fs::metadata(format!("/proc/{process}/ns/net")).ok()?;
    Some((file.dev(), file.ino()))
}

/// `OutRsts` of the line `Tcp:` (RFC 4022, tcpOutRsts), whose names are in the line before it.
fn of_snmp(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let mut names = lines.next()?.split_ascii_whitespace();
    let place = names.position(|name| name == "OutRsts")?;
    let mut values = lines.next()?.split_ascii_whitespace();
    values.nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_count() {
        let text = "Ip: Forwarding DefaultTTL\nIp: 2 64\n\
                    Tcp: RtoAlgorithm RtoMin ActiveOpens InErrs OutRsts InCsumErrors\nTcp: 1 200 3 0 17 0\n\
                    Udp: InDatagrams\nUdp: 5\n";
        assert_eq!(of_snmp(text), Some(17));
        assert_eq!(of_snmp("Tcp: OutRsts\n"), None);
        assert_eq!(of_snmp("Tcp: RtoMin\nTcp: 1\n"), None);
        assert_eq!(of_snmp(""), None);
    }
}
