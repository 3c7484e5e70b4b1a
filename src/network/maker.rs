//! The short-lived child that makes an inner namespace and sends it back.
//!
//! A child, because unshare(2) and setns(2) move the caller, and the runtime must stay where the engine put it. It runs
//! in parallel to the runtime: [`spawn_maker`] returns at once and [`Maker::finish`] collects the result.

use std::error::Error;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::error::NetworkError;
use super::inner::{self, InnerConfig, InnerNamespace};
use super::refused::TapScope;
use super::{ListenPorts, Listeners};
use crate::egress::names::Families;
use crate::sys::owned_child::OwnedChild;
use crate::sys::socket;

const WITHIN: Duration = Duration::from_secs(10);
const MADE: u8 = b'+';
const REFUSED: u8 = b'-';
const MAX_ANSWER: usize = 1024;

/// A child that is making a namespace. Dropping this kills and reaps it.
#[derive(Debug)]
pub struct Maker {
    child: OwnedChild,
    socket: OwnedFd,
    /// The ports to listen on.
    listen: Option<ListenPorts>,
    /// How many dialing sockets of each family to make.
    dialers: usize,
    /// What is heard.
    heard: TapScope,
}

/// Forks the child and returns while it works. The calling process must be single-threaded.
pub fn spawn_maker(config: &InnerConfig<'_>) -> Result<Maker, NetworkError> {
    let (ours, theirs) = socket::pair().map_err(NetworkError::step("make a socket pair"))?;
    let child = OwnedChild::fork("the namespace maker", || work(config, theirs.as_fd()))
        .map_err(NetworkError::step("fork a child"))?;
    Ok(Maker {
        child,
        socket: ours,
        listen: config.listen.clone(),
        dialers: config.dialers,
        heard: config.heard,
    })
}

impl Maker {
    /// Waits for the child, at most ten seconds, and takes its result.
    pub fn finish(mut self) -> Result<InnerNamespace, NetworkError> {
        let mut buffer = [0; MAX_ANSWER];
        let answer = socket::receive_within(self.socket.as_fd(), &mut buffer, WITHIN);
        let answer = answer.map_err(|source| {
            if source.kind() == std::io::ErrorKind::TimedOut {
                let seconds = WITHIN.as_secs();
                return NetworkError::TimedOut { seconds };
            }
            NetworkError::step("hear from the child")(source)
        })?;
        let reaped = self.child.reap();
        reaped.map_err(NetworkError::step("reap the child"))?;
        let listen = self.listen.as_ref();
        let each = [self.dialers, self.heard.sockets()];
        decode(&buffer[..answer.len], answer.fds, listen, each)
    }
}

/// The child's whole life.
fn work(config: &InnerConfig<'_>, socket: BorrowedFd<'_>) -> i32 {
    let sent = match inner::make(config) {
        Ok(made) => {
            let mut answer = [MADE; 12];
            answer[1..9].copy_from_slice(&made.cookie.to_ne_bytes());
            answer[9] = u8::from(made.families.has_v6());
            answer[10] = u8::from(!made.counters.is_empty());
            answer[11] = u8::from(!made.taps.is_empty());
            let listeners = made.listeners.map(Listeners::into_fds).unwrap_or_default();
            let mut fds = vec![made.netns.as_fd(), made.sysfs.as_fd()];
            let more = listeners.iter().chain(&made.dialers);
            let more = more.chain(&made.counters).chain(&made.taps);
            fds.extend(more.map(AsFd::as_fd));
            socket::send(socket, &answer, &fds)
        }
        Err(error) => {
            let mut answer = vec![REFUSED];
            answer.extend(with_causes(&error).into_bytes());
            answer.truncate(MAX_ANSWER);
            socket::send(socket, &answer, &[])
        }
    };
    // If nothing could be sent the parent sees the socket close.
    i32::from(sent.is_err())
}

/// An error with its causes in one line.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}

