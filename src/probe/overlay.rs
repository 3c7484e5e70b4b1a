//! Asks the kernel whether it can lay an overlay over a directory. Only the kernel knows the file systems that
//! cannot: those without a needed feature (vfat, directories that fold case, some of FUSE) and overlays on two others
//! (FILESYSTEM_MAX_STACK_DEPTH).

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::mount::{FsOpenFlags, fsconfig_create, fsconfig_set_string, fsopen};

/// Why it does not; nothing where nobody may ask (`explain` by an ordinary user), since nobody mounts there either.
pub(super) fn why_not(directory: &OwnedFd, kind: &str) -> Option<String> {
    let mut why = None;
    for second in SECOND {
        match lay(directory, second) {
            Ok(()) | Err(Errno::PERM) => return None,
            Err(error) => why = why.or(Some(error)),
        }
    }
    why.map(|error| {
        format!("the kernel lays none over a file system of type {kind:?} here ({error})")
    })
}

/// Directories that are there on every node, and no volume. Without root's rights none counts in which something is mounted
/// (`clone_private_mount()`: EINVAL for locked mounts).
const SECOND: [&str; 3] = ["/dev", "/usr", "/etc"];

/// Makes an overlay that is mounted nowhere and goes with its descriptor. Two directories make one that is read-only.
fn lay(directory: &OwnedFd, second: &str) -> rustix::io::Result<()> {
    let fs = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let lower = format!("/proc/self/fd/{}:{second}", directory.as_raw_fd());
    fsconfig_set_string(&fs, "lowerdir", lower)?;
    fsconfig_create(&fs)
}
