//! The root of the sidecar and of the processes beside it: nothing, or what a relay dials.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change,
    mount_remount, move_mount, unmount,
};

use crate::sidecar::confine::ConfineError;

/// The only file in the root of the relay to the user's SSH agent: the agent's socket.
pub(super) const SOCKET: &str = "/agent";

/// What a root has. All are detached mounts.
#[derive(Debug, Clone, Copy)]
pub(super) enum RootContent<'a> {
    /// Nothing.
    Nothing,
    /// The socket of the user's SSH agent, as [`SOCKET`].
    Agent(BorrowedFd<'a>),
    /// Directories with sockets, each as [`directory`].
    Directories(&'a [OwnedFd]),
}

/// The path of a directory, by its place in the list.
pub(super) fn directory(index: usize) -> String {
    format!("/{index}")
}

impl RootContent<'_> {
    /// How many mount points it needs.
    fn places(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Agent(_) => 1,
            Self::Directories(all) => all.len(),
        }
    }
}

/// Makes a read-only tmpfs with this content alone the root of the sidecar's own mount namespace.
pub(super) fn replace_root(content: RootContent<'_>) -> Result<(), ConfineError> {
    // Mounts of the node still propagate to their copies here: stop that first.
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .map_err(ConfineError::step("make the mounts private"))?;
    let root = tiny_tmpfs(content).map_err(ConfineError::step("make an empty tmpfs"))?;
    move_mount(&root, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(ConfineError::step("attach the empty root"))?;
    rustix::process::fchdir(&root).map_err(ConfineError::step("enter the empty root"))?;
    // pivot_root(".", ".") puts the old root on top of the new one; then "." is the old root, to unmount
    // (pivot_root(2), NOTES).
    rustix::process::pivot_root(".", ".").map_err(ConfineError::step("pivot to the empty root"))?;
    unmount(".", UnmountFlags::DETACH).map_err(ConfineError::step("detach the old root"))?;
    rustix::process::chdir("/").map_err(ConfineError::step("enter the new root"))?;
    show(content).map_err(ConfineError::step("show what the relay dials"))
}

fn tiny_tmpfs(content: RootContent<'_>) -> io::Result<rustix::fd::OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "size", "4096")?;
    // The root's, and those of the mount points.
    let inodes = (1 + content.places()).to_string();
    fsconfig_set_string(context.as_fd(), "nr_inodes", inodes)?;
    fsconfig_set_string(context.as_fd(), "mode", "0555")?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let attributes = match content.places() {
        0 => attributes | MountAttrFlags::MOUNT_ATTR_RDONLY,
        // Once the mount points are made.
        _ => attributes,
    };
    Ok(fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

/// Mounts the content in the new root, and makes that read-only.
fn show(content: RootContent<'_>) -> io::Result<()> {
    match content {
        RootContent::Nothing => return Ok(()),
        RootContent::Agent(socket) => {
            let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            drop(rustix::fs::open(SOCKET, new, Mode::empty())?);
            attach(socket, SOCKET)?;
        }
        RootContent::Directories(all) => {
            for (index, mount) in all.iter().enumerate() {
                let at = directory(index);
                rustix::fs::mkdir(&at, Mode::RUSR | Mode::XUSR)?;
                attach(mount.as_fd(), &at)?;
            }
        }
    }
    let read_only = MountFlags::BIND
        | MountFlags::RDONLY
        | MountFlags::NOSUID
        | MountFlags::NODEV
        | MountFlags::NOEXEC;
    Ok(mount_remount("/", read_only, "")?)
}

fn attach(mount: BorrowedFd<'_>, at: &str) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(move_mount(mount, "", CWD, at, flags)?)
}
