//! Attempts that the kernel itself answers in a namespace where each address is local: TCP to a port without a listener gets a reset,
//! a datagram an ICMP message. Both are packets on `lo`, and name the address and the port that were tried.
//!
//! Answers are looked at and not what was sent: so an accepted connection leaves nothing here, and the filter lets through one
//! packet for each attempt. The kernel runs it for each packet that arrives, before anything is copied.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::AddressFamily;

use crate::egress::names::Families;
use crate::sys::raw_socket::{self, FilterInstruction};

/// As much of a packet as is looked at: two IP headers with options, and ports.
pub const LONGEST: usize = 256;

/// linux/filter.h: what the instructions below do.
const LOAD: u16 = 0x20; // A = four bytes at k
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF: u16 = 0x28;
const LOAD_AT: u16 = 0x40; // the same at X + k
const LOAD_BYTE_AT: u16 = 0x50;
const LOAD_HALF_AT: u16 = 0x48;
const HEADER_LENGTH: u16 = 0xb1; // X = 4 * (the low half of the byte at k)
const AND: u16 = 0x54; // A &= k
const IF_EQUAL: u16 = 0x15; // skips jt instructions if A == k, else jf
const RETURN: u16 = 0x06;

/// FIN, SYN, RST and ACK; RST and ACK alone is the answer to a first packet without a listener, with the sequence number 0 (RFC 9293, 3.5.2).
const FLAGS: u32 = 0x17;
const RESET: u32 = 0x14;
/// Protocols.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;
/// Type and code: destination unreachable, by its port.
const PORT_UNREACHABLE: u16 = 0x0303;
const PORT_UNREACHABLE_6: u16 = 0x0104;

const fn plain(code: u16, value: u32) -> FilterInstruction {
    FilterInstruction {
        code,
        skip_if: 0,
        skip_else: 0,
        value,
    }
}

const fn equal(value: u32, skip_if: u8, skip_else: u8) -> FilterInstruction {
    FilterInstruction {
        code: IF_EQUAL,
        skip_if,
        skip_else,
        value,
    }
}

/// What the network header is reached by, whatever a packet begins with (SKF_NET_OFF).
const NETWORK_HEADER: u32 = 0xfff0_0000;

/// How much of a reset is heard: of one from the loopback, and of any other. Programs try their own ports.
const fn resets_v4(own: usize, others: usize) -> [FilterInstruction; 11] {
    [
        plain(HEADER_LENGTH, 0),
        plain(LOAD_BYTE_AT, 13),
        plain(AND, FLAGS),
        equal(RESET, 0, 6),
        plain(LOAD_AT, 4),
        equal(0, 0, 4),
        plain(LOAD_BYTE, 12),
        equal(127, 0, 1),
        plain(RETURN, own as u32),
        plain(RETURN, others as u32),
        plain(RETURN, 0),
    ]
}

const RESETS_V4: [FilterInstruction; 11] = resets_v4(0, LONGEST);
const OWN_RESETS_V4: [FilterInstruction; 11] = resets_v4(LONGEST, 0);

const UNREACHABLE_V4: [FilterInstruction; 7] = [
    plain(HEADER_LENGTH, 0),
    plain(LOAD_HALF_AT, 0),
    equal(PORT_UNREACHABLE as u32, 0, 2),
    plain(LOAD_BYTE, 12),
    equal(127, 0, 1),
    plain(RETURN, 0),
    plain(RETURN, LONGEST as u32),
];

/// The same; ::1 is the loopback. A packet begins with the protocol's own header here, and the network header is looked back at.
const fn resets_v6(own: usize, others: usize) -> [FilterInstruction; 16] {
    [
        plain(LOAD_BYTE, 13),
        plain(AND, FLAGS),
        equal(RESET, 0, 12),
        plain(LOAD, 4),
        equal(0, 0, 10),
        plain(LOAD, NETWORK_HEADER + 8),
        equal(0, 0, 7),
        plain(LOAD, NETWORK_HEADER + 12),
        equal(0, 0, 5),
        plain(LOAD, NETWORK_HEADER + 16),
        equal(0, 0, 3),
        plain(LOAD, NETWORK_HEADER + 20),
        equal(1, 0, 1),
        plain(RETURN, own as u32),
        plain(RETURN, others as u32),
        plain(RETURN, 0),
    ]
}

