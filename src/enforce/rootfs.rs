//! The container's mounts that its init process makes itself, after pivot_root and before other code runs.
//!
//! Bind mounts arrive as descriptors: each source was opened and checked once, and that very tree is attached here. No
//! source path is resolved a second time, so a swap in between (CVE-2021-25741, CVE-2023-27561) has no effect.
//! Destinations were resolved in the image by the planner. No symbolic link is followed here, because a parent
//! directory may belong to a running agent. Everything uses the descriptor-based mount calls: nothing is mounted on the
//! host, and nothing has to be unmounted when the container ends.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::cover::{
    FollowLinks, Masks, ReadOnlyScope, attach, attach_at, protect, read_only, remount_read_only,
};
use super::error::EnforceError;
use super::file_system::tmpfs_with;
use super::image::{self, ImageLayers};
use super::owner::UserNamespace;
use super::scratch::{Scratch, WORKBENCH};
use crate::kernel::mount_options::{Bits, MountReach};
use crate::kernel::mountinfo::MountTable;
use crate::plan::{EphemeralMount, FileKind, FilesystemPlan, VisibleFile};
use crate::sys::mount::copy;

/// A mount that is made here rather than by libcontainer.
pub struct OwnMount {
    /// Its path in the container.
    pub destination: PathBuf,
    /// Its source.
    pub source: OwnSource,
}

impl OwnMount {
    /// Whether mounts of the node came along below it.
    fn has_more_below(&self) -> bool {
        let source = &self.source;
        matches!(source, OwnSource::Tree { reach, .. } if *reach == MountReach::Below)
    }
}

/// The source of such a mount.
pub enum OwnSource {
    /// A detached copy of a checked source, with its attributes set.
    Tree {
        /// The mount.
        tree: OwnedFd,
        /// Type of its root, for the mount point.
        kind: FileKind,
        /// Whether unchecked mounts of the node came along below it.
        reach: MountReach,
    },
    /// A detached copy of a checked directory, to be covered by an overlay whose upper directory is in the scratch.
    Private {
        /// The mount.
        tree: OwnedFd,
        /// The name of its part of the scratch.
        name: String,
        /// Attributes of the overlay.
        attributes: Bits,
        /// In place of the scratch: a mounted directory with `upper` and `work`.
        kept: Option<OwnedFd>,
    },
    /// An empty file system in memory, with these options.
    Tmpfs(Vec<String>),
}

/// Makes the mounts and private directories of the plan, parents before children, and masks last. Private directories
/// are on `disk`, or in memory without one. `image` tells whose user namespace this is, and which layers the root has.
pub fn mount_all(
    plan: &FilesystemPlan,
    own: &[OwnMount],
    disk: Option<&OwnedFd>,
    image: (UserNamespace, Option<&ImageLayers>),
) -> Result<(), EnforceError> {
    let mut masks = Masks::new(FollowLinks::Never, None);
    if own.iter().any(OwnMount::has_more_below) {
        let step = "open /dev/null, to hide files with it";
        masks.hold_null().map_err(EnforceError::step(step))?;
    }
    // Mounts below the workbench first, while it is not covered.
    let (at_bench, others): (Vec<_>, Vec<_>) = own
        .iter()
        .partition(|m| m.destination.starts_with(WORKBENCH));
    let top = root()?;
    by_depth(at_bench)
        .into_iter()
        .try_for_each(|m| mount_one(m, &top, None, &mut masks))?;
    let others = by_depth(others);
    match Scratch::open(plan, disk, image)? {
        None => others
            .into_iter()
            .try_for_each(|m| mount_one(m, &top, None, &mut masks))?,
        Some(scratch) => {
            let result = scratch
                .replace_root(plan)
                .and_then(|()| in_order(plan, others, &scratch, &mut masks));
            scratch.close()?;
            result?;
        }
    }
    image::close_device_nodes()
        .map_err(EnforceError::step("keep the image's device nodes closed"))?;
    let own = plan.mounted_by_init();
    let ours = |path: &&PathBuf| own.hold(path);
    // Parents sort before their children.
    plan.pinned.iter().try_for_each(|p| pin(plan, p))?;
    let seen: HashMap<&Path, &[VisibleFile]> = plan
        .seen
        .iter()
        .map(|s| (s.directory.as_path(), s.files.as_slice()))
        .collect();
    let held = plan.found_in.iter();
    let held: HashMap<&Path, &BTreeSet<u64>> =
        held.map(|f| (f.directory.as_path(), &f.inodes)).collect();
    // Children first: one mount may show what lies too deep as a whole, and another mount the same directory in part. A mask that
    // lies below a later one moves with its directory, if another process moves that meanwhile.
    for path in plan.masked.iter().rev().filter(ours) {
        if plan.found.contains(path)
            && let Some(directory) = path.parent()
            && let Some(inodes) = held.get(directory)
        {
            masks.is_held(directory, inodes)?;
        }
        match seen.get(path.as_path()) {
            Some(files) => super::visible_files::mask_but(path, files)?,
            None if plan.found.contains(path) => masks.mask_found(path)?,
            None => masks.mask(path)?,
        }
    }
    plan.protected
        .iter()
        .try_for_each(|one| protect(&one.path, one.file))?;
    let mut readonly = plan.readonly.iter().filter(ours);
    readonly.try_for_each(|p| read_only(p, FollowLinks::Never, ReadOnlyScope::WithMountsBelow))
}

