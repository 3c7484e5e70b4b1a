//! A seccomp filter's listener on its way out of the process that loaded the filter.

use std::os::fd::{AsRawFd, OwnedFd};

use super::{EnforceError, Wall};

/// The way to the runtime, which passes the listener on to the engine's agent.
#[derive(Debug)]
pub struct AgentSocket {
    /// This process's end; reading from it gives up after a while.
    pub near: OwnedFd,
    /// The runtime's end, where it is kept for it until `start`. Closed by execve, as the other.
    pub far: Option<OwnedFd>,
}

/// Says the listener's number and waits until the runtime has brought a copy to the agent.
///
/// The filter is loaded already, and may leave to the agent whatever is called from here on, but not write(2).
pub fn hand_over(listener: OwnedFd, socket: &AgentSocket) -> Result<(), EnforceError> {
    let number = listener.as_raw_fd().to_ne_bytes();
    rustix::io::write(&socket.near, &number)
        .map_err(EnforceError::step("announce the seccomp listener"))?;
    let mut answer = [0; 1];
    match rustix::io::read(&socket.near, &mut answer) {
        Ok(1) => Ok(()),
        Ok(_) => Err(EnforceError::Incomplete(Wall::Syscalls)),
        Err(e) => Err(EnforceError::step(
            "wait until the seccomp agent has the listener",
        )(e)),
    }
}
