//! Removing cgroups whose processes have been killed.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use super::error::CgroupError;

/// How long to wait for a cgroup's last process: it leaves a moment after its pidfd became readable.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// Removes a cgroup and those below it; a missing one is fine.
pub(super) fn tree(dir: &Path) -> Result<(), CgroupError> {
    // Most have none below them.
    if is_removed(dir)? {
        return Ok(());
    }
    below(dir)?;
    for _ in 0..ATTEMPTS {
        if is_removed(dir)? {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    Err(CgroupError::StillBusy(dir.to_owned()))
}

/// Whether a cgroup is gone after one attempt: neither processes nor cgroups are in it.
fn is_removed(dir: &Path) -> Result<bool, CgroupError> {
    match fs::remove_dir(dir) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(true),
        Err(e) if e.kind() == ErrorKind::ResourceBusy => Ok(false),
        // A second mount of the hierarchy, which the administrator made read-only: it is removed by the first.
        Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => Ok(true),
        Err(e) => Err(CgroupError::io(format!("remove the cgroup {dir:?}"))(e)),
    }
}

/// Removes the cgroups below one, and leaves that alone.
pub(super) fn below(dir: &Path) -> Result<(), CgroupError> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
        tree(&entry.path())?;
    }
    Ok(())
}
