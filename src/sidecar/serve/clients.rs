//! Which connections to the proxy are the command's, on a loopback that others use too (`wrap --walls landlock`).
//!
//! `wrap` makes each socket of its command, and sends its cookie before the command has it. The kernel tells which
//! socket is at the other end of a connection. A connection of another user, of another container in the pod or of
//! another run is reset before it counts.

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

/// The most known sockets of the command, the newest. Each takes about thirty bytes.
const MOST: usize = 1 << 16;

/// Bytes of a cookie.
const LENGTH: usize = size_of::<u64>();

/// The program at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// The command.
    Own,
    /// It is gone.
    Gone,
    /// Another program, with this uid.
    Stranger(u32),
    /// The kernel does not tell.
    Unknown,
}

/// Tells the command's connections from others.
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
    /// Over the line on which the cookies come. Fails if the kernel does not tell whose a connection is. The test is
    /// the listener, whose answer is known.
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

    /// Takes cookies as they come, so that `wrap` never waits. Must be called inside a tokio runtime.
    pub fn serve(self: &Rc<Self>) {
        let clients = Rc::clone(self);
        spawn_local(async move {
            // If the line has ended, so has `wrap`, and this process ends.
            while readable(&clients.line).await.is_ok() && clients.hear().is_ok() {}
        });
    }

    /// Takes the waiting cookies.
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

    /// The program at the other end of an accepted connection.
    pub(super) fn peer(&self, stream: &TcpStream) -> Peer {
        let ends = || Some((stream.peer_addr().ok()?, stream.local_addr().ok()?));
        let Some((peer, local)) = ends() else {
            return Peer::Gone;
        };
        // `wrap` sent the cookie before the command had the socket, so it has come by now.
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
            // A connection that is open now was open since it was accepted. So the found socket is its other end, not a
            // later one with the same port.
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

    /// N55: another program that gets the port of a socket of the command is a stranger.
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
            // The command has closed its socket: still its own.
            let port = client.local_addr().unwrap();
            client.shutdown(std::net::Shutdown::Both).unwrap();
            drop(client);
            assert_eq!(clients.peer(&server), Peer::Own);
            let _reset =
                rustix::net::sockopt::set_socket_linger(&server, Some(std::time::Duration::ZERO));
            drop(server);
            // The same port, used by another program.
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
            // A socket that ended with a reset has no other end.
            let (client, server) = pair(&listener);
            tell(&client);
            rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO))
                .unwrap();
            drop(client);
            assert_eq!(clients.peer(&server), Peer::Gone);
        });
    }

    #[test]
    fn only_the_newest_sockets_are_known() {
        let mut made = MadeSockets::default();
        for cookie in 0..=MOST as u64 {
            made.add(cookie);
        }
        assert!(!made.known.contains(&0) && made.known.contains(&1));
        assert_eq!((made.known.len(), made.order.len()), (MOST, MOST));
    }
}