/// Makes the working directory if it is missing, as runc does in the image and in what is mounted; below what is read-only
/// by now, none is made. Errors are left to the step that enters it.
pub fn make_working_directory(cwd: &Path) -> Result<(), EnforceError> {
    if rustix::fs::stat(cwd).is_err() {
        let made = make_mount_point(root()?.as_fd(), cwd, FileKind::Directory);
        if let Err(error) = made {
            log::debug!("{}", crate::log::chain(&error));
        }
    }
    Ok(())
}

fn by_depth(mut mounts: Vec<&OwnMount>) -> Vec<&OwnMount> {
    mounts.sort_by_key(|m| depth(&m.destination));
    mounts
}

fn depth(path: &Path) -> usize {
    path.components().count()
}

/// A private directory comes after the mounts at its own depth, which it may cover, and before deeper ones.
fn in_order(
    plan: &FilesystemPlan,
    mounts: Vec<&OwnMount>,
    scratch: &Scratch<'_>,
    masks: &mut Masks<'_>,
) -> Result<(), EnforceError> {
    // The root may have been replaced by now, and is not again.
    let top = root()?;
    let mut mounts = mounts.into_iter().peekable();
    let mut dirs: Vec<&EphemeralMount> = plan.ephemeral.iter().collect();
    dirs.sort_by_key(|d| depth(&d.path));
    for (index, dir) in dirs.into_iter().enumerate() {
        while let Some(mount) = mounts.next_if(|m| depth(&m.destination) <= depth(&dir.path)) {
            mount_one(mount, &top, Some(scratch), masks)?;
        }
        scratch.directory(index, dir)?;
    }
    mounts.try_for_each(|mount| mount_one(mount, &top, Some(scratch), masks))
}

fn mount_one(
    mount: &OwnMount,
    root: &OwnedFd,
    scratch: Option<&Scratch<'_>>,
    masks: &mut Masks<'_>,
) -> Result<(), EnforceError> {
    match &mount.source {
        OwnSource::Tree { tree, kind, reach } => {
            let at = &mount.destination;
            let point = make_mount_point(root.as_fd(), at, *kind)?;
            attach_to(tree, &point, at)?;
            match reach {
                MountReach::One => Ok(()),
                MountReach::Below => cover_below(tree, &mount.destination, masks),
            }
        }
        OwnSource::Private {
            tree,
            name,
            attributes,
            kept,
        } => {
            let at = &mount.destination;
            let step = || match kept {
                Some(_) => format!(
                    "lay an overlay over the cache {at:?} whose writes are kept: if the home's file system takes none \
                     (an overlay itself, NFS), leave --keep-caches out"
                ),
                None => format!("lay the container's own overlay over the volume at {at:?}"),
            };
            let scratch = scratch.ok_or_else(|| EnforceError::step(step())(Errno::NODEV))?;
            let point = make_mount_point(root.as_fd(), at, FileKind::Directory)?;
            let over = scratch
                .over(tree, name, (*attributes, kept.as_ref()))
                .map_err(EnforceError::step(step()))?;
            attach_to(&over, &point, at)
        }
        OwnSource::Tmpfs(options) => {
            let at = &mount.destination;
            let point = make_mount_point(root.as_fd(), at, FileKind::Directory)?;
            attach_to(&tmpfs_with(options)?, &point, at)
        }
    }
}

