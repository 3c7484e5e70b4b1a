//! The protocol between the runtime, the sidecar and the container's init.
//!
//! It uses two sockets, both unnamed pairs. The **bootstrap** socket between runtime and sidecar carries
//! [`SidecarSetup`], [`super::attachment::Attachment`] and [`Reply`] as JSON, and closes when the sidecar is ready.
//! init inherits the **hand-over** socket, with one fixed question and one fixed answer: it needs no parser and little
//! memory.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::confine::SidecarRlimits;
use crate::cgroup::sidecar::CgroupPlan;
use crate::sys::socket::{self, Datagram};

/// The largest message of the bootstrap socket.
const MAX_MESSAGE: usize = 32 * 1024;
const QUESTION: &[u8; 16] = b"agentbox-enter-1";
const ANSWER: &[u8; 16] = b"agentbox-inner-1";

/// Why a message was not understood, or did not come.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The other side closed its end.
    #[error("the {peer} is gone")]
    Gone {
        /// The other side.
        peer: &'static str,
    },
    /// No message came in time.
    #[error("the {peer} did not answer within {limit:?}")]
    TimedOut {
        /// The other side.
        peer: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// The socket failed.
    #[error("cannot talk to the {peer}")]
    Socket {
        /// The other side.
        peer: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The bytes are not JSON of the expected shape.
    #[error("the {peer} sent something that is not a {what}")]
    Malformed {
        /// The other side.
        peer: &'static str,
        /// The expected message.
        what: &'static str,
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
    /// The bytes are not the fixed question or answer, or their descriptors are missing.
    #[error("the {peer} sent something that is not part of the hand-over")]
    NotHandover {
        /// The other side.
        peer: &'static str,
    },
    /// A message came without a descriptor that it needs.
    #[error("the {peer} sent too few descriptors, or too many")]
    Missing {
        /// The other side.
        peer: &'static str,
    },
    /// A message came with other descriptors than it announces.
    #[error("the {peer} sent {have} descriptors where {need} belong")]
    Descriptors {
        /// The other side.
        peer: &'static str,
        /// How many it announces.
        need: usize,
        /// How many came.
        have: usize,
    },
}

/// The first message to the sidecar: the ids, limits and cgroup that it takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SidecarSetup {
    pub uid: u32,
    pub gid: u32,
    pub limits: SidecarRlimits,
    pub cgroup: CgroupPlan,
    pub duty: Duty,
    pub loss: Loss,
    /// Whether the configuration of a reader comes with it.
    pub reads: bool,
}

/// What the sidecar's death means for its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// The container goes on, without a network. A stopped sidecar is not noticed.
    Tolerated,
    /// The container's init is sent SIGKILL. A stopped sidecar is killed, so that no caller waits for it.
    EndsContainer,
}

/// What the sidecar is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Duty {
    /// It keeps the namespace until init asks for it.
    Wait,
    /// It also tells clients inside that nothing leads out, and why. It makes no socket.
    Refuse,
    /// It is also the allowlist proxy.
    Serve,
}

/// Identifies a namespace by its file in `/proc/PID/ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NamespaceId {
    device: u64,
    inode: u64,
}

impl NamespaceId {
    /// All namespaces are files of one file system in the kernel, which is mounted nowhere: no other file system has
    /// the same device number.
    pub fn of(namespace: BorrowedFd<'_>) -> io::Result<Self> {
        let stat = rustix::fs::fstat(namespace)?;
        Ok(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }
}

/// The pid namespace of this process.
pub fn own_pid_namespace() -> io::Result<OwnedFd> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let opened = rustix::fs::open("/proc/self/ns/pid", flags, rustix::fs::Mode::empty());
    Ok(opened?)
}

/// The sidecar's only answer on the bootstrap socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(super) enum Reply {
    /// It is confined, has verified that, and serves. If it has a warden, the runtime started the warden: then `pid` is
    /// the sidecar's number in the runtime's pid namespace.
    Ready { landlock_abi: u32, pid: Option<i32> },
    /// It failed, and exits.
    Failed { reason: String },
}

/// Sends one message of the bootstrap socket.
pub(super) fn send<T: Serialize>(
    socket: BorrowedFd<'_>,
    peer: &'static str,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> Result<(), ProtocolError> {
    let bytes = serde_json::to_vec(message).map_err(|source| ProtocolError::Malformed {
        peer: "runtime",
        what: "message",
        source,
    })?;
    socket::send(socket, &bytes, fds).map_err(|source| failed(peer, Duration::ZERO, source))
}

