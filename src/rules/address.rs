//! Checks the addresses that a name leads to, because others control them. The checked address itself is dialled: a
//! second resolution would allow DNS rebinding.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::closed::is_closed;
use super::connection::{HostReach, contains};
use super::embedded::carried;
use super::item::EgressRule;

/// The addresses around the sandbox, which a public name must not lead to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The node's own addresses, those of the engine's namespace, and gateways.
    pub own: BTreeSet<IpAddr>,
    /// Prefixes whose addresses all belong to the node, or to the engine's namespace.
    pub own_networks: BTreeSet<(IpAddr, u8)>,
    /// The prefixes that the node or the engine's namespace reaches without a gateway.
    pub on_link: BTreeSet<(IpAddr, u8)>,
    /// The networks beside the container: those of Docker or podman for it, and the cluster's in the node's file.
    pub beside: BTreeSet<(IpAddr, u8)>,
    /// The node's own addresses, which are also in [`Self::own`].
    pub node: BTreeSet<IpAddr>,
}

impl Surroundings {
    /// The union of both.
    pub fn and(mut self, other: Self) -> Self {
        let Self {
            own,
            own_networks,
            on_link,
            beside,
            node,
        } = other;
        self.beside.extend(beside);
        self.node.extend(node);
        self.own.extend(own);
        self.own_networks.extend(own_networks);
        self.on_link.extend(on_link);
        self
    }
}

/// Why an address is not dialled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressRefusal {
    /// It is the machine itself.
    Loopback,
    /// Link-local; clouds serve credentials there.
    LinkLocal,
    /// Private by RFC 1918, RFC 4193 or RFC 6598.
    Private,
    /// A neighbour: within a network that the node or the engine's namespace reaches without a gateway.
    Neighbour,
    /// It belongs to the node or to a gateway of the container.
    Node,
    /// It carries an IPv4 address inside (NAT64, 6to4, Teredo, mapped).
    Embedded,
    /// Multicast, unspecified, reserved, or not routed on the internet.
    Special,
    /// A cloud serves credentials or instructions there.
    Cloud,
    /// It is not beside the container, as a `service:` rule requires.
    NotBeside,
    /// It is not the node's, as a `node:` rule requires.
    NotNode,
    /// This rule of `network.deny` covers it.
    Denied(Box<EgressRule>),
}

/// The entries of IANA's registry of special-purpose IPv4 addresses (RFC 6890 and its updates), without the networks for
/// documentation (RFC 5737), which lead nowhere.
const V4: &[(Ipv4Addr, u8, AddressRefusal)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, AddressRefusal::Special),
    (Ipv4Addr::new(10, 0, 0, 0), 8, AddressRefusal::Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, AddressRefusal::Private),
    (Ipv4Addr::new(127, 0, 0, 0), 8, AddressRefusal::Loopback),
    (Ipv4Addr::new(169, 254, 0, 0), 16, AddressRefusal::LinkLocal),
    (Ipv4Addr::new(172, 16, 0, 0), 12, AddressRefusal::Private),
    (Ipv4Addr::new(192, 0, 0, 0), 24, AddressRefusal::Special),
    (Ipv4Addr::new(192, 88, 99, 0), 24, AddressRefusal::Special),
    (Ipv4Addr::new(192, 168, 0, 0), 16, AddressRefusal::Private),
    (Ipv4Addr::new(198, 18, 0, 0), 15, AddressRefusal::Special),
    (Ipv4Addr::new(224, 0, 0, 0), 4, AddressRefusal::Special),
    (Ipv4Addr::new(240, 0, 0, 0), 4, AddressRefusal::Special),
];

/// The same for IPv6, first match first. Everything outside of 2000::/3 is special (RFC 4291, section 2.4).
const V6: &[(Ipv6Addr, u8, AddressRefusal)] = &[
    (Ipv6Addr::LOCALHOST, 128, AddressRefusal::Loopback),
    (
        Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0),
        96,
        AddressRefusal::Embedded,
    ),
    (
        Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0),
        32,
        AddressRefusal::Embedded,
    ),
    (
        Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0),
        32,
        AddressRefusal::Embedded,
    ),
    (
        Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0),
        23,
        AddressRefusal::Special,
    ),
    (
        Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0),
        16,
        AddressRefusal::Embedded,
    ),
    (
        Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0),
        7,
        AddressRefusal::Private,
    ),
    (
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0),
        10,
        AddressRefusal::LinkLocal,
    ),
];

