//! A pipe as standard input that the caller reads, too. The program would get more by it than bytes: /proc/self/fd opens a pipe
//! again, for writing too, and what the program writes there its caller reads: commands, if that is a shell (`curl ... | sh`).
//!
//! So the program gets another pipe, which shows what comes next in the caller's (tee(2)). Only what it has read is taken out of
//! that one: the rest is for the caller's next command, as if the program had read the pipe itself.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::event::PollFlags;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};
use rustix::process::Pid;

/// Bytes that are shown at once. A pipe of one page can be written only when all of it was read (`pipe_poll`, fs/pipe.c).
const PAGE: usize = 4096;

/// The pipe in place of the caller's.
pub struct ShownInput {
    /// The program's end, which tells what it has not read.
    unread: OwnedFd,
    /// `None` at the end of the caller's pipe.
    to: Option<OwnedFd>,
    /// Bytes of the caller's pipe that are in this one, too.
    shown: usize,
    /// The program's pipe had no room, though nothing of the caller's is in it: the program wrote there.
    full: bool,
    /// Why no more is shown.
    failed: Option<Errno>,
}

/// Whether a descriptor is a pipe without a name.
pub fn is_pipe(fd: BorrowedFd<'_>) -> bool {
    const PIPEFS_MAGIC: u64 = 0x5049_5045;
    let stat = rustix::fs::fstat(fd);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
        && rustix::fs::fstatfs(fd).is_ok_and(|system| system.f_type.cast_unsigned() == PIPEFS_MAGIC)
}

/// Who reads standard input besides the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputReaders {
    /// Nobody: it is no pipe, or one that was made for this process.
    Own,
    /// The parent may: a parent of another user does not show its descriptors, and an orphan's parent is not who started it.
    Unknown,
    /// The parent has it, too. An engine that made it may not have closed it yet.
    Parent,
    /// It is the parent's standard input, too, who has no end to write to it.
    ParentsInput,
}

static READERS: OnceLock<InputReaders> = OnceLock::new();

/// Looks once, before this process enters a user namespace: from there the caller's processes show nothing.
pub fn look() -> InputReaders {
    *READERS.get_or_init(|| readers(rustix::stdio::stdin()))
}

/// Each process between a shell and this one has the shell's input, too.
fn readers(fd: BorrowedFd<'_>) -> InputReaders {
    let is_written =
        || rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags & OFlags::ACCMODE == OFlags::WRONLY);
    if !is_pipe(fd) || is_written() {
        return InputReaders::Own;
    }
    let parent = rustix::process::getppid();
    // The number is zero for a session of another pid namespace, which rustix does not take.
    let session = |of: i32| nix::unistd::getsid(Some(nix::unistd::Pid::from_raw(of)));
    let is_orphan = parent.is_none_or(|pid| session(pid.as_raw_pid()) != session(0));
    match is_read_by(parent, fd) {
        Some(InputReaders::Own) | None if is_orphan => InputReaders::Unknown,
        found => found.unwrap_or(InputReaders::Unknown),
    }
}

fn is_read_by(process: Option<Pid>, fd: BorrowedFd<'_>) -> Option<InputReaders> {
    let name = rustix::fs::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new());
    let name = name.ok()?;
    let theirs = format!("/proc/{}/fd", process?.as_raw_pid());
    let mut shown = 0;
    let (mut reads, mut writes, mut is_input) = (false, false, false);
    for entry in std::fs::read_dir(theirs).ok()? {
        let path = entry.ok()?.path();
        shown += 1;
        match rustix::fs::readlink(&path, Vec::new()) {
            Ok(link) if link == name => {}
            // Closed meanwhile.
            Ok(_) | Err(Errno::NOENT) => continue,
            Err(_) => return None,
        }
        // The link's own mode tells what it is open for (proc_pid_fd(5)).
        let mode = match rustix::fs::lstat(&path) {
            Ok(stat) => stat.st_mode,
            Err(Errno::NOENT) => continue,
            Err(_) => return None,
        };
        reads |= mode & 0o400 != 0;
        writes |= mode & 0o200 != 0;
        is_input |= mode & 0o400 != 0 && path.ends_with("0");
    }
    // A process that has ended shows none.
    (shown > 0).then_some(match (is_input && !writes, reads) {
        (true, _) => InputReaders::ParentsInput,
        (false, true) => InputReaders::Parent,
        (false, false) => InputReaders::Own,
    })
}

