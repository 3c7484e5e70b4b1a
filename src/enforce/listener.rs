//! A seccomp filter's listener on its way out of the process that loaded the filter.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::error::{EnforceError, WallKind};
use crate::sidecar::calls::line;

/// The way to the runtime, which passes the listener to the engine's agent.
#[derive(Debug)]
pub struct AgentSocket {
    /// This process's end; reads time out.
    pub near: OwnedFd,
    /// The runtime's end, if it waits here until `start`. execve closes both.
    pub far: Option<OwnedFd>,
}

/// Who gets a listener.
#[derive(Debug)]
pub enum ListenerWay {
    /// The engine's agent, through the runtime.
    Agent(AgentSocket),
    /// The sidecar, through this socket.
    Sidecar(OwnedFd),
}

/// Called before the filter is loaded. It limits the hand-over in time, whatever the sidecar does.
pub(super) fn prepare(sidecar: &OwnedFd) -> Result<(), EnforceError> {
    line::limit(sidecar.as_fd()).map_err(EnforceError::step("limit the wait for the sidecar"))
}

/// Sends the listener away.
pub(super) fn hand_over(listener: OwnedFd, way: &ListenerWay) -> Result<(), EnforceError> {
    match way {
        ListenerWay::Agent(socket) => announce(listener, socket),
        ListenerWay::Sidecar(socket) => line::give(listener, socket.as_fd()).map_err(
            EnforceError::step("give the seccomp listener to the sidecar"),
        ),
    }
}

/// Sends the listener's number, and waits until the runtime has sent a copy to the agent.
///
/// The filter is loaded already, and may leave every further call to the agent, except write(2).
fn announce(listener: OwnedFd, socket: &AgentSocket) -> Result<(), EnforceError> {
    let number = listener.as_raw_fd().to_ne_bytes();
    rustix::io::retry_on_intr(|| rustix::io::write(&socket.near, &number))
        .map_err(EnforceError::step("announce the seccomp listener"))?;
    let mut answer = [0; 1];
    // EINTR: as in `line::give`.
    match rustix::io::retry_on_intr(|| rustix::io::read(&socket.near, &mut answer)) {
        Ok(1) => Ok(()),
        Ok(_) => Err(EnforceError::Incomplete(WallKind::Syscalls)),
        Err(e) => Err(EnforceError::step(
            "wait until the seccomp agent has the listener",
        )(e)),
    }
}
