//! Removing cgroups whose processes have been killed.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use crate::cgroup::CgroupError;

/// How long to wait for a cgroup's last process: it leaves a moment after its pidfd became readable.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// Removes a cgroup and those below it; a missing one is fine.
pub(super) fn tree(dir: &Path) -> Result<(), CgroupError> {
    below(dir)?;
    for _ in 0..ATTEMPTS {
        match fs::remove_dir(dir) {
            Ok(()) => return Ok(()),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(());
            }
            Err(e) if e.kind() == ErrorKind::ResourceBusy => std::thread::sleep(PAUSE),
            // A second, read-only mount of the hierarchy: the cgroup is removed by the first (S-3).
            Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => return Ok(()),
            Err(e) => return Err(CgroupError::io(format!("remove the cgroup {dir:?}"))(e)),
        }
    }
    Err(CgroupError::StillBusy(dir.to_owned()))
}

/// Removes the cgroups below one, but not the cgroup itself.
pub(super) fn below(dir: &Path) -> Result<(), CgroupError> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
        tree(&entry.path())?;
    }
    Ok(())
}
