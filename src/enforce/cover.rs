//! Mounts over paths of the container: a mask makes a path empty, a mount of a path over itself makes it read-only, and
//! other mounts are attached. All containers share this code; they differ in the links that are followed on the way to
//! a path ([`FollowLinks`]).
//!
//! Each path is looked up once: the checked descriptor is the one that is covered.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, move_mount};

use super::error::EnforceError;
use super::file_system::NewFileSystem;
use crate::kernel::mount_options::{Bits, MountReach};
use crate::plan::{FileIdentity, FileKind};
use crate::sys::mount::{change, copy};

/// Which symbolic links are followed on the way to a path in the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FollowLinks {
    /// None, anywhere in the path: a parent directory may belong to a running agent, which could redirect the wall
    /// (CVE-2021-25741, CVE-2023-27561). For paths of a plan, which are already resolved in the image.
    Never,
    /// The kernel's links, but no magic ones: for the engine's paths in /proc and /sys under a policy.
    /// [`super::hidden`] checks the result through descriptors.
    OfTheKernel,
    /// All, like a program in the container: for a container without a policy. A link's target lies in the container
    /// too.
    AsTheProgramWould,
}

impl FollowLinks {
    /// Opens a path without reading it (O_PATH).
    pub(super) fn open(self, path: &Path) -> rustix::io::Result<OwnedFd> {
        self.open_with(path, OFlags::empty())
    }

    fn open_with(self, path: &Path, more: OFlags) -> rustix::io::Result<OwnedFd> {
        let links = match self {
            Self::Never => ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
            Self::OfTheKernel => ResolveFlags::NO_MAGICLINKS,
            Self::AsTheProgramWould => ResolveFlags::empty(),
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC | more;
        rustix::fs::openat2(CWD, path, flags, Mode::empty(), links)
    }

    /// [`Self::open`]; `None` if the path does not exist.
    fn find(self, path: &Path, more: OFlags) -> rustix::io::Result<Option<OwnedFd>> {
        match self.open_with(path, more) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// [`Self::find`] for a mask. If the path itself is a link of the kernel's, the mask covers the link: following it
    /// leads to the mask.
    fn find_to_mask(self, path: &Path) -> rustix::io::Result<Option<OwnedFd>> {
        let last = match self {
            Self::OfTheKernel => OFlags::NOFOLLOW,
            Self::Never | Self::AsTheProgramWould => OFlags::empty(),
        };
        self.find(path, last)
    }

    /// Opens /dev/null and checks that it is the null device. A link there would put another, writable file over a file
    /// that must be hidden (CVE-2025-31133, CVE-2025-62161).
    fn null(self) -> rustix::io::Result<OwnedFd> {
        const NULL: (u32, u32) = (1, 3);
        let links = match self {
            Self::Never | Self::OfTheKernel => Self::Never,
            Self::AsTheProgramWould => self,
        };
        let fd = links.open(Path::new("/dev/null"))?;
        let stat = rustix::fs::fstat(&fd)?;
        let number = (
            rustix::fs::major(stat.st_rdev),
            rustix::fs::minor(stat.st_rdev),
        );
        if FileKind::of(stat.st_mode) != FileKind::Device || number != NULL {
            return Err(Errno::NODEV);
        }
        Ok(fd)
    }
}

/// Makes paths empty: a directory by an empty read-only tmpfs, other files by /dev/null. Both are made once for all
/// paths.
pub(super) struct Masks<'a> {
    follow: FollowLinks,
    label: Option<&'a str>,
    null: Option<OwnedFd>,
    /// Attached already.
    empty: Option<OwnedFd>,
}

impl<'a> Masks<'a> {
    /// `label` is linux.mountLabel.
    pub(super) fn new(follow: FollowLinks, label: Option<&'a str>) -> Self {
        Self {
            follow,
            label,
            null: None,
            empty: None,
        }
    }

    /// Opens the null device now, for masks that are made while another mount covers /dev.
    pub(super) fn hold_null(&mut self) -> rustix::io::Result<()> {
        self.null = Some(self.follow.null()?);
        Ok(())
    }

    /// Masks a path; a missing one is fine.
    pub(super) fn mask(&mut self, path: &Path) -> Result<(), EnforceError> {
        self.mask_if_there(path).map(drop)
    }

    /// An error unless a directory in which files were found is the one that was searched: another may have replaced
    /// it, with files of the same names.
    pub(super) fn is_held(
        &self,
        directory: &Path,
        inodes: &BTreeSet<u64>,
    ) -> Result<(), EnforceError> {
        let step = format!(
            "mask entries of {}: it was moved meanwhile (start again when no other process moves it)",
            shortened(directory)
        );
        let found = self.follow.open(directory);
        let found = found.and_then(|fd| rustix::fs::fstat(&fd));
        match found {
            Ok(stat) if inodes.contains(&stat.st_ino) => Ok(()),
            Ok(_) => Err(EnforceError::step(step)(Errno::STALE)),
            Err(e) => Err(EnforceError::step(step)(e)),
        }
    }

