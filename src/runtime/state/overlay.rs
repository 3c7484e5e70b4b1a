//! The root file systems that earlier versions made on the host, and their removal.

use std::path::Path;

use rustix::mount::{UnmountFlags, unmount};

use crate::runtime::RuntimeError;

/// Unmounts what was mounted in a container's directory.
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