/// Waits for one message of the bootstrap socket.
pub(super) fn receive<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    peer: &'static str,
    what: &'static str,
    limit: Duration,
) -> Result<(T, Vec<OwnedFd>), ProtocolError> {
    let mut buffer = vec![0; MAX_MESSAGE];
    let received = hear(socket, peer, &mut buffer, limit)?;
    let message = serde_json::from_slice(&buffer[..received.len])
        .map_err(|source| ProtocolError::Malformed { peer, what, source })?;
    Ok((message, received.fds))
}

/// Waits for a message on the bootstrap socket or for its sender's end, whichever comes first.
///
/// The sender may be dead while the socket is still open: libcontainer's init is a fork of the runtime. It holds a copy
/// until it executes.
pub(super) fn wait_while_alive(
    socket: BorrowedFd<'_>,
    sender: BorrowedFd<'_>,
    peer: &'static str,
    limit: Duration,
) -> Result<(), ProtocolError> {
    match socket::wait_any([socket, sender], limit) {
        // A message from before its end still counts.
        Ok([true, _]) => Ok(()),
        Ok([false, true]) => Err(ProtocolError::Gone { peer }),
        Ok([false, false]) => Err(ProtocolError::TimedOut { peer, limit }),
        Err(source) => Err(failed(peer, limit, source)),
    }
}

/// What init receives at `start`.
#[derive(Debug)]
pub struct Handover {
    /// The inner network namespace.
    pub netns: OwnedFd,
    /// Its sysfs, detached, to move over the container's /sys.
    pub sysfs: OwnedFd,
    /// The cookie that [`crate::network::enter`] must find.
    pub cookie: u64,
}

/// Asks the sidecar for the inner network namespace: init's last step before it enters it.
///
/// The sidecar answers once. A dead sidecar is an error, and then nothing may be executed.
pub fn request_namespace(
    socket: BorrowedFd<'_>,
    limit: Duration,
) -> Result<Handover, ProtocolError> {
    const PEER: &str = "sidecar";
    socket::send(socket, QUESTION, &[]).map_err(|source| failed(PEER, limit, source))?;
    let mut buffer = [0; 24];
    let Datagram { len, fds } = hear(socket, PEER, &mut buffer, limit)?;
    let not_handover = || ProtocolError::NotHandover { peer: PEER };
    let cookie = decode_answer(&buffer[..len]).ok_or_else(not_handover)?;
    let [netns, sysfs] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| not_handover())?;
    Ok(Handover {
        netns,
        sysfs,
        cookie,
    })
}

/// What came on the sidecar's end of the hand-over socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InitQuestion {
    /// Init wants to enter its namespace.
    Enter,
    /// Every holder of the other end is gone.
    Closed,
}

/// Reads the question. To be called when the socket is readable.
pub(super) fn receive_question(socket: BorrowedFd<'_>) -> Result<InitQuestion, ProtocolError> {
    const PEER: &str = "container's init";
    let mut buffer = [0; QUESTION.len()];
    let received = match socket::receive(socket, &mut buffer) {
        Ok(received) => received,
        // It left without reading our answer: gone too.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
            return Ok(InitQuestion::Closed);
        }
        Err(source) => return Err(failed(PEER, Duration::ZERO, source)),
    };
    match &buffer[..received.len] {
        [] => Ok(InitQuestion::Closed),
        question if question == QUESTION && received.fds.is_empty() => Ok(InitQuestion::Enter),
        _ => Err(ProtocolError::NotHandover { peer: PEER }),
    }
}

/// Answers it.
pub(super) fn send_answer(
    socket: BorrowedFd<'_>,
    cookie: u64,
    netns: &OwnedFd,
    sysfs: &OwnedFd,
) -> Result<(), ProtocolError> {
    let answer = encode_answer(cookie);
    socket::send(socket, &answer, &[netns.as_fd(), sysfs.as_fd()])
        .map_err(|source| failed("container's init", Duration::ZERO, source))
}

fn encode_answer(cookie: u64) -> [u8; 24] {
    let mut answer = [0; 24];
    answer[..16].copy_from_slice(ANSWER);
    answer[16..].copy_from_slice(&cookie.to_ne_bytes());
    answer
}

fn decode_answer(bytes: &[u8]) -> Option<u64> {
    let cookie = bytes.strip_prefix(ANSWER)?.try_into().ok()?;
    Some(u64::from_ne_bytes(cookie))
}

