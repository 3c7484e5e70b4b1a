//! The wall's listeners in the inner namespace: bound by the child that makes it, served by the sidecar.
//!
//! A socket keeps the namespace it was made in, so the sidecar accepts from inside without ever being there. No
//! listener that leads outside has SO_REUSEADDR or SO_REUSEPORT, so no program inside can bind beside it
//! (docs/threats.md N27).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with, sockopt,
};

use super::error::NetworkError;
use crate::egress::names::Families;
use crate::egress::names::REFUSING_STUB;

/// The backlog of connections to accept; the kernel caps it at net.core.somaxconn.
const BACKLOG: i32 = 1024;
/// DNS (RFC 1035).
const DNS_PORT: u16 = 53;

/// The ports to listen on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListenPorts {
    /// The explicit proxy, only on 127.0.0.1.
    pub proxy: u16,
    /// The DNS stub.
    pub stub: Stub,
    /// TCP ports on every address: those in rules.
    pub ports: Vec<u16>,
}

/// Where the DNS stub listens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stub {
    /// On every address, with UDP and TCP.
    #[default]
    Everywhere,
    /// With UDP on [`REFUSING_STUB`], beside programs of the container that bind to port 53. No name leads anywhere, so
    /// a program that answers in its place gains nothing. No answer is too long for UDP.
    Refusing,
}

/// The listeners, in the order in which they are sent.
#[derive(Debug)]
pub struct Listeners {
    /// DNS over UDP, every address.
    pub dns_udp: OwnedFd,
    /// DNS over TCP, every address; `None` for [`Stub::Refusing`].
    pub dns_tcp: Option<OwnedFd>,
    /// The explicit proxy.
    pub proxy: OwnedFd,
    /// One for each of [`ListenPorts::ports`], in its order.
    pub ports: Vec<OwnedFd>,
}

impl ListenPorts {
    /// For these ports of rules, and the proxy's. DNS has a fixed port.
    pub fn new(proxy: u16, stub: Stub, ports: impl IntoIterator<Item = u16>) -> Self {
        let ports = ports.into_iter().filter(|port| *port != DNS_PORT);
        Self {
            proxy,
            stub,
            ports: ports.collect(),
        }
    }

    /// How many descriptors the listeners have.
    pub fn descriptors(&self) -> usize {
        self.stub.with_proxy() + self.ports.len()
    }
}

impl Stub {
    /// How many descriptors it has, including the proxy's.
    pub fn with_proxy(self) -> usize {
        match self {
            Self::Everywhere => 3,
            Self::Refusing => 2,
        }
    }
}

impl Listeners {
    /// Binds them in the calling thread's namespace.
    pub(super) fn bind(on: &ListenPorts, families: Families) -> Result<Self, NetworkError> {
        let any = |port| match families {
            Families::Both => SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0)),
            Families::V4 => SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)),
        };
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, on.proxy));
        let step = NetworkError::step::<io::Error>;
        let tcp = |address| tcp(address).map_err(step("listen on a TCP port"));
        Ok(Self {
            dns_udp: match on.stub {
                Stub::Everywhere => udp(any(DNS_PORT)),
                Stub::Refusing => refusing_udp(),
            }
            .map_err(step("bind the DNS port"))?,
            dns_tcp: match on.stub {
                Stub::Everywhere => Some(tcp(any(DNS_PORT))?),
                Stub::Refusing => None,
            },
            proxy: tcp(loopback)?,
            ports: on
                .ports
                .iter()
                .map(|port| tcp(any(*port)))
                .collect::<Result<_, _>>()?,
        })
    }

    /// All of them, in order.
    pub fn into_fds(self) -> Vec<OwnedFd> {
        let Self {
            dns_udp,
            dns_tcp,
            proxy,
            ports,
        } = self;
        let first = std::iter::once(dns_udp).chain(dns_tcp);
        first.chain([proxy]).chain(ports).collect()
    }

    /// From the descriptors of [`Listeners::into_fds`]; `None` if there are too few.
    pub fn from_fds(stub: Stub, fds: impl IntoIterator<Item = OwnedFd>) -> Option<Self> {
        let mut fds = fds.into_iter();
        Some(Self {
            dns_udp: fds.next()?,
            dns_tcp: match stub {
                Stub::Everywhere => Some(fds.next()?),
                Stub::Refusing => None,
            },
            proxy: fds.next()?,
            ports: fds.collect(),
        })
    }
}

