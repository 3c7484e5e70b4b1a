//! A new file system, made step by step with the descriptor-based mount calls (fsopen(2), fsconfig(2), fsmount(2)). It
//! is detached until its owner attaches it.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use rustix::path::Arg;

use super::error::EnforceError;
use crate::kernel::mount_options::{self, Bits, MountOptionKind};

/// A file system that is being made.
pub(super) struct NewFileSystem(OwnedFd);

impl NewFileSystem {
    /// Begins one of this type. `source` is shown in /proc/self/mountinfo.
    pub(super) fn begin(kind: &str, source: &Path) -> rustix::io::Result<Self> {
        let fs = Self(fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?);
        fs.set("source", source)?;
        Ok(fs)
    }

    /// Begins a tmpfs whose root directory belongs to root, whatever the process's user is.
    pub(super) fn tmpfs_of_root(source: &Path) -> rustix::io::Result<Self> {
        let fs = Self::begin("tmpfs", source)?;
        fs.set("uid", "0")?;
        fs.set("gid", "0")?;
        Ok(fs)
    }

    /// `key=value`
    pub(super) fn set(&self, key: &str, value: impl Arg) -> rustix::io::Result<()> {
        fsconfig_set_string(&self.0, key, value)
    }

    /// A word.
    pub(super) fn set_flag(&self, word: &str) -> rustix::io::Result<()> {
        fsconfig_set_flag(&self.0, word)
    }

    /// Sets those of the mount(8) options that belong to the file system. Attributes of the mount do not
    /// ([`Self::mount`]).
    pub(super) fn set_options(&self, options: &[String]) -> rustix::io::Result<()> {
        for option in options {
            match (mount_options::kind(option), option.split_once('=')) {
                (MountOptionKind::FileSystem, Some((key, value))) => self.set(key, value)?,
                (MountOptionKind::FileSystem, None) if option.is_empty() => {}
                (MountOptionKind::FileSystem, None) => self.set_flag(option)?,
                (
                    MountOptionKind::Attribute(..)
                    | MountOptionKind::Propagation(..)
                    | MountOptionKind::Other,
                    _,
                ) => {}
            }
        }
        Ok(())
    }

    /// The SELinux label of every file in it (`linux.mountLabel`).
    pub(super) fn set_label(&self, label: Option<&str>) -> rustix::io::Result<()> {
        label.map_or(Ok(()), |label| self.set("context", label))
    }

    /// Makes it, and a mount of it with these attributes.
    pub(super) fn mount(self, attributes: Bits) -> rustix::io::Result<OwnedFd> {
        fsconfig_create(&self.0)?;
        // All of them are below 2^32 (linux/mount.h).
        let attributes = MountAttrFlags::from_bits_retain(attributes.set as u32);
        fsmount(&self.0, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    }
}

/// A tmpfs with a plan's options: `key=value`, and attributes of the mount that restrict it.
pub(super) fn tmpfs_with(options: &[String]) -> Result<OwnedFd, EnforceError> {
    let step = "make a file system in memory";
    let fs =
        NewFileSystem::begin("tmpfs", Path::new("agentbox")).map_err(EnforceError::step(step))?;
    for option in options {
        if let Some((key, value)) = option.split_once('=') {
            fs.set(key, value)
                .map_err(EnforceError::step(format!("{step} with {option:?}")))?;
        }
    }
    fs.mount(mount_options::restrictions(options))
        .map_err(EnforceError::step(step))
}
