//! The socket to a running sidecar: a UNIX socket in the container's directory, which only root may enter.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use crate::egress::NetworkStatus;
use crate::plan::Plan;
use crate::runtime::RuntimeError;
use crate::runtime::network::ControlError;
use crate::runtime::state::record::{ProcessId, Record};
use crate::sidecar::{ControlReply, ControlRequest};
use crate::sys::socket::send_stream;

const NAME: &str = "control";
/// The sidecar answers within a turn of its event loop.
const WITHIN: Duration = Duration::from_secs(10);
/// The longest answer: a list of rules.
const LONGEST: usize = 4 << 20;

/// Binds the socket, before the sidecar serves it.
pub fn listen(dir: &Path) -> Result<OwnedFd, RuntimeError> {
    let path = dir.join(NAME);
    let failed = || RuntimeError::io(format!("listen on {path:?}"));
    let socket = short(dir, NAME, |short| UnixListener::bind(short))?.map_err(failed())?;
    socket.set_nonblocking(true).map_err(failed())?;
    Ok(socket.into())
}

/// Sends a request to the sidecar of the container with this directory.
pub fn ask(dir: &Path, request: &ControlRequest) -> Result<ControlReply, RuntimeError> {
    let caller = caller()?;
    ask_with(dir, request, &[caller.as_fd()], WITHIN)
}

/// The descriptor that proves to the sidecar that the caller is not a container.
pub(super) fn caller() -> Result<OwnedFd, RuntimeError> {
    crate::sidecar::own_pid_namespace().map_err(RuntimeError::io(
        "open the process namespace for the sidecar",
    ))
}

/// [`ask`], with descriptors for the sidecar.
fn ask_with(
    dir: &Path,
    request: &ControlRequest,
    descriptors: &[BorrowedFd<'_>],
    within: Duration,
) -> Result<ControlReply, RuntimeError> {
    let path = dir.join(NAME);
    let failed = || RuntimeError::io(format!("ask the sidecar at {path:?}"));
    let mut socket = short(dir, NAME, connect)?.map_err(|source| ControlError::Unreached {
        path: path.clone(),
        source,
    })?;
    socket.set_write_timeout(Some(within)).map_err(failed())?;
    let mut line = serde_json::to_vec(request).map_err(|e| failed()(e.into()))?;
    line.push(b'\n');
    // The sidecar answers a caller without permission before it reads anything.
    let sent = send_stream(socket.as_fd(), &line, descriptors);
    let answer = match (sent, read_line(&mut socket, within)) {
        (_, Ok(answer)) if !answer.is_empty() => answer,
        (Err(error), _) | (Ok(()), Err(error)) => return Err(failed()(error)),
        (Ok(()), Ok(answer)) => answer,
    };
    serde_json::from_slice(&answer).map_err(|e| failed()(e.into()))
}

/// Connects without blocking: a UNIX socket with a free place in its queue connects at once; otherwise EAGAIN.
fn connect(path: &Path) -> std::io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Reads one line, all of it within the limit, so that a slow writer cannot keep the caller waiting.
fn read_line(socket: &mut UnixStream, within: Duration) -> std::io::Result<Vec<u8>> {
    let end = Instant::now() + within;
    let (mut line, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    while line.last() != Some(&b'\n') {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || line.len() > LONGEST {
            return Err(ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        match socket.read(&mut chunk)? {
            0 => break,
            length => line.extend_from_slice(&chunk[..length]),
        }
    }
    Ok(line)
}

/// The sidecar's status of the network; `None` if it serves no connections, out or in.
pub fn status(dir: &Path, record: &Record) -> Result<Option<NetworkStatus>, RuntimeError> {
    status_within(dir, record, WITHIN)
}

/// The same, with a limit of time for the answer.
pub fn status_within(
    dir: &Path,
    record: &Record,
    within: Duration,
) -> Result<Option<NetworkStatus>, RuntimeError> {
    let serves = |plan: &Plan| plan.network.is_served();
    if !record.plan().is_some_and(serves) {
        return Ok(None);
    }
    match hand_over_within(dir, record, &ControlRequest::Status, &[], within)? {
        ControlReply::Status(status) => Ok(Some(*status)),
        ControlReply::Failed(why) => Err(ControlError::Refused(why).into()),
        _ => Err(ControlError::Unexpected.into()),
    }
}

/// [`ask`], with a clear error if the sidecar is gone.
pub fn ask_living(
    dir: &Path,
    record: &Record,
    request: &ControlRequest,
) -> Result<ControlReply, RuntimeError> {
    hand_over(dir, record, request, &[])
}

/// [`ask_living`], with descriptors for the sidecar.
pub fn hand_over(
    dir: &Path,
    record: &Record,
    request: &ControlRequest,
    descriptors: &[OwnedFd],
) -> Result<ControlReply, RuntimeError> {
    hand_over_within(dir, record, request, descriptors, WITHIN)
}

fn hand_over_within(
    dir: &Path,
    record: &Record,
    request: &ControlRequest,
    descriptors: &[OwnedFd],
    within: Duration,
) -> Result<ControlReply, RuntimeError> {
    if let Some(shared) = record.shared_network() {
        return Err(RuntimeError::State {
            verb: "ask the sidecar of",
            id: record.id.clone(),
            why: format!(
                "it is in the network of container {}: name that one",
                shared.container
            ),
        });
    }
    let sidecar = record.sidecar.as_ref().map(ProcessId::from);
    let lives = sidecar.is_some_and(ProcessId::is_alive);
    if !lives {
        let ended = match record.init.is_some_and(ProcessId::is_alive) {
            true => "its sidecar is gone, so it reaches nothing: delete and create it again",
            false => "it has ended",
        };
        return Err(RuntimeError::State {
            verb: "ask the sidecar of",
            id: record.id.clone(),
            why: ended.to_owned(),
        });
    }
    let caller = caller()?;
    let descriptors = descriptors.iter().map(AsFd::as_fd);
    let all: Vec<BorrowedFd<'_>> = std::iter::once(caller.as_fd()).chain(descriptors).collect();
    ask_with(dir, request, &all, within)
}

/// A socket's path has at most 107 bytes (unix(7)), fewer than an index directory may have.
pub fn short<T>(dir: &Path, name: &str, act: impl FnOnce(&Path) -> T) -> Result<T, RuntimeError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = open(dir, flags, Mode::empty()).map_err(RuntimeError::io(format!("open {dir:?}")))?;
    Ok(act(Path::new(&format!(
        "/proc/self/fd/{}/{name}",
        fd.as_raw_fd()
    ))))
}
