//! Keeps the caller's terminal out of the container. A program with it could read the user's input, switch the echo off
//! and, on some kernels, type into it. If all of a command's descriptors lead to it, `wrap` gives a pseudo-terminal
//! ([`crate::runtime::foreground::tty`]). If only some do, or no terminal was requested, each of those becomes a pipe.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use crate::runtime::RuntimeError;
use crate::runtime::foreground::{ForegroundError, tty};

/// A process's standard descriptors; `None` means the caller's own.
pub type Stdio = [Option<OwnedFd>; 3];

/// The streams between the caller's terminal and the container.
pub struct Relay(Vec<Flow>);

/// From a descriptor to another.
struct Flow {
    /// `None`: the caller's standard input.
    from: Option<OwnedFd>,
    to: RelayTarget,
    /// Read, but not written yet.
    pending: Vec<u8>,
}

/// The receiver of relayed bytes.
enum RelayTarget {
    /// The caller's, by number.
    Caller(usize),
    /// The container's standard input, which may be full.
    Container(OwnedFd),
}

/// Which of the caller's standard descriptors are terminals.
pub fn terminals() -> [bool; 3] {
    callers().map(rustix::termios::isatty)
}

fn callers() -> [BorrowedFd<'static>; 3] {
    [
        rustix::stdio::stdin(),
        rustix::stdio::stdout(),
        rustix::stdio::stderr(),
    ]
}

/// Pipes in place of the caller's terminals.
pub fn pipes() -> Result<(Stdio, Relay), RuntimeError> {
    let mut given: Stdio = [None, None, None];
    let mut flows = Vec::new();
    let numbers = 0..given.len();
    for number in numbers.filter(|n| terminals()[*n]) {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
            .map_err(RuntimeError::io("make a pipe in place of the terminal"))?;
        let (theirs, from, to) = if number == 0 {
            // It may not be read, and its output must go on meanwhile.
            rustix::io::ioctl_fionbio(&writer, true)
                .map_err(RuntimeError::io("make a pipe in place of the terminal"))?;
            (reader, None, RelayTarget::Container(writer))
        } else {
            (writer, Some(reader), RelayTarget::Caller(number))
        };
        given[number] = Some(theirs);
        flows.push(Flow {
            from,
            to,
            pending: Vec::new(),
        });
    }
    Ok((given, Relay(flows)))
}

/// Refuses a terminal if nothing stays to relay it. A descriptor in `given` is not the caller's.
pub fn refuse_terminals(what: &str, given: &Stdio) -> Result<(), RuntimeError> {
    const NAMES: [&str; 3] = ["input", "output", "error"];
    let inherited = terminals();
    let mut all = inherited.iter().zip(given);
    match all.position(|(is_terminal, given)| *is_terminal && given.is_none()) {
        Some(number) => Err(ForegroundError::Terminal {
            standard: NAMES[number],
            what: what.to_owned(),
        }
        .into()),
        None => Ok(()),
    }
}

impl Relay {
    /// What to poll.
    pub fn waits(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        self.0.iter().map(Flow::waits)
    }

    /// Whether to poll for the foreground: input belongs to another job now.
    pub fn waits_for_its_turn(&self) -> bool {
        self.0.iter().any(Flow::waits_for_its_turn)
    }

    /// Moves all data that can move; `ready` is for each of [`Self::waits`].
    pub fn pump(&mut self, ready: &[bool]) {
        let mut ready = ready.iter();
        self.0
            .retain_mut(|flow| ready.next() != Some(&true) || flow.step());
    }

    /// Relays what was written before the end and not read yet.
    pub fn drain(&mut self) {
        self.0.retain(|flow| flow.from.is_some());
        for flow in &mut self.0 {
            while flow.is_readable() && flow.step() {}
        }
    }
}

impl Flow {
    fn source(&self) -> BorrowedFd<'_> {
        match &self.from {
            Some(from) => from.as_fd(),
            None => rustix::stdio::stdin(),
        }
    }

    fn waits(&self) -> (BorrowedFd<'_>, PollFlags) {
        match &self.to {
            RelayTarget::Container(to) if !self.pending.is_empty() => (to.as_fd(), PollFlags::OUT),
            // Input typed meanwhile belongs to another job, and reading would fail (EIO).
            RelayTarget::Container(_) if self.waits_for_its_turn() => {
                (self.source(), PollFlags::empty())
            }
            _ => (self.source(), PollFlags::IN),
        }
    }

    fn waits_for_its_turn(&self) -> bool {
        self.from.is_none() && !tty::in_foreground()
    }

    fn is_readable(&self) -> bool {
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(
            self.source(),
            PollFlags::IN,
        )];
        let now = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(n) if n > 0)
    }

    /// Reads once, or writes what is left; `false` at the end.
    fn step(&mut self) -> bool {
        if self.pending.is_empty() {
            let mut buffer = [0; 16384];
            match rustix::io::read(self.source(), &mut buffer) {
                // EIO: the caller is in the background, where a terminal cannot be read.
                Ok(0) | Err(Errno::IO) => return false,
                Ok(length) => self.pending.extend_from_slice(&buffer[..length]),
                Err(Errno::INTR | Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        self.write()
    }

    fn write(&mut self) -> bool {
        while !self.pending.is_empty() {
            let written = match &self.to {
                RelayTarget::Caller(number) => rustix::io::write(callers()[*number], &self.pending),
                RelayTarget::Container(to) => rustix::io::write(to, &self.pending),
            };
            match (written, &self.to) {
                (Ok(written), _) => drop(self.pending.drain(..written)),
                (Err(Errno::INTR), _) => {}
                (Err(Errno::AGAIN), RelayTarget::Container(_)) => return true,
                (Err(_), _) => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> (OwnedFd, Flow, OwnedFd) {
        let (from, typed) = rustix::pipe::pipe().unwrap();
        let (read, to) = rustix::pipe::pipe().unwrap();
        rustix::io::ioctl_fionbio(&to, true).unwrap();
        let flow = Flow {
            from: Some(from),
            to: RelayTarget::Container(to),
            pending: Vec::new(),
        };
        (typed, flow, read)
    }

    #[test]
    fn unread_bytes_are_kept_without_blocking() {
        let (typed, mut flow, read) = flow();
        let mut moved = 0;
        // A pipe holds 64 KiB.
        while flow.pending.is_empty() {
            rustix::io::write(&typed, &[b'x'; 4096]).unwrap();
            assert!(flow.step());
            moved += 4096;
            assert!(moved < 1 << 20);
        }
        assert_eq!(flow.waits().1, PollFlags::OUT);
        let mut seen = 0;
        let mut buffer = [0; 8192];
        while seen < moved {
            seen += rustix::io::read(&read, &mut buffer).unwrap();
            assert!(flow.pending.is_empty() || flow.step());
        }
        assert_eq!((seen, flow.waits().1), (moved, PollFlags::IN));
    }

    #[test]
    fn it_ends_with_either_side() {
        let (typed, mut one, _read) = flow();
        drop(typed);
        assert!(!one.step());
        let (typed, mut other, read) = flow();
        drop(read);
        rustix::io::write(&typed, b"x").unwrap();
        assert!(!other.step());
    }
}