const RESETS_V6: [FilterInstruction; 16] = resets_v6(0, LONGEST);
const OWN_RESETS_V6: [FilterInstruction; 16] = resets_v6(LONGEST, 0);

const UNREACHABLE_V6: [FilterInstruction; 12] = [
    plain(LOAD_HALF, 0),
    equal(PORT_UNREACHABLE_6 as u32, 0, 8),
    plain(LOAD, NETWORK_HEADER + 8),
    equal(0, 0, 7),
    plain(LOAD, NETWORK_HEADER + 12),
    equal(0, 0, 5),
    plain(LOAD, NETWORK_HEADER + 16),
    equal(0, 0, 3),
    plain(LOAD, NETWORK_HEADER + 20),
    equal(1, 0, 1),
    plain(RETURN, 0),
    plain(RETURN, LONGEST as u32),
];

/// A transport whose ports are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

/// An attempt without a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedAttempt {
    /// How.
    pub by: Transport,
    /// Whom it was meant for.
    pub to: SocketAddr,
    /// The socket that tried.
    pub from: SocketAddr,
}

/// Which attempts are heard in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TapScope {
    /// None.
    Nothing,
    /// Connections to the loopback, where no other address exists.
    Loopback,
    /// Connections and datagrams to all other addresses.
    Remote,
    /// These, and connections to the loopback.
    Everywhere,
}

impl TapScope {
    /// The filters of both families, by their protocols.
    fn filters(self) -> [Vec<(u8, &'static [FilterInstruction])>; 2] {
        let unreachable: [(u8, &[FilterInstruction]); 2] =
            [(ICMP, &UNREACHABLE_V4), (ICMP6, &UNREACHABLE_V6)];
        let own: [(u8, &[FilterInstruction]); 2] = [(TCP, &OWN_RESETS_V4), (TCP, &OWN_RESETS_V6)];
        let remote: [(u8, &[FilterInstruction]); 2] = [(TCP, &RESETS_V4), (TCP, &RESETS_V6)];
        let both = |at: usize| match self {
            Self::Nothing => vec![],
            Self::Loopback => vec![own[at]],
            Self::Remote => vec![remote[at], unreachable[at]],
            // A queue of its own: nothing at the loopback fills that of denied attempts.
            Self::Everywhere => vec![remote[at], unreachable[at], own[at]],
        };
        [both(0), both(1)]
    }

    /// How many sockets [`taps`] opens for each family.
    pub(super) fn sockets(self) -> usize {
        self.filters()[0].len()
    }
}

/// Sockets that hear of such attempts in the calling thread's namespace. None if the kernel refuses one: then attempts are only
/// counted.
pub(super) fn taps(scope: TapScope, families: Families) -> Vec<OwnedFd> {
    let [v4, v6] = scope.filters();
    let opened = std::iter::once((AddressFamily::INET, v4))
        .chain(families.has_v6().then_some((AddressFamily::INET6, v6)))
        .flat_map(|(family, all)| all.into_iter().map(move |one| (family, one)))
        .map(|(family, (protocol, filter))| raw_socket::tap(family, protocol, filter));
    // All or none: one alone would hear half.
    opened.collect::<io::Result<Vec<_>>>().unwrap_or_default()
}

/// What an answer says, from its network header on. `None`: it is none, or about a datagram of the container's loopback network.
pub fn read(packet: &[u8]) -> Option<RefusedAttempt> {
    let answer = IpPacket::read(packet)?;
    let attempt = match answer.protocol {
        TCP => RefusedAttempt {
            by: Transport::Tcp,
            to: SocketAddr::new(answer.from, answer.port(0)?),
            from: SocketAddr::new(answer.to, answer.port(2)?),
        },
        ICMP | ICMP6 => {
            // Behind type, code, checksum and four bytes more.
            let tried = IpPacket::read(answer.rest.get(8..)?)?;
            if tried.protocol != UDP {
                return None;
            }
            RefusedAttempt {
                by: Transport::Udp,
                to: SocketAddr::new(tried.to, tried.port(2)?),
                from: SocketAddr::new(tried.from, tried.port(0)?),
            }
        }
        _ => return None,
    };
    let is_own = attempt.by == Transport::Udp && attempt.to.ip().is_loopback();
    (!is_own).then_some(attempt)
}

/// A packet, as far as it came.
struct IpPacket<'a> {
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    rest: &'a [u8],
}

