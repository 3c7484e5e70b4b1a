//! SHELL. Passes the scratch disk from the child of `create` that makes it to the container's init process, which waits for it
//! only when it needs it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::sys::socket;

/// How long the disk may take; it takes milliseconds, mostly waiting.
pub const WITHIN: Duration = Duration::from_secs(10);

/// The longest reason that is sent.
const REASON: usize = 1024;

/// The answer of the process that makes the disk.
#[derive(Debug)]
pub enum DiskAnswer {
    /// The mount, attached nowhere.
    Disk(OwnedFd),
    /// Why there is none.
    None(String),
}

/// Sends the disk, or the reason why there is none.
pub fn send(to: BorrowedFd<'_>, made: Result<BorrowedFd<'_>, &str>) -> io::Result<()> {
    match made {
        Ok(disk) => socket::send(to, b"+", &[disk]),
        Err(why) => {
            let why = why.as_bytes();
            socket::send(to, &why[..why.len().min(REASON)], &[])
        }
    }
}

/// Waits for the answer. A sender that ends without one is an error: it may have made a disk or not.
pub fn receive(from: BorrowedFd<'_>) -> io::Result<DiskAnswer> {
    let mut buffer = [0; REASON];
    let answer = socket::receive_within(from.as_fd(), &mut buffer, WITHIN)?;
    match answer.fds.into_iter().next() {
        Some(disk) => Ok(DiskAnswer::Disk(disk)),
        None if answer.len == 0 => Err(io::ErrorKind::UnexpectedEof.into()),
        None => {
            let why = String::from_utf8_lossy(&buffer[..answer.len]);
            Ok(DiskAnswer::None(why.into_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_or_a_reason_arrives_and_silence_is_an_error() {
        let (ours, theirs) = socket::pair().unwrap();
        send(theirs.as_fd(), Ok(theirs.as_fd())).unwrap();
        assert!(matches!(receive(ours.as_fd()), Ok(DiskAnswer::Disk(_))));
        let long = "x".repeat(2 * REASON);
        send(theirs.as_fd(), Err(&long)).unwrap();
        let Ok(DiskAnswer::None(why)) = receive(ours.as_fd()) else {
            panic!("a reason was sent");
        };
        assert_eq!(why, long[..REASON]);
        drop(theirs);
        assert!(receive(ours.as_fd()).is_err());
    }
}
