//! Finds the socket at the other end of a local TCP connection: sock_diag(7).
//!
//! A socket is known by its cookie (SO_COOKIE, socket(7)), which the kernel uses only once while the machine is up. A
//! port may be another socket's a moment after it was closed.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::message::{encode, malformed, parse_answer, u32_at};
use super::{ANSWER_WITHIN, NLM_F_REQUEST};

/// linux/sock_diag.h
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// The index of `lo` in every network namespace (LOOPBACK_IFINDEX, linux/net_namespace.h). A socket that is bound to it
/// is found only by this number, an unbound one by every number.
const LOOPBACK: u32 = 1;
/// Where `struct inet_diag_sockid` begins in `struct inet_diag_msg`, and where its cookie is in that.
const ID: usize = 4;
const COOKIE: usize = ID + 40;
const UID: usize = 64;
/// An answer without attributes has 88 bytes; an error includes the question.
const LONGEST: usize = 1024;
/// The most answers to earlier, abandoned questions.
const MOST_OLD: usize = 64;
/// TCP_SYN_SENT (net/tcp_states.h): the connection has no answer yet.
const SYN_SENT: u8 = 2;

/// The kernel's facts about a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketInfo {
    /// SO_COOKIE
    pub cookie: u64,
    /// Its owner; a closed socket has none.
    pub uid: u32,
    /// Whether it has been connected: false while it waits for an answer.
    pub connected: bool,
}

/// A socket for questions about the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct DiagSocket {
    fd: OwnedFd,
    sequence: u32,
}

impl DiagSocket {
    /// Opens one that accepts only the kernel's messages.
    pub fn open() -> io::Result<Self> {
        let fd = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        rustix::net::connect(&fd, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&fd, Timeout::Recv, Some(ANSWER_WITHIN))?;
        Ok(Self { fd, sequence: 0 })
    }

    /// The socket with these two ends on the loopback interface, its own end first. If there is none, the listener on
    /// its own end.
    pub fn find(
        &mut self,
        own: SocketAddrV4,
        other: SocketAddrV4,
    ) -> io::Result<Option<SocketInfo>> {
        self.sequence = self.sequence.wrapping_add(1);
        let body = question(own, other);
        let message = encode(SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, self.sequence, &body)?;
        let sent = rustix::net::send(&self.fd, &message, SendFlags::empty())?;
        if sent != message.len() {
            return Err(malformed("the request was cut on sending"));
        }
        let mut buffer = [0; LONGEST];
        for _ in 0..MOST_OLD {
            let (_, len) = rustix::io::retry_on_intr(|| {
                rustix::net::recv(&self.fd, &mut buffer[..], RecvFlags::TRUNC)
            })?;
            let datagram = buffer
                .get(..len)
                .ok_or_else(|| malformed("a datagram is longer than the buffer"))?;
            match parse_answer(datagram, self.sequence, SOCK_DIAG_BY_FAMILY) {
                Ok(None) => {}
                Ok(Some(body)) => return parse(body).map(Some),
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Err(malformed("no answer to the question"))
    }
}

/// `struct inet_diag_req_v2`
fn question(own: SocketAddrV4, other: SocketAddrV4) -> Vec<u8> {
    let mut body = vec![libc::AF_INET as u8, libc::IPPROTO_TCP as u8, 0, 0];
    // In every state.
    body.extend([0xff; 4]);
    body.extend(own.port().to_be_bytes());
    body.extend(other.port().to_be_bytes());
    for end in [own, other] {
        body.extend(end.ip().octets());
        body.extend([0; 12]);
    }
    body.extend(LOOPBACK.to_ne_bytes());
    // INET_DIAG_NOCOOKIE: the request has no cookie.
    body.extend([0xff; 8]);
    body
}

fn parse(body: &[u8]) -> io::Result<SocketInfo> {
    let state = *body.get(1).ok_or_else(|| malformed("an empty answer"))?;
    // Two words, the low one first (sock_diag_save_cookie).
    let (low, high) = (u32_at(body, COOKIE)?, u32_at(body, COOKIE + 4)?);
    Ok(SocketInfo {
        cookie: u64::from(high) << 32 | u64::from(low),
        uid: u32_at(body, UID)?,
        connected: state != SYN_SENT,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::socket_cookie;
    use std::net::{SocketAddr, TcpListener, TcpStream};

    fn v4(address: io::Result<SocketAddr>) -> SocketAddrV4 {
        match address.unwrap() {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(_) => panic!("not asked for"),
        }
    }

    #[test]
    fn finds_the_other_end_of_a_connection_by_its_cookie() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = v4(listener.local_addr());
        let mut diag = DiagSocket::open().unwrap();
        let mut find = |own, other| diag.find(own, other).unwrap();
        let client = TcpStream::connect(at).unwrap();
        let (server, from) = listener.accept().unwrap();
        let from = v4(Ok(from));
        let found = find(from, at).unwrap();
        assert_eq!(found.cookie, socket_cookie(&client).unwrap());
        assert_eq!(found.uid, rustix::process::geteuid().as_raw());
        assert!(found.connected);
        assert_eq!(
            find(at, from).unwrap().cookie,
            socket_cookie(&server).unwrap()
        );
        // A closed socket is known as long as its connection.
        drop(client);
        assert_eq!(find(from, at).unwrap().cookie, found.cookie);
        // Only the listener is there.
        let nobody = SocketAddrV4::new([127, 0, 0, 1].into(), 1);
        assert_eq!(find(nobody, at), None);
        let listens = find(at, nobody).unwrap();
        assert_eq!(listens.cookie, socket_cookie(&listener).unwrap());
    }
}
