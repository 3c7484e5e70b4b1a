//! A namespace's own addresses, directly reachable networks and gateways, from its routes, addresses and nexthop
//! objects, in every form of a gateway that the kernel has.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

use libc::{
    IFA_ADDRESS, IFA_LOCAL, RTA_DST, RTA_GATEWAY, RTA_MULTIPATH, RTA_OIF, RTA_VIA, RTM_GETADDR,
    RTM_GETROUTE, RTM_NEWADDR, RTM_NEWROUTE, RTN_ANYCAST, RTN_LOCAL, RTN_UNICAST, RTPROT_KERNEL,
};

use super::{
    ADDRESS_HEADER, ROUTE_HEADER, RouteSocket, address_of, attribute, malformed, u16_at, u32_at,
};

const RTM_GETNEXTHOP: u16 = 106;
const RTM_NEWNEXTHOP: u16 = 104;
/// struct nhmsg (linux/nexthop.h).
const NEXTHOP_HEADER: usize = 8;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_GATEWAY: u16 = 6;
/// struct nexthop_grp.
const NEXTHOP_MEMBER: usize = 8;

const RTA_NH_ID: u16 = 30;
/// A route from a router's announcement (linux/rtnetlink.h).
const RTPROT_RA: u8 = 9;
/// The longest prefixes that count as default routes, because each leads to a large part of the internet: 0.0.0.0/1 and
/// 128.0.0.0/1 (VPNs), and 2000::/3, which is all of it.
const SHORT_V4: u8 = 1;
const SHORT_V6: u8 = 3;
/// struct rtnexthop.
const PATH_HEADER: usize = 8;

/// The most addresses, gateways or networks of one namespace; a router may have many of each.
const MOST: usize = 16 * 1024;

/// The result; addresses once each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Neighbourhood {
    /// Its own addresses.
    pub own: BTreeSet<IpAddr>,
    /// Prefixes that are entirely its own (`ip route add local`).
    pub own_networks: BTreeSet<(IpAddr, u8)>,
    /// Prefixes that its links reach without a gateway.
    pub on_link: BTreeSet<(IpAddr, u8)>,
    /// The gateways of its default routes, and of nearly as wide ones.
    pub default_gateways: BTreeSet<IpAddr>,
    /// All gateways, those of the default routes and of nexthop objects included.
    pub gateways: BTreeSet<IpAddr>,
}

