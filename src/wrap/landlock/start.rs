//! SHELL. Starts the command's process, from wrap's side.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::enforce::{self, LandlockCommand, LandlockSetup};
use crate::enforce::EnforceError;
use crate::runtime::{FailureKind, FailureReport, RuntimeError};
use crate::sys::{process, socket};
use crate::text::{LINE, bounded};

/// Makes the command's process. Returns its process id and the filter's listener.
pub fn start(
    walls: LandlockSetup,
    command: &LandlockCommand,
) -> Result<(rustix::process::Pid, OwnedFd)> {
    let (ours, theirs) = socket::pair().context("make a socket pair")?;
    // Not clone3(2): engines' filters answer ENOSYS to it.
    let child = process::fork_into(|| {
        let Err(error) = enforce::execute(walls, command, &theirs);
        // If this fails, wrap is gone and nothing else listens.
        let _sent = socket::send(theirs.as_fd(), &report(&error), &[]);
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

/// Most bytes of a message.
const MESSAGE: usize = 4096;

/// What the command's process sends when it could not execute the command: a letter for [`handshake`], and the error, which
/// fits into a message however long the command's name is.
fn report(error: &anyhow::Error) -> Vec<u8> {
    let failed = match error.downcast_ref::<EnforceError>() {
        Some(EnforceError::Program { why, .. }) if why.is_absence() => b'N',
        Some(EnforceError::Program { .. }) => b'P',
        _ => b'S',
    };
    const { assert!(4 * LINE < MESSAGE) };
    let text = bounded(&format!("{error:#}"), LINE);
    [&[failed][..], text.as_bytes()].concat()
}

/// Receives the listener, then waits for the end of the socket, which execve(2) closes.
fn handshake(socket: &OwnedFd) -> Result<OwnedFd> {
    let mut text = [0; MESSAGE];
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::io::Errno;

    use super::*;
    use crate::enforce::WallKind;
    use crate::enforce::error::ExecveError;
    use crate::wrap::error::status_of;

    fn program(why: ExecveError) -> EnforceError {
        EnforceError::Program {
            name: "tool".to_owned(),
            why,
        }
    }

    /// A missing program, and one that cannot be executed.
    fn missing() -> [ExecveError; 3] {
        let name = "tool".to_owned();
        let errno = Errno::NOENT;
        [
            ExecveError::NotOnPath,
            ExecveError::Stat { name, errno },
            ExecveError::Execve(errno),
        ]
    }

    fn refused() -> [ExecveError; 5] {
        let (name, errno) = ("tool".to_owned(), Errno::ACCESS);
        [
            ExecveError::Denied,
            ExecveError::Nul,
            ExecveError::Other("/bin/tool".into()),
            ExecveError::Stat { name, errno },
            ExecveError::Execve(errno),
        ]
    }

    /// What wrap makes of these messages of the command's process, which then ends.
    fn heard(messages: &[&[u8]]) -> Result<OwnedFd> {
        let (ours, theirs) = socket::pair().unwrap();
        for message in messages {
            socket::send(theirs.as_fd(), message, &[]).unwrap();
        }
        drop(theirs);
        handshake(&ours)
    }

    fn kind_of(error: &anyhow::Error) -> (FailureKind, String) {
        match error.downcast_ref::<RuntimeError>() {
            Some(RuntimeError::Init(report)) => (report.failed, report.text.clone()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_command_that_is_missing_or_cannot_be_executed_has_a_shells_status() {
        let missing = missing().map(|why| (why, FailureKind::NoProgram, 127));
        let refused = refused().map(|why| (why, FailureKind::Program, 126));
        for (why, kind, status) in missing.into_iter().chain(refused) {
            let error = program(why);
            let text = error.to_string();
            let sent = anyhow::Error::from(error);
            let heard = heard(&[&report(&sent)]).unwrap_err();
            let found = kind_of(&heard);
            assert_eq!(found, (kind, text));
            assert_eq!(status_of(&heard), status);
            let error = sent.downcast::<EnforceError>().unwrap();
            match not_executed(error) {
                RuntimeError::Init(report) => assert_eq!((report.failed, report.text), found),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_command_with_a_long_name_is_missing_like_any_other() {
        for letter in ["x", "\u{20ac}"] {
            let name = letter.repeat(100_000);
            let why = ExecveError::NotOnPath;
            let error = EnforceError::Program { name, why };
            let heard = heard(&[&report(&error.into())]).unwrap_err();
            let (kind, text) = kind_of(&heard);
            assert_eq!(kind, FailureKind::NoProgram);
            assert!(text.contains(letter) && text.len() < MESSAGE);
            assert_eq!(status_of(&heard), 127);
        }
    }

    #[test]
    fn a_wall_that_fails_is_no_failure_of_the_command() {
        let incomplete = EnforceError::Incomplete(WallKind::Syscalls);
        for error in [incomplete.into(), anyhow::anyhow!("make a ruleset")] {
            let heard = heard(&[&report(&error)]).unwrap_err();
            let expected = (FailureKind::Step, format!("{error:#}"));
            assert_eq!(kind_of(&heard), expected);
            assert_eq!(status_of(&heard), 125);
        }
        // Only the error's type decides: the context is words.
        let error = anyhow::Error::from(program(ExecveError::NotOnPath)).context("exec");
        let (kind, _) = kind_of(&heard(&[&report(&error)]).unwrap_err());
        assert_eq!(kind, FailureKind::NoProgram);
        // A letter of no report is the worst of them.
        let (kind, _) = kind_of(&heard(&[b"?what"]).unwrap_err());
        assert_eq!(kind, FailureKind::Step);
    }

    #[test]
    fn a_command_that_was_executed_leaves_its_listener_and_one_that_ended_before_leaves_none() {
        let (ours, theirs) = socket::pair().unwrap();
        let (listener, _other) = socket::pair().unwrap();
        socket::send(theirs.as_fd(), b"L", &[listener.as_fd()]).unwrap();
        drop(theirs);
        let received = handshake(&ours).unwrap();
        assert_ne!(received.as_raw_fd(), listener.as_raw_fd());
        let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
        assert_eq!(inode(&received), inode(&listener));
        // Killed before it sent anything, or after it sent a message without the descriptor.
        for messages in [Vec::new(), vec![&b"L"[..]]] {
            let error = heard(&messages).unwrap_err().to_string();
            assert_eq!(error, "the command's process ended before it was executed");
        }
        // A listener, and then a failure.
        let failed = report(&program(ExecveError::Denied).into());
        let (kind, _) = kind_of(&heard(&[b"L", &failed]).unwrap_err());
        assert_eq!(kind, FailureKind::Program);
    }
}
