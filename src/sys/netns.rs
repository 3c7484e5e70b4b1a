#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]
//! Making, naming and entering network namespaces.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::sys::socket;

/// `_IO(SOCK_IOC_TYPE, 0x4c)` of linux/sockios.h; libc does not have it.
const SIOCGSKNS: libc::Ioctl = 0x894c;

/// Moves the calling thread into a new, empty network namespace.
pub fn unshare_net() -> io::Result<()> {
    unshare(UnshareFlags::NEWNET)
}

/// Gives the calling thread a mount namespace of its own.
pub fn unshare_mounts() -> io::Result<()> {
    unshare(UnshareFlags::NEWNS)
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: `unshare_unsafe` is unsafe because CLONE_FILES would leave other threads with another
    // descriptor table than this one; only NEWNET and NEWNS get here.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// `setns(fd, CLONE_NEWNET)`.
pub fn enter_net(namespace: BorrowedFd<'_>) -> io::Result<()> {
    Ok(move_into_link_name_space(
        namespace,
        Some(LinkNameSpaceType::Network),
    )?)
}

/// `setns(fd, CLONE_NEWUSER)`; the caller must be single-threaded.
pub fn enter_user(namespace: BorrowedFd<'_>) -> io::Result<()> {
    Ok(move_into_link_name_space(
        namespace,
        Some(LinkNameSpaceType::User),
    )?)
}

/// A descriptor of the calling thread's network namespace.
///
/// `SIOCGSKNS` rather than `/proc/self/ns/net`: it does not depend on the mount at /proc.
/// Needs `CAP_NET_ADMIN` in that namespace.
pub fn current() -> io::Result<OwnedFd> {
    let probe = probe_socket()?;
    // SAFETY: SIOCGSKNS takes no argument and returns a new descriptor or -1.
    let fd = unsafe { libc::ioctl(probe.as_raw_fd(), SIOCGSKNS) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us (close-on-exec, see `open_related_ns`
    // in fs/nsfs.c), so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The cookie of the calling thread's network namespace.
pub fn current_cookie() -> io::Result<u64> {
    use std::os::fd::AsFd;
    socket::netns_cookie(probe_socket()?.as_fd())
}

/// A new socket: it belongs to the caller's current namespace.
fn probe_socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?)
}
