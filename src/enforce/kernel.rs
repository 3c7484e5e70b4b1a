//! The kernel's own file systems of a container under a policy, with their masks and read-only paths, made by its
//! first process in the fewest calls. libcontainer, which makes /proc and /dev because it needs them before, looks
//! all of /proc up anew for each mount, some seventy calls.
//!
//! Flags, options and order are libcontainer's: the first mount is the first in /proc/self/mountinfo. Whether
//! everything is hidden that is to be is read back by [`super::hidden`].

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount, open_tree,
};

use super::EnforceError;
use super::rootfs::{attach_at, null, open_plain};
use crate::kernel::mount_options::{self, Bits, Kind, Reach};
use crate::plan::FileKind;
use crate::sys::mount::change;

/// What the first process makes of the kernel's file systems.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KernelFiles {
    /// Mounts, in order.
    pub mounts: Vec<KernelMount>,
    /// Paths to be made read-only.
    pub readonly: Vec<PathBuf>,
    /// Paths to be made empty.
    pub masked: Vec<PathBuf>,
    /// linux.mountLabel, where the node has SELinux.
    pub label: Option<String>,
}

/// One mount.
#[derive(Debug, PartialEq, Eq)]
pub struct KernelMount {
    /// Where, in the container.
    pub destination: PathBuf,
    /// What.
    pub what: KernelSource,
}

/// What is mounted.
#[derive(Debug, PartialEq, Eq)]
pub enum KernelSource {
    /// A new file system.
    FileSystem {
        /// Its type.
        kind: String,
        /// What /proc/self/mountinfo shows as its source.
        source: PathBuf,
        /// Options as mount(8) takes them.
        options: Vec<String>,
    },
    /// A tmpfs with the hierarchies of cgroup v1 in it: the names of their directories, `cpu,cpuacct` or `systemd`.
    Hierarchies(Vec<String>),
}

impl KernelFiles {
    /// Whether a file system of this type is mounted here.
    pub fn mounts_at(&self, at: &Path, typ: &str) -> bool {
        self.mounts.iter().any(|m| m.is(at, typ))
    }
}

impl KernelMount {
    /// Whether this mounts a file system of this type here.
    pub fn is(&self, at: &Path, typ: &str) -> bool {
        let same = matches!(&self.what, KernelSource::FileSystem { kind, .. } if kind == typ);
        same && self.destination == at
    }
}

/// Makes the mounts, and then what is read-only and empty in them.
pub fn make(files: &KernelFiles) -> Result<(), EnforceError> {
    let label = files.label.as_deref();
    files.mounts.iter().try_for_each(|m| make_one(m, label))?;
    files.readonly.iter().try_for_each(|p| read_only(p))?;
    let mut covers = Covers::new(label);
    files.masked.iter().try_for_each(|p| covers.mask(p))
}

fn make_one(one: &KernelMount, label: Option<&str>) -> Result<(), EnforceError> {
    let at = &one.destination;
    let failed = || EnforceError::step(format!("mount over {at:?}"));
    let place = place(at)?;
    match &one.what {
        KernelSource::FileSystem {
            kind,
            source,
            options,
        } => {
            let label = label.filter(|_| kind != "sysfs");
            let made = file_system(kind, source, options, label);
            attach_at(&made.map_err(failed())?, &place).map_err(failed())
        }
        KernelSource::Hierarchies(names) => hierarchies(&place, names, label).map_err(failed()),
    }
}

/// The place for a mount, made if it is missing. No symbolic link is followed.
fn place(at: &Path) -> Result<OwnedFd, EnforceError> {
    let failed = || EnforceError::step(format!("make the mount point {at:?}"));
    match open_plain(at) {
        Ok(place) => return Ok(place),
        Err(Errno::LOOP) => return Err(EnforceError::Link(at.to_owned())),
        Err(Errno::NOENT) => {}
        Err(e) => return Err(failed()(e)),
    }
    if let (Some(above), Some(name)) = (at.parent(), at.file_name())
        && let Ok(above) = open_plain(above)
    {
        rustix::fs::mkdirat(above, name, Mode::from_raw_mode(0o755)).map_err(failed())?;
    } else {
        let root = open_plain(Path::new("/")).map_err(failed())?;
        super::rootfs::make_mount_point(root.as_fd(), at, FileKind::Directory)?;
    }
    open_plain(at).map_err(failed())
}

/// A detached file system with its attributes.
fn file_system(
    kind: &str,
    source: &Path,
    options: &[String],
    label: Option<&str>,
) -> rustix::io::Result<OwnedFd> {
    let fs = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&fs, "source", source)?;
    if kind == "tmpfs" {
        as_roots(&fs)?;
    }
    configure(&fs, options)?;
    if let Some(label) = label {
        fsconfig_set_string(&fs, "context", label)?;
    }
    fsconfig_create(&fs)?;
    let Bits { set, .. } = mount_options::changes(options).one;
    // All of them are below 2^32 (linux/mount.h).
    let attributes = MountAttrFlags::from_bits_retain(set as u32);
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Gives a file system that is being made its own options among those that mount(8) takes; attributes of the mount are none.
pub(super) fn configure(fs: &OwnedFd, options: &[String]) -> rustix::io::Result<()> {
    for option in options {
        match (mount_options::kind(option), option.split_once('=')) {
            (Kind::FileSystem, Some((key, value))) => fsconfig_set_string(fs, key, value)?,
            (Kind::FileSystem, None) if option.is_empty() => {}
            (Kind::FileSystem, None) => fsconfig_set_flag(fs, option.as_str())?,
            _ => {}
        }
    }
    Ok(())
}

