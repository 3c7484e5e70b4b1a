//! SHELL. The command's process, as wrap sees it begin.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::enforce::{self, LandlockCommand, LandlockSetup};
use crate::enforce::EnforceError;
use crate::runtime::{FailureKind, FailureReport, RuntimeError};
use crate::sys::{process, socket};

/// Makes the command's process; its number, and the filter's listener.
pub fn start(
    walls: LandlockSetup,
    command: &LandlockCommand,
) -> Result<(rustix::process::Pid, OwnedFd)> {
    let (ours, theirs) = socket::pair().context("make a socket pair")?;
    // Not clone3(2): filters of engines answer that there is none.
    let child = process::fork_into(|| {
        let Err(error) = enforce::execute(walls, command, &theirs);
        let failed = match error.downcast_ref::<EnforceError>() {
            Some(EnforceError::Program { why, .. }) if why.is_absence() => b'N',
            Some(EnforceError::Program { .. }) => b'P',
            _ => b'S',
        };
        let text = [&[failed][..], format!("{error:#}").as_bytes()].concat();
        // Nobody who could hear it is left otherwise.
        let _sent = socket::send(theirs.as_fd(), &text, &[]);
        1
    })
    .context("make a process")?;
    drop(theirs);
    match handshake(&ours) {
        Ok(listener) => Ok((child, listener)),
        Err(error) => {
            // Not reaped yet, so the number is nobody else's.
            let _gone = rustix::process::kill_process(child, Signal::KILL);
            Err(error)
        }
    }
}

/// The listener, and then the end of the socket, which execve(2) closes.
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

/// A shell's status for it, see `wrap::status_of`.
pub fn not_executed(error: EnforceError) -> RuntimeError {
    let failed = match &error {
        EnforceError::Program { why, .. } if why.is_absence() => FailureKind::NoProgram,
        _ => FailureKind::Program,
    };
    let text = error.to_string();
    RuntimeError::Init(FailureReport { failed, text })
}
