//! The part of rtnetlink(7) that a sandbox needs: list links, addresses and gateways; set a link up, and give it large
//! packets, an address and a local default route. And of sock_diag(7): the owner of a connection.
//!
//! The kernel's messages are parsed defensively, as bytes, without `unsafe`: a wrong length is an error, never a
//! guess, and every loop is bounded by a constant.

mod diag;
mod message;
mod pairs;
mod route;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use libc::{
    IFA_ADDRESS, IFA_LOCAL, RT_SCOPE_HOST, RT_TABLE_LOCAL, RTA_OIF, RTA_PREFSRC, RTM_GETLINK,
    RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE, RTN_LOCAL, RTPROT_BOOT,
};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use message::{
    Dump, attribute, encode, is_last, malformed, parse_acknowledgement, parse_dump, push_attribute,
    u16_at, u32_at,
};

pub use diag::{DiagSocket, SocketInfo};
pub use route::Neighbourhood;

/// The hardware type of a loopback link (`ARPHRD_LOOPBACK`, linux/if_arp.h).
pub const HARDWARE_LOOPBACK: u16 = 772;

const LINK_HEADER: usize = 16;
/// The longest datagram of a dump (`netlink_dump`, af_netlink.c).
const DATAGRAM: usize = 32 * 1024;
/// Some hundred thousand routes: a router's whole table.
const MAX_DATAGRAMS: usize = 1024;
const MAX_LINKS: usize = 64;
const ADDRESS_HEADER: usize = 8;
const ROUTE_HEADER: usize = 12;
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// RTMGRP_LINK, and those of IPv4's and IPv6's addresses and routes (linux/rtnetlink.h), and RTNLGRP_NEXTHOP, the 32nd group.
const NEWS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400 | (1 << 31);

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;

const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_IFNAME: u16 = 3;
/// A nest, of which IFLA_INFO_KIND is the driver's name for the kind of link.
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
/// IFLA_GSO_MAX_SIZE, IFLA_GRO_MAX_SIZE and the two for IPv4 alone (linux/if_link.h).
const LARGEST_PACKET: [u16; 4] = [41, 58, 63, 64];
const IFA_F_NODAD: u8 = 0x02;

/// One network interface, as `RTM_GETLINK` describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its index in the namespace.
    pub index: u32,
    /// Its name, lossily decoded: only for messages and for comparing with `lo`.
    pub name: String,
    /// `IFF_*` flags.
    pub flags: u32,
    /// `ARPHRD_*`.
    pub hardware: u16,
    /// The driver's name for it (`ipip`, `veth`), if given. A link's kind cannot be changed.
    pub kind: Option<String>,
    /// Whether its lower device is in another namespace: a moved tunnel still leads out there.
    pub from_elsewhere: bool,
}

impl Link {
    /// Whether this is the loopback interface by name, by flag and by hardware type.
    pub fn is_loopback(&self) -> bool {
        let flag = self.flags & libc::IFF_LOOPBACK as u32 != 0;
        flag && self.name == "lo" && self.hardware == HARDWARE_LOOPBACK
    }

    /// Whether it is set up.
    pub fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }
}

/// A routing socket in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct RouteSocket {
    fd: OwnedFd,
    sequence: u32,
    /// Receives changes, once [`Self::watch`] was called.
    news: Option<OwnedFd>,
}

