#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]
//! Packet sockets (packet(7)) that hear what a filter lets through on one interface. Nothing is sent by them.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

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

/// A socket for arriving packets of this protocol (`ETH_P_*`) on this interface of the caller's network namespace, from their network
/// header on. It does not block, and its filter cannot be changed any more. Needs CAP_NET_RAW over the namespace.
pub fn tap(protocol: u16, interface: u32, filter: &[FilterInstruction]) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // Of no protocol yet: nothing is heard before the filter is there.
    // SAFETY: integers alone.
    let number = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given this number out, so nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
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
    set(&socket, libc::SO_ATTACH_FILTER, &program)?;
    set(&socket, libc::SO_LOCK_FILTER, &1_i32)?;
    // SAFETY: all of its fields are integers, for which zeros are values.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::sa_family_t;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = i32::try_from(interface).map_err(io::Error::other)?;
    // SAFETY: the kernel reads as many bytes as the structure has, which lives across the call.
    let rc = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    match rc {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

/// An option of SOL_SOCKET. `T` has the form that the kernel expects for it.
fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as `value` has, which lives across the call, as does what a filter's structure points to.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    match rc {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
