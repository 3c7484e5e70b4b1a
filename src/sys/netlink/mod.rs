//! The little of rtnetlink(7) that a sandbox needs: list links, addresses and gateways, bring a
//! link up, give it large packets, an address and a local default route.
//!
//! The kernel's messages are parsed defensively, as bytes, without `unsafe`: a wrong length is an error, never a
//! guess, and every loop is bounded by a constant.

mod pairs;
mod route;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

pub use route::Neighbourhood;

/// The hardware type of a loopback link (`ARPHRD_LOOPBACK`, linux/if_arp.h).
pub const HARDWARE_LOOPBACK: u16 = 772;

const HEADER: usize = 16;
const LINK_HEADER: usize = 16;
/// The kernel never makes a dump's datagram longer than this (`netlink_dump`, af_netlink.c).
const DATAGRAM: usize = 32 * 1024;
/// Some hundred thousand routes: a router's whole table.
const MAX_DATAGRAMS: usize = 1024;
const MAX_LINKS: usize = 64;
const ADDRESS_HEADER: usize = 8;
const ROUTE_HEADER: usize = 12;
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// RTMGRP_LINK, and those of IPv4's and IPv6's addresses and routes (linux/rtnetlink.h), and RTNLGRP_NEXTHOP, the 32nd group.
const NEWS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400 | (1 << 31);

const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;

const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_IFNAME: u16 = 3;
/// A nest, of which IFLA_INFO_KIND is the driver's name for the kind of link.
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
/// Above a type's number: flags of what is in the attribute (linux/netlink.h).
const ATTRIBUTE_TYPE: u16 = 0x3fff;
/// IFLA_GSO_MAX_SIZE, IFLA_GRO_MAX_SIZE and the two for IPv4 alone (linux/if_link.h).
const LARGEST_PACKET: [u16; 4] = [41, 58, 63, 64];
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 0x02;
const RTA_OIF: u16 = 4;
const RTA_PREFSRC: u16 = 7;
const RT_TABLE_LOCAL: u8 = 255;
const RT_SCOPE_HOST: u8 = 254;
const RTPROT_BOOT: u8 = 3;
const RTN_LOCAL: u8 = 2;

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
    /// What the driver calls it (`ipip`, `veth`), where it says so. Nobody can give a link another kind.
    pub kind: Option<String>,
    /// Whether what it works with is in another namespace: a tunnel that was moved leads out there still.
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
    /// Hears of changes, once [`Self::watch`] was called.
    news: Option<OwnedFd>,
}

impl RouteSocket {
    /// Opens a socket that hears nobody but the kernel.
    pub fn open() -> io::Result<Self> {
        let fd = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None, // protocol 0 is NETLINK_ROUTE
        )?;
        // Connected to port 0, the kernel: what another process sends us is refused there.
        rustix::net::connect(&fd, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&fd, Timeout::Recv, Some(ANSWER_WITHIN))?;
        Ok(Self {
            fd,
            sequence: 0,
            news: None,
        })
    }

    /// The number of the network namespace that this is a socket of.
    pub fn netns_cookie(&self) -> io::Result<u64> {
        super::socket::netns_cookie(self.fd.as_fd())
    }

    /// From here on [`Self::has_news`] tells of changes of links, addresses and routes.
    pub fn watch(&mut self) -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, NEWS))?;
        self.news = Some(fd);
        Ok(())
    }

    /// Whether something may have changed since the last call: also when that cannot be told.
    pub fn has_news(&self) -> bool {
        let Some(fd) = &self.news else {
            return true;
        };
        let mut any = false;
        let mut buffer = [0; 1];
        for _ in 0..MAX_DATAGRAMS {
            // What it says does not matter, and what does not fit into the buffer is dropped.
            match rustix::net::recv(fd, &mut buffer[..], RecvFlags::empty()) {
                Ok(_) => any = true,
                Err(rustix::io::Errno::AGAIN) => return any,
                // ENOBUFS: there was more than could be kept (netlink(7)).
                Err(_) => return true,
            }
        }
        true
    }

    /// Every link of the namespace; an error when there are more than could be of use.
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

    /// Asks for a list and hands over each item's body.
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
            // Read to its end also when it is of no use: what is left would be taken for the answer to the next question.
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

    /// Lets a link carry packets of up to so many bytes ("BIG TCP"): those of IPv6 since Linux 5.19, of IPv4 since 6.3. An
    /// older kernel refuses or takes the part that it knows.
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

    /// `ip route add local default dev INDEX table local src SOURCE`: every address of the family
    /// is ours, so whatever is dialled arrives at a local listener or at nothing.
    pub fn add_local_default(&mut self, index: u32, source: IpAddr) -> io::Result<()> {
        let (family, octets) = split(source);
        let mut body = vec![family, 0, 0, 0];
        body.extend([RT_TABLE_LOCAL, RTPROT_BOOT, RT_SCOPE_HOST, RTN_LOCAL]);
        body.extend([0; 4]);
        push_attribute(&mut body, RTA_OIF, &index.to_ne_bytes());
        push_attribute(&mut body, RTA_PREFSRC, &octets);
        self.change(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &body)
    }

    /// Sends a change and waits for the kernel's yes or no.
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
        // With TRUNC the kernel says how long the datagram really was.
        let (_, len) = rustix::io::retry_on_intr(|| {
            rustix::net::recv(&self.fd, &mut buffer[..], RecvFlags::TRUNC)
        })?;
        if len > buffer.len() {
            return Err(malformed("a datagram is longer than the buffer"));
        }
        Ok(len)
    }
}

