//! SHELL. Starts the command's process, from wrap's side.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::enforce::{self, LandlockCommand, LandlockSetup};
use crate::enforce::EnforceError;
use crate::runtime::{FailureKind, FailureReport, RuntimeError};
use crate::sys::{process, socket};

/// Makes the command's process. Returns its process id and the filter's listener.
pub fn start(
    walls: LandlockSetup,
    command: &LandlockCommand,
) -> Result<(rustix::process::Pid, OwnedFd)> {
    let (ours, theirs) = socket::pair().context("make a socket pair")?;
    // Not clone3(2): engines' filters answer ENOSYS to it.
    let child = process::fork_into(|| {
        let Err(error) = enforce::execute(walls, command, &theirs);
        let failed = match error.downcast_ref::<EnforceError>() {
            Some(EnforceError::Program { why, .. }) if why.is_absence() => b'N',
            Some(EnforceError::Program { .. }) => b'P',
            _ => b'S',
        };
        let text = [&[failed][..], format!("{error:#}").as_bytes()].concat();
        // If this fails, wrap is gone and nothing else listens.
        let _sent = socket::send(theirs.as_fd(), &text, &[]);
        1
    })
    .context("make a process")?;
    drop(theirs);
    match handshake(&ours) {
        Ok(listener) => Ok((child, listener)),
        Err(error) => {
            // It is not reaped yet, so its number was not reused.
            let _gone = rustix::process::kill_process(child, Signal::KILL);
            Err(error)
        }
    }
}

/// Receives the listener, then waits for the end of the socket, which execve(2) closes.
fn handshake(socket: &OwnedFd) -> Result<OwnedFd> {
    let mut text = [0; 4096];
    let mut listener = None;
    loop {
        let received =
            socket::receive(socket.as_fd(), &mut text).context("wait for the command")?;
        match text[..received.len] {
            [b'L'] => listener = received.fds.into_iter().next(),
            [] => return listener.context("the command's process ended before it was executed"),
            [code, ref words @ ..] => {
                let failed = match code {
                    b'N' => FailureKind::NoProgram,
                    b'P' => FailureKind::Program,
                    _ => FailureKind::Step,
                };
                let text = String::from_utf8_lossy(words).into_owned();
                return Err(RuntimeError::Init(FailureReport { failed, text }).into());
            }
        }
    }
}

/// The error with a shell's status, see `wrap::status_of`.
pub fn not_executed(error: EnforceError) -> RuntimeError {
    let failed = match &error {
        EnforceError::Program { why, .. } if why.is_absence() => FailureKind::NoProgram,
        _ => FailureKind::Program,
    };
    let text = error.to_string();
    RuntimeError::Init(FailureReport { failed, text })
}