impl ShownInput {
    /// The pipe, and the program's end of it.
    pub fn new() -> rustix::io::Result<(OwnedFd, Self)> {
        let (theirs, to) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        rustix::pipe::fcntl_setpipe_size(&to, PAGE)?;
        let unread = rustix::io::fcntl_dupfd_cloexec(&theirs, 3)?;
        let shown = Self {
            unread,
            to: Some(to),
            shown: 0,
            full: false,
            failed: None,
        };
        Ok((theirs, shown))
    }

    /// What to poll: the caller's pipe for more, or the program's for room. Nothing at the end.
    pub fn waits(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let to = self.to.as_ref()?;
        Some(match (self.shown, self.full) {
            (0, false) => (rustix::stdio::stdin(), PollFlags::IN),
            _ => (to.as_fd(), PollFlags::OUT),
        })
    }

    /// When [`Self::waits`] is ready.
    pub fn pump(&mut self) {
        self.pump_from(rustix::stdio::stdin());
    }

    fn pump_from(&mut self, from: BorrowedFd<'_>) {
        let read = std::mem::take(&mut self.shown);
        take_out(from, read);
        let Some(to) = &self.to else {
            return;
        };
        match rustix::pipe::tee(from, to, PAGE, SpliceFlags::NONBLOCK) {
            Ok(0) => self.to = None,
            Ok(shown) => {
                self.shown = shown;
                self.full = false;
            }
            // One of both pipes: each is waited for in turn.
            Err(Errno::AGAIN) => self.full = !self.full,
            Err(Errno::INTR) => {}
            Err(errno) => {
                self.failed = Some(errno);
                self.to = None;
            }
        }
    }

    /// The program has ended: takes out what it has read. Fails if the caller's pipe could not be shown.
    pub fn end(&mut self) -> rustix::io::Result<()> {
        self.end_from(rustix::stdio::stdin());
        self.failed.map_or(Ok(()), Err)
    }

    fn end_from(&mut self, from: BorrowedFd<'_>) {
        // What the program itself wrote into its pipe makes this more, never what is taken out.
        let unread = rustix::io::ioctl_fionread(&self.unread).unwrap_or_default();
        let unread = usize::try_from(unread).unwrap_or(usize::MAX);
        take_out(from, self.shown.saturating_sub(unread));
        self.shown = 0;
    }
}

