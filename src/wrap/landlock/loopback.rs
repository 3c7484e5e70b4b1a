//! SHELL. TCP sockets over IPv4 that are bound to the loopback interface. Landlock's rules cover ports at any address, so
//! the binding keeps other machines out. Accepted connections inherit it. Rebinding needs CAP_NET_RAW (socket(7),
//! SO_BINDTODEVICE; Linux commit c427bfec18f2).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::socket::{getsockopt, setsockopt, sockopt::BindToDevice};
use rustix::net::sockopt::{socket_domain, socket_protocol, socket_type};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};

const INTERFACE: &str = "lo";

/// Makes one, close-on-exec.
pub fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    let tcp = Some(ipproto::TCP);
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, tcp)?;
    setsockopt(&socket, BindToDevice, &INTERFACE.into())?;
    match is_one(&socket) {
        true => Ok(socket),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Whether a socket is one.
pub fn is_one(socket: &OwnedFd) -> bool {
    let is_tcp = socket_domain(socket.as_fd()) == Ok(AddressFamily::INET)
        && socket_type(socket.as_fd()) == Ok(SocketType::STREAM)
        && socket_protocol(socket.as_fd()) == Ok(Some(ipproto::TCP));
    let bound = getsockopt(socket, BindToDevice).unwrap_or_default();
    // The kernel's answer ends in NUL.
    let name = bound.as_encoded_bytes().split(|byte| *byte == 0).next();
    is_tcp && name == Some(INTERFACE.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tcp_over_ipv4_that_is_bound_to_the_loopback_counts() {
        assert!(is_one(&socket(SocketFlags::empty()).unwrap()));
        let unbound = |family, kind| socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        assert!(!is_one(&unbound(AddressFamily::INET, SocketType::STREAM)));
        let datagrams = unbound(AddressFamily::INET, SocketType::DGRAM);
        setsockopt(&datagrams, BindToDevice, &INTERFACE.into()).unwrap();
        assert!(!is_one(&datagrams));
        assert!(!is_one(&unbound(AddressFamily::UNIX, SocketType::STREAM)));
        let file: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        assert!(!is_one(&file));
    }
}
