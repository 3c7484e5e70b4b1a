//! Keeps the caller's terminal and files out of the container. A program with the terminal could read the user's input,
//! switch the echo off and, on some kernels, type into it. One with a file could open it again by /proc/self/fd, for reading
//! and writing whatever the redirection said: it lies on a mount of the node, so no wall of files sees it.
//!
//! If all of a command's descriptors lead to a terminal, `wrap` gives a pseudo-terminal
//! ([`crate::runtime::foreground::tty`]). If only some do, or no terminal was requested, each of those becomes a pipe, and
//! so does each file. A pipe as input that the caller reads, too, is shown by another one ([`ShownInput`]).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::fs::{FileType, SeekFrom};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use crate::runtime::RuntimeError;
use crate::runtime::foreground::error::ForegroundError;
use crate::runtime::foreground::shown_input::{self, InputReaders, ShownInput};
use crate::runtime::foreground::tty;
use crate::runtime::input::descriptors;

/// A process's standard descriptors; `None` means the caller's own.
pub type Stdio = [Option<OwnedFd>; 3];

/// The streams between the caller's terminal or files and the container.
pub struct Relay {
    flows: Vec<Flow>,
    /// If standard input is a file.
    input: Option<FileInput>,
    /// If it is a pipe that the caller reads, too.
    shown: Option<ShownInput>,
    /// The first failure of a file.
    failed: Option<Errno>,
}

/// From a descriptor to another.
struct Flow {
    /// `None`: the caller's standard input.
    from: Option<OwnedFd>,
    to: RelayTarget,
    /// Read, but not written yet.
    pending: Vec<u8>,
    /// Why a file of the caller is not read or written on.
    failed: Option<Errno>,
}

/// A file as standard input, of which the caller gets back what the container does not read.
struct FileInput {
    /// The pipe that holds it; the container may add bytes of its own.
    unread: OwnedFd,
    /// Where the container began to read.
    start: u64,
}

/// How many bytes are read at once.
const PIECE: usize = 16384;

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

fn is_file(fd: BorrowedFd<'_>) -> bool {
    let stat = rustix::fs::fstat(fd);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

/// Whether a standard descriptor gives more than bytes: a file, a FIFO with a name, or a device that is not one of memory(4), such
/// as a terminal.
fn gives_more(fd: BorrowedFd<'_>) -> bool {
    let Ok(stat) = rustix::fs::fstat(fd) else {
        return false;
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => true,
        FileType::CharacterDevice => !descriptors::is_memory_device(stat.st_rdev),
        FileType::Fifo => !shown_input::is_pipe(fd),
        _ => false,
    }
}

/// Whether two descriptors lead to one file.
fn are_one_file(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    let of = |fd| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
    is_file(one) && of(one).is_ok_and(|found| of(other) == Ok(found))
}

/// What becomes of the caller's terminals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallersTerminals {
    /// Pipes replace them.
    Replaced,
    /// The command has them.
    Kept,
}

/// Pipes in place of the caller's files and, if so, terminals.
pub fn pipes(terminals: CallersTerminals) -> Result<(Stdio, Relay), RuntimeError> {
    let failed = || RuntimeError::io("make a pipe in place of a standard stream");
    let mut given: Stdio = [None, None, None];
    let mut relay = Relay {
        flows: Vec::new(),
        input: None,
        shown: None,
        failed: None,
    };
    let all @ [input, output, error] = callers();
    for (number, fd) in all.into_iter().enumerate() {
        if number == 0 && shown_input::look() != InputReaders::Own {
            let (theirs, shown) = ShownInput::new().map_err(failed())?;
            given[number] = Some(theirs);
            relay.shown = Some(shown);
        }
        let is_kept = terminals == CallersTerminals::Kept && rustix::termios::isatty(fd);
        if is_kept || !gives_more(fd) {
            continue;
        }
        // `>log 2>&1` keeps the order of lines.
        if number == 2
            && are_one_file(output, error)
            && let Some(writer) = &given[1]
        {
            given[number] = Some(
                writer
                    .try_clone()
                    .map_err(RuntimeError::io("copy a pipe"))?,
            );
            continue;
        }
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(failed())?;
        let (theirs, from, to) = if number == 0 {
            // It may not be read, and its output must go on meanwhile.
            rustix::io::ioctl_fionbio(&writer, true).map_err(failed())?;
            if let Some(start) = offset(input) {
                let unread = reader.try_clone();
                let unread = unread.map_err(RuntimeError::io("copy a pipe"))?;
                relay.input = Some(FileInput { unread, start });
            }
            (reader, None, RelayTarget::Container(writer))
        } else {
            (writer, Some(reader), RelayTarget::Caller(number))
        };
        given[number] = Some(theirs);
        relay.flows.push(Flow {
            from,
            to,
            pending: Vec::new(),
            failed: None,
        });
    }
    Ok((given, relay))
}

/// Where a file is read next. `None` for what has no such place.
fn offset(fd: BorrowedFd<'_>) -> Option<u64> {
    let at = || rustix::fs::seek(fd, SeekFrom::Current(0)).ok();
    is_file(fd).then(at).flatten()
}

/// For a process that nothing relays to: refuses a terminal, and gives a file as input that cannot be written. A descriptor in
/// `given` is not the caller's.
pub fn detached(what: &str, mut given: Stdio) -> Result<Stdio, RuntimeError> {
    refuse_terminals(what, &given)?;
    if given[0].is_none() {
        given[0] = descriptors::read_only_input()?;
    }
    Ok(given)
}

