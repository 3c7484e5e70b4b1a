//! An overlay over the layers of an image. Over the engine's own overlay, whose files have no handles, hard links would
//! break ([`crate::plan::layers`]).

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};

use super::cover::{FollowLinks, attach};
use super::error::EnforceError;
use super::file_system::NewFileSystem;
use crate::kernel::mount_options::{Bits, MountReach};
use crate::plan::layers::{in_one_value, short_name};
use crate::sys::mount::change;

/// The layers of the engine's overlay.
pub struct ImageLayers {
    /// Detached mounts of them, the top one first.
    pub trees: Vec<OwnedFd>,
    /// Whether files in them may have their content in a layer below.
    pub metacopy: bool,
}

impl ImageLayers {
    /// Attaches them in an empty directory, which the process enters, and makes them the lower layers of an overlay.
    pub(super) fn put_below(&self, fs: &NewFileSystem, place: &Path) -> rustix::io::Result<()> {
        rustix::fs::mkdir(place, Mode::RWXU)?;
        // fsconfig(2) values are short, so the names must be.
        rustix::process::chdir(place)?;
        for (index, tree) in self.trees.iter().enumerate() {
            let at = place.join(short_name(index));
            rustix::fs::mkdir(&at, Mode::RWXU)?;
            attach(tree, &FollowLinks::Never.open(&at)?)?;
        }
        match in_one_value(self.trees.len()) {
            Some(names) => fs.set("lowerdir", names)?,
            // Since Linux 6.5.
            None => {
                for index in 0..self.trees.len() {
                    fs.set("lowerdir+", short_name(index))?;
                }
            }
        }
        match self.metacopy {
            true => fs.set("metacopy", "on"),
            false => Ok(()),
        }
    }
}

/// An entry of a directory, without its name.
#[derive(PartialEq, Eq)]
struct Entry {
    mode: u32,
    owner: (u32, u32),
    size: i64,
    device: u64,
    written: (i64, i64),
}

/// Checks, by the entries of their root directories, that two overlays without mounts below show the same image.
pub(super) fn check_same(old: &OwnedFd, new: &OwnedFd) -> Result<(), EnforceError> {
    let step = "compare the layers of the image with its root";
    let [before, after] = [old, new].map(|root| entries(root).map_err(EnforceError::step(step)));
    match first_other(before?, after?) {
        Some(name) => Err(EnforceError::Changed(name)),
        None => Ok(()),
    }
}

/// The first entry that only one of two directories has, or that differs.
fn first_other(
    mut before: BTreeMap<PathBuf, Entry>,
    after: BTreeMap<PathBuf, Entry>,
) -> Option<PathBuf> {
    for (name, entry) in after {
        if before.remove(&name) != Some(entry) {
            return Some(name);
        }
    }
    before.into_keys().next()
}

fn entries(root: &OwnedFd) -> rustix::io::Result<BTreeMap<PathBuf, Entry>> {
    use std::os::unix::ffi::OsStrExt;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(root, ".", flags, Mode::empty())?;
    let mut all = BTreeMap::new();
    for entry in rustix::fs::Dir::read_from(&directory)? {
        let name = entry?.file_name().to_owned();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_directory = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
        let entry = Entry {
            mode: stat.st_mode,
            owner: (stat.st_uid, stat.st_gid),
            // A directory's size depends on the file system.
            size: if is_directory { 0 } else { stat.st_size },
            device: stat.st_rdev,
            written: (
                stat.st_mtime,
                i64::try_from(stat.st_mtime_nsec).unwrap_or(0),
            ),
        };
        let path = Path::new("/").join(std::ffi::OsStr::from_bytes(name.to_bytes()));
        all.insert(path, entry);
    }
    Ok(all)
}

/// Whether an opened directory lies on the mount of the root directory.
pub(super) fn is_on_root(directory: &OwnedFd) -> rustix::io::Result<bool> {
    let id = StatxFlags::MNT_ID;
    let found = rustix::fs::statx(directory, "", AtFlags::EMPTY_PATH, id)?;
    let root = rustix::fs::statx(CWD, "/", AtFlags::empty(), id)?;
    Ok(found.stx_mnt_id == root.stx_mnt_id)
}

/// An image may bring nodes of devices. What the container gets is in its /dev, unless the caller mounts nothing there.
pub fn close_device_nodes() -> std::io::Result<()> {
    if let Ok(dev) = FollowLinks::Never.open(Path::new("/dev"))
        && is_on_root(&dev)?
    {
        return Ok(());
    }
    let top = FollowLinks::Never.open(Path::new("/"))?;
    change(top.as_fd(), Bits::NO_DEVICE, None, MountReach::One)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_another_if_an_entry_was_added_removed_or_changed() {
        let entry = |mode, size| Entry {
            mode,
            owner: (0, 0),
            size,
            device: 0,
            written: (1, 2),
        };
        let image = |files: &[(&str, u32, i64)]| -> BTreeMap<PathBuf, Entry> {
            let all = files.iter();
            all.map(|(name, mode, size)| (PathBuf::from(name), entry(*mode, *size)))
                .collect()
        };
        let old = || image(&[("/bin", 0o755, 0), ("/init", 0o755, 9)]);
        assert_eq!(first_other(old(), old()), None);
        for (new, other) in [
            (image(&[("/bin", 0o755, 0)]), "/init"),
            (image(&[("/bin", 0o777, 0), ("/init", 0o755, 9)]), "/bin"),
            (image(&[("/bin", 0o755, 0), ("/init", 0o755, 8)]), "/init"),
            (
                image(&[("/a", 0, 0), ("/bin", 0o755, 0), ("/init", 0o755, 9)]),
                "/a",
            ),
        ] {
            assert_eq!(first_other(old(), new), Some(PathBuf::from(other)));
        }
    }
}
