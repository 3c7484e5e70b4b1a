//! The runtime's own small files: written whole, read without a trap.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::runtime::RuntimeError;
use crate::sys::procfs;

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
    procfs::at_most(file, 64 << 20).map_err(RuntimeError::io(format!("read {path:?}")))
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
