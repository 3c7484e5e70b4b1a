//! sd_notify(3) for a container, as with runc. A socket of the runtime's own is mounted at /run/notify. Its READY=
//! goes to the socket in the runtime's NOTIFY_SOCKET, followed by MAINPID= and BARRIER=1.
//!
//! Nothing else is passed on: a container cannot speak for its service. Under a policy it gets no socket.

use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::Duration;

use oci_spec::runtime::{MountBuilder, Spec};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::PidfdFlags;

use crate::runtime::RuntimeError;
use crate::runtime::state::record::ProcessId;
use crate::runtime::state::store::ContainerPaths;

const IN_CONTAINER: &str = "/run/notify";
const NAME: &str = "notify.sock";
/// As runc.
const BARRIER_WITHIN: u64 = 30;

/// The socket that the runtime's caller listens on, if any (sd_notify(3): a path, or `@` and an abstract name).
pub fn host() -> Option<String> {
    let name = std::env::var("NOTIFY_SOCKET").ok()?;
    name.starts_with(['/', '@']).then_some(name)
}

fn dir(place: &ContainerPaths) -> PathBuf {
    place.dir().join("notify")
}

/// Makes the directory of the socket, and adds its mount to the spec.
pub fn prepare(place: &ContainerPaths, spec: &mut Spec) -> Result<(), RuntimeError> {
    let dir = dir(place);
    fs::DirBuilder::new()
        .mode(0o755)
        .create(&dir)
        .map_err(RuntimeError::io(format!("make {dir:?}")))?;
    let options = ["bind", "nosuid", "noexec", "nodev", "ro"].map(str::to_owned);
    let mount = MountBuilder::default()
        .destination(IN_CONTAINER)
        .typ("bind")
        .source(dir)
        .options(options)
        .build()
        .expect("all fields of a mount are set");
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    mounts.push(mount);
    spec.set_mounts(Some(mounts));
    if let Some(process) = spec.process_mut() {
        let mut env = process.env().clone().unwrap_or_default();
        env.push(format!("NOTIFY_SOCKET={IN_CONTAINER}/{NAME}"));
        process.set_env(Some(env));
    }
    Ok(())
}

/// Passes on a container's readiness.
pub struct ReadinessRelay {
    socket: UnixDatagram,
    host: String,
    init: ProcessId,
}

impl ReadinessRelay {
    /// Listens for a container that was created with a socket; `None` for others, or if the runtime has no
    /// NOTIFY_SOCKET.
    pub fn listen(place: &ContainerPaths, init: ProcessId) -> Result<Option<Self>, RuntimeError> {
        let dir = dir(place);
        let (Some(host), true) = (host(), dir.exists()) else {
            return Ok(None);
        };
        let step = || format!("listen in {dir:?}");
        let handle = fs::File::open(&dir).map_err(RuntimeError::io(step()))?;
        // The path itself may be too long for an address (unix(7)).
        let path = PathBuf::from(format!("/proc/self/fd/{}/{NAME}", handle.as_raw_fd()));
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(RuntimeError::io(step())(e));
            }
            _ => {}
        }
        let socket = UnixDatagram::bind(&path).map_err(RuntimeError::io(step()))?;
        let everybody = fs::Permissions::from_mode(0o777);
        fs::set_permissions(&path, everybody).map_err(RuntimeError::io(step()))?;
        socket
            .set_nonblocking(true)
            .map_err(RuntimeError::io(step()))?;
        Ok(Some(Self { socket, host, init }))
    }

    /// What to poll.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Takes one message. If it reports readiness, passes it on and returns true.
    pub fn pump(&self, main_pid: i32) -> bool {
        let mut buffer = [0; 4096];
        let Ok(length) = self.socket.recv(&mut buffer) else {
            return false;
        };
        let Some(ready) = ready_line(&buffer[..length]) else {
            return false;
        };
        if let Err(error) = self.tell(ready, main_pid) {
            log::warn!("pass on {ready:?} to {:?}: {error}", self.host);
        }
        true
    }

    /// Waits until the container is ready, or has ended.
    pub fn wait(&self) -> Result<(), RuntimeError> {
        let step = "wait for the container to be ready";
        let pid = rustix::process::Pid::from_raw(self.init.pid).ok_or(RuntimeError::NotRunning)?;
        let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
            return Ok(());
        };
        loop {
            let mut fds = [
                PollFd::new(&self.socket, PollFlags::IN),
                PollFd::new(&pidfd, PollFlags::IN),
            ];
            match rustix::event::poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(RuntimeError::io(step)(e)),
            }
            let (said, ended) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
            if said && self.pump(self.init.pid) || ended && !said {
                return Ok(());
            }
        }
    }

    fn tell(&self, ready: &str, main_pid: i32) -> std::io::Result<()> {
        let client = UnixDatagram::unbound()?;
        match self.host.strip_prefix('@') {
            Some(name) => client.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
            None => client.connect(Path::new(&self.host))?,
        }
        client.send(format!("{ready}\n").as_bytes())?;
        client.send(format!("MAINPID={main_pid}\n").as_bytes())?;
        barrier(&client)
    }
}

/// The readiness line of a message, if it has one (sd_notify(3)).
fn ready_line(message: &[u8]) -> Option<&'static str> {
    let lines = || message.split(|b| *b == b'\n');
    lines().any(|line| line == b"READY=1").then_some("READY=1")
}

/// Waits until the other side has read everything: it closes the descriptor that comes with the message
/// (sd_notify_barrier(3)).
fn barrier(client: &UnixDatagram) -> std::io::Result<()> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    crate::sys::socket::send(client.as_fd(), b"BARRIER=1", &[writer.as_fd()])?;
    drop(writer);
    let limit =
        Timespec::try_from(Duration::from_secs(BARRIER_WITHIN)).map_err(std::io::Error::other)?;
    let mut fds = [PollFd::new(&reader, PollFlags::IN)];
    if rustix::event::poll(&mut fds, Some(&limit))? == 0 {
        log::warn!("the notifications were not read within {BARRIER_WITHIN} s");
        return Ok(());
    }
    let read = fs::File::from(reader).read(&mut [0])?;
    if read == 0 {
        Ok(())
    } else {
        Err(std::io::Error::other("the barrier's pipe was written to"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_readiness_is_passed_on() {
        assert_eq!(ready_line(b"STATUS=up\nREADY=1\n"), Some("READY=1"));
        for other in [&b"STATUS=READY=1"[..], b"MAINPID=1", b"READY=10", b""] {
            assert_eq!(ready_line(other), None);
        }
    }
}
