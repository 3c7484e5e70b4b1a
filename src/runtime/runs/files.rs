//! Reads the files of a run. Another user may have filled the directory. So this never blocks, follows no link, and
//! reads no more than a run can have.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::runtime::RuntimeError;
use crate::sys::procfs;

/// The most bytes read of one file; a record is the longest.
const MOST_BYTES: u64 = 64 << 20;

/// The content of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// It does not exist.
    Absent,
    /// A regular file with this content.
    Bytes(Vec<u8>),
    /// A kind of file that the runtime does not write, in words.
    Foreign(&'static str),
}

/// Opens a regular file to read. A FIFO, a device, a directory and a link are errors of the kind `InvalidInput`.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    // Without blocking: a FIFO's writer may never come.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file = match options.read(true).custom_flags(flags).open(path) {
        Err(error) if foreign(&error) => return Err(ErrorKind::InvalidInput.into()),
        opened => opened?,
    };
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(ErrorKind::InvalidInput.into()),
    }
}

/// A link, or a socket or a device without a driver.
fn foreign(error: &io::Error) -> bool {
    [libc::ELOOP, libc::ENXIO, libc::ENODEV]
        .map(Some)
        .contains(&error.raw_os_error())
}

/// Reads one.
pub fn read(path: &Path) -> Result<Content, RuntimeError> {
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Content::Absent),
        Err(error) if error.kind() == ErrorKind::InvalidInput => {
            return Ok(Content::Foreign("it is not a regular file"));
        }
        Err(error) => return Err(RuntimeError::io(format!("open {path:?}"))(error)),
    };
    let bytes = procfs::at_most(file, MOST_BYTES + 1);
    let bytes = bytes.map_err(RuntimeError::io(format!("read {path:?}")))?;
    match bytes.len() as u64 > MOST_BYTES {
        true => Ok(Content::Foreign("it is longer than any file of a run")),
        false => Ok(Content::Bytes(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::TestDir;

    #[test]
    fn only_regular_files_are_read_and_nothing_blocks() {
        let dir = TestDir::new("run-files");
        let path = |name: &str| dir.0.join(name);
        assert_eq!(read(&path("absent")).unwrap(), Content::Absent);
        std::fs::write(path("file"), "x").unwrap();
        assert_eq!(read(&path("file")).unwrap(), Content::Bytes(b"x".to_vec()));
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("device")).unwrap();
        std::fs::create_dir(path("directory")).unwrap();
        drop(std::os::unix::net::UnixListener::bind(path("socket")).unwrap());
        for name in ["fifo", "link", "device", "directory", "socket"] {
            assert_eq!(
                read(&path(name)).unwrap(),
                Content::Foreign("it is not a regular file"),
                "{name}"
            );
        }
        // A long sparse file.
        let long = File::create_new(path("long")).unwrap();
        long.set_len(MOST_BYTES + 1).unwrap();
        assert_eq!(
            read(&path("long")).unwrap(),
            Content::Foreign("it is longer than any file of a run")
        );
    }
}