/// Root's, whoever the process is by now.
fn as_roots(tmpfs: &OwnedFd) -> rustix::io::Result<()> {
    fsconfig_set_string(tmpfs, "uid", "0")?;
    fsconfig_set_string(tmpfs, "gid", "0")
}

/// A tmpfs, in it a directory for each hierarchy, and links where several controllers are in one.
fn hierarchies(place: &OwnedFd, names: &[String], label: Option<&str>) -> rustix::io::Result<()> {
    let options = ["noexec", "nosuid", "nodev", "mode=755"];
    let options = options.map(str::to_owned);
    let top = file_system("tmpfs", Path::new("tmpfs"), &options, label)?;
    attach_at(&top, place)?;
    // mount(2) takes a path: one that begins at this very mount.
    rustix::process::fchdir(&top)?;
    for name in names {
        rustix::fs::mkdirat(CWD, name.as_str(), Mode::from_raw_mode(0o755))?;
        let mut data = match name.as_str() {
            "systemd" => "none,name=systemd".to_owned(),
            controllers => controllers.to_owned(),
        };
        if let Some(label) = label {
            data.push_str(&format!(",context=\"{label}\""));
        }
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let data = std::ffi::CString::new(data).map_err(|_| Errno::INVAL)?;
        mount(
            "cgroup",
            name.as_str(),
            "cgroup",
            flags,
            Some(data.as_c_str()),
        )?;
        for one in name.split(',').filter(|one| one != name) {
            rustix::fs::symlinkat(name.as_str(), CWD, one)?;
        }
    }
    rustix::process::chdir("/")
}

/// What paths are covered with to be empty: made once for all of them.
struct Covers<'a> {
    label: Option<&'a str>,
    null: Option<OwnedFd>,
    /// A read-only tmpfs, attached by now.
    empty: Option<OwnedFd>,
}

impl<'a> Covers<'a> {
    fn new(label: Option<&'a str>) -> Self {
        Self {
            label,
            null: None,
            empty: None,
        }
    }

    /// Makes a path empty: a directory by the tmpfs, a file by /dev/null. A missing one is fine.
    fn mask(&mut self, path: &Path) -> Result<(), EnforceError> {
        let step = || EnforceError::step(format!("mask {path:?}"));
        // A link is covered itself, for whoever follows it.
        let Some(target) = find(path, OFlags::NOFOLLOW).map_err(step())? else {
            return Ok(());
        };
        let stat = rustix::fs::fstat(&target).map_err(step())?;
        let directory = FileKind::of(stat.st_mode) == FileKind::Directory;
        let cover = if directory {
            self.cover_directory(&target)
        } else {
            self.cover_file(&target)
        };
        cover.map_err(step())
    }

    fn cover_directory(&mut self, target: &OwnedFd) -> rustix::io::Result<()> {
        if let Some(empty) = &self.empty {
            return attach_at(&copy(empty)?, target);
        }
        let made = empty(self.label)?;
        attach_at(&made, target)?;
        self.empty = Some(made);
        Ok(())
    }

    fn cover_file(&mut self, target: &OwnedFd) -> rustix::io::Result<()> {
        let source = match self.null.take() {
            Some(null) => null,
            None => null()?,
        };
        let covered = copy(&source).and_then(|null| attach_at(&null, target));
        self.null = Some(source);
        covered
    }
}

/// An empty tmpfs that nobody can fill: the file system itself is read-only, whatever a mount of it says.
fn empty(label: Option<&str>) -> rustix::io::Result<OwnedFd> {
    let fs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&fs, "source", "tmpfs")?;
    as_roots(&fs)?;
    fsconfig_set_flag(&fs, "ro")?;
    if let Some(label) = label {
        fsconfig_set_string(&fs, "context", label)?;
    }
    fsconfig_create(&fs)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY;
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// A second mount of a file or of a mount's root.
fn copy(of: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(of, "", flags)
}

/// What is at a path of the container; nothing where there is nothing.
fn find(path: &Path, how: OFlags) -> rustix::io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | how;
    let resolve = ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Makes what is at a path read-only by a mount of it over itself. A missing one is fine.
fn read_only(path: &Path) -> Result<(), EnforceError> {
    read_only_at(path).map_err(EnforceError::step(format!("make {path:?} read-only")))
}

fn read_only_at(path: &Path) -> std::io::Result<()> {
    let Some(target) = find(path, OFlags::empty())? else {
        return Ok(());
    };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(&target, "", flags)?;
    let bits = ["ro", "nosuid", "nodev", "noexec"].map(str::to_owned);
    let bits = mount_options::changes(&bits).one;
    change(tree.as_fd(), bits, 0, Reach::One)?;
    Ok(attach_at(&tree, &target)?)
}
