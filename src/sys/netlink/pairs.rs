//! The networks of a namespace's virtual Ethernet pairs, without those of its other devices.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use libc::{RTM_GETADDR, RTM_GETROUTE, RTM_NEWADDR, RTM_NEWROUTE};

use super::route::{parse_address, parse_route, route_links};
use super::{ADDRESS_HEADER, ROUTE_HEADER, RouteSocket, u32_at};
use crate::rules::connection::contains;

type Networks = BTreeSet<(IpAddr, u8)>;

impl RouteSocket {
    /// The networks of this namespace's own addresses on virtual Ethernet pairs, whose other end is in an engine's
    /// bridge. A device with a port of the node's own network (macvlan, ipvlan, a moved device) does not count. Neither
    /// does a network that such a device partly reaches.
    pub fn pair_networks(&mut self) -> io::Result<Networks> {
        let mut pairs = BTreeSet::new();
        let mut others = BTreeSet::new();
        for link in self.links()? {
            match link.kind.as_deref() {
                Some("veth") => pairs.insert(link.index),
                _ if link.is_loopback() => false,
                _ => others.insert(link.index),
            };
        }
        let (mut beside, mut elsewhere) = (Networks::new(), Networks::new());
        let body = [0; ADDRESS_HEADER];
        self.dump(RTM_GETADDR, RTM_NEWADDR, &body, &mut |body| {
            let link = u32_at(body, 4)?;
            if let Some(address) = parse_address(body)? {
                let network = (address.network, address.bits);
                if pairs.contains(&link) {
                    beside.insert(network);
                } else if others.contains(&link) {
                    elsewhere.insert(network);
                }
            }
            Ok(())
        })?;
        if !others.is_empty() {
            let body = [0; ROUTE_HEADER];
            self.dump(RTM_GETROUTE, RTM_NEWROUTE, &body, &mut |body| {
                if let Some(network) = parse_route(body)?.network()
                    && route_links(body)?.iter().any(|link| others.contains(link))
                {
                    elsewhere.insert(network);
                }
                Ok(())
            })?;
        }
        Ok(alone(beside, &elsewhere))
    }
}

/// The networks that overlap with none of the others.
fn alone(mut networks: Networks, others: &Networks) -> Networks {
    let meets =
        |(a, a_bits): (IpAddr, u8), (b, b_bits): (IpAddr, u8)| contains(a, a_bits.min(b_bits), b);
    networks.retain(|one| !others.iter().any(|other| meets(*one, *other)));
    networks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[(&str, u8)]) -> Networks {
        let network = |(text, bits): &(&str, u8)| (text.parse().unwrap(), *bits);
        texts.iter().map(network).collect()
    }

    /// L1: a network that an interface of another kind reaches does not count, however wide the pair's own network is.
    #[test]
    fn a_network_that_another_interface_reaches_does_not_count() {
        let pair = networks(&[("10.9.9.50", 24), ("fd00:9::50", 64)]);
        for (other, left) in [
            (("192.0.2.7", 24), 2),
            (("10.9.9.200", 28), 1),
            (("10.0.0.1", 8), 1),
            (("10.9.9.1", 32), 1),
            (("fd00:9::1", 128), 1),
            (("10.9.8.1", 24), 2),
        ] {
            assert_eq!(
                alone(pair.clone(), &networks(&[other])).len(),
                left,
                "{other:?}"
            );
        }
    }
}
