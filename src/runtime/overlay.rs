//! The root file system that is thrown away: an overlay over the image's, mounted in our directory.
//!
//! It must be there before libcontainer runs, hence on the host; `delete` unmounts it. The record says that it may be
//! there before it is made.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::RuntimeError;

/// Mounts the overlay and returns its path.
pub fn make(dir: &Path, lower: &Path, bytes: u64) -> Result<PathBuf, RuntimeError> {
    let (scratch, root) = (dir.join("scratch"), dir.join("rootfs"));
    let text = lower.to_str().filter(|t| !t.contains([':', ',', '\\']));
    let Some(lower) = text else {
        let why = "an ephemeral root needs a path without `:`, `,` and `\\`".to_owned();
        return Err(RuntimeError::Input {
            path: lower.to_owned(),
            why,
        });
    };
    for path in [&scratch, &root] {
        fs::create_dir(path).map_err(RuntimeError::io(format!("make {path:?}")))?;
    }
    let limits = format!(
        "size={bytes},nr_inodes={},mode=0755",
        (bytes / 1024).max(1024)
    );
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount(
        "agentbox",
        &scratch,
        "tmpfs",
        flags,
        Some(c_string(&limits)?.as_c_str()),
    )
    .map_err(RuntimeError::io("mount the scratch file system"))?;
    let (upper, work) = (scratch.join("upper"), scratch.join("work"));
    for path in [&upper, &work] {
        fs::create_dir(path).map_err(RuntimeError::io(format!("make {path:?}")))?;
    }
    let options = format!(
        "lowerdir={lower},upperdir={},workdir={}",
        upper.display(),
        work.display()
    );
    mount("agentbox", &root, "overlay", MountFlags::empty(), Some(c_string(&options)?.as_c_str())).map_err(
        RuntimeError::io("mount the temporary root file system (an overlay on an overlay on an overlay is more than the kernel takes)"),
    )?;
    Ok(root)
}

/// Unmounts what `make` mounted, as far as it got.
pub fn remove(dir: &Path) -> Result<(), RuntimeError> {
    for name in ["rootfs", "scratch"] {
        let path = dir.join(name);
        match unmount(&path, UnmountFlags::DETACH) {
            // EINVAL: it is no mount point.
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
            Err(e) => return Err(RuntimeError::io(format!("unmount {path:?}"))(e)),
        }
    }
    Ok(())
}

fn c_string(text: &str) -> Result<std::ffi::CString, RuntimeError> {
    std::ffi::CString::new(text)
        .map_err(|_| RuntimeError::Unsupported("a path has a NUL byte".to_owned()))
}
