//! SHELL. Servers of the command at published ports: bind(2) and listen(2), made in the command's place.
//!
//! Landlock allows no bind(2), and does not control listen(2), which takes any free port for an unbound socket. So this
//! process makes both calls on its own copy of the caller's descriptor, and it judges that copy: another descriptor under
//! the same number, a moment later, changes nothing.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_reuseaddr, socket_cookie, socket_domain};
use rustix::net::{SocketFlags, bind, listen};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use super::caller::Caller;
use super::loopback;
use crate::sidecar::SidecarError;
use crate::sys::seccomp::notify::{self, NotifiedCall};

/// The most bound sockets that are remembered, the newest. Any number from a hundred on serves; a program with more
/// binds before it listens is refused.
const MOST: usize = 4096;

/// `struct sockaddr_in`
const ADDRESS: usize = 16;

/// The ports at which the command may have servers.
pub struct PublishedPorts {
    ports: BTreeSet<u16>,
    bound: RefCell<BoundSockets>,
    /// Whether all further calls are refused.
    is_over: Cell<bool>,
}

/// The cookies of sockets that this process bound to a port. Such a socket keeps its port as long as it exists
/// (SOCK_BINDPORT_LOCK), so listen(2) never chooses one for it. Any other socket's port may be the kernel's choice, and the
/// caller could give it up between a look at it and listen(2).
#[derive(Default)]
struct BoundSockets {
    known: HashSet<u64>,
    order: VecDeque<u64>,
}