/// Reads and forgets. Another reader of the caller's pipe may have taken some.
fn take_out(from: BorrowedFd<'_>, mut count: usize) {
    let mut buffer = [0; PAGE];
    while count > 0 {
        let there = rustix::io::ioctl_fionread(from).unwrap_or_default();
        let next = count.min(PAGE).min(usize::try_from(there).unwrap_or(PAGE));
        match rustix::io::read(from, &mut buffer[..next]) {
            Ok(0) => return,
            Ok(taken) => count -= taken,
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ready(fd: BorrowedFd<'_>, what: PollFlags) -> bool {
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd, what)];
        let now = rustix::event::Timespec::default();
        rustix::event::poll(&mut fds, Some(&now)).unwrap() > 0 && fds[0].revents().contains(what)
    }

    fn has_room(shown: &ShownInput) -> bool {
        let (to, what) = shown.waits().unwrap();
        what == PollFlags::OUT && is_ready(to, what)
    }

    fn read(fd: &OwnedFd, most: usize) -> Vec<u8> {
        let mut buffer = vec![0; most];
        let length = rustix::io::read(fd, &mut buffer).unwrap();
        buffer.truncate(length);
        buffer
    }

    #[test]
    fn what_was_not_read_stays_for_the_next_command() {
        for (taken, left) in [(0, &b"one\ntwo\n"[..]), (4, b"two\n"), (8, b"")] {
            let (callers, typed) = rustix::pipe::pipe().unwrap();
            rustix::io::write(&typed, b"one\ntwo\n").unwrap();
            let (theirs, mut shown) = ShownInput::new().unwrap();
            shown.pump_from(callers.as_fd());
            if taken > 0 {
                assert_eq!(read(&theirs, taken), b"one\ntwo\n"[..taken]);
            }
            shown.end_from(callers.as_fd());
            drop(typed);
            assert_eq!(read(&callers, 100), left, "{taken}");
        }
    }

    #[test]
    fn what_the_program_writes_into_its_pipe_does_not_come_out() {
        let (callers, typed) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&typed, b"one\ntwo\n").unwrap();
        let (theirs, mut shown) = ShownInput::new().unwrap();
        shown.pump_from(callers.as_fd());
        assert_eq!(read(&theirs, 100), b"one\ntwo\n");
        rustix::io::write(shown.to.as_ref().unwrap(), b"evil\nevil\nevil\n").unwrap();
        shown.end_from(callers.as_fd());
        drop(typed);
        assert_eq!(read(&callers, 100), b"one\ntwo\n");
    }

    #[test]
    fn more_is_shown_when_all_was_read_and_the_end_is_the_callers() {
        let (callers, typed) = rustix::pipe::pipe().unwrap();
        let all: Vec<u8> = (0..3 * PAGE + 7).map(|n| (n % 251) as u8).collect();
        rustix::io::write(&typed, &all).unwrap();
        drop(typed);
        let (theirs, mut shown) = ShownInput::new().unwrap();
        let mut seen = Vec::new();
        shown.pump_from(callers.as_fd());
        while shown.waits().is_some() {
            seen.extend(read(&theirs, 3));
            assert!(!has_room(&shown));
            seen.extend(read(&theirs, PAGE));
            assert!(has_room(&shown));
            shown.pump_from(callers.as_fd());
        }
        assert_eq!(seen, all);
        assert_eq!(read(&theirs, 1), b"");
        shown.end_from(callers.as_fd());
        assert_eq!(read(&callers, 1), b"");
    }

    #[test]
    fn another_reader_of_the_callers_pipe_stops_nothing() {
        let (callers, typed) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&typed, b"word").unwrap();
        let (theirs, mut shown) = ShownInput::new().unwrap();
        shown.pump_from(callers.as_fd());
        assert_eq!(read(&theirs, 100), b"word");
        assert_eq!(read(&callers, 100), b"word");
        let ways = [(), ()].map(|()| {
            shown.pump_from(callers.as_fd());
            shown.waits().map(|(_, what)| what)
        });
        assert!(ways.contains(&Some(PollFlags::IN)), "{ways:?}");
        drop(typed);
        shown.pump_from(callers.as_fd());
        assert!(shown.waits().is_none());
    }

    #[test]
    fn what_the_program_writes_is_waited_for_and_keeps_nobody_busy() {
        let (callers, typed) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&typed, b"word").unwrap();
        let (theirs, mut shown) = ShownInput::new().unwrap();
        rustix::io::write(shown.to.as_ref().unwrap(), b"x").unwrap();
        shown.pump_from(callers.as_fd());
        // Full, so the caller's pipe, which can be read, is not polled.
        assert!(
            shown
                .waits()
                .is_some_and(|(_, what)| what == PollFlags::OUT)
                && !has_room(&shown)
        );
        assert_eq!(read(&theirs, 100), b"x");
        assert!(has_room(&shown));
        shown.pump_from(callers.as_fd());
        assert_eq!(read(&theirs, 100), b"word");
        shown.pump_from(callers.as_fd());
        let ways = [(), ()].map(|()| {
            shown.pump_from(callers.as_fd());
            shown.waits().map(|(_, what)| what)
        });
        assert!(
            ways.contains(&Some(PollFlags::IN)),
            "nothing is there: {ways:?}"
        );
    }

    #[test]
    fn a_pipe_is_shared_with_who_can_read_it() {
        let (read, _write) = rustix::pipe::pipe().unwrap();
        let own = || Some(rustix::process::getpid());
        let found = is_read_by(own(), read.as_fd());
        assert_eq!(found, Some(InputReaders::Parent));
        let (other, write) = rustix::pipe::pipe().unwrap();
        drop(other);
        assert_eq!(is_read_by(own(), write.as_fd()), Some(InputReaders::Own));
        assert_eq!(readers(write.as_fd()), InputReaders::Own);
        assert_eq!(is_read_by(None, write.as_fd()), None);
        assert_eq!(is_read_by(Pid::from_raw(i32::MAX), write.as_fd()), None);
    }

    #[test]
    fn a_pipe_has_no_name() {
        let (one, other) = rustix::pipe::pipe().unwrap();
        assert!(is_pipe(one.as_fd()) && is_pipe(other.as_fd()));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(!is_pipe(null.as_fd()));
    }
}
