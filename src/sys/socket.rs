#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]
//! Local sockets that carry descriptors, and a socket's network namespace.
//!
//! Everything here is `SOCK_SEQPACKET`: one send is one receive, so a reader need not guess where a message ends, and a
//! truncated message is an error instead of half a message.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::Timeout;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::user_namespace::Ids;
use super::{process, user};

/// The most descriptors that one of our messages carries (the kernel's own limit is 253, SCM_MAX_FD).
pub const MAX_FDS: usize = 240;

/// One received message; its bytes are in the caller's buffer.
#[derive(Debug)]
pub struct Datagram {
    /// How many bytes of the buffer were written. Zero means that the other side has closed.
    pub len: usize,
    /// The descriptors that came with it, all close-on-exec.
    pub fds: Vec<OwnedFd>,
}

/// Makes a connected pair of message sockets, both close-on-exec.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    pair_of(SocketType::SEQPACKET)
}

/// Makes a connected pair of UNIX streams, both close-on-exec.
pub fn stream_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    pair_of(SocketType::STREAM)
}

fn pair_of(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    Ok(rustix::net::socketpair(family, kind, flags, None)?)
}

/// Sends one message with at most [`MAX_FDS`] descriptors; never raises SIGPIPE. Waits up to a second where others' descriptors
/// keep it back.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    retry_while_on_the_way(|| send_once(socket, bytes, fds))
}

/// The same in one try (ETOOMANYREFS, see [`is_kept_back`]).
pub fn send_once(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(invalid("more descriptors than a message may carry"));
    }
    let sent = retry(|| {
        rustix::net::sendmsg(
            socket,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )
    })?;
    if sent == bytes.len() {
        Ok(())
    } else {
        Err(invalid("the message was cut on sending"))
    }
}

/// Sends one message without descriptors, or fails with `WouldBlock` where the other side does not read.
pub fn send_now(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    let mut control = SendAncillaryBuffer::default();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = retry(|| rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags))?;
    match sent == bytes.len() {
        true => Ok(()),
        false => Err(invalid("the message was cut on sending")),
    }
}

/// Receives one message without waiting longer than the socket itself does.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Datagram> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = retry(|| {
        rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(buffer)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    // Drained before errors return, so that received descriptors are closed and not leaked.
    let mut fds = Vec::new();
    for ancillary in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = ancillary {
            fds.extend(rights);
        }
    }
    if message
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(invalid("the message is longer than agreed"));
    }
    Ok(Datagram {
        len: message.bytes,
        fds,
    })
}

/// As [`receive`], but fails with `TimedOut` after `limit`.
pub fn receive_within(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    limit: Duration,
) -> io::Result<Datagram> {
    if !wait_readable(socket, limit)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    match receive(socket, buffer) {
        // If a peer closes with our bytes unread, the connection is reset, and the kernel reports that before the
        // peer's last bytes. We want those: receive again, once.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => receive(socket, buffer),
        other => other,
    }
}

/// Receives one message and the pid of its sender, in this process's pid namespace: (0, None) if the other side has
/// closed. The socket must have `SO_PASSCRED` (unix(7)). Fails with `TimedOut` after `limit`.
pub fn receive_with_sender(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    limit: Duration,
) -> io::Result<(usize, Option<i32>)> {
    if !wait_readable(socket, limit)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = retry(|| {
        rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(buffer)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let mut sender = None;
    for ancillary in control.drain() {
        if let RecvAncillaryMessage::ScmCredentials(credentials) = ancillary {
            sender = Some(credentials.pid.as_raw_pid());
        }
    }
    Ok((message.bytes, sender))
}

/// Sends all of `bytes` over a stream, and at most [`MAX_FDS`] descriptors with the first byte; never raises SIGPIPE.
pub fn send_stream(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let with = rest.len() == bytes.len() && !descriptors.is_empty();
        if with && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(invalid("more descriptors than a message may carry"));
        }
        let sent = retry_while_on_the_way(|| {
            let slices = [IoSlice::new(rest)];
            retry(|| rustix::net::sendmsg(socket, &slices, &mut control, SendFlags::NOSIGNAL))
        })?;
        rest = &rest[sent..];
    }
    Ok(())
}

