//! The last changes to the container's mounts, made by its first process after pivot_root.
//!
//! Names are resolved here by the container's own root directory, so a symbolic link of a hostile image leads
//! nowhere but into that image. Everything uses the descriptor-based mount calls: nothing is mounted on the host,
//! and nothing is left to unmount when the container ends.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
    open_tree, unmount,
};

use super::EnforceError;
use crate::plan::mounts::Judged;
use crate::plan::{Ephemeral, EphemeralContent, FileKind, FilesystemPlan};
use crate::sys::mount::{Depth, make_read_only};

/// Where the scratch file system is attached while directories are taken from it; any directory that every
/// container has would do.
const WORKBENCH: &str = "/dev";

/// Compares every kept bind mount with the inode that was judged on the host.
pub fn check_judged(plan: &FilesystemPlan) -> Result<(), EnforceError> {
    for mount in &plan.mounts {
        let Some(judged) = &mount.judged else {
            continue;
        };
        if found(&mount.destination)? != *judged {
            return Err(EnforceError::Swapped(mount.destination.clone()));
        }
    }
    Ok(())
}

fn found(path: &Path) -> Result<Judged, EnforceError> {
    let step = || format!("look at the mount {path:?}");
    let fd = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(EnforceError::step(step()))?;
    let stat = rustix::fs::fstat(&fd).map_err(EnforceError::step(step()))?;
    let kind = crate::probe::kind_of(stat.st_mode);
    Ok(Judged {
        dev: stat.st_dev,
        ino: stat.st_ino,
        kind,
    })
}

/// Mounts the private directories: one size-limited tmpfs, and overlays that write to it.
pub fn mount_ephemeral(plan: &FilesystemPlan, user_namespace: bool) -> Result<(), EnforceError> {
    if plan.ephemeral.is_empty() {
        return Ok(());
    }
    let scratch = tmpfs(plan.scratch_bytes)?;
    attach(&scratch, Path::new(WORKBENCH))?;
    let mut result = Ok(());
    for (index, dir) in plan.ephemeral.iter().enumerate() {
        result = ephemeral(&scratch, index, dir, user_namespace);
        if result.is_err() {
            break;
        }
    }
    // Detached either way; what was taken from it keeps it alive.
    unmount(WORKBENCH, UnmountFlags::DETACH)
        .map_err(EnforceError::step("detach the scratch file system"))?;
    result?;
    // An overlay shows what lies below the mounts in its lower directory: masks there must be made again.
    let covered = |path: &PathBuf| plan.ephemeral.iter().any(|e| path.starts_with(&e.path));
    plan.masked
        .iter()
        .filter(|p| covered(p))
        .try_for_each(|p| mask(p))?;
    plan.readonly
        .iter()
        .filter(|p| covered(p))
        .try_for_each(|p| read_only(p))
}

/// An empty directory has no places for the mounts that are to stay in it.
fn make_mount_points(scratch: &OwnedFd, upper: &str, dir: &Ephemeral) -> Result<(), EnforceError> {
    for below in &dir.keep_below {
        let step = || format!("make a place for the mount {below:?}");
        let relative = below.strip_prefix(&dir.path).unwrap_or(below);
        let stat = rustix::fs::stat(below).map_err(EnforceError::step(step()))?;
        let mut path = PathBuf::from(upper);
        let mut parts = relative.components().peekable();
        while let Some(part) = parts.next() {
            path.push(part);
            let file = parts.peek().is_none()
                && crate::probe::kind_of(stat.st_mode) != FileKind::Directory;
            let made = if file {
                rustix::fs::openat(
                    scratch,
                    &path,
                    OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW,
                    Mode::from_raw_mode(0o644),
                )
                .map(drop)
            } else {
                rustix::fs::mkdirat(scratch, &path, Mode::from_raw_mode(0o755))
            };
            match made {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(e) => return Err(EnforceError::step(step())(e)),
            }
        }
    }
    Ok(())
}

