//! SHELL. Opens the directories of a search, each by its parent's descriptor. A path from the root has a limit
//! (PATH_MAX), and would be walked again for each.
//!
//! The number of open descriptors is limited. A closed directory is reached by `..` again, and compared with its
//! earlier state. Nothing here proves that a directory is still in its place: only the second look at all of them does
//! (`settle.rs`).

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags, makedev};
use rustix::io::Errno;

use super::places::DirTree;
use crate::plan::FileIdentity;

/// Most descriptors that stay open.
const HELD: usize = 32;

pub(super) struct Walk<'a> {
    root: &'a OwnedFd,
    /// Each is the parent of the next one.
    held: Vec<(u32, OwnedFd)>,
    /// How many directories were opened or passed on the way, for tests.
    #[cfg(test)]
    pub(super) steps: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(root: &'a OwnedFd) -> Self {
        Self {
            root,
            held: Vec::new(),
            #[cfg(test)]
            steps: 0,
        }
    }

    /// Opens a directory to list it.
    pub(super) fn open(&mut self, places: &DirTree, number: u32) -> rustix::io::Result<OwnedFd> {
        match places.above(number) {
            None => beneath(self.root.as_fd(), b".", OFlags::RDONLY),
            Some(above) => {
                let parent = self.at(places, above)?;
                beneath(parent, places.name(number), OFlags::RDONLY)
            }
        }
    }

    /// The current state of a directory, by its name in its parent.
    pub(super) fn look(&mut self, places: &DirTree, number: u32) -> rustix::io::Result<Statx> {
        match places.above(number) {
            None => stat(self.root.as_fd()),
            Some(above) => {
                let name = Path::new(OsStr::from_bytes(places.name(number)));
                stat_at(self.at(places, above)?, name)
            }
        }
    }

    fn step(&mut self) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
    }

    /// A descriptor of a directory, to open its entries.
    fn at(&mut self, places: &DirTree, number: u32) -> rustix::io::Result<BorrowedFd<'_>> {
        match self.held.iter().rposition(|(held, _)| *held == number) {
            Some(index) => self.held.truncate(index + 1),
            None => self.go(places, number)?,
        }
        let (_, last) = self.held.last().ok_or(Errno::NOENT)?;
        Ok(last.as_fd())
    }

    fn go(&mut self, places: &DirTree, number: u32) -> rustix::io::Result<()> {
        if places.is_near(number) {
            let path = places.path(number);
            let path = match path.as_os_str().is_empty() {
                true => b".",
                false => path.as_os_str().as_bytes(),
            };
            let fd = beneath(self.root.as_fd(), path, OFlags::PATH)?;
            self.step();
            self.held = vec![(number, fd)];
            return Ok(());
        }
        if self.climb(places, number)? {
            return Ok(());
        }
        // Down, from the nearest one that is open or near the root.
        let mut down = vec![number];
        let mut at = places.above(number).ok_or(Errno::NOENT)?;
        while !places.is_near(at) && !self.held.iter().any(|(held, _)| *held == at) {
            down.push(at);
            at = places.above(at).ok_or(Errno::NOENT)?;
        }
        self.at(places, at)?;
        for number in down.into_iter().rev() {
            self.step();
            let (_, parent) = self.held.last().ok_or(Errno::NOENT)?;
            let fd = beneath(parent.as_fd(), places.name(number), OFlags::PATH)?;
            if self.held.len() == HELD {
                self.held.remove(0);
            }
            self.held.push((number, fd));
        }
        Ok(())
    }

    /// Goes up to a directory above the open ones. Returns false if it is not above them.
    fn climb(&mut self, places: &DirTree, to: u32) -> rustix::io::Result<bool> {
        let Some(mut at) = self.held.first().map(|(held, _)| *held) else {
            return Ok(false);
        };
        let first = at;
        while places.level(at) > places.level(to) {
            at = places.above(at).ok_or(Errno::NOENT)?;
        }
        if at != to {
            return Ok(false);
        }
        self.held.truncate(1);
        let (_, mut fd) = self.held.pop().ok_or(Errno::NOENT)?;
        let mut at = first;
        while at != to {
            at = places.above(at).ok_or(Errno::NOENT)?;
            self.step();
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            fd = rustix::fs::openat(&fd, "..", flags, Mode::empty())?;
            if stat(fd.as_fd())?.stx_ino != places.ino(at) {
                // Another process has moved it.
                return Err(Errno::NOENT);
            }
        }
        self.held.push((to, fd));
        Ok(true)
    }
}

/// Opens a directory beneath another. Follows no links and enters no other file system.
fn beneath(at: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(at, path, flags, Mode::empty(), resolve)
}

/// Opens a directory for reading whose path may be longer than a path of the kernel.
pub(in crate::probe) fn beneath_by_parts(
    root: BorrowedFd<'_>,
    path: &Path,
) -> rustix::io::Result<OwnedFd> {
    // Even the longest names make no path too long.
    const AT_ONCE: usize = 8;
    let names: Vec<&OsStr> = path.iter().collect();
    let mut parts = names.chunks(AT_ONCE).peekable();
    let mut at = None;
    while let Some(part) = parts.next() {
        let flags = match parts.peek() {
            Some(_) => OFlags::PATH,
            None => OFlags::RDONLY,
        };
        let path: PathBuf = part.iter().collect();
        let above = at.as_ref().map_or(root, OwnedFd::as_fd);
        at = Some(beneath(above, path.as_os_str().as_bytes(), flags)?);
    }
    match at {
        Some(directory) => Ok(directory),
        None => beneath(root, b".", OFlags::RDONLY),
    }
}

/// The state of an open file.
pub(super) fn stat(fd: BorrowedFd<'_>) -> rustix::io::Result<Statx> {
    stat_by(fd, Path::new(""), AtFlags::EMPTY_PATH)
}

/// Which file it is.
pub(super) fn identity(stat: &Statx) -> FileIdentity {
    FileIdentity {
        dev: makedev(stat.stx_dev_major, stat.stx_dev_minor),
        ino: stat.stx_ino,
    }
}

/// The state of an entry of a directory, without following a link.
pub(super) fn stat_at(directory: BorrowedFd<'_>, name: &Path) -> rustix::io::Result<Statx> {
    stat_by(directory, name, AtFlags::empty())
}

fn stat_by(at: BorrowedFd<'_>, name: &Path, flags: AtFlags) -> rustix::io::Result<Statx> {
    let flags = flags | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    rustix::fs::statx(at, name, flags, wanted)
}