impl RouteSocket {
    /// Reads the whole [`Neighbourhood`]. A change meanwhile makes it start again, a few times.
    pub fn neighbourhood(&mut self) -> io::Result<Neighbourhood> {
        const TRIES: usize = 4;
        let mut last = malformed("nothing was read");
        for _ in 0..TRIES {
            match self.read_neighbourhood() {
                Ok(found) => return Ok(found),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// The indexes of the links that have an address or a route.
    pub fn links_in_use(&mut self) -> io::Result<BTreeSet<u32>> {
        let mut used = BTreeSet::new();
        let body = [0; ADDRESS_HEADER];
        self.dump(RTM_GETADDR, RTM_NEWADDR, &body, &mut |body| {
            used.insert(u32_at(body, 4)?);
            Ok(())
        })?;
        let body = [0; ROUTE_HEADER];
        self.dump(RTM_GETROUTE, RTM_NEWROUTE, &body, &mut |body| {
            used.extend(route_links(body)?);
            Ok(())
        })?;
        Ok(used)
    }

    fn read_neighbourhood(&mut self) -> io::Result<Neighbourhood> {
        let mut found = Neighbourhood::default();
        // Default routes may name their gateways only by the number of a nexthop object (if
        // net.ipv4.nexthop_compat_mode is 0).
        let mut defaults = BTreeSet::new();
        let body = [0; ADDRESS_HEADER];
        self.dump(RTM_GETADDR, RTM_NEWADDR, &body, &mut |body| {
            if let Some(Address { own, network, bits }) = parse_address(body)? {
                found.own.insert(own);
                found.on_link.insert((network, bits));
            }
            found.check()
        })?;
        let body = [0; ROUTE_HEADER];
        self.dump(RTM_GETROUTE, RTM_NEWROUTE, &body, &mut |body| {
            let route = parse_route(body)?;
            if route.is_default() {
                defaults.extend(route.nexthop);
            }
            route.note(&mut found);
            match defaults.len() {
                0..=MOST => found.check(),
                _ => Err(too_many()),
            }
        })?;
        let body = [0; NEXTHOP_HEADER];
        let mut nexthops = Nexthops::default();
        let read = self.dump(RTM_GETNEXTHOP, RTM_NEWNEXTHOP, &body, &mut |body| {
            nexthops.read(body)
        });
        match read {
            // None before Linux 5.3.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            other => other?,
        }
        nexthops.note(&defaults, &mut found);
        found.check().map(|()| found)
    }
}

impl Neighbourhood {
    fn check(&self) -> io::Result<()> {
        let Self {
            own,
            own_networks,
            on_link,
            default_gateways: _,
            gateways,
        } = self;
        let most = own
            .len()
            .max(own_networks.len())
            .max(on_link.len())
            .max(gateways.len());
        match most {
            0..=MOST => Ok(()),
            _ => Err(too_many()),
        }
    }
}

fn too_many() -> io::Error {
    malformed("more addresses and gateways than can be listed")
}

/// Nexthop objects by their numbers.
#[derive(Debug, Default)]
struct Nexthops {
    gateways: BTreeMap<u32, IpAddr>,
    /// Groups of single objects.
    groups: BTreeMap<u32, Vec<u32>>,
    members: usize,
}

impl Nexthops {
    fn read(&mut self, body: &[u8]) -> io::Result<()> {
        let id = attribute(body, NEXTHOP_HEADER, NHA_ID)?
            .ok_or_else(|| malformed("a nexthop object has no number"))?;
        let id = u32_at(id, 0)?;
        let gateway = attribute(body, NEXTHOP_HEADER, NHA_GATEWAY)?.and_then(address_of);
        self.gateways.extend(gateway.map(|gateway| (id, gateway)));
        if let Some(group) = attribute(body, NEXTHOP_HEADER, NHA_GROUP)? {
            let members = group.chunks_exact(NEXTHOP_MEMBER);
            let members: Vec<u32> = members
                .map(|member| u32_at(member, 0))
                .collect::<io::Result<_>>()?;
            self.members += 1 + members.len();
            self.groups.insert(id, members);
        }
        match self.gateways.len().max(self.members) {
            0..=MOST => Ok(()),
            _ => Err(too_many()),
        }
    }

    /// Notes all of them as gateways, and those in `defaults` as the way to the internet.
    fn note(self, defaults: &BTreeSet<u32>, found: &mut Neighbourhood) {
        let of_groups = defaults.iter().filter_map(|id| self.groups.get(id));
        let ids = defaults.iter().chain(of_groups.flatten());
        found
            .default_gateways
            .extend(ids.filter_map(|id| self.gateways.get(id)));
        found.gateways.extend(self.gateways.values());
    }
}

/// An address of a link.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    own: IpAddr,
    /// The network's, or the peer's if the link has one.
    pub network: IpAddr,
    pub bits: u8,
}

/// If a link has a peer, IFA_LOCAL is its own address, and IFA_ADDRESS the peer's.
pub(super) fn parse_address(body: &[u8]) -> io::Result<Option<Address>> {
    let bits = *body
        .get(1)
        .ok_or_else(|| malformed("an address's header is short"))?;
    let own = attribute(body, ADDRESS_HEADER, IFA_LOCAL)?.and_then(address_of);
    let network = attribute(body, ADDRESS_HEADER, IFA_ADDRESS)?.and_then(address_of);
    Ok(own.or(network).map(|own| Address {
        own,
        network: network.unwrap_or(own),
        bits,
    }))
}

/// A parsed route.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Route {
    kind: u8,
    ipv6: bool,
    protocol: u8,
    destination: Option<IpAddr>,
    bits: u8,
    gateways: Vec<IpAddr>,
    /// The number of a nexthop object, which may have the gateways.
    nexthop: Option<u32>,
}

impl Route {
    /// Its network, unless it leads to the internet or to the namespace itself.
    pub fn network(&self) -> Option<(IpAddr, u8)> {
        let leads = self.kind == RTN_UNICAST && !self.is_default();
        self.destination
            .filter(|_| leads)
            .map(|net| (net, self.bits))
    }