/// Receives a message; the socket's end is an error.
fn hear(
    socket: BorrowedFd<'_>,
    peer: &'static str,
    buffer: &mut [u8],
    limit: Duration,
) -> Result<Datagram, ProtocolError> {
    match socket::receive_within(socket, buffer, limit) {
        Ok(Datagram { len: 0, .. }) => Err(ProtocolError::Gone { peer }),
        Ok(received) => Ok(received),
        Err(source) => Err(failed(peer, limit, source)),
    }
}

fn failed(peer: &'static str, limit: Duration, source: io::Error) -> ProtocolError {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut};
    let kind = source.kind();
    if kind == BrokenPipe || kind == ConnectionReset {
        ProtocolError::Gone { peer }
    } else if kind == TimedOut {
        ProtocolError::TimedOut { peer, limit }
    } else {
        ProtocolError::Socket { peer, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sidecar::attachment::{Attachment, FdTag};

    const SOON: Duration = Duration::from_secs(2);

    #[test]
    fn the_handover_answer_is_decoded_as_encoded() {
        assert_eq!(
            decode_answer(&encode_answer(u64::MAX - 1)),
            Some(u64::MAX - 1)
        );
    }

    #[test]
    fn only_the_exact_answer_is_an_answer() {
        let whole = encode_answer(7);
        for cut in 0..whole.len() {
            assert_eq!(decode_answer(&whole[..cut]), None);
        }
        let mut other = whole;
        other[0] ^= 1;
        assert_eq!(decode_answer(&other), None);
    }

    #[test]
    fn a_dead_sidecar_is_an_error() {
        let (init, sidecar) = socket::pair().unwrap();
        drop(sidecar);
        let error = request_namespace(init.as_fd(), SOON).unwrap_err();
        assert_eq!(error.to_string(), "the sidecar is gone");
    }

    #[test]
    fn a_sidecar_that_dies_after_the_question_is_an_error() {
        let (init, sidecar) = socket::pair().unwrap();
        socket::send(init.as_fd(), QUESTION, &[]).unwrap();
        drop(sidecar);
        let error = request_namespace(init.as_fd(), SOON).unwrap_err();
        assert_eq!(error.to_string(), "the sidecar is gone");
    }

    #[test]
    fn a_silent_sidecar_is_an_error_after_the_limit() {
        let (init, _sidecar) = socket::pair().unwrap();
        let error = request_namespace(init.as_fd(), Duration::from_millis(5)).unwrap_err();
        assert!(matches!(error, ProtocolError::TimedOut { .. }), "{error}");
    }

    #[test]
    fn an_answer_without_its_descriptors_is_an_error() {
        let (init, sidecar) = socket::pair().unwrap();
        socket::send(sidecar.as_fd(), &encode_answer(7), &[init.as_fd()]).unwrap();
        let error = request_namespace(init.as_fd(), SOON).unwrap_err();
        assert!(
            matches!(error, ProtocolError::NotHandover { .. }),
            "{error}"
        );
    }

    #[test]
    fn the_sidecar_takes_only_the_exact_question() {
        let (init, sidecar) = socket::pair().unwrap();
        let ask = |bytes: &[u8], fds: &[BorrowedFd<'_>]| {
            socket::send(init.as_fd(), bytes, fds).unwrap();
            receive_question(sidecar.as_fd())
        };
        assert_eq!(ask(QUESTION, &[]).unwrap(), InitQuestion::Enter);
        assert!(ask(QUESTION, &[init.as_fd()]).is_err());
        assert!(ask(&QUESTION[1..], &[]).is_err());
        assert!(ask(b"a message that is much longer than the question", &[]).is_err());
        drop(init);
        assert_eq!(
            receive_question(sidecar.as_fd()).unwrap(),
            InitQuestion::Closed
        );
    }

    #[test]
    fn a_bootstrap_message_with_an_unknown_field_is_refused() {
        let (a, b) = socket::pair().unwrap();
        let own = own_pid_namespace().unwrap();
        let attachment = Attachment {
            tags: vec![FdTag::Init, FdTag::Inner(1), FdTag::Sysfs],
            pid_namespace: NamespaceId::of(own.as_fd()).unwrap(),
            reasons: crate::plan::CallReasons::default(),
        };
        let mut sent = serde_json::to_value(&attachment).unwrap();
        let hear = |sent: &serde_json::Value| {
            socket::send(a.as_fd(), sent.to_string().as_bytes(), &[]).unwrap();
            receive::<Attachment>(b.as_fd(), "runtime", "attachment", SOON)
        };
        assert_eq!(hear(&sent).unwrap().0, attachment);
        sent["x"] = 1.into();
        assert!(matches!(hear(&sent), Err(ProtocolError::Malformed { .. })));
    }
}
