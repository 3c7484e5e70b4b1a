//! Asks the kernel whether it can lay an overlay over a directory. Only the kernel knows the file systems that
//! cannot: those without a needed feature (vfat, directories that fold case, some of FUSE) and overlays on two others
//! (FILESYSTEM_MAX_STACK_DEPTH).

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::mount::{FsOpenFlags, fsconfig_create, fsconfig_set_string, fsopen};

/// Why it does not; nothing where nobody may ask (`explain` by an ordinary user), since nobody mounts there either.
pub(super) fn why_not(directory: &OwnedFd, kind: &str) -> Option<String> {
    match lay(directory) {
        Ok(()) | Err(Errno::PERM) => None,
        Err(error) => Some(format!(
            "the kernel lays none over a file system of type {kind:?} here ({error})"
        )),
    }
}

/// Makes an overlay that is mounted nowhere and goes with its descriptor. Two directories make one that is read-only; the
/// second is there on every node, and never a volume.
fn lay(directory: &OwnedFd) -> rustix::io::Result<()> {
    let fs = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let lower = format!("/proc/self/fd/{}:/dev", directory.as_raw_fd());
    fsconfig_set_string(&fs, "lowerdir", lower)?;
    fsconfig_create(&fs)
}
