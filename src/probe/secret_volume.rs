//! Reads a kubelet's volume of secrets: a few small files in memory.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Dir, FileType, Mode, OFlags, openat};

use crate::plan::FileKind;
use crate::plan::facts::TokenContent;
use crate::plan::tokens;

/// A Secret and a ConfigMap have at most 1 MiB; a projected volume may have several.
const BYTES: u64 = 8 << 20;
const FILES: usize = 512;
/// `..data`, and below it a path that the pod's author chose.
const DEPTH: usize = 8;

/// The kinds of its tokens; `None` if not all of it can be read.
pub(super) fn look(fd: &OwnedFd, kind: FileKind) -> Option<TokenContent> {
    let mut found = HeldFiles {
        files: Vec::new(),
        room: BYTES,
    };
    match kind {
        FileKind::File => {
            let name = super::real_path(fd.as_fd()).ok()?;
            let name = name.file_name()?.to_string_lossy().into_owned();
            let again = format!("/proc/self/fd/{}", fd.as_raw_fd());
            found.take(name, File::open(again)).ok()?;
        }
        FileKind::Directory => found.walk(fd.as_fd(), DEPTH).ok()?,
        FileKind::Socket | FileKind::Device | FileKind::Fifo => return None,
    }
    // An optional Secret that does not exist yet: the kubelet may add content later, which is mounted unjudged.
    if found.files.is_empty() {
        return None;
    }
    let files = found.files.iter();
    Some(tokens::judge(
        files.map(|(name, content)| (name.as_str(), content.as_slice())),
    ))
}

struct HeldFiles {
    files: Vec<(String, Vec<u8>)>,
    room: u64,
}

impl HeldFiles {
    /// Links are passed over: their targets are walked anyway (`token` links to `..data/token`).
    fn walk(&mut self, directory: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
        if depth == 0 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(directory, ".", flags, Mode::empty())?;
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            match entry.file_type() {
                FileType::Symlink => {}
                FileType::Directory => {
                    let below = openat(&directory, name, flags, Mode::empty())?;
                    self.walk(below.as_fd(), depth - 1)?;
                }
                FileType::RegularFile => {
                    let file = openat(&directory, name, flags, Mode::empty());
                    let name = name.to_string_lossy().into_owned();
                    self.take(name, file.map(File::from).map_err(Into::into))?;
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Ok(())
    }

    fn take(&mut self, name: String, file: io::Result<File>) -> io::Result<()> {
        let mut content = Vec::new();
        file?.take(self.room + 1).read_to_end(&mut content)?;
        let left = self.room.checked_sub(content.len() as u64);
        self.room = left.ok_or(io::ErrorKind::FileTooLarge)?;
        if self.files.len() == FILES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.files.push((name, content));
        Ok(())
    }
}