/// TCP sockets of the calling thread's namespace, which they keep wherever they are sent: `count` of IPv4, then of
/// IPv6.
pub(super) fn dialers(count: usize, families: Families) -> io::Result<Vec<OwnedFd>> {
    let each = match families {
        Families::V4 => &[AddressFamily::INET][..],
        Families::Both => &[AddressFamily::INET, AddressFamily::INET6],
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    each.iter()
        .flat_map(|family| std::iter::repeat_n(*family, count))
        .map(|family| {
            Ok(socket_with(
                family,
                SocketType::STREAM,
                flags,
                Some(ipproto::TCP),
            )?)
        })
        .collect()
}

/// The same, of the families that this kernel has.
pub fn dial_sockets(count: usize) -> io::Result<Vec<OwnedFd>> {
    match dialers(count, Families::Both) {
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
            dialers(count, Families::V4)
        }
        other => other,
    }
}

/// Listens on a port of every address of the calling thread's namespace.
pub fn listen_everywhere(port: u16) -> io::Result<OwnedFd> {
    let of_v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    match tcp(of_v6) {
        // A kernel without IPv6 needs no listener there.
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
            tcp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
        }
        other => other,
    }
}

/// Listens on one address of the calling thread's namespace. An earlier listener's connections in TIME_WAIT do not
/// prevent it; another listener does (socket(7), SO_REUSEADDR).
pub fn listen_at(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = unbound(address, SocketType::STREAM)?;
    if address.is_ipv6() {
        // `::` means IPv6 only (docker run --publish).
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = make(address, SocketType::STREAM)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn udp(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = make(address, SocketType::DGRAM)?;
    // The answer must come from the requested address.
    set_packet_info(&socket, address)?;
    Ok(socket)
}

/// Binds beside others with SO_REUSEADDR, as name servers use it.
fn refusing_udp() -> io::Result<OwnedFd> {
    let address = SocketAddr::from((REFUSING_STUB, DNS_PORT));
    let socket = unbound(address, SocketType::DGRAM)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    set_packet_info(&socket, address)?;
    Ok(socket)
}

/// IP_PKTINFO (ip(7)), IPV6_RECVPKTINFO (RFC 3542); a socket of both families reports IPv4 in IPv6's form.
fn set_packet_info(socket: &OwnedFd, of: SocketAddr) -> io::Result<()> {
    use nix::sys::socket::{setsockopt, sockopt::Ipv4PacketInfo, sockopt::Ipv6RecvPacketInfo};
    match of {
        SocketAddr::V4(_) => setsockopt(socket, Ipv4PacketInfo, &true)?,
        SocketAddr::V6(_) => setsockopt(socket, Ipv6RecvPacketInfo, &true)?,
    }
    Ok(())
}

fn make(address: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let socket = unbound(address, kind)?;
    bind(&socket, &address)?;
    Ok(socket)
}

fn unbound(address: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let (family, protocol) = match (address, kind) {
        (SocketAddr::V4(_), SocketType::STREAM) => (AddressFamily::INET, ipproto::TCP),
        (SocketAddr::V6(_), SocketType::STREAM) => (AddressFamily::INET6, ipproto::TCP),
        (SocketAddr::V4(_), _) => (AddressFamily::INET, ipproto::UDP),
        (SocketAddr::V6(_), _) => (AddressFamily::INET6, ipproto::UDP),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, kind, flags, Some(protocol))?;
    if address.is_ipv6() {
        // One socket for both families, so that neither can be bound beside it.
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    Ok(socket)
}
