//! SHELL. A file of git's settings: read in all the forms that git follows, and replaced as git does it.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{look, quarantine};
use crate::plan::git_config::{self, GitSetting, WholeSettings};

/// The largest file that is read for its settings.
const LARGEST: usize = 1 << 20;

/// The largest file that is compared with its state at the start.
const COMPARED: u64 = 16 << 20;

/// What git would read settings from.
pub(super) enum FoundSettings {
    Text(Vec<u8>, fs::File),
    Link(Vec<u8>),
}

impl FoundSettings {
    pub(super) fn whole(&self) -> WholeSettings<'_> {
        match self {
            Self::Text(text, _) => WholeSettings::Text(text),
            Self::Link(target) => WholeSettings::Link(target),
        }
    }

    /// The text of a file that is no larger than git's ever are.
    pub(super) fn text(&self) -> Option<(&[u8], &fs::File)> {
        match self {
            Self::Text(text, file) if text.len() <= LARGEST => Some((text, file)),
            Self::Text(..) | Self::Link(_) => None,
        }
    }
}

/// Reads it. Another kind of file, or a larger one, is an error.
pub(super) fn read(parent: &OwnedFd, name: &OsStr) -> io::Result<FoundSettings> {
    let file = match look::open(parent, name) {
        Ok(file) => file,
        Err(Errno::LOOP) => {
            let target = rustix::fs::readlinkat(parent, name, Vec::new())?;
            return Ok(FoundSettings::Link(target.into_bytes()));
        }
        Err(error) => return Err(error.into()),
    };
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = Vec::new();
    (&file).take(COMPARED + 1).read_to_end(&mut text)?;
    match text.len() as u64 <= COMPARED {
        true => Ok(FoundSettings::Text(text, file)),
        false => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

/// The settings of a file. One that git's tools would not write is an error.
pub(super) fn parsed(parent: &OwnedFd, name: &OsStr) -> io::Result<Vec<GitSetting>> {
    let found = read(parent, name)?;
    let (text, _) = found.text().ok_or(io::ErrorKind::InvalidData)?;
    git_config::parse(text).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The settings of a file, also by way of a link that is the user's own: a new one does not stay. None if there is no file.
pub(super) fn parsed_by_link(parent: &OwnedFd, name: &OsStr) -> io::Result<Vec<GitSetting>> {
    // What is opened first is no device and no pipe yet.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let led = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Ok(led) => led,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&led)?.st_mode);
    if kind != FileType::RegularFile {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let file = fs::File::open(format!("/proc/self/fd/{}", led.as_raw_fd()))?;
    let mut text = Vec::new();
    file.take(LARGEST as u64 + 1).read_to_end(&mut text)?;
    match text.len() <= LARGEST {
        true => git_config::parse(&text).map_err(|_| io::ErrorKind::InvalidData.into()),
        false => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

/// Puts a file with another text in the place of one, as git does, with its owner and mode.
pub(super) fn replace(
    parent: &OwnedFd,
    name: &OsStr,
    text: &[u8],
    old: &fs::File,
) -> io::Result<()> {
    let meta = old.metadata()?;
    // A name that the workload cannot have taken.
    let new = quarantine::unguessable(name)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, &new, flags, Mode::from_raw_mode(0o600))?;
    let mut file = fs::File::from(file);
    let written = file.write_all(text).and_then(|()| {
        std::os::unix::fs::fchown(&file, Some(meta.uid()), Some(meta.gid()))?;
        file.set_permissions(fs::Permissions::from_mode(meta.mode() & 0o777))?;
        Ok(rustix::fs::renameat(parent, &new, parent, name)?)
    });
    if written.is_err() {
        let _gone = rustix::fs::unlinkat(parent, &new, AtFlags::empty());
    }
    written
}
