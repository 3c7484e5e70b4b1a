//! SHELL. Pseudo-terminals of the command, opened in its place.
//!
//! A rule of Landlock on `/dev/pts` would open every terminal of the user. So the filter sends the few calls here that open a
//! file as a terminal is opened. For `/dev/ptmx` the command gets a new pseudo-terminal, and later its other end by its name.
//! The kernel makes every other call, and Landlock decides about it: a path that changes meanwhile opens nothing more.

use std::cell::RefCell;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, ptsname};

use super::caller::Caller;
use crate::sys::procfs;
use crate::sys::seccomp::notify::{self, NotifiedCall, NotifyAnswer};

/// The most pseudo-terminals with an open master: the kernel's are few (kernel.pty.max). Any number from ten on serves.
const MOST: usize = 64;

const MULTIPLEXER: &std::ffi::CStr = c"/dev/ptmx";

/// The flags with which terminals are opened, besides O_RDWR. The filter has the same.
const FLAGS: OFlags = OFlags::NOCTTY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::LARGEFILE);

/// The command's pseudo-terminals.
#[derive(Default)]
pub struct PseudoTerminals(RefCell<Vec<PseudoTerminal>>);

struct PseudoTerminal {
    /// `/dev/pts/N`
    name: CString,
    /// Its other end, without access: an inode that never becomes another terminal's, also when the number does.
    end: OwnedFd,
}

impl PseudoTerminal {
    /// Whether its master is open: the kernel removes the name with it.
    fn is_open(&self) -> bool {
        fstat(&self.end).is_ok_and(|stat| stat.st_nlink > 0)
    }
}

/// A file to open.
struct OpenCall {
    path: CString,
    flags: OFlags,
}

impl OpenCall {
    /// Reads a call. `None` if it opens no terminal, or cannot be read.
    fn read(listener: BorrowedFd<'_>, call: &NotifiedCall) -> Option<Self> {
        let (path, flags) = match call.number {
            libc::SYS_open => (call.args[0], call.args[1]),
            _ => (call.args[1], call.args[2]),
        };
        let flags = OFlags::from_bits_retain(flags as u32);
        if flags.difference(FLAGS) != OFlags::RDWR {
            return None;
        }
        let caller = Caller::open(listener, call).ok()?;
        let path = caller.text(path).ok()?;
        Some(Self { path, flags })
    }

    /// How this process opens the file: never as its own controlling terminal.
    fn own_flags(&self) -> OFlags {
        let kept = self.flags & OFlags::NONBLOCK;
        OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | kept
    }

    /// The flags of the caller's descriptor.
    fn descriptor_flags(&self) -> u32 {
        (self.flags & OFlags::CLOEXEC).bits()
    }
}

impl PseudoTerminals {
    /// Answers a call that may open a terminal.
    pub fn answer(&self, listener: BorrowedFd<'_>, call: &NotifiedCall) -> std::io::Result<()> {
        let wanted = OpenCall::read(listener, call);
        let opened = wanted.and_then(|wanted| Some((self.open(&wanted)?, wanted)));
        match opened {
            None => notify::answer(listener, call, NotifyAnswer::Continue),
            Some((Ok(file), wanted)) => {
                notify::give(listener, call, file.as_fd(), wanted.descriptor_flags())
            }
            Some((Err(errno), _)) => {
                notify::answer(listener, call, NotifyAnswer::Failed(errno.raw_os_error()))
            }
        }
    }

    /// `None` if it is no pseudo-terminal of the command.
    fn open(&self, wanted: &OpenCall) -> Option<Result<OwnedFd, Errno>> {
        if wanted.path.as_c_str() == MULTIPLEXER {
            return Some(self.make(wanted.own_flags()));
        }
        let all = self.0.borrow();
        let named = all
            .iter()
            .find(|one| one.name == wanted.path && one.is_open())?;
        let end = format!("/proc/self/fd/{}", named.end.as_raw_fd());
        Some(open(end, wanted.own_flags(), Mode::empty()))
    }

    fn make(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut all = self.0.borrow_mut();
        all.retain(PseudoTerminal::is_open);
        if all.len() >= MOST || !has_room() {
            return Err(Errno::NOSPC);
        }
        let master = open(MULTIPLEXER, flags, Mode::empty())?;
        let without_access = (OFlags::PATH | OFlags::CLOEXEC).bits();
        let end = ioctl_tiocgptpeer(&master, OpenptFlags::from_bits_retain(without_access))?;
        let name = ptsname(&master, Vec::new())?;
        all.push(PseudoTerminal { name, end });
        Ok(master)
    }
}

/// Whether half of the machine's pseudo-terminals are free. One whose other end alone is open is not among those that are counted
/// here, and still takes a number (tty_release, pty_unix98_remove).
fn has_room() -> bool {
    let number = |name: &str| -> Option<u32> {
        let text = procfs::lossy(format!("/proc/sys/kernel/pty/{name}")).ok()?;
        text.trim().parse().ok()
    };
    match (number("nr"), number("max")) {
        (Some(used), Some(most)) => used < most / 2,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(path: &std::ffi::CStr) -> OpenCall {
        OpenCall {
            path: path.to_owned(),
            flags: OFlags::RDWR,
        }
    }

    fn name(all: &PseudoTerminals) -> CString {
        all.0.borrow().last().unwrap().name.clone()
    }

    #[test]
    fn only_the_other_ends_of_open_pseudo_terminals_are_opened_by_name() {
        let all = PseudoTerminals::default();
        assert!(all.open(&call(c"/dev/null")).is_none());
        let other = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        let others = ptsname(&other, Vec::new()).unwrap();
        let master = all.open(&call(MULTIPLEXER)).unwrap().unwrap();
        assert!(all.open(&call(&others)).is_none());
        let own = name(&all);
        // Locked, as the kernel has made it.
        assert_eq!(all.open(&call(&own)).unwrap().err(), Some(Errno::IO));
        rustix::pty::unlockpt(&master).unwrap();
        let end = all.open(&call(&own)).unwrap().unwrap();
        assert_eq!(rustix::termios::ttyname(&end, Vec::new()).unwrap(), own);
        drop((master, end));
        // The number may be another one's from now on.
        assert!(all.open(&call(&own)).is_none());
    }

    #[test]
    fn their_number_is_limited_and_those_that_ended_do_not_count() {
        let all = PseudoTerminals::default();
        let make = || all.open(&call(MULTIPLEXER)).unwrap();
        let mut kept: Vec<_> = (0..MOST).map(|_| make().unwrap()).collect();
        assert_eq!(make().err(), Some(Errno::NOSPC));
        kept.pop();
        assert!(make().is_ok());
        // That one has ended too.
        assert!(make().is_ok());
    }
}