    /// Masks a path that was found inside a mount. A missing one is an error: it was moved to escape the mask.
    pub(super) fn mask_found(&mut self, path: &Path) -> Result<(), EnforceError> {
        match self.mask_if_there(path)? {
            true => Ok(()),
            false => {
                let step = format!(
                    "mask {}, which has gone since it was found inside a mount (start it again)",
                    shortened(path)
                );
                Err(EnforceError::step(step)(Errno::NOENT))
            }
        }
    }

    fn mask_if_there(&mut self, path: &Path) -> Result<bool, EnforceError> {
        let step = || EnforceError::step(format!("mask {}", shortened(path)));
        let target = match self.follow.find_to_mask(path) {
            Err(Errno::LOOP) => return Err(EnforceError::LinkOnTheWay(path.to_owned())),
            found => found.map_err(step())?,
        };
        let Some(target) = target else {
            return Ok(false);
        };
        let stat = rustix::fs::fstat(&target).map_err(step())?;
        let covered = match FileKind::of(stat.st_mode) {
            FileKind::Directory => self.cover_directory(&target),
            _ => self.cover_file(&target),
        };
        covered.map_err(step())?;
        Ok(true)
    }

    fn cover_directory(&mut self, target: &OwnedFd) -> rustix::io::Result<()> {
        if let Some(empty) = &self.empty {
            return attach(&copy(empty, MountReach::One)?, target);
        }
        let made = empty(self.label)?;
        attach(&made, target)?;
        self.empty = Some(made);
        Ok(())
    }

    fn cover_file(&mut self, target: &OwnedFd) -> rustix::io::Result<()> {
        let null = match self.null.take() {
            Some(null) => null,
            None => self.follow.null()?,
        };
        let covered = copy(&null, MountReach::One).and_then(|mount| attach(&mount, target));
        self.null = Some(null);
        covered
    }
}

/// A path in a message: workloads can make paths of thousands of bytes, and the reason must still be seen.
fn shortened(path: &Path) -> String {
    const ENDS: usize = 60;
    let text = format!("{path:?}");
    let letters: Vec<char> = text.chars().collect();
    match letters.len() > 3 * ENDS {
        true => {
            let ends = [&letters[..ENDS], &letters[letters.len() - ENDS..]];
            ends.map(|end| end.iter().collect::<String>()).join(" ... ")
        }
        false => text,
    }
}

/// An empty tmpfs that nothing can fill: the file system itself is read-only, and not only this mount of it.
fn empty(label: Option<&str>) -> rustix::io::Result<OwnedFd> {
    let fs = NewFileSystem::tmpfs_of_root(Path::new("tmpfs"))?;
    fs.set_flag("ro")?;
    fs.set_label(label)?;
    fs.mount(Bits::READ_ONLY)
}

/// How far a path is made read-only, and with which side effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadOnlyScope {
    /// With the mounts below it: a plan's paths.
    WithMountsBelow,
    /// Without set-user-ID, devices and programs: the engine's paths in kernel file systems, as libcontainer does.
    Inert,
    /// Alone, without side effects, as runc does.
    Alone,
}

/// Makes a path read-only by a mount of it, and of the mounts below it, over itself. A missing path is fine.
pub(super) fn read_only(
    path: &Path,
    follow: FollowLinks,
    how: ReadOnlyScope,
) -> Result<(), EnforceError> {
    match read_only_at(path, follow, how) {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            Err(EnforceError::LinkOnTheWay(path.to_owned()))
        }
        done => done.map_err(EnforceError::step(format!("make {path:?} read-only"))),
    }
}

fn read_only_at(path: &Path, follow: FollowLinks, how: ReadOnlyScope) -> std::io::Result<()> {
    let Some(target) = follow.find(path, OFlags::empty())? else {
        return Ok(());
    };
    const INERT: Bits = Bits::READ_ONLY
        .and(Bits::NO_PRIVILEGE)
        .and(Bits::NO_PROGRAM);
    let (attributes, reach) = match how {
        ReadOnlyScope::WithMountsBelow => (Bits::READ_ONLY, MountReach::Below),
        ReadOnlyScope::Inert => (INERT, MountReach::One),
        ReadOnlyScope::Alone => (Bits::READ_ONLY, MountReach::One),
    };
    let tree = copy(&target, MountReach::Below)?;
    change(tree.as_fd(), attributes, None, reach)?;
    Ok(attach(&tree, &target)?)
}

