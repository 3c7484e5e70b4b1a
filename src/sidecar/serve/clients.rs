//! Whose a connection to the proxy is, where its port is on a loopback that others use too (`wrap --walls landlock`).
//!
//! `wrap` makes each socket of its command, and tells the cookie of each before the command has it. The kernel says which socket is
//! at the other end of a connection. Another user's, another container's of the same pod or another run's is reset before it counts
//! as a connection.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use tokio::net::TcpStream;
use tokio::task::spawn_local;

use crate::sys::event::readable;
use crate::sys::netlink::DiagSocket;
use crate::sys::socket;

/// How many sockets of the command are known: the newest. Each takes some thirty bytes.
const MOST: usize = 1 << 16;

/// The bytes of a cookie.
const LENGTH: usize = size_of::<u64>();

/// Who is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// The command.
    Own,
    /// Nobody any more.
    Gone,
    /// Another program, of this user.
    Stranger(u32),
    /// The kernel does not say.
    Unknown,
}

/// What tells the command's connections from others'.
#[derive(Debug)]
pub(in crate::sidecar) struct Clients {
    line: OwnedFd,
    diag: RefCell<DiagSocket>,
    made: RefCell<MadeSockets>,
}

/// The cookies of the newest sockets made for the command.
#[derive(Debug, Default)]
struct MadeSockets {
    known: HashSet<u64>,
    order: VecDeque<u64>,
}

impl MadeSockets {
    fn add(&mut self, cookie: u64) {
        if self.order.len() == MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        if self.known.insert(cookie) {
            self.order.push_back(cookie);
        }
    }
}

impl Clients {
    /// Over the line on which the cookies come. Fails where the kernel does not say whose a connection is: it is asked about the
    /// listener, of which the answer is known.
    pub fn new(line: OwnedFd, listener: &OwnedFd) -> io::Result<Self> {
        let mut diag = DiagSocket::open()?;
        let at: SocketAddr = rustix::net::getsockname(listener)?.try_into()?;
        let nobody = SocketAddrV4::new([0, 0, 0, 0].into(), 0);
        let found = diag.find(on_v4(at)?, nobody)?;
        let cookie = rustix::net::sockopt::socket_cookie(listener)?;
        if found.is_none_or(|found| found.cookie != cookie) {
            return Err(io::Error::other(
                "the kernel does not find the proxy's own socket",
            ));
        }
        rustix::io::ioctl_fionbio(&line, true)?;
        Ok(Self {
            line,
            diag: RefCell::new(diag),
            made: RefCell::default(),
        })
    }

    /// Takes cookies as they come, so that `wrap` never waits for room. Must be called inside a tokio runtime.
    pub fn serve(self: &Rc<Self>) {
        let clients = Rc::clone(self);
        spawn_local(async move {
            // Where the line has ended `wrap` has, and this process ends.
            while readable(&clients.line).await.is_ok() && clients.hear().is_ok() {}
        });
    }

    /// Takes what has come.
    fn hear(&self) -> io::Result<()> {
        let mut made = self.made.borrow_mut();
        let mut buffer = [0; LENGTH];
        loop {
            match socket::receive(self.line.as_fd(), &mut buffer) {
                Ok(message) if message.len == LENGTH => made.add(u64::from_ne_bytes(buffer)),
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Who is at the other end of a connection that was accepted.
    pub(super) fn peer(&self, stream: &TcpStream) -> Peer {
        let ends = || Some((stream.peer_addr().ok()?, stream.local_addr().ok()?));
        let Some((peer, local)) = ends() else {
            return Peer::Gone;
        };
        // Its cookie came before the command had the socket, so it is there if there is one.
        let _over = self.hear();
        let (Ok(peer), Ok(local)) = (on_v4(peer), on_v4(local)) else {
            return Peer::Unknown;
        };
        match self.diag.borrow_mut().find(peer, local) {
            Err(_) => Peer::Unknown,
            Ok(None) => Peer::Gone,
            Ok(Some(found)) if !self.made.borrow().known.contains(&found.cookie) => {
                Peer::Stranger(found.uid)
            }
            // Where the connection stands now it has stood since it was accepted, so what was found is its other end, and not a later
            // socket that got the same port.
            Ok(Some(found)) if found.connected && stream.peer_addr().is_ok() => Peer::Own,
            Ok(Some(_)) => Peer::Gone,
        }
    }
}

fn on_v4(address: SocketAddr) -> io::Result<SocketAddrV4> {
    match address {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(_) => Err(io::ErrorKind::InvalidInput.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(listener: &std::net::TcpListener) -> (std::net::TcpStream, TcpStream) {
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        (client, TcpStream::from_std(server).unwrap())
    }

    /// N55: a stranger who gets the port of a socket of the command's is a stranger.
    #[test]
    fn a_connection_is_the_commands_by_its_socket_and_not_by_its_port() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let (ours, theirs) = socket::pair().unwrap();
            let as_fd = listener.as_fd().try_clone_to_owned().unwrap();
            let clients = Clients::new(ours, &as_fd).unwrap();
            let uid = rustix::process::geteuid().as_raw();
            let tell = |client: &std::net::TcpStream| {
                let cookie = rustix::net::sockopt::socket_cookie(client).unwrap();
                socket::send(theirs.as_fd(), &cookie.to_ne_bytes(), &[]).unwrap();
            };
            let (client, server) = pair(&listener);
            assert_eq!(clients.peer(&server), Peer::Stranger(uid));
            tell(&client);
            assert_eq!(clients.peer(&server), Peer::Own);
            // It asked and left: still its own.
            let port = client.local_addr().unwrap();
            client.shutdown(std::net::Shutdown::Both).unwrap();
            drop(client);
            assert_eq!(clients.peer(&server), Peer::Own);
            let _reset =
                rustix::net::sockopt::set_socket_linger(&server, Some(std::time::Duration::ZERO));
            drop(server);
            // Its port, by another program.
            let stranger = rustix::net::socket(
                rustix::net::AddressFamily::INET,
                rustix::net::SocketType::STREAM,
                None,
            )
            .unwrap();
            rustix::net::sockopt::set_socket_reuseaddr(&stranger, true).unwrap();
            rustix::net::bind(&stranger, &port).unwrap();
            rustix::net::connect(&stranger, &listener.local_addr().unwrap()).unwrap();
            let (server, from) = listener.accept().unwrap();
            assert_eq!(from, port);
            server.set_nonblocking(true).unwrap();
            let server = TcpStream::from_std(server).unwrap();
            assert_eq!(clients.peer(&server), Peer::Stranger(uid));
            // A socket that left with a reset has no other end.
            let (client, server) = pair(&listener);
            tell(&client);
            rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO))
                .unwrap();
            drop(client);
            assert_eq!(clients.peer(&server), Peer::Gone);
        });
    }

    #[test]
    fn the_newest_sockets_are_known() {
        let mut made = MadeSockets::default();
        for cookie in 0..=MOST as u64 {
            made.add(cookie);
        }
        assert!(!made.known.contains(&0) && made.known.contains(&1));
        assert_eq!((made.known.len(), made.order.len()), (MOST, MOST));
    }
}
