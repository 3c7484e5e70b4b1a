//! Checks that every masked or read-only path of /proc and /sys really is masked or read-only, even if the image's
//! directories were renamed during `create`.
//!
//! libcontainer hides by path: a container that shares the root file system can rename /proc meanwhile. Then the masks
//! lie in another directory, and the real /proc stays open (the class of CVE-2023-27561). Here both are checked through
//! descriptors, as the last step before the program is found.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use oci_spec::runtime::Spec;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;

use super::error::EnforceError;
use super::kernel::{KernelFiles, KernelMountStep};
use super::unconfined::setup::UnconfinedSetup;

/// SYSFS_MAGIC of linux/magic.h.
const SYSFS: i64 = 0x6265_6572;

/// The kernel's file systems: their paths, and their types in a spec and in statfs(2).
const KERNEL: [(&str, &str, i64); 2] = [
    ("/proc", "proc", libc::PROC_SUPER_MAGIC),
    ("/sys", "sysfs", SYSFS),
];

/// Mounts, masks and read-only paths that were taken out of the spec and made by our own code.
#[derive(Debug, Default)]
pub struct PromisedMounts<'a> {
    mounts: &'a [KernelMountStep],
    masked: &'a [PathBuf],
    readonly: &'a [PathBuf],
}

impl<'a> From<&'a KernelFiles> for PromisedMounts<'a> {
    fn from(files: &'a KernelFiles) -> Self {
        Self {
            mounts: &files.mounts,
            masked: &files.masked,
            readonly: &files.readonly,
        }
    }
}

impl<'a> From<&'a UnconfinedSetup> for PromisedMounts<'a> {
    fn from(ours: &'a UnconfinedSetup) -> Self {
        Self {
            mounts: &[],
            masked: &ours.masked,
            readonly: &ours.readonly,
        }
    }
}

/// Checks every masked and read-only path below the mounted kernel file systems: the spec's, which libcontainer made,
/// and those of `ours`.
pub fn check(spec: &Spec, ours: &PromisedMounts<'_>) -> Result<(), EnforceError> {
    let Some(linux) = spec.linux() else {
        return Ok(());
    };
    let paths = |list: &Option<Vec<String>>| list.iter().flatten().map(PathBuf::from).collect();
    let mut masked: Vec<PathBuf> = paths(linux.masked_paths());
    let mut readonly: Vec<PathBuf> = paths(linux.readonly_paths());
    masked.extend_from_slice(ours.masked);
    readonly.extend_from_slice(ours.readonly);
    for (top, kind, magic) in KERNEL {
        let mut mounts = spec.mounts().iter().flatten();
        let asked =
            mounts.any(|m| m.destination() == Path::new(top) && m.typ().as_deref() == Some(kind));
        if !asked && !ours.mounts.iter().any(|m| m.is(Path::new(top), kind)) {
            continue;
        }
        let root = Kernel::open(top, magic)?;
        for path in &masked {
            root.check_hidden(path)?;
        }
        for path in &readonly {
            root.check_read_only(path)?;
        }
    }
    Ok(())
}

/// The root of one of the kernel's file systems.
struct Kernel {
    top: &'static str,
    fd: OwnedFd,
    device: u64,
}

impl Kernel {
    fn open(top: &'static str, magic: i64) -> Result<Self, EnforceError> {
        let step = || format!("look at {top}");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(top, flags, Mode::empty()).map_err(EnforceError::step(step()))?;
        let found = rustix::fs::fstatfs(&fd).map_err(EnforceError::step(step()))?;
        if found.f_type != magic {
            return Err(changed(Path::new(top)));
        }
        let device = rustix::fs::fstat(&fd)
            .map_err(EnforceError::step(step()))?
            .st_dev;
        Ok(Self { top, fd, device })
    }

    /// The file at a path below it; `None` if the kernel has no such file.
    fn at(&self, path: &Path) -> Result<Option<OwnedFd>, EnforceError> {
        let Ok(below) = path.strip_prefix(self.top) else {
            return Ok(None);
        };
        if below.as_os_str().is_empty() {
            return Ok(None);
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(self.fd.as_fd(), below, flags, Mode::empty(), resolve) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
            Err(e) => Err(EnforceError::step(format!("look at {path:?}"))(e)),
        }
    }

    /// The file right below it, unless that is a link; in one call.
    fn right_below(&self, path: &Path) -> Option<rustix::fs::Stat> {
        let name = path.strip_prefix(self.top).ok()?;
        let mut parts = name.components();
        let (Some(Component::Normal(_)), None) = (parts.next(), parts.next()) else {
            return None;
        };
        let found = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        (FileType::from_raw_mode(found.st_mode) != FileType::Symlink).then_some(found)
    }

    /// An error unless another mount lies over it.
    fn check_hidden(&self, path: &Path) -> Result<(), EnforceError> {
        let step = || EnforceError::step(format!("look at {path:?}"));
        let stat = match self.right_below(path) {
            Some(stat) => stat,
            None => match self.at(path)? {
                Some(fd) => rustix::fs::fstat(&fd).map_err(step())?,
                None => return Ok(()),
            },
        };
        match stat.st_dev == self.device {
            true => Err(changed(path)),
            false => Ok(()),
        }
    }

    /// An error unless it is read-only.
    fn check_read_only(&self, path: &Path) -> Result<(), EnforceError> {
        let Some(fd) = self.at(path)? else {
            return Ok(());
        };
        let found =
            rustix::fs::fstatvfs(&fd).map_err(EnforceError::step(format!("look at {path:?}")))?;
        match found.f_flag.contains(StatVfsMountFlags::RDONLY) {
            true => Ok(()),
            false => Err(changed(path)),
        }
    }
}

fn changed(path: &Path) -> EnforceError {
    EnforceError::Changed(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(masked: &[&str], readonly: &[&str]) -> Spec {
        let spec = serde_json::json!({
            "ociVersion": "1.2.0",
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
            "linux": {"maskedPaths": masked, "readonlyPaths": readonly},
        });
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn an_unmasked_path_is_noticed() {
        // The tests' own /proc hides nothing.
        for (masked, readonly) in [
            (&["/proc/version"][..], &[][..]),
            (&["/proc/sys/kernel"], &[]),
        ] {
            let error = check(&spec(masked, readonly), &PromisedMounts::default())
                .unwrap_err()
                .to_string();
            assert!(error.contains("/proc/"), "{error}");
        }
        let nothing = spec(
            &["/proc/absent", "/srv/x", "/proc"],
            &["/proc/absent", "/etc"],
        );
        check(&nothing, &PromisedMounts::default()).unwrap();
    }
}
