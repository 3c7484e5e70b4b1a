//! The runtime's own small files: written whole, read without a trap, locked with patience.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::io::Errno;

use crate::runtime::RuntimeError;
use crate::sys::{file_size, procfs};

/// Reads a file of the runtime's, of at most 64 MiB.
pub fn read_text(path: &Path) -> Result<Vec<u8>, RuntimeError> {
    let mut options = File::options();
    // Our own file; in a directory that another user filled nothing may block.
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC);
    let file = options
        .open(path)
        .map_err(RuntimeError::io(format!("open {path:?}")))?;
    procfs::at_most(file, LONGEST).map_err(RuntimeError::io(format!("read {path:?}")))
}

/// The longest file of a run in bytes.
pub const LONGEST: u64 = 64 << 20;

/// Raises the caller's limit of a file's size. The error is a limit that could cut a file of a run.
pub fn make_room() -> Result<(), u64> {
    file_size::raise()
        .filter(|limit| *limit < LONGEST)
        .map_or(Ok(()), Err)
}

/// Lets only their owner write the files that this process makes, whatever the caller's umask is.
pub fn close_umask() {
    let closed = Mode::from_raw_mode(0o022);
    let old = rustix::process::umask(closed);
    rustix::process::umask(old | closed);
}

/// Between attempts to take a lock.
const PAUSE: Duration = Duration::from_millis(5);

/// Tries to take a lock that another verb may hold, with a pause after each of `tries`.
pub fn patiently(tries: u32, take: impl Fn() -> Result<(), Errno>) -> io::Result<()> {
    for _ in 0..tries {
        match take() {
            Err(Errno::ACCESS | Errno::AGAIN) => std::thread::sleep(PAUSE),
            other => return Ok(other?),
        }
    }
    Err(io::Error::other("another verb holds its lock"))
}

/// Writes a private file under another name and renames it.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<(), RuntimeError> {
    let temporary = path.with_extension("new");
    let step = || format!("write {path:?}");
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&temporary).map_err(RuntimeError::io(step()))?;
    let written = file
        .write_all(content)
        .and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| {
        // A partial file would keep a full disk full.
        if let Err(error) = fs::remove_file(&temporary) {
            log::debug!("remove {temporary:?}: {error}");
        }
        RuntimeError::io(step())(error)
    })
}

/// Writes the number of a process for the caller, as runc does: another file of that name, also a link, is replaced and never
/// written to, and a reader finds no half a number.
pub fn write_pid(path: &Path, pid: i32) -> Result<(), RuntimeError> {
    let step = || format!("write {path:?}");
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o644);
    let mut file = options.open(&temporary).map_err(RuntimeError::io(step()))?;
    let written = file.write_all(pid.to_string().as_bytes());
    let written = written.and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| {
        if let Err(error) = fs::remove_file(&temporary) {
            log::debug!("remove {temporary:?}: {error}");
        }
        RuntimeError::io(step())(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::TestDir;

    /// It was written through a link, and appeared empty first.
    #[test]
    fn a_pid_file_replaces_what_has_its_name_and_is_never_written_through_a_link() {
        let scratch = TestDir::new("pid-file");
        let (path, other) = (scratch.0.join("pid"), scratch.0.join("other"));
        fs::write(&other, "untouched").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        for pid in [17, 4711] {
            write_pid(&path, pid).unwrap();
            assert!(path.symlink_metadata().unwrap().is_file());
            assert_eq!(fs::read_to_string(&path).unwrap(), pid.to_string());
        }
        assert_eq!(fs::read_to_string(&other).unwrap(), "untouched");
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 2);
        // One that cannot be replaced leaves nothing beside it.
        let directory = scratch.0.join("directory");
        fs::create_dir(&directory).unwrap();
        assert!(write_pid(&directory, 17).is_err());
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 3);
    }
}