impl<'a> IpPacket<'a> {
    fn read(packet: &'a [u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::read_v4(packet),
            6 => Self::read_v6(packet),
            _ => None,
        }
    }

    fn read_v4(packet: &'a [u8]) -> Option<Self> {
        let header = packet.get(..20)?;
        let length = usize::from(header[0] & 0xf) * 4;
        // A later fragment has no ports.
        let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
        let address = |at: usize| <[u8; 4]>::try_from(header.get(at..at + 4)?).ok();
        match length >= 20 && fragment == 0 {
            true => Some(Self {
                from: Ipv4Addr::from(address(12)?).into(),
                to: Ipv4Addr::from(address(16)?).into(),
                protocol: header[9],
                rest: packet.get(length..)?,
            }),
            false => None,
        }
    }

    fn read_v6(packet: &'a [u8]) -> Option<Self> {
        /// Options and routing headers, which programs may add: more than there are kinds.
        const MOST_HEADERS: usize = 8;
        let header = packet.get(..40)?;
        let address = |at: usize| <[u8; 16]>::try_from(header.get(at..at + 16)?).ok();
        let (mut protocol, mut rest) = (header[6], packet.get(40..)?);
        for _ in 0..MOST_HEADERS {
            match protocol {
                0 | 43 | 60 => {
                    protocol = *rest.first()?;
                    rest = rest.get((usize::from(*rest.get(1)?) + 1) * 8..)?;
                }
                _ => break,
            }
        }
        Some(Self {
            from: Ipv6Addr::from(address(8)?).into(),
            to: Ipv6Addr::from(address(24)?).into(),
            protocol,
            rest,
        })
    }

    fn port(&self, at: usize) -> Option<u16> {
        let bytes = self.rest.get(at..at + 2)?.try_into().ok()?;
        Some(u16::from_be_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: [&str; 2] = ["169.254.169.254", "198.18.0.1"];
    const V6: [&str; 2] = ["2001:db8::12", "fd00:5afe::1"];

    fn v4(protocol: u8, [from, to]: [&str; 2], options: usize, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 20 + options * 4];
        packet[0] = 0x45 + u8::try_from(options).unwrap();
        packet[9] = protocol;
        packet[12..16].copy_from_slice(&from.parse::<Ipv4Addr>().unwrap().octets());
        packet[16..20].copy_from_slice(&to.parse::<Ipv4Addr>().unwrap().octets());
        packet.extend_from_slice(rest);
        packet
    }

    fn v6(protocol: u8, [from, to]: [&str; 2], rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        (packet[0], packet[6]) = (0x60, protocol);
        packet[8..24].copy_from_slice(&from.parse::<Ipv6Addr>().unwrap().octets());
        packet[24..40].copy_from_slice(&to.parse::<Ipv6Addr>().unwrap().octets());
        packet.extend_from_slice(rest);
        packet
    }

    fn tcp(flags: u8, sequence: u32) -> Vec<u8> {
        let mut header = vec![0; 20];
        header[..2].copy_from_slice(&80_u16.to_be_bytes());
        header[2..4].copy_from_slice(&40_000_u16.to_be_bytes());
        header[4..8].copy_from_slice(&sequence.to_be_bytes());
        (header[12], header[13]) = (0x50, flags);
        header
    }

    fn udp() -> Vec<u8> {
        let mut header = vec![0; 8];
        header[..2].copy_from_slice(&40_000_u16.to_be_bytes());
        header[2..4].copy_from_slice(&53_u16.to_be_bytes());
        header
    }

    fn unreachable(kind: u8, code: u8, inner: &[u8]) -> Vec<u8> {
        [&[kind, code, 0, 0, 0, 0, 0, 0], inner].concat()
    }

    /// What the kernel makes of a filter (linux/filter.h); `false` where it reads behind the end. The filter's packet begins after
    /// `header` bytes.
    fn passes(filter: &[FilterInstruction], packet: &[u8], header: usize) -> bool {
        let (mut a, mut x, mut at) = (0_u32, 0_u32, 0);
        let bytes = |from: u32, count: usize| {
            let from = match from.checked_sub(NETWORK_HEADER) {
                Some(back) => back as usize,
                None => header + from as usize,
            };
            let all = packet.get(from..from + count)?;
            Some(all.iter().fold(0, |n, byte| n << 8 | u32::from(*byte)))
        };
        loop {
            let FilterInstruction {
                code,
                skip_if,
                skip_else,
                value: k,
            } = filter[at];
            at += 1;
            let loaded = match code {
                LOAD => bytes(k, 4),
                LOAD_BYTE => bytes(k, 1),
                LOAD_HALF => bytes(k, 2),
                LOAD_AT => bytes(x + k, 4),
                LOAD_BYTE_AT => bytes(x + k, 1),
                LOAD_HALF_AT => bytes(x + k, 2),
                AND => Some(a & k),
                HEADER_LENGTH => {
                    x = 4 * (bytes(k, 1).unwrap() & 0xf);
                    Some(a)
                }
                IF_EQUAL => {
                    at += usize::from(if a == k { skip_if } else { skip_else });
                    Some(a)
                }
                RETURN => return k > 0,
                other => panic!("{other:#x}"),
            };
            match loaded {
                Some(loaded) => a = loaded,
                None => return false,
            }
        }
    }

    fn heard(packet: &[u8]) -> Option<RefusedAttempt> {
        heard_by(TapScope::Remote, packet)
    }

    /// By a socket of the packet's protocol, if there is one.
    fn heard_by(scope: TapScope, packet: &[u8]) -> Option<RefusedAttempt> {
        let [v4, v6] = scope.filters();
        let (filters, protocol, header) = match packet[0] >> 4 {
            4 => (v4, packet[9], 0),
            _ => (v6, packet[6], 40),
        };
        let mut filters = filters.into_iter().filter(|(of, _)| *of == protocol);
        filters
            .any(|(_, filter)| passes(filter, packet, header))
            .then(|| read(packet))
            .flatten()
    }

    fn attempt(by: Transport, to: &str, from: &str) -> Option<RefusedAttempt> {
        Some(RefusedAttempt {
            by,
            to: to.parse().unwrap(),
            from: from.parse().unwrap(),
        })
    }

    #[test]
    fn an_answer_names_what_was_tried() {
        let v4_tcp = attempt(Transport::Tcp, "169.254.169.254:80", "198.18.0.1:40000");
        let v6_tcp = attempt(Transport::Tcp, "[2001:db8::12]:80", "[fd00:5afe::1]:40000");
        // The program's options come back in the answer.
        for options in [0, 3, 10] {
            assert_eq!(heard(&v4(TCP, V4, options, &tcp(0x14, 0))), v4_tcp);
        }
        assert_eq!(heard(&v6(TCP, V6, &tcp(0x14, 0))), v6_tcp);
        let sent = v4(UDP, [V4[1], V4[0]], 2, &udp());
        assert_eq!(
            heard(&v4(ICMP, V4, 0, &unreachable(3, 3, &sent))),
            attempt(Transport::Udp, "169.254.169.254:53", "198.18.0.1:40000")
        );
        let udp6 = attempt(Transport::Udp, "[2001:db8::12]:53", "[fd00:5afe::1]:40000");
        let sent = v6(UDP, [V6[1], V6[0]], &udp());
        assert_eq!(heard(&v6(ICMP6, V6, &unreachable(1, 4, &sent))), udp6);
        // A routing header of the program's, which needs no right.
        let routed = [&[UDP, 0, 0, 0, 0, 0, 0, 0][..], &udp()].concat();
        let sent = v6(43, [V6[1], V6[0]], &routed);
        assert_eq!(heard(&v6(ICMP6, V6, &unreachable(1, 4, &sent))), udp6);
    }

    #[test]
    fn all_other_packets_are_left_alone() {
        let sent = v4(UDP, [V4[1], V4[0]], 0, &udp());
        let own = v4(UDP, [V4[1], "127.0.0.1"], 0, &udp());
        let sent6 = v6(UDP, [V6[1], V6[0]], &udp());
        let others = [
            // Beginning, middle, end and reset of a connection.
            v4(TCP, V4, 0, &tcp(0x02, 0)),
            v4(TCP, V4, 0, &tcp(0x12, 0)),
            v4(TCP, V4, 0, &tcp(0x18, 0)),
            v4(TCP, V4, 0, &tcp(0x11, 0)),
            v4(TCP, V4, 0, &tcp(0x14, 7)),
            v4(TCP, V4, 0, &tcp(0x04, 0)),
            v6(TCP, V6, &tcp(0x02, 0)),
            v6(TCP, V6, &tcp(0x14, 7)),
            v4(UDP, V4, 0, &udp()),
            v6(UDP, V6, &udp()),
            // No host; an echo.
            v4(ICMP, V4, 0, &unreachable(3, 1, &sent)),
            v4(ICMP, V4, 0, &unreachable(8, 0, &sent)),
            v6(ICMP6, V6, &unreachable(1, 3, &sent6)),
            // The container's own ports.
            v4(TCP, ["127.0.0.1", "127.0.0.1"], 0, &tcp(0x14, 0)),
            v4(ICMP, ["127.0.0.1", V4[1]], 0, &unreachable(3, 3, &sent)),
            v4(ICMP, V4, 0, &unreachable(3, 3, &own)),
            v6(TCP, ["::1", "::1"], &tcp(0x14, 0)),
        ];
        for packet in others {
            assert_eq!(heard(&packet), None, "{packet:x?}");
        }
        let one = ["::1:0:0:1", "fd00:5afe::1"];
        assert!(heard(&v6(TCP, one, &tcp(0x14, 0))).is_some(), "not ::1");
    }

    #[test]
    fn a_connection_to_the_loopback_is_heard_where_that_is_wanted() {
        let resets = [
            (
                v4(TCP, ["127.0.0.1", "127.0.0.1"], 0, &tcp(0x14, 0)),
                "127.0.0.1",
            ),
            (v6(TCP, ["::1", "::1"], &tcp(0x14, 0)), "[::1]"),
        ];
        for (reset, host) in &resets {
            let tried = attempt(
                Transport::Tcp,
                &format!("{host}:80"),
                &format!("{host}:40000"),
            );
            assert_eq!(heard_by(TapScope::Loopback, reset), tried);
            assert_eq!(heard_by(TapScope::Everywhere, reset), tried);
            assert_eq!(heard_by(TapScope::Remote, reset), None);
            assert_eq!(heard_by(TapScope::Nothing, reset), None);
        }
        let sent = v4(UDP, ["127.0.0.1", "127.0.0.1"], 0, &udp());
        for (packet, scope) in [
            // An established connection, a reset of one, and datagrams.
            (v4(TCP, V4, 3, &tcp(0x18, 0)), TapScope::Everywhere),
            (
                v4(TCP, ["127.0.0.1"; 2], 0, &tcp(0x14, 7)),
                TapScope::Loopback,
            ),
            (v6(TCP, ["::1"; 2], &tcp(0x14, 7)), TapScope::Loopback),
            (
                v4(ICMP, ["127.0.0.1"; 2], 0, &unreachable(3, 3, &sent)),
                TapScope::Loopback,
            ),
            (
                v4(ICMP, ["127.0.0.1"; 2], 0, &unreachable(3, 3, &sent)),
                TapScope::Everywhere,
            ),
        ] {
            assert_eq!(heard_by(scope, &packet), None, "{scope:?} {packet:x?}");
        }
        let v4_tcp = attempt(Transport::Tcp, "169.254.169.254:80", "198.18.0.1:40000");
        let reset = v4(TCP, V4, 3, &tcp(0x14, 0));
        assert_eq!(heard_by(TapScope::Everywhere, &reset), v4_tcp);
        // The queues are apart.
        let one = v6(TCP, ["::1:0:0:1", "fd00:5afe::1"], &tcp(0x14, 0));
        for reset in [&reset, &v6(TCP, V6, &tcp(0x14, 0)), &one] {
            assert_eq!(heard_by(TapScope::Loopback, reset), None);
        }
        let scopes = [TapScope::Nothing, TapScope::Loopback, TapScope::Everywhere];
        assert_eq!(scopes.map(TapScope::sockets), [0, 1, 3]);
    }

    #[test]
    fn what_is_cut_or_made_up_is_no_attempt() {
        let sent = v6(UDP, [V6[1], V6[0]], &udp());
        let whole = [
            v4(TCP, V4, 3, &tcp(0x14, 0)),
            v4(ICMP, V4, 0, &unreachable(3, 3, &v4(UDP, V4, 0, &udp()))),
            v6(ICMP6, V6, &unreachable(1, 4, &sent)),
        ];
        for packet in whole {
            assert!(read(&packet).is_some());
            for length in 0..packet.len() {
                // Nothing but no panic; ports come early.
                let _some = read(&packet[..length]);
            }
            assert_eq!(read(&packet[..20]), None);
        }
        let endless = [&[43, 0, 0, 0, 0, 0, 0, 0][..]; 12].concat();
        assert_eq!(read(&v6(43, V6, &endless)), None);
        assert_eq!(read(&[0x4f; 60]), None);
    }
}