impl BoundSockets {
    fn add(&mut self, cookie: u64) {
        if self.known.insert(cookie) {
            self.order.push_back(cookie);
        }
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

impl PublishedPorts {
    /// For these ports. Fails if this process cannot copy descriptors of the command.
    pub fn new(ports: BTreeSet<u16>) -> Result<Self> {
        if !ports.is_empty() {
            let own = pidfd_open(getpid(), PidfdFlags::empty()).context("open our own pidfd")?;
            pidfd_getfd(&own, own.as_raw_fd(), PidfdGetfdFlags::empty()).context(
                "`--publish` with `--walls landlock` needs pidfd_getfd(2), which the seccomp filter around this process forbids: \
                 give Docker --security-opt seccomp=unconfined",
            )?;
        }
        Ok(Self {
            ports,
            bound: RefCell::default(),
            is_over: Cell::new(false),
        })
    }

    /// These ports.
    pub fn ports(&self) -> &BTreeSet<u16> {
        &self.ports
    }

    /// Makes bind(2) or listen(2) in the caller's place.
    pub fn make(&self, listener: BorrowedFd<'_>, call: &NotifiedCall) -> Result<(), Errno> {
        // Without ports as Landlock answers for TCP. It does not judge names of UNIX sockets.
        if self.ports.is_empty() || self.is_over.get() {
            return Err(Errno::ACCESS);
        }
        let caller = Caller::open(listener, call)?;
        let [_, second, third, ..] = call.args;
        match call.number {
            libc::SYS_bind => {
                // Read before the copy is made, since this may take long.
                let address = self.address(&caller, second, int(third))?;
                let socket = self.copy(listener, call, &caller)?;
                bind(&socket, &address)?;
                self.bound.borrow_mut().add(socket_cookie(&socket)?);
                Ok(())
            }
            libc::SYS_listen => {
                let socket = self.copy(listener, call, &caller)?;
                match self.bound.borrow().known.contains(&socket_cookie(&socket)?) {
                    true => listen(&socket, int(second)),
                    false => Err(Errno::ACCESS),
                }
            }
            _ => Err(Errno::NOSYS),
        }
    }

    /// Reads the address that the caller wants. Every address of this machine becomes 127.0.0.1, as with namespaces.
    fn address(&self, caller: &Caller, at: u64, length: i32) -> Result<SocketAddrV4, Errno> {
        if usize::try_from(length).map_err(|_| Errno::INVAL)? < ADDRESS {
            return Err(Errno::INVAL);
        }
        let mut raw = [0; ADDRESS];
        caller.memory(at, &mut raw)?;
        let [f1, f2, p1, p2, a, b, c, d, ..] = raw;
        if i32::from(u16::from_ne_bytes([f1, f2])) != libc::AF_INET {
            return Err(Errno::AFNOSUPPORT);
        }
        let port = u16::from_be_bytes([p1, p2]);
        if !self.ports.contains(&port) {
            return Err(Errno::ACCESS);
        }
        match Ipv4Addr::new(a, b, c, d) {
            Ipv4Addr::UNSPECIFIED | Ipv4Addr::LOCALHOST => {
                Ok(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
            }
            _ => Err(Errno::ADDRNOTAVAIL),
        }
    }

    /// Copies the caller's descriptor, if it is a socket that `wrap` made for the command.
    fn copy(
        &self,
        listener: BorrowedFd<'_>,
        call: &NotifiedCall,
        caller: &Caller,
    ) -> Result<OwnedFd, Errno> {
        let number = int(call.args[0]);
        if !caller.is_socket(number)? {
            return Err(Errno::NOTSOCK);
        }
        let process = caller.process()?;
        if !notify::still_waits(listener, call) {
            return Err(Errno::SRCH);
        }
        let copy = pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?;
        if socket_domain(&copy) == Err(Errno::NOTSOCK) {
            // Another thread has exchanged it: no program does that by accident. Closing a file of a network may take
            // long. So it stays open.
            log::warn!(
                "a descriptor was exchanged during bind(2) or listen(2): the command can open no more servers"
            );
            self.is_over.set(true);
            std::mem::forget(copy);
            return Err(Errno::NOTSOCK);
        }
        match loopback::is_one(&copy) {
            true => Ok(copy),
            false => Err(Errno::ACCESS),
        }
    }
}

/// The low half of a register, as the kernel reads an int.
fn int(register: u64) -> i32 {
    (register as u32).cast_signed()
}

/// Takes these ports at every address of this machine until the result is dropped. Fails if another server has one.
pub fn reserve(ports: &BTreeSet<u16>) -> Result<Vec<OwnedFd>, SidecarError> {
    let take = |port: &u16| {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
        at_every_address(*port).map_err(|source| SidecarError::Published { address, source })
    };
    ports.iter().map(take).collect()
}

fn at_every_address(port: u16) -> io::Result<OwnedFd> {
    let socket = loopback::socket(SocketFlags::empty())?;
    // Connections of a server that has ended are no obstacle.
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
    listen(&socket, 0)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_too_many_bound_sockets_is_forgotten() {
        let mut bound = BoundSockets::default();
        let most = MOST as u64;
        for cookie in 0..most {
            bound.add(cookie);
            bound.add(cookie);
        }
        assert!(bound.known.contains(&0));
        bound.add(most);
        assert!(!bound.known.contains(&0) && bound.known.contains(&1));
        assert_eq!((bound.known.len(), bound.order.len()), (MOST, MOST));
    }

    #[test]
    fn a_port_is_reserved_at_every_address_and_free_again_afterwards() {
        let taken = |address: &str| {
            let listener = std::net::TcpListener::bind((address, 0)).unwrap();
            (listener.local_addr().unwrap().port(), listener)
        };
        for address in ["127.0.0.1", "127.0.0.9", "0.0.0.0"] {
            let (port, listener) = taken(address);
            let error = reserve(&[port].into()).unwrap_err().to_string();
            assert!(error.contains("end what listens there"), "{error}");
            drop(listener);
            let reserved = reserve(&[port].into()).unwrap();
            assert!(std::net::TcpListener::bind((address, port)).is_err());
            drop(reserved);
            assert!(std::net::TcpListener::bind((address, port)).is_ok());
        }
    }
}
