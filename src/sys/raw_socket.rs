//! Raw sockets (raw(7)) that hear what a filter lets through of one protocol. Nothing is sent by them. They end at once: the end of
//! a packet socket waits for all processors (`synchronize_net` in packet_release, net/packet/af_packet.c), which took some 10 ms.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn6, recvmsg, sockopt};
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType};

use super::socket::set_option;

/// An instruction of a classic filter (linux/filter.h).
#[derive(Debug, Clone, Copy)]
pub struct FilterInstruction {
    /// The operation.
    pub code: u16,
    /// Instructions to skip if a comparison holds.
    pub skip_if: u8,
    /// Instructions to skip if it does not.
    pub skip_else: u8,
    /// The operand.
    pub value: u32,
}

/// The header of IPv6, which the kernel leaves out.
const HEADER: usize = 40;

/// A raw socket that hears packets as they arrive at the addresses of its network namespace.
#[derive(Debug)]
pub struct RawSocket {
    socket: OwnedFd,
    protocol: u8,
    is_v6: bool,
}

/// A socket for arriving packets of this protocol in the caller's network namespace. It does not block, and its filter cannot be
/// changed any more. The filter sees IPv4 packets from their header on, IPv6 packets from the header of the protocol on. What
/// arrives before this returns is not filtered. Needs CAP_NET_RAW over the namespace.
pub fn tap(
    family: AddressFamily,
    protocol: u8,
    filter: &[FilterInstruction],
) -> io::Result<OwnedFd> {
    let number = std::num::NonZeroU32::new(u32::from(protocol)).map(Protocol::from_raw);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::RAW, flags, number)?;
    let mut program: Vec<libc::sock_filter> = filter
        .iter()
        .map(|one| libc::sock_filter {
            code: one.code,
            jt: one.skip_if,
            jf: one.skip_else,
            k: one.value,
        })
        .collect();
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_mut_ptr(),
    };
    set_option(socket.as_fd(), libc::SO_ATTACH_FILTER, &program)?;
    set_option(socket.as_fd(), libc::SO_LOCK_FILTER, &1_i32)?;
    if family == AddressFamily::INET6 {
        nix::sys::socket::setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
    }
    Ok(socket)
}

impl RawSocket {
    /// A socket of [`tap`].
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        let protocol = rustix::net::sockopt::socket_protocol(&socket)?;
        let number = protocol.map_or(0, |protocol| protocol.as_raw().get());
        Ok(Self {
            protocol: u8::try_from(number).map_err(io::Error::other)?,
            is_v6: rustix::net::sockopt::socket_domain(&socket)? == AddressFamily::INET6,
            socket,
        })
    }

    /// The next packet, as much of it as there is room for; returns the length of that. An IPv6 packet gets a header with its
    /// version, its addresses and the protocol; extension headers are left out.
    pub fn receive(&self, packet: &mut [u8]) -> io::Result<usize> {
        if !self.is_v6 {
            let (_, length) =
                rustix::net::recv(&self.socket, &mut *packet, rustix::net::RecvFlags::DONTWAIT)?;
            return Ok(length.min(packet.len()));
        }
        let (header, rest) = packet
            .split_at_mut_checked(HEADER)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let mut control = nix::cmsg_space!(libc::in6_pktinfo);
        let mut parts = [IoSliceMut::new(rest)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let number = self.socket.as_raw_fd();
        let message = recvmsg::<SockaddrIn6>(number, &mut parts, Some(&mut control), flags)?;
        let from = message.address.map(|address| address.ip());
        let to = message.cmsgs()?.find_map(|one| match one {
            ControlMessageOwned::Ipv6PacketInfo(info) => Some(info.ipi6_addr.s6_addr),
            _ => None,
        });
        let (Some(from), Some(to)) = (from, to) else {
            // Never so far: the kernel names both for each packet.
            return Ok(0);
        };
        header.fill(0);
        (header[0], header[6]) = (0x60, self.protocol);
        header[8..24].copy_from_slice(&from.octets());
        header[24..40].copy_from_slice(&to);
        Ok(HEADER + message.bytes)
    }
}

impl AsFd for RawSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
