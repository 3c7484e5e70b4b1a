//! SHELL. The file of the program inside. No process of the container may trace it or write to its memory, also after
//! execve(2) ([`crate::enforce::privileges::borrow_group`]).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::enforce::program::ContainerProgram;
use crate::kernel::mount_options::{Bits, MountReach};
use crate::runtime::launch;
use crate::runtime::{RuntimeError, unprivileged};
use crate::sys::mount::change;

const NAME: &str = "agentbox";

/// This program, for a process of a container.
///
/// # Errors
/// From the kernel.
pub(super) fn own() -> Result<ContainerProgram, RuntimeError> {
    let file = match unprivileged::inside() {
        None => launch::own_file()?,
        Some(_) => unreadable_copy().map_err(RuntimeError::io(
            "copy this program for a process of the sandbox",
        ))?,
    };
    Ok(ContainerProgram::Own(file))
}

/// A copy that its user may execute and not read, on a read-only mount of its own in memory. The kernel makes such a program
/// undumpable (`would_dump` in fs/exec.c). That serves where a user has one group, and none to borrow.
fn unreadable_copy() -> io::Result<OwnedFd> {
    let system = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&system)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut copy = File::from(rustix::fs::openat(&mount, NAME, flags, Mode::empty())?);
    io::copy(&mut File::open("/proc/self/exe")?, &mut copy)?;
    rustix::fs::fchmod(&copy, Mode::XUSR | Mode::XGRP | Mode::XOTH)?;
    // The kernel makes no mount read-only in which a file is open for writing.
    drop(copy);
    change(mount.as_fd(), Bits::READ_ONLY, None, MountReach::One)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&mount, NAME, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use rustix::fs::{StatVfsMountFlags, fstatvfs};

    use super::*;

    /// Root makes it too, if it may mount.
    #[test]
    fn a_copy_is_executed_and_neither_read_nor_written() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let copy = unreadable_copy().unwrap();
        let flags = fstatvfs(&copy).unwrap().f_flag;
        assert!(flags.contains(StatVfsMountFlags::RDONLY | StatVfsMountFlags::NOSUID));
        let found = File::from(copy).metadata().unwrap();
        assert_eq!(found.mode() & 0o7777, 0o111);
        assert_eq!(
            found.len(),
            std::fs::metadata("/proc/self/exe").unwrap().len()
        );
    }
}