/// A link, and the flags of it that are to be set.
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

fn encode(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> io::Result<Vec<u8>> {
    let len = u32::try_from(HEADER + body.len()).map_err(|_| malformed("request length"))?;
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(len.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend([0; 4]); // our port: the kernel fills it in
    message.extend(body);
    Ok(message)
}

/// Appends one attribute. `data` is at most an address, so the length always fits.
fn push_attribute(body: &mut Vec<u8>, kind: u16, data: &[u8]) {
    let len = (4 + data.len()) as u16;
    body.extend(len.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(data);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// One message of a datagram.
#[derive(Debug, PartialEq, Eq)]
struct Message<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    body: &'a [u8],
}

/// Takes the next message off `rest`; `None` at the datagram's end.
fn next_message<'a>(rest: &mut &'a [u8]) -> io::Result<Option<Message<'a>>> {
    if rest.is_empty() {
        return Ok(None);
    }
    let len = u32_at(rest, 0)? as usize;
    if len < HEADER || len > rest.len() {
        return Err(malformed("a message's length does not fit its datagram"));
    }
    let message = Message {
        kind: u16_at(rest, 4)?,
        flags: u16_at(rest, 6)?,
        sequence: u32_at(rest, 8)?,
        body: &rest[HEADER..len],
    };
    *rest = &rest[len.next_multiple_of(4).min(rest.len())..];
    Ok(Some(message))
}

#[derive(Debug, PartialEq, Eq)]
enum Dump {
    Complete,
    More,
}

/// Whether a dump ends with this datagram.
fn is_last(datagram: &[u8]) -> bool {
    let mut rest = datagram;
    while let Ok(Some(message)) = next_message(&mut rest) {
        if message.kind == NLMSG_DONE {
            return true;
        }
    }
    false
}

fn parse_dump(
    datagram: &[u8],
    sequence: u32,
    wanted: u16,
    each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Dump> {
    let mut rest = datagram;
    if rest.is_empty() {
        return Err(malformed("an empty datagram in the dump"));
    }
    while let Some(message) = next_message(&mut rest)? {
        if message.sequence != sequence {
            return Err(malformed("an answer to another question"));
        }
        if message.flags & NLM_F_DUMP_INTR != 0 {
            let changed = "the list changed while it was read";
            return Err(io::Error::new(io::ErrorKind::Interrupted, changed));
        }
        match message.kind {
            NLMSG_DONE => {
                status(message.body)?;
                return Ok(Dump::Complete);
            }
            NLMSG_ERROR => {
                status(message.body)?;
                return Err(malformed("an acknowledgement inside the dump"));
            }
            NLMSG_NOOP => {}
            kind if kind == wanted => each(message.body)?,
            _ => return Err(malformed("a message that was not asked for")),
        }
    }
    Ok(Dump::More)
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

/// The last attribute of this kind behind a header.
fn attribute(body: &[u8], header: usize, wanted: u16) -> io::Result<Option<&[u8]>> {
    let mut found = None;
    let mut rest = body
        .get(header..)
        .ok_or_else(|| malformed("a message's header is short"))?;
    // Every turn takes at least four bytes, so the datagram's length bounds this loop.
    while !rest.is_empty() {
        let len = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)?;
        if len < 4 || len > rest.len() {
            return Err(malformed("an attribute's length does not fit its message"));
        }
        if kind & ATTRIBUTE_TYPE == wanted {
            found = Some(&rest[4..len]);
        }
        rest = &rest[len.next_multiple_of(4).min(rest.len())..];
    }
    Ok(found)
}

fn parse_acknowledgement(datagram: &[u8], sequence: u32) -> io::Result<()> {
    let mut rest = datagram;
    match next_message(&mut rest)? {
        Some(message) if message.kind == NLMSG_ERROR && message.sequence == sequence => {
            status(message.body)
        }
        Some(_) | None => Err(malformed("not an acknowledgement of the request")),
    }
}

/// The status word that begins the body of `NLMSG_ERROR` and `NLMSG_DONE`: zero or minus an errno.
fn status(body: &[u8]) -> io::Result<()> {
    match u32_at(body, 0)? as i32 {
        0 => Ok(()),
        errno @ -4095..=-1 => Err(io::Error::from_raw_os_error(-errno)),
        _ => Err(malformed("a status that is no errno")),
    }
}

fn u16_at(bytes: &[u8], at: usize) -> io::Result<u16> {
    let two = bytes.get(at..at + 2).and_then(|two| two.try_into().ok());
    two.map(u16::from_ne_bytes)
        .ok_or_else(|| malformed("a message ends inside a field"))
}

fn u32_at(bytes: &[u8], at: usize) -> io::Result<u32> {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map(u32::from_ne_bytes)
        .ok_or_else(|| malformed("a message ends inside a field"))
}

fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str) -> Vec<u8> {
        let mut body = vec![0, 0];
        body.extend(HARDWARE_LOOPBACK.to_ne_bytes());
        body.extend(1_u32.to_ne_bytes());
        body.extend((libc::IFF_LOOPBACK as u32).to_ne_bytes());
        body.extend([0; 4]);
        push_attribute(&mut body, 99, b"x");
        push_attribute(&mut body, IFLA_IFNAME, format!("{name}\0").as_bytes());
        padded(encode(RTM_NEWLINK, 2, 7, &body).unwrap())
    }

    fn padded(mut message: Vec<u8>) -> Vec<u8> {
        message.resize(message.len().next_multiple_of(4), 0);
        message
    }

    fn done(status: i32) -> Vec<u8> {
        encode(NLMSG_DONE, 2, 7, &status.to_ne_bytes()).unwrap()
    }

    fn parse_links(datagram: &[u8], sequence: u32, links: &mut Vec<Link>) -> io::Result<Dump> {
        parse_dump(datagram, sequence, RTM_NEWLINK, &mut |body| {
            links.push(parse_link(body)?);
            Ok(())
        })
    }

    #[test]
    fn reads_a_dump_of_several_parts() {
        let mut links = Vec::new();
        let first = [link("lo"), link("eth0")].concat();
        assert_eq!(parse_links(&first, 7, &mut links).unwrap(), Dump::More);
        assert_eq!(
            parse_links(&done(0), 7, &mut links).unwrap(),
            Dump::Complete
        );
        assert_eq!(links.len(), 2);
        assert!(links[0].is_loopback());
        assert!(!links[1].is_loopback());
    }

    #[test]
    fn a_link_is_loopback_only_by_name_flag_and_hardware() {
        let mut links = Vec::new();
        parse_links(&link("lo"), 7, &mut links).unwrap();
        let good = links.remove(0);
        for bad in [
            Link {
                flags: 0,
                ..good.clone()
            },
            Link {
                hardware: 1,
                ..good.clone()
            },
            Link {
                name: "lo0".into(),
                ..good.clone()
            },
        ] {
            assert!(!bad.is_loopback(), "{bad:?}");
        }
    }

    #[test]
    fn a_links_kind_is_what_its_driver_says() {
        let mut nest = Vec::new();
        push_attribute(&mut nest, IFLA_INFO_KIND, b"ipip\0");
        push_attribute(&mut nest, 2, &[1, 2, 3]);
        for nested in [IFLA_LINKINFO, IFLA_LINKINFO | 0x8000] {
            let mut body = vec![0; LINK_HEADER];
            push_attribute(&mut body, IFLA_IFNAME, b"tunl0\0");
            push_attribute(&mut body, nested, &nest);
            let link = parse_link(&body).unwrap();
            assert_eq!((&*link.name, link.kind.as_deref()), ("tunl0", Some("ipip")));
            for cut in LINK_HEADER + 1..body.len() {
                // Whatever it is, it must return.
                drop(parse_link(&body[..cut]));
            }
        }
        assert_eq!(parse_link(&[0; LINK_HEADER]).unwrap().kind, None);
    }

    #[test]
    fn every_cut_and_every_wrong_length_is_an_error_or_a_shorter_dump() {
        let whole = [link("lo"), done(0)].concat();
        for cut in 0..whole.len() {
            let complete = parse_links(&whole[..cut], 7, &mut Vec::new());
            assert!(!matches!(complete, Ok(Dump::Complete)), "cut at {cut}");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 3, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                // Whatever it is, it must return.
                drop(parse_links(&bytes, 7, &mut Vec::new()));
            }
        }
    }

    #[test]
    fn refuses_answers_to_other_questions_and_interrupted_dumps() {
        assert!(parse_links(&link("lo"), 8, &mut Vec::new()).is_err());
        let mut interrupted = link("lo");
        interrupted[6..8].copy_from_slice(&NLM_F_DUMP_INTR.to_ne_bytes());
        assert!(parse_links(&interrupted, 7, &mut Vec::new()).is_err());
        assert!(parse_links(&done(-libc::EPERM), 7, &mut Vec::new()).is_err());
    }

    #[test]
    fn an_acknowledgement_carries_the_errno() {
        let error = |code: i32| encode(NLMSG_ERROR, 0, 3, &code.to_ne_bytes()).unwrap();
        parse_acknowledgement(&error(0), 3).unwrap();
        let refused = parse_acknowledgement(&error(-libc::EEXIST), 3).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EEXIST));
        assert!(parse_acknowledgement(&error(0), 4).is_err());
        assert!(parse_acknowledgement(&error(i32::MIN), 3).is_err());
        assert!(parse_acknowledgement(&[], 3).is_err());
    }

    #[test]
    fn lists_the_links_of_this_machine() {
        let links = RouteSocket::open().unwrap().links().unwrap();
        assert!(links.iter().any(Link::is_loopback), "{links:?}");
    }
}
