//! The line to a running sidecar: a UNIX socket in the container's directory, which root alone may enter.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};

use super::RuntimeError;
use crate::sidecar::{ControlReply, ControlRequest};

const NAME: &str = "control";
/// It answers within a turn of its event loop.
const WITHIN: Duration = Duration::from_secs(10);
/// The longest answer: a list of rules.
const LONGEST: u64 = 4 << 20;

/// Binds the socket, before the sidecar is there to serve it.
pub fn listen(dir: &Path) -> Result<OwnedFd, RuntimeError> {
    let path = dir.join(NAME);
    let failed = || RuntimeError::io(format!("listen on {path:?}"));
    let socket = short(dir, |short| UnixListener::bind(short))?.map_err(failed())?;
    socket.set_nonblocking(true).map_err(failed())?;
    Ok(socket.into())
}

/// Asks the sidecar of the container with this directory.
pub fn ask(dir: &Path, request: &ControlRequest) -> Result<ControlReply, RuntimeError> {
    let path = dir.join(NAME);
    let failed = || RuntimeError::io(format!("ask the sidecar at {path:?}"));
    let mut socket = short(dir, |short| UnixStream::connect(short))?.map_err(failed())?;
    socket.set_read_timeout(Some(WITHIN)).map_err(failed())?;
    socket.set_write_timeout(Some(WITHIN)).map_err(failed())?;
    let mut line = serde_json::to_vec(request).map_err(|e| failed()(e.into()))?;
    line.push(b'\n');
    socket.write_all(&line).map_err(failed())?;
    let mut answer = String::new();
    BufReader::new(socket.take(LONGEST))
        .read_line(&mut answer)
        .map_err(failed())?;
    serde_json::from_str(&answer).map_err(|e| failed()(e.into()))
}

/// A socket's path has 107 bytes at most (unix(7)), fewer than an index directory may have.
fn short<T>(dir: &Path, act: impl FnOnce(&Path) -> T) -> Result<T, RuntimeError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = open(dir, flags, Mode::empty()).map_err(RuntimeError::io(format!("open {dir:?}")))?;
    Ok(act(Path::new(&format!(
        "/proc/self/fd/{}/{NAME}",
        fd.as_raw_fd()
    ))))
}
