//! The wall's ears in the inner namespace: bound by the child that makes it, served by the sidecar.
//!
//! A socket keeps the namespace it was made in, so the sidecar accepts from inside without ever being there. None of
//! them has SO_REUSEADDR or SO_REUSEPORT: nobody inside can bind beside them (THREATS N27).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with, sockopt,
};

use super::NetworkError;

/// Connections that wait to be accepted; the kernel caps it at net.core.somaxconn.
const BACKLOG: i32 = 1024;
/// DNS (RFC 1035).
const DNS_PORT: u16 = 53;
/// The descriptors besides those of [`ListenOn::ports`].
const FIXED: usize = 3;

/// What to listen on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListenOn {
    /// The explicit proxy, on 127.0.0.1 alone.
    pub proxy: u16,
    /// TCP ports of every address: those that rules name.
    pub ports: Vec<u16>,
}

/// The listeners, in the order in which they travel.
#[derive(Debug)]
pub struct Listeners {
    /// DNS by UDP, every address.
    pub dns_udp: OwnedFd,
    /// DNS by TCP, every address.
    pub dns_tcp: OwnedFd,
    /// The explicit proxy.
    pub proxy: OwnedFd,
    /// One for each of [`ListenOn::ports`], in its order.
    pub ports: Vec<OwnedFd>,
}

impl ListenOn {
    /// For these ports of rules, and the proxy's. DNS has its port already.
    pub fn new(proxy: u16, ports: impl IntoIterator<Item = u16>) -> Self {
        let ports = ports.into_iter().filter(|port| *port != DNS_PORT);
        Self {
            proxy,
            ports: ports.collect(),
        }
    }

    /// How many descriptors the listeners are.
    pub fn descriptors(&self) -> usize {
        FIXED + self.ports.len()
    }
}

impl Listeners {
    /// Binds them in the calling thread's namespace.
    pub(super) fn bind(on: &ListenOn, ipv6: bool) -> Result<Self, NetworkError> {
        let any = |port| match ipv6 {
            true => SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0)),
            false => SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)),
        };
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, on.proxy));
        let step = NetworkError::step::<io::Error>;
        let tcp = |address| tcp(address).map_err(step("listen on a TCP port"));
        Ok(Self {
            dns_udp: udp(any(DNS_PORT)).map_err(step("bind the DNS port"))?,
            dns_tcp: tcp(any(DNS_PORT))?,
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
        [dns_udp, dns_tcp, proxy].into_iter().chain(ports).collect()
    }

    /// From the descriptors that [`Listeners::into_fds`] made; `None` if there are too few.
    pub fn from_fds(fds: impl IntoIterator<Item = OwnedFd>) -> Option<Self> {
        let mut fds = fds.into_iter();
        Some(Self {
            dns_udp: fds.next()?,
            dns_tcp: fds.next()?,
            proxy: fds.next()?,
            ports: fds.collect(),
        })
    }
}

/// TCP sockets of the calling thread's namespace, which is theirs wherever they go: `count` of IPv4, then of IPv6.
pub(super) fn dialers(count: usize, ipv6: bool) -> io::Result<Vec<OwnedFd>> {
    let families = [AddressFamily::INET, AddressFamily::INET6];
    let families = families.into_iter().take(if ipv6 { 2 } else { 1 });
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    families
        .flat_map(|family| std::iter::repeat_n(family, count))
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

/// Listens on a port of every address of the calling thread's namespace.
pub fn listen_everywhere(port: u16) -> io::Result<OwnedFd> {
    let of_v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    match tcp(of_v6) {
        // A kernel without IPv6 has nobody there to listen to.
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
            tcp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
        }
        other => other,
    }
}

fn tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = make(address, SocketType::STREAM)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn udp(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = make(address, SocketType::DGRAM)?;
    // The answer must come from the address that was asked, whichever that was.
    set_packet_info(&socket, address.is_ipv6())?;
    Ok(socket)
}

/// IP_PKTINFO (ip(7)), IPV6_RECVPKTINFO (RFC 3542); a socket of both families reports IPv4 in IPv6's form.
fn set_packet_info(socket: &OwnedFd, ipv6: bool) -> io::Result<()> {
    use nix::sys::socket::{setsockopt, sockopt::Ipv4PacketInfo, sockopt::Ipv6RecvPacketInfo};
    if ipv6 {
        setsockopt(socket, Ipv6RecvPacketInfo, &true)?;
    } else {
        setsockopt(socket, Ipv4PacketInfo, &true)?;
    }
    Ok(())
}

fn make(address: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
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
    bind(&socket, &address)?;
    Ok(socket)
}