/// Waits until `fd` is readable or hung up; `false` when `limit` passed first.
pub fn wait_readable(fd: BorrowedFd<'_>, limit: Duration) -> io::Result<bool> {
    let [ready] = wait_any([fd], limit)?;
    Ok(ready)
}

/// Waits until one of `fds` is readable or hung up, and returns which; none if `limit` passed first.
pub fn wait_any<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    limit: Duration,
) -> io::Result<[bool; N]> {
    let deadline = Instant::now() + limit;
    let mut polled = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout =
            Timespec::try_from(left).map_err(|_| invalid("the time limit is too long"))?;
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) => return Ok(polled.map(|one| !one.revents().is_empty())),
            // A signal handler ran; the deadline still holds.
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// `SO_PEERCRED`: the connected user. Not the pid, which is 0 if this process cannot see it.
pub fn peer_uid(socket: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(getsockopt(&socket, PeerCredentials)?.uid())
}

/// `SO_PEERCRED`: the process that began to listen; `None` if this process cannot see it. It may have ended since.
pub fn listener_pid(socket: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    let pid = getsockopt(&socket, PeerCredentials)?.pid();
    Ok(Some(pid).filter(|pid| *pid != 0))
}

/// `SO_NETNS_COOKIE`: the cookie of the network namespace in which `socket` was made.
///
/// Since Linux 5.14; `ENOPROTOOPT` before. Unlike an inode number it is never reused while the machine is up, which is
/// why only it identifies namespaces here.
pub fn netns_cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = 0_u64;
    let mut len = 8 as libc::socklen_t;
    // SAFETY: `cookie` is eight writable bytes and `len` says so; both live across the call, which
    // writes at most `len` bytes and keeps neither pointer.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    match rc {
        0 if len == 8 => Ok(cookie),
        0 => Err(invalid("the kernel's cookie is not eight bytes")),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `SO_RCVLOWAT` (socket(7)): a stream counts as readable when this many bytes wait, or at its end.
///
/// A lower number wakes waiting readers at once if it makes the stream readable (tcp_set_rcvlowat, Linux 4.18). The
/// kernel uses less if the receive buffer may not become so large.
pub fn wake_at(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).map_err(|_| invalid("more than a socket holds"))?;
    set_option(socket, libc::SO_RCVLOWAT, &bytes)
}

/// Sets an option of SOL_SOCKET. `T` has the form that the kernel expects for it.
pub(super) fn set_option<T>(
    socket: BorrowedFd<'_>,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
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

/// Takes ownership of a descriptor that this program was started with, and makes it close-on-exec.
///
/// Call it once per number, first in `main`: the numbers are agreed with our parent.
pub fn take_inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl with F_SETFD takes an integer and no pointer; a number that is not open
    // gives EBADF.
    let rc = unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the number is open (checked above). It came over exec, so nothing in this process
    // owns it yet: Rust's runtime only ever owns what it opened itself.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Connects to a stream's socket that was opened by its path (`O_PATH`): to exactly that one, whatever its path leads to by now.
pub fn connect_pinned(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    /// For a server whose queue is full.
    const WITHIN: Duration = Duration::from_secs(10);
    let flags = SocketFlags::CLOEXEC;
    let stream = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::sockopt::set_socket_timeout(&stream, Timeout::Send, Some(WITHIN))?;
    let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
    rustix::net::connect(&stream, &SocketAddrUnix::new(path)?)?;
    Ok(stream)
}

/// The same as another user, for a caller who is root: the server sees that user (SO_PEERCRED). The calling process must be
/// single-threaded.
pub fn connect_pinned_as(socket: BorrowedFd<'_>, ids: Ids, groups: &[u32]) -> io::Result<OwnedFd> {
    let (ours, theirs) = pair()?;
    let child = process::fork_into(|| {
        let connected = user::set_groups(groups)
            .and_then(|()| user::become_user(ids.uid, ids.gid))
            .and_then(|()| connect_pinned(socket));
        let told = match connected {
            Ok(stream) => send(theirs.as_fd(), &[0; 4], &[stream.as_fd()]),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                send(theirs.as_fd(), &errno.to_ne_bytes(), &[])
            }
        };
        i32::from(told.is_err())
    })?;
    drop(theirs);
    let mut errno = [0; 4];
    let received = receive(ours.as_fd(), &mut errno);
    rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty())?;
    match received?.fds.pop() {
        Some(stream) => Ok(stream),
        None => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))),
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    Ok(rustix::io::retry_on_intr(&mut call)?)
}

