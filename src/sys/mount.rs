//! mount_setattr(2): rustix and nix have no function for it.
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::kernel::mount_options::{Bits, Reach};

/// Makes the mount that `root` is the root of read-only (and those below it), and keeps its other attributes.
///
/// Since Linux 5.12; ENOSYS before.
pub fn make_read_only(root: BorrowedFd<'_>, reach: Reach) -> io::Result<()> {
    set(root, libc::MOUNT_ATTR_RDONLY, 0, recursive(reach))
}

fn set(
    root: BorrowedFd<'_>,
    attributes: u64,
    propagation: u64,
    flags: libc::c_int,
) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: attributes,
        attr_clr: 0,
        propagation,
        userns_fd: 0,
    };
    set_attr(root, &attr, flags)
}

fn set_attr(root: BorrowedFd<'_>, attr: &libc::mount_attr, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: the path is a NUL-terminated literal, `attr` lives until the call returns and its size is passed; the
    // kernel only reads both.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            root.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
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

/// An attribute of a mount that restricts it (mount_setattr(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attribute {
    /// MOUNT_ATTR_RDONLY
    ReadOnly,
    /// MOUNT_ATTR_NOSUID
    NoSuid,
    /// MOUNT_ATTR_NODEV
    NoDev,
    /// MOUNT_ATTR_NOEXEC
    NoExec,
}

/// Adds attributes to the mount that `root` is the root of, and makes it private: no mount comes in or goes out.
pub fn set_attributes(root: BorrowedFd<'_>, attributes: &[Attribute]) -> io::Result<()> {
    let bits = attributes.iter().map(|a| match a {
        Attribute::ReadOnly => libc::MOUNT_ATTR_RDONLY,
        Attribute::NoSuid => libc::MOUNT_ATTR_NOSUID,
        Attribute::NoDev => libc::MOUNT_ATTR_NODEV,
        Attribute::NoExec => libc::MOUNT_ATTR_NOEXEC,
    });
    set(
        root,
        bits.fold(0, |all, bit| all | bit),
        libc::MS_PRIVATE,
        0,
    )
}

/// Changes attributes of the mount that `root` is the root of (`MOUNT_ATTR_*` bits to set and to clear, or an `MS_*` type
/// of propagation, or 0 for as it is), and of those below it.
///
/// Since Linux 5.12; EPERM where another user namespace has locked an attribute.
pub fn change(
    root: BorrowedFd<'_>,
    attributes: Bits,
    propagation: u64,
    reach: Reach,
) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: attributes.set,
        attr_clr: attributes.clear,
        propagation,
        userns_fd: 0,
    };
    set_attr(root, &attr, recursive(reach))
}

/// Maps the ids of a detached mount by those of a user namespace (mount_setattr(2), "ID-mapped mounts").
///
/// Since Linux 5.12; EINVAL on file systems that cannot.
pub fn map_ids(root: BorrowedFd<'_>, namespace: BorrowedFd<'_>, reach: Reach) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::from(namespace.as_raw_fd().unsigned_abs()),
    };
    set_attr(root, &attr, recursive(reach))
}

fn recursive(reach: Reach) -> libc::c_int {
    match reach {
        Reach::One => 0,
        Reach::Below => libc::AT_RECURSIVE,
    }
}