/// Makes what is at a path read-only, by a mount of it over itself. Missing paths are fine.
fn read_only(path: &Path) -> Result<(), EnforceError> {
    let step = || format!("make {path:?} read-only");
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = match open_tree(CWD, path, flags) {
        Ok(tree) => tree,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(()),
        Err(e) => return Err(EnforceError::step(step())(e)),
    };
    make_read_only(tree.as_fd(), Depth::Recursive).map_err(EnforceError::step(step()))?;
    attach(&tree, path)
}

fn ephemeral(
    scratch: &OwnedFd,
    index: usize,
    dir: &Ephemeral,
    user_namespace: bool,
) -> Result<(), EnforceError> {
    let step = |what: &str| format!("{what} the private {}", dir.path.display());
    let like = match rustix::fs::stat(&dir.path) {
        Ok(stat) => stat,
        // The image has no such directory, and the root file system is read-only: nothing to make writable.
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(e) => return Err(EnforceError::step(step("look at"))(e)),
    };
    let upper = format!("{index}.upper");
    let mode = match dir.content {
        EphemeralContent::Empty => 0o1777,
        EphemeralContent::Image => like.st_mode & 0o7777,
    };
    make_dir(scratch, &upper, mode).map_err(EnforceError::step(step("make")))?;
    if dir.content == EphemeralContent::Empty {
        make_mount_points(scratch, &upper, dir)?;
    }
    let mount = match dir.content {
        EphemeralContent::Empty => open_tree(
            scratch,
            upper.as_str(),
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
        )
        .map_err(EnforceError::step(step("take")))?,
        EphemeralContent::Image => {
            let (uid, gid) = (
                rustix::fs::Uid::from_raw(like.st_uid),
                rustix::fs::Gid::from_raw(like.st_gid),
            );
            rustix::fs::chownat(
                scratch,
                upper.as_str(),
                Some(uid),
                Some(gid),
                AtFlags::empty(),
            )
            .map_err(EnforceError::step(step("own")))?;
            let work = format!("{index}.work");
            make_dir(scratch, &work, 0o700).map_err(EnforceError::step(step("make")))?;
            overlay(&dir.path, &upper, &work, user_namespace)
                .map_err(EnforceError::step(step("overlay")))?
        }
    };
    cover(&dir.path, &mount, &dir.keep_below)
}

/// Puts `mount` over `path`, and the mounts at `keep_below` back on top of it.
fn cover(path: &Path, mount: &OwnedFd, keep_below: &[PathBuf]) -> Result<(), EnforceError> {
    let kept = clone_all(keep_below)?;
    attach(mount, path)?;
    attach_all(kept)
}

/// Copies of mounts with what is mounted below them, held by descriptors.
fn clone_all(paths: &[PathBuf]) -> Result<Vec<(&PathBuf, OwnedFd)>, EnforceError> {
    let clone = |path| {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE;
        let tree = open_tree(CWD, path, flags)
            .map_err(EnforceError::step(format!("keep the mount {path:?}")))?;
        Ok((path, tree))
    };
    paths.iter().map(clone).collect()
}

fn attach_all(kept: Vec<(&PathBuf, OwnedFd)>) -> Result<(), EnforceError> {
    kept.iter().try_for_each(|(path, tree)| attach(tree, path))
}

/// Makes the cgroup file systems read-only where the engine asked for it: libcontainer mounts the controllers of
/// cgroup v1 writable below a read-only tmpfs, and a root without capabilities could raise its own limits.
pub fn lock_cgroups(path: &Path) -> Result<(), EnforceError> {
    let step = "make the cgroup mounts read-only";
    let fd = match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(e) => return Err(EnforceError::step(step)(e)),
    };
    make_read_only(fd.as_fd(), Depth::Recursive).map_err(EnforceError::step(step))
}

