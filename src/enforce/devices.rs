//! Fixes /dev as libcontainer leaves it. libcontainer makes the directories of devices with the umask 0: every user of
//! the container could rename the device, and put a link in its place. And it leaves a /dev writable that was requested
//! read-only, because it makes the devices in it.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;

use oci_spec::runtime::Spec;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::cover::{FollowLinks, remount_read_only};
use super::error::EnforceError;
use crate::kernel::mount_options::MountReach;
use crate::plan::FilesystemPlan;

const DEV: &str = "/dev";

/// Lets only the owner write to these directories, as runc makes them. Call this before other mounts are attached:
/// mounts below /dev are not checked.
pub(super) fn close_directories(spec: &Spec) -> Result<(), EnforceError> {
    let linux = spec.linux().as_ref();
    let devices = linux.and_then(|l| l.devices().as_deref()).unwrap_or(&[]);
    let above = devices.iter().flat_map(|d| d.path().ancestors().skip(1));
    let below = above.filter_map(|path| path.strip_prefix(DEV).ok());
    let directories: BTreeSet<&Path> = below.filter(|d| !d.as_os_str().is_empty()).collect();
    if directories.is_empty() {
        return Ok(());
    }
    let dev = FollowLinks::Never.open(Path::new(DEV));
    let dev = dev.map_err(EnforceError::step("open /dev"))?;
    directories.into_iter().try_for_each(|d| close(&dev, d))
}

fn close(dev: &OwnedFd, directory: &Path) -> Result<(), EnforceError> {
    let step = || EnforceError::step(format!("close the directory of devices {directory:?}"));
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = match rustix::fs::openat2(dev, directory, flags, Mode::empty(), resolve) {
        Ok(opened) => opened,
        // A link of the image, or another mount: libcontainer made nothing here.
        Err(Errno::LOOP | Errno::XDEV) => return Ok(()),
        Err(e) => return Err(step()(e)),
    };
    let mode = rustix::fs::fstat(&opened).map_err(step())?.st_mode;
    let mode = Mode::from_raw_mode(mode);
    // With the sticky bit users cannot rename each other's files.
    if mode.contains(Mode::WOTH) && !mode.contains(Mode::SVTX) {
        let closed = mode - Mode::WGRP - Mode::WOTH;
        rustix::fs::fchmod(&opened, closed).map_err(step())?;
    }
    Ok(())
}

/// Makes /dev read-only if the engine requested that, last.
pub(super) fn lock(plan: &FilesystemPlan) -> Result<(), EnforceError> {
    let dev = Path::new(DEV);
    let asked = plan.mounts.iter().find(|mount| mount.destination == dev);
    match asked.is_some_and(|mount| mount.is_the_kernels() && !mount.is_writable()) {
        true => remount_read_only(dev, FollowLinks::Never, MountReach::One)
            .map_err(EnforceError::step("make /dev read-only")),
        false => Ok(()),
    }
}
