//! A container's init process: the program itself, or for `wrap` a small process of ours with the program as its child.
//!
//! The kernel treats the init process of a pid namespace specially (pid_namespaces(7)): signals that it does not handle
//! do nothing to it, not even its own. It must reap orphans, and cannot be stopped from inside. A program that was not
//! written for that behaves differently than without `wrap`.
//!
//! Through a socket `wrap` says which signals the program gets, and learns when a signal has stopped or ended the
//! program. When `wrap` ends, the socket closes, and everything in the container ends.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::Signal;

use crate::sys::{signal, socket};

/// The kind of init process.
#[derive(Debug, Default)]
pub enum Leader {
    /// The program.
    #[default]
    Program,
    /// Our process, with this end of a [`pair`].
    Reaper(OwnedFd),
}

/// Who gets a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressee {
    /// The program alone, as with kill(2).
    Program,
    /// The process group in which it was started, as for a typed signal.
    Group,
}

/// A signal that `wrap` sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// The signal.
    pub signal: Signal,
    /// Who gets it.
    pub addressee: Addressee,
}

/// Makes the two ends: the init process's, and `wrap`'s.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (theirs, ours) = socket::pair()?;
    // Neither side ever blocks on the other.
    for end in [&theirs, &ours] {
        rustix::io::ioctl_fionbio(end, true)?;
    }
    Ok((theirs, ours))
}

impl Order {
    /// Sends the order. An error does not matter if the program has ended.
    pub fn send(self, to: BorrowedFd<'_>) -> io::Result<()> {
        let addressee = match self.addressee {
            Addressee::Program => 0,
            Addressee::Group => 1,
        };
        socket::send(to, &[addressee, number(self.signal)], &[])
    }

    /// Takes the next order. An empty read means that `wrap` has ended.
    pub(super) fn receive(from: BorrowedFd<'_>) -> io::Result<OrderPoll> {
        let mut bytes = [0; 2];
        let length = match rustix::io::read(from, &mut bytes) {
            Ok(length) => length,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                return Ok(OrderPoll::Nothing);
            }
            Err(error) => return Err(error.into()),
        };
        let addressee = match bytes[0] {
            0 => Addressee::Program,
            _ => Addressee::Group,
        };
        Ok(match (length, signal::of(i32::from(bytes[1]))) {
            (0, _) => OrderPoll::End,
            (2, Some(signal)) => OrderPoll::Order(Self { signal, addressee }),
            _ => OrderPoll::Nothing,
        })
    }
}

/// What the leader read from its caller.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OrderPoll {
    /// An order.
    Order(Order),
    /// No order yet.
    Nothing,
    /// `wrap` has ended.
    End,
}

/// Reports that a signal has stopped the program. Errors are ignored: `wrap` may have ended.
pub(super) fn say_stopped(to: BorrowedFd<'_>, signal: i32) {
    let byte = u8::try_from(signal).unwrap_or_default();
    // A full socket has the same news already.
    drop(socket::send(to, &[byte], &[]));
}

/// Reports that a signal has ended the program.
pub(super) fn say_ended(to: BorrowedFd<'_>, signal: i32) {
    let byte = u8::try_from(signal).unwrap_or_default();
    // The exit status follows, if less exact.
    drop(socket::send(to, &[byte, 0], &[]));
}

/// What has become of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramNotice {
    /// This signal has stopped it.
    Stopped(Signal),
    /// This signal has ended it.
    Ended(Signal),
    /// No more news will come.
    Closed,
}

/// The next news, if any.
pub fn news(from: &OwnedFd) -> Option<ProgramNotice> {
    let mut bytes = [0; 2];
    let length = match rustix::io::read(from.as_fd(), &mut bytes) {
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return None,
        Ok(0) | Err(_) => return Some(ProgramNotice::Closed),
        Ok(length) => length,
    };
    let signal = signal::of(i32::from(bytes[0]))?;
    match length {
        1 => Some(ProgramNotice::Stopped(signal)),
        2 => Some(ProgramNotice::Ended(signal)),
        _ => None,
    }
}

fn number(signal: Signal) -> u8 {
    u8::try_from(signal.as_raw()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_news_arrive_and_an_end_is_recognised() {
        let (theirs, ours) = pair().unwrap();
        assert_eq!(Order::receive(theirs.as_fd()).unwrap(), OrderPoll::Nothing);
        for (signal, addressee) in [
            (Signal::TERM, Addressee::Program),
            (Signal::CONT, Addressee::Group),
            (signal::of(40).unwrap(), Addressee::Program),
        ] {
            let order = Order { signal, addressee };
            order.send(ours.as_fd()).unwrap();
            let received = Order::receive(theirs.as_fd()).unwrap();
            assert_eq!(received, OrderPoll::Order(order));
        }
        assert_eq!(news(&ours), None);
        say_stopped(theirs.as_fd(), Signal::TSTP.as_raw());
        assert_eq!(news(&ours), Some(ProgramNotice::Stopped(Signal::TSTP)));
        say_ended(theirs.as_fd(), Signal::INT.as_raw());
        assert_eq!(news(&ours), Some(ProgramNotice::Ended(Signal::INT)));
        drop(ours);
        assert_eq!(Order::receive(theirs.as_fd()).unwrap(), OrderPoll::End);
    }
}
