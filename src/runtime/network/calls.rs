//! The socket for denied system calls: what the sidecar gets at `create`, and how `exec` reaches it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::control::{caller, short};
use crate::audit::{self, Actor};
use crate::plan::CallReasons;
use crate::runtime::RuntimeError;
use crate::runtime::runs::{self, RunDir};
use crate::runtime::state::identity;
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::store::ContainerPaths;
use crate::sidecar::calls::line::greet;
use crate::sidecar::{CallsFds, CallsLog};

/// The socket's name in the container's directory, which only root may enter.
const NAME: &str = "calls";
/// How many exec processes may wait for the sidecar at once.
const BACKLOG: i32 = 64;
/// How long to wait for a free place in the queue, and between attempts.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// What the sidecar needs to answer denied calls. The filter has been saved. If the network is served, denied calls are
/// logged with it.
pub fn open(
    place: &ContainerPaths,
    record: &Record,
    run: &RunDir,
) -> Result<CallsFds, RuntimeError> {
    let (dir, plan) = (place.dir(), record.plan());
    let program = File::open(place.filter())
        .map_err(RuntimeError::io(format!("open {:?}", place.filter())))?;
    Ok(CallsFds {
        listening: listen(&dir)?,
        program: program.into(),
        reasons: plan.map_or_else(CallReasons::default, |plan| plan.syscalls.reasons()),
        log: match plan.is_some_and(|plan| plan.network.is_served_by_own()) {
            true => None,
            false => Some(CallsLog {
                file: run.open(audit::SIDECAR)?.into(),
                warden: run.open(audit::WARDEN)?.into(),
                context: runs::context(record, identity::of(record)),
            }),
        },
    })
}

fn listen(dir: &Path) -> Result<OwnedFd, RuntimeError> {
    let failed = || RuntimeError::io(format!("listen on {:?}", dir.join(NAME)));
    let socket = socket().map_err(failed())?;
    short(dir, NAME, |path| {
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket, BACKLOG)
    })?
    .map_err(failed())?;
    Ok(socket)
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// A socket to the sidecar, to which an exec process sends its listener. The sidecar has agreed to take it, and to log
/// its calls as this actor's.
pub fn connect(
    place: &ContainerPaths,
    record: &Record,
    by: Option<Actor>,
) -> Result<OwnedFd, RuntimeError> {
    let lives = record.sidecar.as_ref().map(ProcessId::from);
    if !lives.is_some_and(ProcessId::is_alive) {
        return Err(RuntimeError::State {
            verb: "exec in",
            id: record.id.clone(),
            why: "the sidecar that answers denied system calls has exited: delete the container and create it again"
                .to_owned(),
        });
    }
    let dir = place.dir();
    let failed = || RuntimeError::io(format!("ask the sidecar at {:?}", dir.join(NAME)));
    let socket = socket().map_err(failed())?;
    short(&dir, NAME, |path| {
        let address = SocketAddrUnix::new(path)?;
        patiently(|| rustix::net::connect(&socket, &address))
    })?
    .map_err(failed())?;
    rustix::io::ioctl_fionbio(&socket, false).map_err(failed())?;
    let proof = caller()?;
    greet(socket.as_fd(), proof.as_fd(), by)
        .map_err(RuntimeError::io("ask the sidecar to answer denied calls"))?;
    Ok(socket)
}

/// Retries for a while if [`BACKLOG`] processes wait already (EAGAIN). A sidecar that accepts none is an error.
fn patiently(mut connect: impl FnMut() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
    let end = Instant::now() + CONNECTED_WITHIN;
    loop {
        match connect() {
            Err(Errno::AGAIN) if Instant::now() < end => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_waited_for_and_other_errors_are_not() {
        let mut answers = [Err(Errno::AGAIN), Err(Errno::AGAIN), Ok(())].into_iter();
        assert_eq!(patiently(|| answers.next().unwrap()), Ok(()));
        assert_eq!(answers.next(), None);
        let mut times = 0;
        let refused = patiently(|| {
            times += 1;
            Err(Errno::CONNREFUSED)
        });
        assert_eq!((refused, times), (Err(Errno::CONNREFUSED), 1));
    }
}
