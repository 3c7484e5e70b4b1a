//! PURE. The attempts of `verify` on a container's network. By their ports the sidecar tells them from the workload's.
//!
//! The process of `verify` binds each port exclusively before it tells the runtime, which tells the sidecar. A port
//! counts once, and only for its own target. After a killed `verify`, a workload that gets such a port can have one
//! attempt at a fixed target counted as `verify`'s, and no other.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rules::Host;

/// The longest that one `verify` tries, from the first instruction of its program inside to its last line.
pub const TRIED_WITHIN: Duration = Duration::from_secs(14);

/// An address of a block that no network uses (RFC 5737, TEST-NET-1).
pub const NOBODYS_ADDRESS: &str = "192.0.2.1";
/// The same for IPv6 (RFC 3849).
pub const NOBODYS_ADDRESS_6: &str = "2001:db8::1";
/// The metadata service of most clouds.
pub const METADATA_ADDRESS: &str = "169.254.169.254";
/// A name that public name servers resolve (RFC 2606).
pub const KNOWN_NAME: &str = "example.com";
/// The port of [`NOBODYS_ADDRESS`] and [`NOBODYS_ADDRESS_6`] that is tried.
pub const HTTPS: u16 = 443;
/// The port of [`METADATA_ADDRESS`] that is tried.
pub const HTTP: u16 = 80;

/// How many attempts one `verify` makes at IPv4 addresses. Without a route, the kernel counts each.
pub const BY_ADDRESS: u64 = 2;
/// The same for IPv6.
pub const BY_ADDRESS_6: u64 = 1;

/// The local port of each attempt. `None` if no socket was available, or the attempt succeeded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TriedPorts {
    /// TCP to [`NOBODYS_ADDRESS`].
    pub address: Option<u16>,
    /// TCP to [`NOBODYS_ADDRESS_6`].
    pub address6: Option<u16>,
    /// TCP to [`METADATA_ADDRESS`].
    pub metadata: Option<u16>,
    /// The query for [`KNOWN_NAME`], by UDP to an IPv4 address.
    pub name: Option<u16>,
    /// The same for IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name6: Option<u16>,
}

impl TriedPorts {
    /// Whether this connection is one of the attempts. Each counts once.
    pub fn take_connection(&mut self, from: SocketAddr, to: &Host, port: u16) -> bool {
        let from_v6 = from.ip().to_canonical().is_ipv6();
        let targets = [
            (&mut self.address, NOBODYS_ADDRESS, HTTPS),
            (&mut self.address6, NOBODYS_ADDRESS_6, HTTPS),
            (&mut self.metadata, METADATA_ADDRESS, HTTP),
        ];
        targets.into_iter().any(|(source, address, target_port)| {
            let target = address.parse::<IpAddr>().ok();
            let is_it = target
                .is_some_and(|ip| Host::address(ip) == *to && ip.is_ipv6() == from_v6)
                && port == target_port;
            is_it && source.take_if(|own| *own == from.port()).is_some()
        })
    }

    /// Whether this query is one of the attempts. Each counts once.
    pub fn take_question(&mut self, from: SocketAddr, name: &str) -> bool {
        // An IPv4 and an IPv6 socket can have the same port.
        let source = match from.ip().to_canonical().is_ipv6() {
            true => &mut self.name6,
            false => &mut self.name,
        };
        name == KNOWN_NAME && source.take_if(|own| *own == from.port()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    #[test]
    fn an_attempt_counts_once_from_its_own_port_to_its_own_target() {
        let all = TriedPorts {
            address: Some(5000),
            address6: Some(5001),
            metadata: Some(5002),
            name: Some(5003),
            name6: None,
        };
        for (source, target, port) in [
            ("127.0.0.1:5000", NOBODYS_ADDRESS, HTTPS),
            ("[::ffff:127.0.0.1]:5000", NOBODYS_ADDRESS, HTTPS),
            ("[::1]:5001", NOBODYS_ADDRESS_6, HTTPS),
            ("127.0.0.1:5002", METADATA_ADDRESS, HTTP),
        ] {
            let mut tried = all;
            assert!(tried.take_connection(from(source), &host(target), port));
            assert!(!tried.take_connection(from(source), &host(target), port));
        }
        // Workload connections from the same port of another protocol or family, or to another target.
        for (source, target, port) in [
            ("127.0.0.1:5004", NOBODYS_ADDRESS, HTTPS),
            ("127.0.0.1:5000", NOBODYS_ADDRESS, HTTP),
            ("127.0.0.1:5000", METADATA_ADDRESS, HTTP),
            ("127.0.0.1:5000", "198.51.100.7", HTTPS),
            ("127.0.0.1:5000", "evil.test", HTTPS),
            ("[::1]:5000", NOBODYS_ADDRESS, HTTPS),
            ("127.0.0.1:5001", NOBODYS_ADDRESS_6, HTTPS),
            ("127.0.0.1:5003", NOBODYS_ADDRESS, HTTPS),
        ] {
            let mut tried = all;
            let taken = tried.take_connection(from(source), &host(target), port);
            assert!(!taken, "{source} {target}:{port}");
            assert_eq!(tried, all);
        }
    }

    #[test]
    fn a_query_counts_once_and_for_one_name() {
        let mut tried = TriedPorts {
            name: Some(5003),
            ..TriedPorts::default()
        };
        assert!(!tried.take_question(from("127.0.0.1:5003"), "a.example.com"));
        assert!(!tried.take_question(from("127.0.0.1:5000"), KNOWN_NAME));
        // Another socket with the same port.
        assert!(!tried.take_question(from("[::1]:5003"), KNOWN_NAME));
        assert!(tried.take_question(from("[::ffff:127.0.0.1]:5003"), KNOWN_NAME));
        assert!(!tried.take_question(from("127.0.0.1:5003"), KNOWN_NAME));
        let mut tried = TriedPorts {
            name6: Some(5003),
            ..TriedPorts::default()
        };
        assert!(!tried.take_question(from("127.0.0.1:5003"), KNOWN_NAME));
        assert!(tried.take_question(from("[::1]:5003"), KNOWN_NAME));
    }
}