/// Masks the node's mounts that came along below a mount. They cannot be removed, and were not checked.
fn cover_below(tree: &OwnedFd, at: &Path, masks: &mut Masks<'_>) -> Result<(), EnforceError> {
    let step = || format!("hide the node's mounts below {at:?}");
    let same = |seen: OwnedFd| {
        let (seen, judged) = (rustix::fs::fstat(seen)?, rustix::fs::fstat(tree)?);
        Ok((seen.st_dev, seen.st_ino) == (judged.st_dev, judged.st_ino))
    };
    // A mount on the checked directory itself would hide it.
    match FollowLinks::Never.open(at).and_then(same) {
        Ok(true) => {}
        Ok(false) => return Err(EnforceError::step(step())(Errno::STALE)),
        Err(error) => return Err(EnforceError::step(step())(error)),
    }
    let table = crate::sys::procfs::bytes("/proc/self/mountinfo");
    let table = MountTable::parse(&table.map_err(EnforceError::step(step()))?);
    let below = table.below(at);
    below.iter().try_for_each(|point| masks.mask_found(point))
}

fn root() -> Result<OwnedFd, EnforceError> {
    rustix::fs::open(
        "/",
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(EnforceError::step("open the root directory"))
}

/// Makes sure that a mount point exists below `root`, and opens it. Follows no symbolic link.
pub fn make_mount_point(
    root: BorrowedFd<'_>,
    destination: &Path,
    kind: FileKind,
) -> Result<OwnedFd, EnforceError> {
    let failed = |source: Errno| EnforceError::MountPoint {
        destination: destination.to_owned(),
        source: source.into(),
    };
    let relative = destination.strip_prefix("/").unwrap_or(destination);
    // Most are there, and most others are missing alone.
    if let Some(there) = open_plain(root, relative) {
        return Ok(there);
    }
    let above = relative.parent();
    if let (Some(above), Some(name)) = (above, relative.file_name())
        && let Some(above) = open_plain(root, above)
    {
        return make_entry(above.as_fd(), Path::new(name), kind).map_err(failed);
    }
    let mut at = open_beneath(root, Path::new(".")).map_err(failed)?;
    let mut parts = relative.components().peekable();
    while let Some(part) = parts.next() {
        let kind = match parts.peek() {
            None => kind,
            Some(_) => FileKind::Directory,
        };
        at = make_entry(at.as_fd(), Path::new(part.as_os_str()), kind).map_err(failed)?;
    }
    Ok(at)
}

/// Opens an existing path of plain names. `None` if that fails: the caller's error names the step.
fn open_plain(root: BorrowedFd<'_>, path: &Path) -> Option<OwnedFd> {
    let plain = |part| matches!(part, Component::Normal(_));
    let is_plain = path.components().all(plain) && path != Path::new("");
    is_plain.then(|| open_beneath(root, path).ok()).flatten()
}

/// Makes a directory, or an empty file, unless something has that name, and opens what has it.
fn make_entry(at: BorrowedFd<'_>, name: &Path, kind: FileKind) -> Result<OwnedFd, Errno> {
    let made = match kind {
        FileKind::Directory => rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o755)),
        _ => {
            let flags =
                OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(at, name, flags, Mode::from_raw_mode(0o644)).map(drop)
        }
    };
    match (made, open_beneath(at, name)) {
        (_, Ok(there)) => Ok(there),
        // Not made because of a read-only file system, say: that is the reason, not that it is missing.
        (Err(error), Err(Errno::NOENT)) => Err(error),
        (_, Err(error)) => Err(error),
    }
}

fn open_beneath(at: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::BENEATH;
    rustix::fs::openat2(
        at,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        resolve,
    )
}

/// Attaches a mount at a mount point that was opened when it was made.
fn attach_to(mount: &OwnedFd, point: &OwnedFd, path: &Path) -> Result<(), EnforceError> {
    attach(mount, point).map_err(EnforceError::step(format!("mount over {path:?}")))
}