/// How often, and how long apart, a message is sent that others' descriptors keep back: a second in all.
pub const MOST_TRIES: u32 = 500;
/// See [`MOST_TRIES`].
pub const APART: Duration = Duration::from_millis(2);

/// Descriptors on their way count against RLIMIT_NOFILE of the sender, and all of its user's count together (unix(7),
/// ETOOMANYREFS; Linux 4.5). Where a container has a low limit, those of other starts are waited for.
fn retry_while_on_the_way<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let apart = Timespec::try_from(APART).unwrap_or_default();
    for _ in 0..MOST_TRIES {
        match call() {
            // A wait that every filter of ours allows.
            Err(error) if is_kept_back(&error) => drop(poll(&mut [], Some(&apart))),
            done => return done,
        }
    }
    call()
}

/// Whether a message was not sent because too many descriptors are on their way.
pub fn is_kept_back(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::TOOMANYREFS.raw_os_error())
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_message_waits_while_others_have_too_many_descriptors_on_their_way() {
        use rustix::io::Errno;
        let mut tries = 0;
        let sent = retry_while_on_the_way(|| {
            tries += 1;
            match tries {
                4 => Ok(tries),
                _ => Err(Errno::TOOMANYREFS.into()),
            }
        });
        assert_eq!(sent.unwrap(), 4);
        let other = retry_while_on_the_way(|| Err::<(), _>(Errno::PIPE.into()));
        assert_eq!(other.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn carries_bytes_and_descriptors_together() {
        let (a, b) = pair().unwrap();
        send(a.as_fd(), b"hello", &[a.as_fd(), b.as_fd()]).unwrap();
        let mut buffer = [0; 16];
        let got = receive(b.as_fd(), &mut buffer).unwrap();
        assert_eq!(&buffer[..got.len], b"hello");
        assert_eq!(got.fds.len(), 2);
        for fd in &got.fds {
            let flags = rustix::io::fcntl_getfd(fd).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
    }

    #[test]
    fn refuses_a_message_that_is_longer_than_agreed() {
        let (a, b) = pair().unwrap();
        send(a.as_fd(), b"too long", &[]).unwrap();
        let error = receive(b.as_fd(), &mut [0; 4]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn reads_nothing_when_the_other_side_is_gone() {
        let (a, b) = pair().unwrap();
        drop(a);
        let got = receive_within(b.as_fd(), &mut [0; 4], Duration::from_secs(1)).unwrap();
        assert_eq!(got.len, 0);
    }

    #[test]
    fn reads_the_last_words_of_a_peer_that_left_our_bytes_unread() {
        let (a, b) = pair().unwrap();
        send(b.as_fd(), b"unread", &[]).unwrap();
        send(a.as_fd(), b"why", &[]).unwrap();
        drop(a);
        let mut buffer = [0; 8];
        let got = receive_within(b.as_fd(), &mut buffer, Duration::from_secs(1)).unwrap();
        assert_eq!(&buffer[..got.len], b"why");
    }

    #[test]
    fn gives_up_after_the_limit() {
        let (_a, b) = pair().unwrap();
        let error = receive_within(b.as_fd(), &mut [0; 4], Duration::from_millis(5)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
