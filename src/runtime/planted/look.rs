//! SHELL. How a file that a workload may have written is looked at.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, Stat};

use crate::plan::{FileIdentity, git_link};

pub(super) fn file_of(stat: &Stat) -> FileIdentity {
    FileIdentity {
        dev: stat.st_dev,
        ino: stat.st_ino,
    }
}

/// Opens a file to read it, by way of no link. A pipe without a writer does not hold it up.
pub(super) fn open(parent: impl AsFd, name: &OsStr) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?.into())
}

/// The first bytes of a file.
pub(super) fn beginning(parent: &OwnedFd, name: &OsStr, most: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    open(parent, name)?.take(most).read_to_end(&mut text)?;
    Ok(text)
}

/// The longest `commondir` or `.git` that is read.
const LONGEST: u64 = 4096;

/// What a short file has. A longer one is an error: git would read on.
pub(super) fn short(parent: &OwnedFd, name: &OsStr) -> io::Result<Vec<u8>> {
    let text = beginning(parent, name, LONGEST + 1)?;
    match text.len() as u64 <= LONGEST {
        true => Ok(text),
        false => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

/// Where git finds the settings of a git directory, by its `commondir` (gitrepository-layout(5)).
pub(super) enum SettingsPlace {
    Here,
    /// As those of a second work tree.
    TwoAbove,
    /// Or it cannot be told.
    Elsewhere,
}

impl SettingsPlace {
    /// Of an open git directory; `path` is its path on the node.
    pub(super) fn of(git: &OwnedFd, path: &Path) -> Self {
        const NAME: &str = "commondir";
        match short(git, OsStr::new(NAME)) {
            Ok(text) if git_link::is_usual_commondir(&path.join(NAME), &text) => Self::TwoAbove,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Here,
            Ok(_) | Err(_) => Self::Elsewhere,
        }
    }
}