/// Puts /dev/null in the place of a standard input that is the parent's, too, for a process that nothing relays to and that a person
/// starts. An engine's runtime may be a script, which has the container's own pipe. Before this process enters a user namespace:
/// from there it is not to be told.
pub fn keep_the_parents(what: &str) -> Result<(), RuntimeError> {
    if shown_input::look() != InputReaders::ParentsInput {
        return Ok(());
    }
    log::warn!("standard input is the caller's own pipe, so {what} gets /dev/null: name an input");
    let null = std::fs::File::open("/dev/null").map_err(RuntimeError::io("open /dev/null"))?;
    rustix::stdio::dup2_stdin(null).map_err(RuntimeError::io("replace standard input"))
}

/// Refuses a terminal if nothing stays to relay it. A descriptor in `given` is not the caller's.
fn refuse_terminals(what: &str, given: &Stdio) -> Result<(), RuntimeError> {
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
        let shown = self.shown.iter().filter_map(ShownInput::waits);
        self.flows.iter().map(Flow::waits).chain(shown)
    }

    /// Whether to poll for the foreground: input belongs to another job now.
    pub fn waits_for_its_turn(&self) -> bool {
        self.flows.iter().any(Flow::waits_for_its_turn)
    }

    /// Moves all data that can move; `ready` is for each of [`Self::waits`].
    pub fn pump(&mut self, ready: &[bool]) {
        let mut ready = ready.iter();
        self.keep(|flow| ready.next() != Some(&true) || flow.step());
        if let (Some(shown), Some(true)) = (&mut self.shown, ready.next()) {
            shown.pump();
        }
    }

    /// Relays what was written before the end and not read yet. Gives back what the container has not read of a file, so that
    /// the next command of a script finds it (`while read line; do agentbox wrap -- ...; done <list`).
    ///
    /// Fails if a file of the caller could not be read or written.
    pub fn drain(&mut self) -> Result<(), RuntimeError> {
        self.keep(|flow| flow.from.is_none() || flow.finish());
        self.give_back();
        self.keep(|flow| flow.from.is_some());
        if let Some(mut shown) = self.shown.take() {
            let ended = shown.end();
            self.failed = self.failed.or(ended.err());
        }
        match self.failed.take() {
            Some(errno) => Err(RuntimeError::io("relay a file of the command")(errno)),
            None => Ok(()),
        }
    }

    /// Keeps the flows that go on.
    fn keep(&mut self, mut goes_on: impl FnMut(&mut Flow) -> bool) {
        let failed = &mut self.failed;
        self.flows.retain_mut(|flow| {
            let kept = goes_on(flow);
            *failed = failed.or(flow.failed.take());
            kept
        });
    }

    fn give_back(&mut self) {
        let Some(input) = self.input.take() else {
            return;
        };
        let Some(now) = offset(rustix::stdio::stdin()) else {
            return;
        };
        // A flow that has ended had written all: while this process can read the pipe, no write fails.
        let mut flows = self.flows.iter();
        let unsent = flows.find(|flow| flow.from.is_none());
        let unsent = unsent.map_or(0, |flow| flow.pending.len()) as u64;
        let unread = rustix::io::ioctl_fionread(&input.unread).unwrap_or_default() + unsent;
        if unread > 0 && now > input.start {
            let next = SeekFrom::Start(given_back_to(input.start, now, unread));
            rustix::fs::seek(rustix::stdio::stdin(), next).ok();
        }
    }
}

/// Where the caller reads on in a file of which `unread` bytes are in the container's pipe. Never before the start: the container
/// can open its pipe for writing and say more than there was, so that a shell would read its script once more from where it likes.
fn given_back_to(start: u64, now: u64, unread: u64) -> u64 {
    now.saturating_sub(unread).max(start)
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
        self.from.is_none() && rustix::termios::isatty(self.source()) && !tty::in_foreground()
    }

    /// Relays what is there now, and not what a process that is left writes meanwhile.
    fn finish(&mut self) -> bool {
        let there = rustix::io::ioctl_fionread(self.source()).unwrap_or_default();
        let steps = there / PIECE as u64 + 1;
        (0..steps).all(|_| !self.is_readable() || self.step())
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
            let mut buffer = [0; PIECE];
            match rustix::io::read(self.source(), &mut buffer) {
                Ok(0) => return false,
                Ok(length) => self.pending.extend_from_slice(&buffer[..length]),
                Err(Errno::INTR | Errno::AGAIN) => return true,
                Err(errno) => {
                    // In the background a terminal cannot be read (EIO). What was opened for writing alone has no bytes.
                    self.failed = (is_file(self.source()) && errno != Errno::BADF).then_some(errno);
                    return false;
                }
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
                (Err(errno), RelayTarget::Caller(number)) => {
                    // A terminal that is gone takes nothing, as under any program.
                    self.failed = is_file(callers()[*number]).then_some(errno);
                    return false;
                }
                (Err(_), RelayTarget::Container(_)) => return false,
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
            failed: None,
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
    fn a_file_is_given_back_to_its_start_at_most() {
        assert_eq!(given_back_to(100, 500, 0), 500);
        assert_eq!(given_back_to(100, 500, 300), 200);
        for more in [400, 401, 1000, u64::MAX] {
            assert_eq!(given_back_to(100, 500, more), 100);
        }
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
