//! The line by which a listener comes to the sidecar.
//!
//! ```text
//! runtime                               sidecar                     process of the container
//! connect, greeting, proof ------------>
//!         <-------------- TAKEN, or why not
//!    (clones the process, which inherits the socket)
//!                                              <-- LISTENER, descriptor -- loads the filter, sends, closes
//!                                       TAKEN -------------------------->  goes on
//! ```
//!
//! Later the runtime may send that process's pidfd over the same socket, with the log event for its end: [`name`].
//!
//! Init with a sidecar of its own uses the hand-over socket instead, without a greeting.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::audit::{Actor, Event, EventDetail};
use crate::sys::socket;

/// The message that a listener comes with.
pub(super) const LISTENER: &[u8; 19] = b"agentbox-listener-1";
/// The sidecar's answer if it agrees.
pub(super) const TAKEN: &[u8; 1] = b"+";
/// The start of its other answers.
pub(super) const REFUSED: char = '-';

/// The runtime's greeting.
pub(super) const GREETING: &[u8; 16] = b"agentbox-calls-1";
/// The same for a process of `verify`.
pub(super) const GREETING_OF_VERIFY: &[u8; 16] = b"agentbox-verify1";

/// The longest event for a process's end, as JSON.
pub(super) const LONGEST_PROCESS: usize = 4096;

/// The limit for an answer, which takes microseconds.
const WITHIN: Duration = Duration::from_secs(10);

/// Greets the sidecar at the other end of `socket`, with a descriptor of the node's pid namespace, and names the actor
/// whose listener will come. Waits until the sidecar agrees.
pub fn greet(socket: BorrowedFd<'_>, proof: BorrowedFd<'_>, by: Option<Actor>) -> io::Result<()> {
    let greeting = match by {
        None => GREETING,
        Some(Actor::Verify) => GREETING_OF_VERIFY,
    };
    // A sidecar without room sends the reason and closes the line before the greeting. The reason can still be read,
    // after the kernel has reported the closed line once.
    socket::send(socket, greeting, &[proof]).or_else(unless_closed)?;
    let mut buffer = [0; 512];
    let mut hear = || socket::receive_within(socket, &mut buffer, WITHIN).map(|heard| heard.len);
    let heard = hear();
    let length = match heard {
        Err(error) => unless_closed(error).and_then(|()| hear())?,
        Ok(length) => length,
    };
    agreed(&buffer[..length])
}

/// Tells the sidecar which process brought its listener, and how to log its end. There is no answer.
pub fn name(socket: BorrowedFd<'_>, process: BorrowedFd<'_>, mut ended: Event) -> io::Result<()> {
    let mut message = serde_json::to_vec(&ended)?;
    if message.len() > LONGEST_PROCESS
        && let EventDetail::Process { arguments, cut, .. } = &mut ended.what
    {
        arguments.truncate(1);
        cut.clear();
        ended.reason = Some("the line of its begin has its arguments".into());
        message = serde_json::to_vec(&ended)?;
    }
    socket::send(socket, &message, &[process])
}

/// A line that the other end has closed is no error yet.
fn unless_closed(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Ok(()),
        _ => Err(error),
    }
}

/// Limits the time of [`give`], whatever the sidecar does. To be called before the filter is loaded.
pub fn limit(socket: BorrowedFd<'_>) -> io::Result<()> {
    for direction in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(socket, direction, Some(WITHIN))?;
    }
    Ok(())
}

/// Sends the listener, closes it, and waits until the sidecar has it.
///
/// The filter is loaded, and denied calls are not answered yet. So only sendmsg(2), close(2), fcntl(2) and read(2) are
/// used; a test of the compiler checks that they are allowed.
pub fn give(listener: OwnedFd, socket: BorrowedFd<'_>) -> io::Result<()> {
    socket::send(socket, LISTENER, &[listener.as_fd()])?;
    drop(listener);
    let mut answer = [0; 512];
    // A read with a time limit fails with EINTR when the process is stopped and continued (signal(7)), which another process
    // of the container can do.
    let length = rustix::io::retry_on_intr(|| rustix::io::read(socket, &mut answer))?;
    agreed(&answer[..length])
}

fn agreed(answer: &[u8]) -> io::Result<()> {
    match answer {
        taken if taken == TAKEN => Ok(()),
        [] => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => {
            let why = String::from_utf8_lossy(answer);
            Err(io::Error::other(why.trim_start_matches(REFUSED).to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_before_the_greeting_comes_with_its_reason() {
        // If the greeting is still unread, the kernel says ECONNRESET once; otherwise EPIPE.
        for unread in [false, true] {
            let (ours, theirs) = socket::pair().unwrap();
            if unread {
                socket::send(ours.as_fd(), GREETING, &[]).unwrap();
            }
            socket::send(theirs.as_fd(), b"-no room", &[]).unwrap();
            drop(theirs);
            let refused = greet(ours.as_fd(), ours.as_fd(), None).unwrap_err();
            assert_eq!(refused.to_string(), "no room", "{unread}");
        }
        let (ours, theirs) = socket::pair().unwrap();
        drop(theirs);
        assert!(greet(ours.as_fd(), ours.as_fd(), None).is_err());
    }

    #[test]
    fn a_listener_is_given_only_to_a_sidecar_that_takes_it() {
        let give_to = |reply: Option<&[u8]>| {
            let (ours, theirs) = socket::pair().unwrap();
            limit(ours.as_fd()).unwrap();
            match reply {
                Some(reply) => socket::send(theirs.as_fd(), reply, &[]).unwrap(),
                None => drop(theirs.try_clone().unwrap()),
            }
            let kept = reply.map(|_| theirs);
            let given = give(ours.try_clone().unwrap(), ours.as_fd());
            drop(kept);
            given
        };
        assert!(give_to(Some(TAKEN)).is_ok());
        let refused = give_to(Some(b"-too many")).unwrap_err();
        assert_eq!(refused.to_string(), "too many");
        assert!(give_to(None).is_err());
    }
}