/// Makes the cgroup file systems read-only if the plan or the engine requests it. libcontainer mounts the controllers
/// of cgroup v1 writable below a read-only tmpfs, and a root without capabilities could raise its own limits.
pub(super) fn lock_cgroups(path: &Path, follow: FollowLinks) -> Result<(), EnforceError> {
    remount_read_only(path, follow, MountReach::Below)
        .map_err(EnforceError::step("make the cgroup mounts read-only"))
}

/// The mount at /sys before the inner network namespace's sysfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlySysfs {
    /// The sysfs of the engine's network namespace.
    Engines,
    /// An empty directory: the caller may not mount that sysfs.
    None,
}

/// Replaces /sys by the inner namespace's sysfs, and masks the plan's paths there again. A sysfs from before the move
/// would still show the engine's interfaces.
pub fn replace_sysfs(
    sysfs: &OwnedFd,
    plan: &FilesystemPlan,
    before: EarlySysfs,
) -> Result<(), EnforceError> {
    let sys = Path::new("/sys");
    let below = plan.mounts.iter().map(|m| &m.destination);
    let kept = below
        .filter(|d| *d != sys && d.starts_with(sys))
        .map(|path| Ok((path, keep(path)?)))
        .collect::<Result<Vec<_>, EnforceError>>()?;
    // The engine's is unmounted instead of covered, so that /proc/mounts names only one.
    match before {
        EarlySysfs::Engines => unmount(sys, UnmountFlags::DETACH)
            .map_err(EnforceError::step("unmount the engine's sysfs"))?,
        EarlySysfs::None => {}
    }
    attach_at(sysfs, sys)?;
    kept.iter()
        .try_for_each(|(path, tree)| attach_at(tree, path))?;
    let mut masks = Masks::new(FollowLinks::Never, None);
    let mut masked = plan.masked.iter().filter(|p| p.starts_with(sys));
    masked.try_for_each(|path| masks.mask(path))
}

/// A copy of a mount and of the mounts below it.
fn keep(path: &Path) -> Result<OwnedFd, EnforceError> {
    let place = FollowLinks::Never.open(path);
    place
        .and_then(|place| copy(&place, MountReach::Below))
        .map_err(EnforceError::step(format!("keep the mount {path:?}")))
}

/// Mounts a directory on itself: a mount point cannot be renamed or removed (EBUSY). It keeps the attributes of the
/// surrounding mount.
fn pin(plan: &FilesystemPlan, path: &Path) -> Result<(), EnforceError> {
    let step = || format!("hold {path:?} in place while it is masked (start again)");
    let place = match FollowLinks::Never.open(path) {
        // Nothing is there to hide.
        Err(Errno::NOENT | Errno::NOTDIR) if plan.may_be_missing(path) => return Ok(()),
        found => found.map_err(EnforceError::step(step()))?,
    };
    let tree = copy(&place, MountReach::Below).map_err(EnforceError::step(step()))?;
    attach(&tree, &place).map_err(EnforceError::step(step()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::probe::TestDir;

    #[test]
    fn a_mount_point_is_made_where_it_is_missing_and_by_way_of_no_link() {
        let scratch = TestDir::new("mount-point");
        let dir = &scratch.0;
        let root = rustix::fs::open(dir, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let make = |path: &str, kind| {
            let made = make_mount_point(root.as_fd(), Path::new(path), kind)?;
            let (made, there) = (
                rustix::fs::fstat(made),
                rustix::fs::stat(dir.join(&path[1..])),
            );
            assert_eq!(made.unwrap().st_ino, there.unwrap().st_ino, "{path}");
            Ok::<(), EnforceError>(())
        };
        for _ in 0..2 {
            make("/one/two/three", FileKind::Directory).unwrap();
            make("/one/two/file", FileKind::File).unwrap();
            make("/four/five/file", FileKind::Socket).unwrap();
        }
        assert!(dir.join("one/two/three").is_dir() && dir.join("one/two/file").is_file());
        symlink("one", dir.join("link")).unwrap();
        symlink("two", dir.join("one/other")).unwrap();
        for path in [
            "/link",
            "/link/two",
            "/one/other/three",
            "/one/other/new",
            "/../out",
        ] {
            assert!(make(path, FileKind::Directory).is_err(), "{path}");
        }
        assert!(make("/one/two/file/below", FileKind::File).is_err());
        assert!(!dir.join("one/two/new").exists());
    }
}
