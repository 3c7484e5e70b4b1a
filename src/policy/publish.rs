//! Ports of the node that `wrap --publish` forwards to a port inside.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::str::FromStr;

use crate::text::ValueError;

/// `[ADDR:]HOSTPORT[:PORT]`, as for `docker run --publish`. Without an address: the node's loopback. Without a port
/// inside: the same port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish {
    address: Option<IpAddr>,
    outside: NonZeroU16,
    inside: NonZeroU16,
}

impl Publish {
    /// The port inside.
    pub fn inside(self) -> u16 {
        self.inside.get()
    }

    /// Where the node listens: at the given address, or at both loopback addresses.
    pub fn outside(self) -> Vec<SocketAddr> {
        let loopback = || vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let addresses = self.address.map_or_else(loopback, |address| vec![address]);
        let at = |address| SocketAddr::new(address, self.outside.get());
        addresses.into_iter().map(at).collect()
    }
}

impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(IpAddr::V4(address)) => write!(f, "{address}:")?,
            Some(IpAddr::V6(address)) => write!(f, "[{address}]:")?,
            None => {}
        }
        write!(f, "{}:{}", self.outside, self.inside)
    }
}

impl FromStr for Publish {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        parse(text).ok_or_else(|| {
            ValueError::grammar(
                text,
                "[ADDR:]HOSTPORT[:PORT] with TCP ports from 1 to 65535, such as 8080, 8080:3000 or [::1]:8080:3000; ADDR is one of this \
                 machine",
            )
        })
    }
}

fn parse(text: &str) -> Option<Publish> {
    let (address, ports) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, ports) = rest.split_once("]:")?;
            (Some(IpAddr::V6(address.parse().ok()?)), ports)
        }
        None => match text.split_once(':') {
            // A port has no dot, an IPv4 address has three.
            Some((address, ports)) if address.contains('.') => {
                (Some(IpAddr::V4(address.parse().ok()?)), ports)
            }
            _ => (None, text),
        },
    };
    // TCP cannot connect to a multicast group.
    if address.is_some_and(|address: IpAddr| address.is_multicast()) {
        return None;
    }
    let (outside, inside) = ports.split_once(':').unwrap_or((ports, ports));
    Some(Publish {
        address,
        outside: port(outside)?,
        inside: port(inside)?,
    })
}

/// Parses a port in its one spelling.
fn port(text: &str) -> Option<NonZeroU16> {
    let port: NonZeroU16 = text.parse().ok()?;
    (port.to_string() == text).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_address_is_the_loopback() {
        for (text, outside, inside) in [
            ("8080", &["127.0.0.1:8080", "[::1]:8080"][..], 8080),
            ("8080:3000", &["127.0.0.1:8080", "[::1]:8080"], 3000),
            ("127.0.0.1:8080", &["127.0.0.1:8080"], 8080),
            ("0.0.0.0:8080:3000", &["0.0.0.0:8080"], 3000),
            ("[::1]:8080:3000", &["[::1]:8080"], 3000),
        ] {
            let parsed: Publish = text.parse().unwrap();
            let at: Vec<String> = parsed.outside().iter().map(ToString::to_string).collect();
            assert_eq!(
                (&at[..], parsed.inside()),
                (
                    &outside.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>()[..],
                    inside
                ),
                "{text}"
            );
            assert_eq!(parsed.to_string().parse::<Publish>().unwrap(), parsed);
        }
        for text in [
            "",
            "0",
            "08080",
            "+1",
            "65536",
            "8080:",
            ":8080",
            "8080:0",
            "1:2:3",
            "localhost:8080",
            "::1:8080",
            "[::1]8080",
            "[127.0.0.1]:80",
            "1.2.3:80",
            "8080/udp",
            "224.0.0.1:8080",
            "[ff02::1]:8080:3000",
            "8000-8010",
            "1.2.3.4:80:90:1",
            "[fe80::1%1]:80",
        ] {
            assert!(text.parse::<Publish>().is_err(), "{text}");
        }
    }
}