/// Whether to dial an address that a name led to, under a rule with this reach. The machine itself and link-local
/// addresses are always refused, and the node's addresses except under `node:` rules.
pub fn vet(
    address: IpAddr,
    reach: HostReach,
    around: &Surroundings,
) -> Result<IpAddr, AddressRefusal> {
    // Stronger than any rule for names.
    if is_closed(address) {
        return Err(AddressRefusal::Cloud);
    }
    // An IPv4-mapped IPv6 address is checked as the IPv4 address that the kernel would dial, but reported as written.
    let special = match address {
        IpAddr::V4(v4) => of_v4(v4),
        IpAddr::V6(v6) => of_v6(v6),
    };
    let within = |nets: &BTreeSet<(IpAddr, u8)>| {
        nets.iter()
            .any(|(net, bits)| contains(*net, *bits, address))
    };
    let private = special == Some(AddressRefusal::Private);
    if reach == HostReach::Node && (private || special.is_none()) {
        return match around.node.contains(&address) {
            true => Ok(address),
            false => Err(AddressRefusal::NotNode),
        };
    }
    if around.own.contains(&address) || within(&around.own_networks) && special != LOOPBACK {
        return Err(AddressRefusal::Node);
    }
    match (special, reach) {
        (Some(AddressRefusal::Private) | None, HostReach::Service) if !within(&around.beside) => {
            Err(AddressRefusal::NotBeside)
        }
        (Some(AddressRefusal::Private), HostReach::Service | HostReach::Internal) => Ok(address),
        (Some(refusal), _) => Err(refusal),
        (None, HostReach::Public) if within(&around.on_link) => Err(AddressRefusal::Neighbour),
        (None, _) => Ok(address),
    }
}

/// 127.0.0.0/8 is also a prefix of the node, but has its own reason.
const LOOPBACK: Option<AddressRefusal> = Some(AddressRefusal::Loopback);

fn of_v4(address: Ipv4Addr) -> Option<AddressRefusal> {
    V4.iter()
        .find(|(net, bits, _)| contains((*net).into(), *bits, address.into()))
        .map(|(_, _, refusal)| refusal.clone())
}