/// Replaces /sys by the inner namespace's own sysfs, and masks there again what the plan masks: a sysfs that was
/// mounted before the move goes on showing the engine's interfaces.
pub fn replace_sysfs(sysfs: &OwnedFd, plan: &FilesystemPlan) -> Result<(), EnforceError> {
    let sys = Path::new("/sys");
    let below: Vec<PathBuf> = plan
        .mounts
        .iter()
        .map(|m| m.destination.clone())
        .filter(|d| d != sys && d.starts_with(sys))
        .collect();
    let kept = clone_all(&below)?;
    // The engine's goes, rather than lying below ours: /proc/mounts then names one.
    unmount(sys, UnmountFlags::DETACH).map_err(EnforceError::step("unmount the engine's sysfs"))?;
    attach(sysfs, sys)?;
    attach_all(kept)?;
    for path in plan.masked.iter().filter(|p| p.starts_with(sys)) {
        mask(path)?;
    }
    Ok(())
}

/// Makes a path empty: a directory by an empty read-only tmpfs, a file by /dev/null. Missing paths are fine.
fn mask(path: &Path) -> Result<(), EnforceError> {
    let step = || format!("mask {path:?}");
    let stat = match rustix::fs::lstat(path) {
        Ok(stat) => stat,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(()),
        Err(e) => return Err(EnforceError::step(step())(e)),
    };
    let cover = if crate::probe::kind_of(stat.st_mode) == FileKind::Directory {
        let fs =
            fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(EnforceError::step(step()))?;
        fsconfig_set_string(&fs, "nr_inodes", "1").map_err(EnforceError::step(step()))?;
        fsconfig_create(&fs).map_err(EnforceError::step(step()))?;
        fsmount(
            &fs,
            FsMountFlags::FSMOUNT_CLOEXEC,
            MountAttrFlags::MOUNT_ATTR_RDONLY,
        )
        .map_err(EnforceError::step(step()))?
    } else {
        open_tree(
            CWD,
            "/dev/null",
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
        )
        .map_err(EnforceError::step(step()))?
    };
    attach(&cover, path)
}

fn tmpfs(bytes: u64) -> Result<OwnedFd, EnforceError> {
    let step = "make the scratch file system";
    let fs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(EnforceError::step(step))?;
    let set = |key: &str, value: String| {
        fsconfig_set_string(&fs, key, value).map_err(EnforceError::step(step))
    };
    set("size", bytes.to_string())?;
    // A file costs the kernel about a kilobyte even when it is empty: files are bounded with the bytes.
    set("nr_inodes", (bytes / 1024).max(1024).to_string())?;
    set("mode", "0755".to_owned())?;
    set("source", "agentbox".to_owned())?;
    fsconfig_create(&fs).map_err(EnforceError::step(step))?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(EnforceError::step(step))
}

fn overlay(
    lower: &Path,
    upper: &str,
    work: &str,
    user_namespace: bool,
) -> rustix::io::Result<OwnedFd> {
    let fs = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&fs, "source", "agentbox")?;
    fsconfig_set_string(&fs, "lowerdir", lower)?;
    fsconfig_set_string(&fs, "upperdir", format!("{WORKBENCH}/{upper}"))?;
    fsconfig_set_string(&fs, "workdir", format!("{WORKBENCH}/{work}"))?;
    if user_namespace {
        // Without it an overlay needs trusted.* attributes, which only the host's root may set.
        fsconfig_set_flag(&fs, "userxattr")?;
    }
    fsconfig_create(&fs)?;
    fsmount(
        &fs,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
}

fn make_dir(at: &OwnedFd, name: &str, mode: u32) -> rustix::io::Result<()> {
    rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o700))?;
    // mkdir(2) obeys the umask; chmod(2) does not.
    rustix::fs::chmodat(at, name, Mode::from_raw_mode(mode), AtFlags::empty())
}

fn attach(mount: &OwnedFd, path: &Path) -> Result<(), EnforceError> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
    move_mount(mount, "", CWD, path, flags)
        .map_err(EnforceError::step(format!("mount over {path:?}")))
}