    /// Whether it leads to the internet, or to a large part of it.
    fn is_default(&self) -> bool {
        self.bits <= if self.ipv6 { SHORT_V6 } else { SHORT_V4 }
    }

    fn note(self, found: &mut Neighbourhood) {
        let is_default = self.is_default();
        let Self {
            kind,
            ipv6: _,
            protocol,
            destination,
            bits,
            gateways,
            nexthop: _,
        } = self;
        match (kind, destination) {
            (RTN_LOCAL | RTN_ANYCAST, Some(net)) => {
                found.own_networks.insert((net, bits));
            }
            // A prefix that a router announced for the link; the node itself may have no address in it.
            (RTN_UNICAST, Some(net))
                if gateways.is_empty() && matches!(protocol, RTPROT_KERNEL | RTPROT_RA) =>
            {
                found.on_link.insert((net, bits));
            }
            _ => {}
        }
        if is_default {
            found.default_gateways.extend(&gateways);
        }
        found.gateways.extend(gateways);
    }
}

pub(super) fn parse_route(body: &[u8]) -> io::Result<Route> {
    let header = |at: usize| {
        let byte = body.get(at).copied();
        byte.ok_or_else(|| malformed("a route's header is short"))
    };
    let (family, bits, protocol, kind) = (header(0)?, header(1)?, header(5)?, header(7)?);
    let destination = attribute(body, ROUTE_HEADER, RTA_DST)?.and_then(address_of);
    let mut gateways = Vec::new();
    gateways.extend(gateway(body, ROUTE_HEADER)?);
    if let Some(paths) = attribute(body, ROUTE_HEADER, RTA_MULTIPATH)? {
        gateways.extend(path_gateways(paths)?);
    }
    let nexthop = attribute(body, ROUTE_HEADER, RTA_NH_ID)?;
    Ok(Route {
        kind,
        ipv6: i32::from(family) == libc::AF_INET6,
        protocol,
        destination,
        bits,
        gateways,
        nexthop: nexthop.map(|id| u32_at(id, 0)).transpose()?,
    })
}

/// The gateways among some attributes: an address of the route's family, or of the other one after its family number.
fn gateway(body: &[u8], header: usize) -> io::Result<Vec<IpAddr>> {
    let own = attribute(body, header, RTA_GATEWAY)?.and_then(address_of);
    let via = attribute(body, header, RTA_VIA)?;
    let other = via.and_then(|via| via.get(2..)).and_then(address_of);
    Ok(own.into_iter().chain(other).collect())
}

/// The links that a route uses, in all of its paths.
pub(super) fn route_links(body: &[u8]) -> io::Result<Vec<u32>> {
    let mut links = Vec::new();
    if let Some(link) = attribute(body, ROUTE_HEADER, RTA_OIF)? {
        links.push(u32_at(link, 0)?);
    }
    let mut rest = attribute(body, ROUTE_HEADER, RTA_MULTIPATH)?.unwrap_or_default();
    while !rest.is_empty() {
        let len = usize::from(u16_at(rest, 0)?).max(PATH_HEADER);
        links.push(u32_at(rest, 4)?);
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(links)
}

/// The gateways of a route with several paths: struct rtnexthop, each followed by attributes of its own.
fn path_gateways(paths: &[u8]) -> io::Result<Vec<IpAddr>> {
    let mut found = Vec::new();
    let mut rest = paths;
    // Each turn takes at least eight bytes.
    while !rest.is_empty() {
        let len = usize::from(u16_at(rest, 0)?);
        if len < PATH_HEADER || len > rest.len() {
            return Err(malformed("a path's length does not fit its route"));
        }
        found.extend(gateway(&rest[..len], PATH_HEADER)?);
        rest = &rest[len.next_multiple_of(4).min(rest.len())..];
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::push_attribute;
    use super::*;

    #[test]
    fn finds_the_neighbourhood_of_this_machine() {
        let mut route = RouteSocket::open().unwrap();
        let found = route.neighbourhood().unwrap();
        let loopback = IpAddr::from([127, 0, 0, 1]);
        assert!(found.own.contains(&loopback), "{found:?}");
        assert!(found.on_link.contains(&(loopback, 8)), "{found:?}");
        assert!(found.default_gateways.is_subset(&found.gateways));
    }

    #[test]
    fn reads_the_own_address_of_a_link_with_a_peer() {
        let mut body = vec![libc::AF_INET as u8, 24, 0, 0, 1, 0, 0, 0];
        push_attribute(&mut body, IFA_ADDRESS, &[192, 0, 2, 2]);
        push_attribute(&mut body, IFA_LOCAL, &[198, 51, 100, 1]);
        let own = parse_address(&body).unwrap().unwrap();
        assert_eq!(own.own, IpAddr::from([198, 51, 100, 1]));
        assert_eq!((own.network, own.bits), ([192, 0, 2, 2].into(), 24));
        assert_eq!(parse_address(&body[..8]).unwrap(), None);
        assert!(parse_address(&body[..1]).is_err());
        assert!(parse_address(&body[..10]).is_err());
    }

    fn route(bits: u8, protocol: u8, kind: u8) -> Vec<u8> {
        vec![
            libc::AF_INET as u8,
            bits,
            0,
            0,
            254,
            protocol,
            0,
            kind,
            0,
            0,
            0,
            0,
        ]
    }

    fn noted(body: &[u8]) -> Neighbourhood {
        let mut found = Neighbourhood::default();
        parse_route(body).unwrap().note(&mut found);
        found
    }

    fn path(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![0; PATH_HEADER];
        for (kind, data) in attributes {
            push_attribute(&mut body, *kind, data);
        }
        let len = u16::try_from(body.len()).unwrap();
        body[..2].copy_from_slice(&len.to_ne_bytes());
        body
    }

    /// Each form in which a route names its gateway.
    #[test]
    fn a_gateway_of_every_form_is_found() {
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        let IpAddr::V6(octets) = v6 else { panic!() };
        let via = [&10_u16.to_ne_bytes()[..], &octets.octets()].concat();
        let mut plain = route(0, 4, RTN_UNICAST);
        push_attribute(&mut plain, RTA_GATEWAY, &[192, 0, 2, 1]);
        let mut other = route(24, 4, RTN_UNICAST);
        push_attribute(&mut other, RTA_DST, &[198, 51, 100, 0]);
        push_attribute(&mut other, RTA_VIA, &via);
        let mut several = route(0, 4, RTN_UNICAST);
        let paths = [
            path(&[(RTA_GATEWAY, &[192, 0, 2, 7])]),
            path(&[(RTA_VIA, &via)]),
            path(&[]),
        ];
        push_attribute(&mut several, RTA_MULTIPATH, &paths.concat());
        let one = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(noted(&plain).default_gateways, [one("192.0.2.1")].into());
        assert_eq!(noted(&other).gateways, [v6].into());
        assert!(noted(&other).default_gateways.is_empty());
        let found = noted(&several);
        assert_eq!(found.gateways, [one("192.0.2.7"), v6].into());
        assert_eq!(found.default_gateways, found.gateways);
        for body in [plain, other, several] {
            for cut in 0..body.len() {
                // It must return, whatever the bytes are.
                drop(parse_route(&body[..cut]));
            }
            for at in 0..body.len() {
                for value in [0, 1, 4, 7, 0x7f, 0xff] {
                    let mut bytes = body.clone();
                    bytes[at] = value;
                    drop(parse_route(&bytes));
                }
            }
        }
    }

    /// Routes that are nearly default ones.
    #[test]
    fn a_short_prefix_is_a_default_route() {
        let gateway = IpAddr::from([192, 0, 2, 1]);
        for (family, bits, is_default) in [
            (libc::AF_INET, 0, true),
            (libc::AF_INET, 1, true),
            (libc::AF_INET, 2, false),
            (libc::AF_INET6, 3, true),
            (libc::AF_INET6, 4, false),
        ] {
            let mut body = route(bits, 4, RTN_UNICAST);
            body[0] = u8::try_from(family).unwrap();
            push_attribute(&mut body, RTA_GATEWAY, &[192, 0, 2, 1]);
            let found = noted(&body);
            assert_eq!(found.default_gateways.contains(&gateway), is_default);
            assert!(found.gateways.contains(&gateway));
        }
    }

    /// A default route may name a nexthop object alone, or a group of them.
    #[test]
    fn the_gateways_of_nexthop_objects_are_found() {
        let object = |id: u32, kind: u16, data: &[u8]| {
            let mut body = vec![0; NEXTHOP_HEADER];
            push_attribute(&mut body, NHA_ID, &id.to_ne_bytes());
            push_attribute(&mut body, kind, data);
            body
        };
        let member = |id: u32| [&id.to_ne_bytes()[..], &[0; 4]].concat();
        let group = [member(8), member(9), member(77)].concat();
        let objects = [
            object(7, NHA_GATEWAY, &[192, 0, 2, 7]),
            object(8, NHA_GATEWAY, &[192, 0, 2, 8]),
            object(9, NHA_GATEWAY, &[192, 0, 2, 9]),
            object(10, NHA_GROUP, &group),
        ];
        let last = |found: &BTreeSet<IpAddr>| -> Vec<u8> {
            let octets = |one: &IpAddr| match one {
                IpAddr::V4(v4) => v4.octets()[3],
                IpAddr::V6(_) => 0,
            };
            found.iter().map(octets).collect()
        };
        for (id, expected) in [(7, &[7][..]), (10, &[8, 9]), (99, &[])] {
            let mut body = route(0, 4, RTN_UNICAST);
            push_attribute(&mut body, RTA_NH_ID, &u32::to_ne_bytes(id));
            let read = parse_route(&body).unwrap();
            assert!(read.is_default());
            let mut nexthops = Nexthops::default();
            for object in &objects {
                nexthops.read(object).unwrap();
            }
            let mut found = Neighbourhood::default();
            nexthops.note(&read.nexthop.into_iter().collect(), &mut found);
            assert_eq!(last(&found.default_gateways), expected, "{id}");
            assert_eq!(last(&found.gateways), [7, 8, 9]);
        }
        for body in objects {
            for cut in 0..body.len() {
                drop(Nexthops::default().read(&body[..cut]));
            }
        }
    }

    #[test]
    fn knows_the_links_that_are_used() {
        let used = RouteSocket::open().unwrap().links_in_use().unwrap();
        assert!(used.contains(&1), "lo has an address: {used:?}");
        let mut body = route(0, 4, RTN_UNICAST);
        push_attribute(&mut body, RTA_OIF, &7_u32.to_ne_bytes());
        assert_eq!(route_links(&body).unwrap(), [7]);
        let mut several = [path(&[]), path(&[(RTA_GATEWAY, &[192, 0, 2, 1])])];
        for (one, index) in several.iter_mut().zip([8_u32, 9]) {
            one[4..8].copy_from_slice(&index.to_ne_bytes());
        }
        push_attribute(&mut body, RTA_MULTIPATH, &several.concat());
        assert_eq!(route_links(&body).unwrap(), [7, 8, 9]);
        for cut in 0..body.len() {
            drop(route_links(&body[..cut]));
        }
    }

    #[test]
    fn prefixes_are_the_own_ones_and_the_neighbours() {
        let net = (IpAddr::from([203, 0, 113, 0]), 24);
        let with = |protocol, kind, gateway: Option<&[u8]>| {
            let mut body = route(24, protocol, kind);
            push_attribute(&mut body, RTA_DST, &[203, 0, 113, 0]);
            if let Some(gateway) = gateway {
                push_attribute(&mut body, RTA_GATEWAY, gateway);
            }
            noted(&body)
        };
        assert!(with(3, RTN_LOCAL, None).own_networks.contains(&net));
        for protocol in [RTPROT_KERNEL, RTPROT_RA] {
            assert!(with(protocol, RTN_UNICAST, None).on_link.contains(&net));
        }
        // Addresses behind an operator's tunnel are not neighbours.
        assert!(with(3, RTN_UNICAST, None).on_link.is_empty());
        let through = with(RTPROT_RA, RTN_UNICAST, Some(&[192, 0, 2, 1]));
        assert!(through.on_link.is_empty());
    }
}
