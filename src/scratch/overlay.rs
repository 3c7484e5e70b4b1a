//! SHELL. Asks the kernel whether it can lay an overlay over a directory. Only the kernel knows the file systems that cannot:
//! those without a needed feature (vfat, directories that fold case, some of FUSE) and overlays on two others
//! (FILESYSTEM_MAX_STACK_DEPTH).

use std::fmt::Write;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::mount::{FsOpenFlags, fsconfig_create, fsconfig_set_string, fsopen};

/// The most directories of one attempt: fsconfig(2) takes texts of 255 bytes.
const AT_ONCE: usize = 8;

/// Whether it can over all of these directories, asked at once: the end of each overlay waits for all processors
/// (synchronize_rcu). If it cannot, ask for each directory.
pub fn lies_over_all(directories: &[&OwnedFd]) -> bool {
    let over_some = |some: &[&OwnedFd]| {
        let mut tries = SECOND.iter().map(|second| lay(some, second));
        tries.any(|laid| laid.is_ok())
    };
    directories.chunks(AT_ONCE).all(over_some)
}

/// The reason why it cannot. `None` also without the right to try (`explain` by an ordinary user), who mounts nothing.
pub fn why_not(directory: &OwnedFd, kind: &str) -> Option<String> {
    let mut why = None;
    for second in SECOND {
        match lay(&[directory], second) {
            Ok(()) | Err(Errno::PERM) => return None,
            Err(error) => why = why.or(Some(error)),
        }
    }
    why.map(|error| {
        format!("the kernel lays none over a file system of type {kind:?} here ({error})")
    })
}

/// Directories of every node that are not volumes. For callers without root's rights, those with mounts inside do not
/// count (`clone_private_mount()`: EINVAL for locked mounts).
const SECOND: [&str; 3] = ["/dev", "/usr", "/etc"];

/// Makes an overlay that is mounted nowhere and ends with its descriptor. With two lower directories it is read-only.
fn lay(directories: &[&OwnedFd], second: &str) -> rustix::io::Result<()> {
    let fs = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let mut lower = String::new();
    for directory in directories {
        write!(lower, "/proc/self/fd/{}:", directory.as_raw_fd()).ok();
    }
    lower.push_str(second);
    fsconfig_set_string(&fs, "lowerdir", lower)?;
    fsconfig_create(&fs)
}
