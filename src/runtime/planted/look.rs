//! SHELL. How a file that a workload may have written is looked at.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags, Stat};

use crate::plan::FileIdentity;

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
