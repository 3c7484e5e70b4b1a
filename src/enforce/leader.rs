//! Who a container's first process is: the program, or for `wrap` a small one of ours with the program as its child.
//!
//! The kernel treats the first process of a pid namespace like no other (pid_namespaces(7)): a signal that it does not handle
//! does nothing to it, not even one that it sends itself. It must reap what others leave behind, and it cannot be stopped
//! from inside. A program that was not written for that behaves otherwise than without `wrap`.
//!
//! By a socket `wrap` says which signals the program gets, and hears when the program has stopped or was
//! ended by a signal. When `wrap` has ended the
//! socket has no other end, and then nothing of the container lives on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::Signal;

use crate::sys::{signal, socket};

/// The first process.
#[derive(Debug, Default)]
pub enum Leader {
    /// The program.
    #[default]
    Program,
    /// Ours, which has this end of a [`pair`].
    Reaper(OwnedFd),
}

/// Who of the program's gets a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressee {
    /// The program alone, as with kill(2).
    Program,
    /// The process group that it was started in, as when the signal was typed.
    Group,
}

/// `wrap` asks for a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// The signal.
    pub signal: Signal,
    /// Who gets it.
    pub addressee: Addressee,
}

/// Makes the two ends: the first process's, and `wrap`'s.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (theirs, ours) = socket::pair()?;
    // Neither side ever waits for the other.
    for end in [&theirs, &ours] {
        rustix::io::ioctl_fionbio(end, true)?;
    }
    Ok((theirs, ours))
}

impl Order {
    /// Sends it. A program that has ended needs none.
    pub fn send(self, to: BorrowedFd<'_>) -> io::Result<()> {
        let addressee = match self.addressee {
            Addressee::Program => 0,
            Addressee::Group => 1,
        };
        socket::send(to, &[addressee, number(self.signal)], &[])
    }

    /// Takes the next one. No bytes are `wrap`'s end.
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
    /// None at the moment.
    Nothing,
    /// `wrap` has ended.
    End,
}

/// Says that the program was stopped by a signal. Where nobody reads, nobody needs to know.
pub(super) fn say_stopped(to: BorrowedFd<'_>, signal: i32) {
    let byte = u8::try_from(signal).unwrap_or_default();
    // A full socket holds news of the same kind.
    drop(socket::send(to, &[byte], &[]));
}

/// Says that the program was ended by a signal.
pub(super) fn say_ended(to: BorrowedFd<'_>, signal: i32) {
    let byte = u8::try_from(signal).unwrap_or_default();
    // The status that follows says the same, if less exactly.
    drop(socket::send(to, &[byte, 0], &[]));
}

/// What has become of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// This signal has stopped it.
    Stopped(Signal),
    /// This signal has ended it.
    Ended(Signal),
    /// Nothing more will be said.
    Closed,
}

/// The next news, if there is some.
pub fn news(from: &OwnedFd) -> Option<News> {
    let mut bytes = [0; 2];
    let length = match rustix::io::read(from.as_fd(), &mut bytes) {
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return None,
        Ok(0) | Err(_) => return Some(News::Closed),
        Ok(length) => length,
    };
    let signal = signal::of(i32::from(bytes[0]))?;
    match length {
        1 => Some(News::Stopped(signal)),
        2 => Some(News::Ended(signal)),
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
    fn orders_and_news_arrive_and_an_end_is_not_taken_for_one() {
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
        assert_eq!(news(&ours), Some(News::Stopped(Signal::TSTP)));
        say_ended(theirs.as_fd(), Signal::INT.as_raw());
        assert_eq!(news(&ours), Some(News::Ended(Signal::INT)));
        drop(ours);
        assert_eq!(Order::receive(theirs.as_fd()).unwrap(), OrderPoll::End);
    }
}
