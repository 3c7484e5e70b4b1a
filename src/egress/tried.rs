//! PURE. What `verify` tries on a container's network, and from which ports: by these the sidecar tells its attempts from the workload's.
//!
//! The process of `verify` holds each port, bound and shared with nobody, before it says so to the runtime, which tells the sidecar. A
//! port counts once, and for the one target that it was opened for. So a workload that gets hold of a port, after a `verify` that was
//! killed, has one attempt at a fixed target counted as `verify`'s, and no other.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::policy::Host;

/// An address of the block that no network has (RFC 5737, TEST-NET-1).
pub const NOBODYS_ADDRESS: &str = "192.0.2.1";
/// Likewise of IPv6 (RFC 3849).
pub const NOBODYS_ADDRESS_6: &str = "2001:db8::1";
/// The metadata service of most clouds.
pub const METADATA_ADDRESS: &str = "169.254.169.254";
/// A name that the world's name servers answer with addresses (RFC 2606).
pub const KNOWN_NAME: &str = "example.com";
/// The port of [`NOBODYS_ADDRESS`] and [`NOBODYS_ADDRESS_6`] that is tried.
pub const HTTPS: u16 = 443;
/// The port of [`METADATA_ADDRESS`] that is tried.
pub const HTTP: u16 = 80;

/// How many attempts one `verify` makes at addresses of IPv4, each of which the kernel counts where there is no route.
pub const BY_ADDRESS: u64 = 2;
/// Likewise of IPv6.
pub const BY_ADDRESS_6: u64 = 1;

/// The local port of each attempt; `None` where no socket was available, or the attempt succeeded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TriedPorts {
    /// TCP to [`NOBODYS_ADDRESS`].
    pub address: Option<u16>,
    /// TCP to [`NOBODYS_ADDRESS_6`].
    pub address6: Option<u16>,
    /// TCP to [`METADATA_ADDRESS`].
    pub metadata: Option<u16>,
    /// The question for [`KNOWN_NAME`], by UDP to an address of IPv4.
    pub name: Option<u16>,
    /// Likewise of IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name6: Option<u16>,
}

impl TriedPorts {
    /// Whether this connection is one of them; it is none a second time.
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

    /// Whether this question for a name is the one; it is not a second time.
    pub fn take_question(&mut self, from: SocketAddr, name: &str) -> bool {
        // Sockets of both families can have one number.
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
        // What a workload does that has the port of another protocol or family, or another target.
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
    fn a_question_counts_once_and_for_the_one_name() {
        let mut tried = TriedPorts {
            name: Some(5003),
            ..TriedPorts::default()
        };
        assert!(!tried.take_question(from("127.0.0.1:5003"), "a.example.com"));
        assert!(!tried.take_question(from("127.0.0.1:5000"), KNOWN_NAME));
        // Another socket, whose number is the same.
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
