//! The root of the sidecar and of the processes beside it: nothing, or one socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change,
    mount_remount, move_mount, unmount,
};

use crate::sidecar::confine::ConfineError;

/// The only file in the root of the relay to the user's SSH agent: the agent's socket.
pub(super) const SOCKET: &str = "/agent";

/// Makes an empty, read-only tmpfs the root of the sidecar's own mount namespace, or one with this socket alone.
pub(super) fn replace_root(socket: Option<BorrowedFd<'_>>) -> Result<(), ConfineError> {
    // Mounts of the node still propagate to their copies here: stop that first.
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .map_err(ConfineError::step("make the mounts private"))?;
    let root = tiny_tmpfs(socket).map_err(ConfineError::step("make an empty tmpfs"))?;
    move_mount(&root, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(ConfineError::step("attach the empty root"))?;
    rustix::process::fchdir(&root).map_err(ConfineError::step("enter the empty root"))?;
    // pivot_root(".", ".") puts the old root on top of the new one; then "." is the old root, to unmount
    // (pivot_root(2), NOTES).
    rustix::process::pivot_root(".", ".").map_err(ConfineError::step("pivot to the empty root"))?;
    unmount(".", UnmountFlags::DETACH).map_err(ConfineError::step("detach the old root"))?;
    rustix::process::chdir("/").map_err(ConfineError::step("enter the new root"))?;
    match socket {
        Some(socket) => show(socket).map_err(ConfineError::step("show the agent's socket")),
        None => Ok(()),
    }
}

fn tiny_tmpfs(socket: Option<BorrowedFd<'_>>) -> io::Result<rustix::fd::OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "size", "4096")?;
    // The root's, and the mount point's.
    let inodes = if socket.is_some() { "2" } else { "1" };
    fsconfig_set_string(context.as_fd(), "nr_inodes", inodes)?;
    fsconfig_set_string(context.as_fd(), "mode", "0555")?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let attributes = match socket {
        // Once the mount point is made.
        Some(_) => attributes,
        None => attributes | MountAttrFlags::MOUNT_ATTR_RDONLY,
    };
    Ok(fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

/// Mounts a socket in the new root, and makes that read-only.
fn show(socket: BorrowedFd<'_>) -> io::Result<()> {
    let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    drop(rustix::fs::open(SOCKET, new, Mode::empty())?);
    move_mount(
        socket,
        "",
        CWD,
        SOCKET,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?;
    let read_only = MountFlags::BIND
        | MountFlags::RDONLY
        | MountFlags::NOSUID
        | MountFlags::NODEV
        | MountFlags::NOEXEC;
    Ok(mount_remount("/", read_only, "")?)
}
