//! mount_setattr(2) and name_to_handle_at(2), which rustix and nix lack.
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::mount::{OpenTreeFlags, open_tree};

use crate::kernel::mount_options::{Bits, MountReach, Propagation};

/// Changes attributes of the mount with root `root`, and of those below it, and its propagation if one is given.
///
/// Since Linux 5.12, ENOSYS before; EPERM where another user namespace has locked an attribute.
pub fn change(
    root: BorrowedFd<'_>,
    attributes: Bits,
    propagation: Option<Propagation>,
    reach: MountReach,
) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: attributes.set,
        attr_clr: attributes.clear,
        propagation: propagation.map_or(0, |kind| match kind {
            Propagation::Shared => libc::MS_SHARED,
            Propagation::Slave => libc::MS_SLAVE,
            Propagation::Private => libc::MS_PRIVATE,
            Propagation::Unbindable => libc::MS_UNBINDABLE,
        }),
        userns_fd: 0,
    };
    set_attr(root, &attr, reach)
}

/// Maps the ids of a detached mount like those of a user namespace (mount_setattr(2), "ID-mapped mounts").
///
/// Since Linux 5.12; EINVAL on file systems without support.
pub fn map_ids(
    root: BorrowedFd<'_>,
    namespace: BorrowedFd<'_>,
    reach: MountReach,
) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::from(namespace.as_raw_fd().unsigned_abs()),
    };
    set_attr(root, &attr, reach)
}

fn set_attr(root: BorrowedFd<'_>, attr: &libc::mount_attr, reach: MountReach) -> io::Result<()> {
    let below = match reach {
        MountReach::One => 0,
        MountReach::Below => libc::AT_RECURSIVE,
    };
    // SAFETY: the path is a NUL-terminated literal, `attr` lives until the call returns and its size is passed; the
    // kernel only reads both.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            root.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | below,
            std::ptr::from_ref(attr),
            size_of::<libc::mount_attr>(),
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A second, detached mount of an opened path, alone or with the mounts below it (open_tree(2), OPEN_TREE_CLONE).
///
/// Needs CAP_SYS_ADMIN over the mount namespace that the path is in; EINVAL for one of another namespace.
pub fn copy(of: impl AsFd, reach: MountReach) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let flags = match reach {
        MountReach::One => flags,
        MountReach::Below => flags | OpenTreeFlags::AT_RECURSIVE,
    };
    open_tree(of, "", flags)
}

/// Whether the file system of `file` supports file handles (name_to_handle_at(2)). An overlay does only if it was
/// mounted with `nfs_export=on`.
pub fn takes_handles(file: BorrowedFd<'_>) -> io::Result<bool> {
    // Only the header, without room for a handle: the kernel returns the needed length.
    let mut header = [0_u32; 2];
    let mut mount: libc::c_int = 0;
    // SAFETY: the path is a NUL-terminated literal, and the kernel writes no more than the header, whose first word says that no
    // bytes follow it, and one integer; both live until the call returns.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            file.as_raw_fd(),
            c"".as_ptr(),
            header.as_mut_ptr(),
            std::ptr::from_mut(&mut mount),
            libc::AT_EMPTY_PATH,
        )
    };
    if rc == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOVERFLOW) => Ok(true),
        Some(libc::EOPNOTSUPP) => Ok(false),
        _ => Err(error),
    }
}