impl RouteSocket {
    /// Opens a socket that accepts only the kernel's messages.
    pub fn open() -> io::Result<Self> {
        let fd = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None, // protocol 0 is NETLINK_ROUTE
        )?;
        // Connected to port 0, the kernel: messages of other processes are refused.
        rustix::net::connect(&fd, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&fd, Timeout::Recv, Some(ANSWER_WITHIN))?;
        Ok(Self {
            fd,
            sequence: 0,
            news: None,
        })
    }

    /// The cookie of this socket's network namespace.
    pub fn netns_cookie(&self) -> io::Result<u64> {
        super::socket::netns_cookie(self.fd.as_fd())
    }

    /// From here on [`Self::has_news`] reports changes of links, addresses and routes.
    pub fn watch(&mut self) -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, NEWS))?;
        self.news = Some(fd);
        Ok(())
    }

    /// Whether something may have changed since the last call; true if that cannot be told.
    pub fn has_news(&self) -> bool {
        let Some(fd) = &self.news else {
            return true;
        };
        let mut any = false;
        let mut buffer = [0; 1];
        for _ in 0..MAX_DATAGRAMS {
            // The content does not matter, and what does not fit into the buffer is dropped.
            match rustix::net::recv(fd, &mut buffer[..], RecvFlags::empty()) {
                Ok(_) => any = true,
                Err(rustix::io::Errno::AGAIN) => return any,
                // ENOBUFS: news was lost (netlink(7)).
                Err(_) => return true,
            }
        }
        true
    }

    /// Every link of the namespace; an error if there are too many.
    pub fn links(&mut self) -> io::Result<Vec<Link>> {
        let mut links = Vec::new();
        self.dump(RTM_GETLINK, RTM_NEWLINK, &[0; LINK_HEADER], &mut |body| {
            if links.len() == MAX_LINKS {
                return Err(malformed("more links than can be listed"));
            }
            links.push(parse_link(body)?);
            Ok(())
        })?;
        Ok(links)
    }

    /// Requests a list, and passes on each item's body.
    fn dump(
        &mut self,
        ask: u16,
        answer: u16,
        body: &[u8],
        each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let sequence = self.request(ask, NLM_F_DUMP, body)?;
        let mut buffer = vec![0; DATAGRAM];
        let mut wrong = None;
        for _ in 0..MAX_DATAGRAMS {
            let len = self.receive(&mut buffer)?;
            // Read to the end even after an error: the rest would be taken for the answer to the next question.
            match parse_dump(&buffer[..len], sequence, answer, each) {
                Ok(Dump::Complete) => return wrong.map_or(Ok(()), Err),
                Ok(Dump::More) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    let last = is_last(&buffer[..len]);
                    wrong = Some(error);
                    if last {
                        return wrong.map_or(Ok(()), Err);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(malformed("the dump does not end"))
    }

    /// Sets a link up.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        self.change(RTM_NEWLINK, 0, &link_body(index, libc::IFF_UP as u32))
    }

    /// Lets a link carry packets of up to `bytes` ("BIG TCP"): for IPv6 since Linux 5.19, for IPv4 since 6.3. An older
    /// kernel refuses, or applies the part that it knows.
    pub fn allow_packets_of(&mut self, index: u32, bytes: u32) -> io::Result<()> {
        let mut body = link_body(index, 0);
        for kind in LARGEST_PACKET {
            push_attribute(&mut body, kind, &bytes.to_ne_bytes());
        }
        self.change(RTM_NEWLINK, 0, &body)
    }

    /// Gives a link one address with a full-length prefix, without duplicate address detection.
    pub fn add_address(&mut self, index: u32, address: IpAddr) -> io::Result<()> {
        let (family, octets) = split(address);
        let bits = u8::try_from(octets.len() * 8).map_err(|_| malformed("address length"))?;
        let mut body = vec![family, bits, IFA_F_NODAD, 0];
        body.extend(index.to_ne_bytes());
        push_attribute(&mut body, IFA_LOCAL, &octets);
        push_attribute(&mut body, IFA_ADDRESS, &octets);
        self.change(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &body)
    }

    /// `ip route add local default dev INDEX table local src SOURCE`: every address of the family is local, so a
    /// connection arrives at a local listener or nowhere.
    pub fn add_local_default(&mut self, index: u32, source: IpAddr) -> io::Result<()> {
        let (family, octets) = split(source);
        let mut body = vec![family, 0, 0, 0];
        body.extend([RT_TABLE_LOCAL, RTPROT_BOOT, RT_SCOPE_HOST, RTN_LOCAL]);
        body.extend([0; 4]);
        push_attribute(&mut body, RTA_OIF, &index.to_ne_bytes());
        push_attribute(&mut body, RTA_PREFSRC, &octets);
        self.change(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &body)
    }

    /// Sends a change and waits for the kernel's result.
    fn change(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        let sequence = self.request(kind, NLM_F_ACK | flags, body)?;
        let mut buffer = vec![0; DATAGRAM];
        let len = self.receive(&mut buffer)?;
        parse_acknowledgement(&buffer[..len], sequence)
    }

    fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<u32> {
        self.sequence = self.sequence.wrapping_add(1);
        let message = encode(kind, NLM_F_REQUEST | flags, self.sequence, body)?;
        let sent = rustix::net::send(&self.fd, &message, SendFlags::empty())?;
        if sent == message.len() {
            Ok(self.sequence)
        } else {
            Err(malformed("the request was cut on sending"))
        }
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // With TRUNC the kernel returns the datagram's real length.
        let (_, len) = rustix::io::retry_on_intr(|| {
            rustix::net::recv(&self.fd, &mut buffer[..], RecvFlags::TRUNC)
        })?;
        if len > buffer.len() {
            return Err(malformed("a datagram is longer than the buffer"));
        }
        Ok(len)
    }
}

/// A link, and the flags to set on it.
fn link_body(index: u32, flags: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    for field in [index, flags, flags] {
        body.extend(field.to_ne_bytes());
    }
    body
}

fn split(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(v4) => (libc::AF_INET as u8, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6 as u8, v6.octets().to_vec()),
    }
}

fn parse_link(body: &[u8]) -> io::Result<Link> {
    let mut link = Link {
        hardware: u16_at(body, 2)?,
        index: u32_at(body, 4)?,
        flags: u32_at(body, 8)?,
        name: String::new(),
        kind: None,
        from_elsewhere: attribute(body, LINK_HEADER, IFLA_LINK_NETNSID)?.is_some(),
    };
    if let Some(name) = attribute(body, LINK_HEADER, IFLA_IFNAME)? {
        link.name = text(name);
    }
    if let Some(nest) = attribute(body, LINK_HEADER, IFLA_LINKINFO)? {
        link.kind = attribute(nest, 0, IFLA_INFO_KIND)?.map(text);
    }
    Ok(link)
}

/// A string that ends with a zero, lossily decoded.
fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next();
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

fn address_of(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => <[u8; 4]>::try_from(octets).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(octets).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