fn of_v6(address: Ipv6Addr) -> Option<AddressRefusal> {
    V6.iter()
        .find(|(net, bits, _)| contains((*net).into(), *bits, address.into()))
        .map(|(_, _, refusal)| refusal.clone())
        .or_else(|| {
            let global = contains(
                Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0).into(),
                3,
                address.into(),
            );
            (!global).then_some(AddressRefusal::Special)
        })
        .or_else(|| (!carried(address).is_empty()).then_some(AddressRefusal::Embedded))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Option<AddressRefusal> {
        vet(
            text.parse().unwrap(),
            HostReach::Public,
            &Surroundings::default(),
        )
        .err()
    }

    #[test]
    fn ordinary_addresses_are_dialled() {
        for text in [
            "203.0.113.1",
            "198.51.100.7",
            "8.8.8.8",
            "2001:db8::1",
            "2606::1",
        ] {
            assert_eq!(refused(text), None, "{text}");
        }
    }

    #[test]
    fn what_a_public_name_may_not_lead_to() {
        use AddressRefusal::{Cloud, Embedded, LinkLocal, Loopback, Private, Special};
        for (text, why) in [
            ("0.0.0.0", Special),
            ("0.1.2.3", Special),
            ("10.1.2.3", Private),
            ("100.64.0.1", Private),
            ("100.127.255.255", Private),
            ("127.0.0.1", Loopback),
            ("127.255.0.1", Loopback),
            ("169.254.169.254", Cloud),
            ("168.63.129.16", Cloud),
            ("100.100.100.200", Cloud),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("192.0.0.192", Cloud),
            ("192.0.0.1", Special),
            ("192.168.0.1", Private),
            ("198.18.0.1", Special),
            ("224.0.0.1", Special),
            ("255.255.255.255", Special),
            ("::", Special),
            ("::1", Loopback),
            ("::ffff:10.0.0.1", Embedded),
            ("::ffff:8.8.8.8", Embedded),
            ("::127.0.0.1", Special),
            ("64:ff9b::7f00:1", Embedded),
            ("64:ff9b:1::1", Embedded),
            ("2002:7f00:1::", Embedded),
            ("2001:0:1::", Embedded),
            ("2001:2::1", Special),
            ("2606::5efe:a01:203", Embedded),
            ("fc00::1", Private),
            ("fd00:ec2::254", Cloud),
            ("fd00:ed2::254", Private),
            ("fe80::1", LinkLocal),
            ("fec0::1", Special),
            ("ff02::1", Special),
            ("4000::1", Special),
        ] {
            assert_eq!(refused(text), Some(why), "{text}");
        }
        assert_eq!(refused("100.128.0.1"), None);
        assert_eq!(refused("172.32.0.1"), None);
    }

    #[test]
    fn the_node_and_its_neighbours_are_closed() {
        let around = Surroundings {
            own: ["203.0.113.9".parse().unwrap(), "10.0.0.1".parse().unwrap()].into(),
            own_networks: [("198.51.100.64".parse().unwrap(), 26)].into(),
            on_link: [("203.0.113.0".parse().unwrap(), 24)].into(),
            ..Surroundings::default()
        };
        let ask = |text: &str, reach| vet(text.parse().unwrap(), reach, &around);
        assert_eq!(
            ask("203.0.113.9", HostReach::Public),
            Err(AddressRefusal::Node)
        );
        assert_eq!(
            ask("203.0.113.9", HostReach::Internal),
            Err(AddressRefusal::Node)
        );
        assert_eq!(
            ask("10.0.0.1", HostReach::Internal),
            Err(AddressRefusal::Node)
        );
        assert_eq!(
            ask("203.0.113.10", HostReach::Public),
            Err(AddressRefusal::Neighbour)
        );
        assert!(ask("203.0.113.10", HostReach::Internal).is_ok());
        assert!(ask("198.51.100.1", HostReach::Public).is_ok());
        assert_eq!(
            ask("198.51.100.65", HostReach::Internal),
            Err(AddressRefusal::Node)
        );
    }

    /// `service:` reaches the container's networks but not the company's; `node:` reaches only the node.
    #[test]
    fn a_service_is_beside_the_container_and_the_node_is_the_node() {
        let net = |text: &str, bits| (text.parse().unwrap(), bits);
        let node: IpAddr = "172.18.0.1".parse().unwrap();
        let around = Surroundings {
            own: [
                node,
                "203.0.113.7".parse().unwrap(),
                "172.18.0.2".parse().unwrap(),
                "10.96.0.9".parse().unwrap(),
            ]
            .into(),
            own_networks: BTreeSet::new(),
            on_link: [
                net("172.18.0.0", 16),
                net("192.168.1.0", 24),
                net("203.0.113.0", 24),
            ]
            .into(),
            beside: [
                net("172.18.0.0", 16),
                net("10.96.0.0", 12),
                net("127.0.0.0", 8),
                net("169.254.0.0", 16),
            ]
            .into(),
            node: [node, "203.0.113.7".parse().unwrap()].into(),
        };
        let ask = |text: &str, reach| vet(text.parse().unwrap(), reach, &around);
        for text in ["172.18.0.3", "10.96.0.10"] {
            assert!(ask(text, HostReach::Service).is_ok(), "{text}");
        }
        for (text, why) in [
            // The company's network, the node's neighbours, the internet.
            ("10.1.2.3", AddressRefusal::NotBeside),
            ("192.168.1.7", AddressRefusal::NotBeside),
            ("203.0.113.8", AddressRefusal::NotBeside),
            ("8.8.8.8", AddressRefusal::NotBeside),
            ("fd00::3", AddressRefusal::NotBeside),
            // The node and the engine's namespace, even within these networks.
            ("172.18.0.1", AddressRefusal::Node),
            ("172.18.0.2", AddressRefusal::Node),
            ("10.96.0.9", AddressRefusal::Node),
            // Even if the networks include them.
            ("127.0.0.1", AddressRefusal::Loopback),
            ("fe80::1", AddressRefusal::LinkLocal),
            ("169.254.169.254", AddressRefusal::Cloud),
            ("100.100.100.200", AddressRefusal::Cloud),
        ] {
            assert_eq!(ask(text, HostReach::Service), Err(why), "{text}");
        }
        for text in ["172.18.0.1", "203.0.113.7"] {
            assert!(ask(text, HostReach::Node).is_ok(), "{text}");
            assert_eq!(
                ask(text, HostReach::Internal),
                Err(AddressRefusal::Node),
                "{text}"
            );
        }
        for (text, why) in [
            ("172.18.0.2", AddressRefusal::NotNode),
            ("172.18.0.3", AddressRefusal::NotNode),
            ("10.1.2.3", AddressRefusal::NotNode),
            ("8.8.8.8", AddressRefusal::NotNode),
            ("127.0.0.1", AddressRefusal::Loopback),
            ("169.254.169.254", AddressRefusal::Cloud),
        ] {
            assert_eq!(ask(text, HostReach::Node), Err(why), "{text}");
        }
    }

    #[test]
    fn internal_opens_only_private_addresses() {
        let ask = |text: &str| {
            vet(
                text.parse().unwrap(),
                HostReach::Internal,
                &Surroundings::default(),
            )
        };
        assert!(ask("172.18.0.3").is_ok());
        assert!(ask("fd00::3").is_ok());
        for text in [
            "127.0.0.1",
            "169.254.169.254",
            "::1",
            "fe80::1",
            "224.0.0.1",
            "::ffff:10.0.0.1",
            // Private, but a cloud's (N-M1).
            "100.100.100.200",
            "100.96.0.96",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:42::42",
        ] {
            assert!(ask(text).is_err(), "{text}");
        }
    }
}