/// Makes something read-only that was found inside a mount: a file, a directory, or a link itself. It must be the same still, or
/// the container would write what has taken its place.
pub(super) fn protect(path: &Path, file: FileIdentity) -> Result<(), EnforceError> {
    let step = || {
        EnforceError::step(format!(
            "make {path:?} read-only: it changed after the search; start it again"
        ))
    };
    let target = match FollowLinks::Never.open_with(path, OFlags::NOFOLLOW) {
        Err(Errno::LOOP) => return Err(EnforceError::LinkOnTheWay(path.to_owned())),
        found => found.map_err(step())?,
    };
    let stat = rustix::fs::fstat(&target).map_err(step())?;
    if (stat.st_dev, stat.st_ino) != (file.dev, file.ino) {
        return Err(step()(Errno::STALE));
    }
    let step = || EnforceError::step(format!("make {path:?} read-only"));
    let tree = copy(&target, MountReach::Below).map_err(step())?;
    change(tree.as_fd(), Bits::READ_ONLY, None, MountReach::Below)
        .map_err(EnforceError::step(format!("make {path:?} read-only")))?;
    attach(&tree, &target).map_err(step())
}

/// Makes the mount at a path read-only where it is.
pub(super) fn remount_read_only(
    path: &Path,
    follow: FollowLinks,
    reach: MountReach,
) -> std::io::Result<()> {
    let mount = follow.open(path)?;
    change(mount.as_fd(), Bits::READ_ONLY, None, reach)
}

/// Attaches a mount at a path of the plan; a link anywhere in the path is an error.
pub(super) fn attach_at(mount: &OwnedFd, path: &Path) -> Result<(), EnforceError> {
    let step = || format!("mount over {path:?}");
    let target = match FollowLinks::Never.open(path) {
        Err(Errno::LOOP) => return Err(EnforceError::Link(path.to_owned())),
        other => other.map_err(EnforceError::step(step()))?,
    };
    attach(mount, &target).map_err(EnforceError::step(step()))
}

/// Attaches a mount over an opened path.
pub(super) fn attach(mount: &OwnedFd, target: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", target, "", flags)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_as_the_type_says() {
        let dir = std::env::temp_dir().join(format!("cover-{}", std::process::id()));
        // /tmp may be a link itself.
        std::fs::create_dir_all(dir.join("real/below")).unwrap();
        let dir = dir.canonicalize().unwrap();
        symlink("real", dir.join("link")).unwrap();
        let [above, last] = ["link/below", "link"].map(|name| dir.join(name));
        for path in [&above, &last] {
            assert_eq!(FollowLinks::Never.open(path).err(), Some(Errno::LOOP));
            assert!(FollowLinks::OfTheKernel.open(path).is_ok());
            assert!(FollowLinks::AsTheProgramWould.open(path).is_ok());
        }
        let magic = Path::new("/proc/self/cwd");
        assert_eq!(
            FollowLinks::OfTheKernel.open(magic).err(),
            Some(Errno::LOOP)
        );
        assert!(FollowLinks::AsTheProgramWould.open(magic).is_ok());
        // The mask covers the link itself, or its target, or there is an error.
        let masked = |follow: FollowLinks| {
            let found = follow.find_to_mask(&last)?.ok_or(Errno::NOENT)?;
            rustix::fs::fstat(&found).map(|stat| FileKind::of(stat.st_mode))
        };
        assert_eq!(masked(FollowLinks::Never), Err(Errno::LOOP));
        let directory = Ok(FileKind::Directory);
        assert_ne!(masked(FollowLinks::OfTheKernel), directory);
        assert_eq!(masked(FollowLinks::AsTheProgramWould), directory);
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// F22: the searched directory was replaced by another one with a file of the same name.
    #[test]
    fn a_replaced_directory_is_an_error() {
        use std::os::unix::fs::MetadataExt;
        let dir = std::env::temp_dir().join(format!("cover-held-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("x/.aws")).unwrap();
        let dir = dir.canonicalize().unwrap();
        let place = dir.join("x");
        let held = BTreeSet::from([std::fs::metadata(&place).unwrap().ino()]);
        let masks = Masks::new(FollowLinks::Never, None);
        masks.is_held(&place, &held).unwrap();
        std::fs::rename(&place, dir.join("y")).unwrap();
        std::fs::create_dir_all(dir.join("x/.aws")).unwrap();
        let error = masks.is_held(&place, &held).unwrap_err().to_string();
        assert!(error.contains("moved meanwhile"), "{error}");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_missing_path_needs_no_cover() {
        for path in ["/nonexistent/x", "/etc/passwd/x"] {
            let path = Path::new(path);
            for follow in [
                FollowLinks::Never,
                FollowLinks::OfTheKernel,
                FollowLinks::AsTheProgramWould,
            ] {
                assert!(read_only(path, follow, ReadOnlyScope::Alone).is_ok());
                assert!(Masks::new(follow, None).mask(path).is_ok());
                // It existed, and was moved to escape the mask.
                assert!(Masks::new(follow, None).mask_found(path).is_err());
            }
        }
    }

    #[test]
    fn null_is_the_nodes_null_device() {
        for follow in [
            FollowLinks::Never,
            FollowLinks::OfTheKernel,
            FollowLinks::AsTheProgramWould,
        ] {
            assert!(follow.null().is_ok());
        }
    }
}