/// The last argument has the sockets of each family, to dial with and to hear attempts.
fn decode(
    answer: &[u8],
    fds: Vec<OwnedFd>,
    listen: Option<&ListenPorts>,
    [dialers, taps]: [usize; 2],
) -> Result<InnerNamespace, NetworkError> {
    let not_made = |reason: &str| NetworkError::NotMade {
        reason: reason.to_owned(),
    };
    match answer.split_first() {
        Some((&MADE, rest)) => {
            let whole = <[u8; 11]>::try_from(rest).map_err(|_| not_made("a malformed answer"))?;
            let (cookie, words) = whole.split_at(8);
            let cookie = cookie
                .try_into()
                .map_err(|_| not_made("a malformed answer"))?;
            let missing = || not_made("the answer came without its descriptors");
            let mut fds = fds.into_iter();
            let (Some(netns), Some(sysfs)) = (fds.next(), fds.next()) else {
                return Err(missing());
            };
            let families = match words {
                [1, ..] => Families::Both,
                _ => Families::V4,
            };
            // For each family, or none.
            let [counters, taps] = [(1, 1), (2, taps)].map(|(at, each)| match words.get(at) {
                Some(1) => each * families.count(),
                _ => 0,
            });
            // A missing listener would be a port without an answer.
            let listeners = listen.map_or(0, ListenPorts::descriptors);
            let dialers = dialers * families.count();
            if fds.len() != listeners + dialers + counters + taps {
                return Err(missing());
            }
            let listeners = match listen {
                Some(on) => {
                    let own = fds.by_ref().take(on.descriptors());
                    Some(Listeners::from_fds(on.stub, own).ok_or_else(missing)?)
                }
                None => None,
            };
            Ok(InnerNamespace {
                netns,
                sysfs,
                cookie: u64::from_ne_bytes(cookie),
                listeners,
                dialers: fds.by_ref().take(dialers).collect(),
                families,
                counters: fds.by_ref().take(counters).collect(),
                taps: fds.collect(),
            })
        }
        Some((&REFUSED, reason)) => Err(not_made(&String::from_utf8_lossy(reason))),
        Some(_) => Err(not_made("a malformed answer")),
        None => Err(not_made("the child ended without a word")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Stub;

    fn fd() -> OwnedFd {
        socket::pair().unwrap().0
    }

    #[test]
    fn accepts_only_a_complete_answer() {
        let whole = [&[MADE][..], &7_u64.to_ne_bytes(), &[1, 0, 0]].concat();
        let counting = [&[MADE][..], &7_u64.to_ne_bytes(), &[1, 1, 0]].concat();
        let hearing = [&[MADE][..], &7_u64.to_ne_bytes(), &[1, 1, 1]].concat();
        let fds = |count: usize| (0..count).map(|_| fd()).collect::<Vec<_>>();
        let made = decode(&whole, fds(2), None, [0, 2]).unwrap();
        assert!(made.cookie == 7 && made.families.has_v6() && made.listeners.is_none());
        let [one, none] =
            [vec![443], Vec::new()].map(|ports| ListenPorts::new(3128, Stub::Everywhere, ports));
        let refusing = ListenPorts::new(3128, Stub::Refusing, []);
        let made = decode(&whole, fds(6), Some(&one), [0, 2]).unwrap();
        assert_eq!(made.listeners.unwrap().ports.len(), 1);
        let made = decode(&whole, fds(4), Some(&refusing), [0, 2]).unwrap();
        assert!(made.listeners.unwrap().dns_tcp.is_none());
        let made = decode(&whole, fds(12), Some(&one), [3, 2]).unwrap();
        assert_eq!(
            (made.listeners.unwrap().ports.len(), made.dialers.len()),
            (1, 6)
        );
        let made = decode(&whole, fds(4), None, [1, 2]).unwrap();
        assert!(made.listeners.is_none() && made.dialers.len() == 2);
        let made = decode(&counting, fds(6), None, [1, 2]).unwrap();
        assert_eq!((made.dialers.len(), made.counters.len()), (2, 2));
        let made = decode(&hearing, fds(8), None, [0, 2]).unwrap();
        assert_eq!((made.counters.len(), made.taps.len()), (2, 4));
        for (bytes, count, listen) in [
            (&counting[..], 3, None),
            (&hearing, 5, None),
            (&whole[..], 1, None),
            (&whole, 3, None),
            (&whole, 5, Some(&one)),
            (&whole, 7, Some(&one)),
            (&whole, 4, Some(&none)),
            (&whole, 3, Some(&refusing)),
            (&whole[..9], 2, None),
            (b"", 0, None),
            (b"?", 0, None),
        ] {
            assert!(decode(bytes, fds(count), listen, [0, 2]).is_err());
        }
    }

    #[test]
    fn repeats_the_reason_of_the_child() {
        let error = decode(b"-no such sysctl", Vec::new(), None, [0, 0]).unwrap_err();
        assert!(error.to_string().ends_with("no such sysctl"));
    }
}
