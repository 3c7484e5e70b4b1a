//! Finishes a spec without a policy after libcontainer 0.7.0, in the container's first process, after pivot_root:
//! mounts that libcontainer cannot make or makes otherwise, devices outside of /dev, the working directory, and then
//! read-only paths, masked paths and the root itself.
//!
//! Not for a container under a policy: its mounts are judged ones ([`crate::enforce::rootfs`]).

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxDevice, LinuxDeviceType};
use rustix::fs::{CWD, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use super::copy_up;
use crate::enforce::EnforceError;
use crate::enforce::kernel::configure;
use crate::enforce::rootfs::make_mount_point;
use crate::kernel::mount_options::{self, Bits, Changes, Reach};
use crate::plan::FileKind;
use crate::sys::mount::change;
use crate::sys::netlink::RouteSocket;
use crate::sys::user::with_files_of_root;

/// What is left to do.
#[derive(Default)]
pub struct Unfinished {
    /// Mounts, in the spec's order.
    pub steps: Vec<Step>,
    /// Device nodes outside of /dev.
    pub devices: Vec<Device>,
    /// Working directory, made if it is missing.
    pub cwd: PathBuf,
    /// linux.readonlyPaths
    pub readonly: Vec<PathBuf>,
    /// linux.maskedPaths
    pub masked: Vec<PathBuf>,
    /// linux.mountLabel, for what is mounted here.
    pub mount_label: Option<String>,
    /// /dev is asked for read-only, and needed writable until the end.
    pub dev_read_only: bool,
    /// root.readonly
    pub root_read_only: bool,
    /// The network namespace is a new one, in which nobody has set `lo` up.
    pub new_network: bool,
}

impl Unfinished {
    /// Whether device nodes may have to be made, for which the set-up needs CAP_MKNOD.
    pub fn makes_nodes(&self) -> bool {
        let copies = |s: &Step| matches!(s.mount, Some(Source::CopyUp(_)));
        self.devices.iter().any(|d| d.node.is_none()) || self.steps.iter().any(copies)
    }
}

/// Something to do at a mount point.
pub struct Step {
    /// The mount point, without a symbolic link in it.
    pub destination: PathBuf,
    /// What to mount there; `None` where libcontainer has.
    pub mount: Option<Source>,
    /// What to change of it.
    pub changes: Changes,
}

/// What is mounted.
pub enum Source {
    /// A detached copy of a bind mount's source.
    Tree(OwnedFd, FileKind),
    /// A new file system of this type, from this source, with these options.
    FileSystem(String, PathBuf, Vec<String>),
    /// A tmpfs with these options, which begins with what lies at the mount point.
    CopyUp(Vec<String>),
}

/// A device node, to be made or, in a user namespace, bound from the node's.
pub struct Device {
    /// What the spec says of it.
    pub spec: LinuxDevice,
    /// The node's own.
    pub node: Option<OwnedFd>,
}

/// Makes mounts, devices and the working directory.
pub fn make(left: &Unfinished) -> Result<(), EnforceError> {
    if left.new_network {
        set_lo_up().map_err(EnforceError::step("set lo up"))?;
    }
    with_files_of_root(|| {
        let before = rustix::process::umask(Mode::from_raw_mode(0o022));
        let result = make_as_root(left);
        rustix::process::umask(before);
        result
    })
}

/// As runc and crun do (S-1).
fn set_lo_up() -> std::io::Result<()> {
    let mut route = RouteSocket::open()?;
    let lo = route.links()?.into_iter().find(|link| link.is_loopback());
    match lo {
        Some(lo) => route.set_up(lo.index),
        None => Err(std::io::ErrorKind::NotFound.into()),
    }
}

fn make_as_root(left: &Unfinished) -> Result<(), EnforceError> {
    left.steps.iter().try_for_each(step)?;
    left.devices.iter().try_for_each(device)?;
    let cwd = &left.cwd;
    std::fs::create_dir_all(cwd).map_err(EnforceError::step(format!("mkdir {}", cwd.display())))
}

/// Makes read-only and masks what is to be, last.
pub fn seal(left: &Unfinished) -> Result<(), EnforceError> {
    left.readonly.iter().try_for_each(|p| read_only(p))?;
    let label = left.mount_label.as_deref();
    left.masked.iter().try_for_each(|p| mask(p, label))?;
    if left.dev_read_only {
        remount_read_only(Path::new("/dev"))?;
    }
    if left.root_read_only {
        remount_read_only(Path::new("/"))?;
    }
    Ok(())
}

fn step(step: &Step) -> Result<(), EnforceError> {
    let Step {
        destination,
        mount,
        changes,
    } = step;
    if let Some(source) = mount {
        let (tree, kind) = match source {
            Source::Tree(tree, kind) => (tree.try_clone().map_err(failed(destination))?, *kind),
            Source::FileSystem(typ, from, options) => (
                file_system(typ, from, options).map_err(failed(destination))?,
                FileKind::Directory,
            ),
            Source::CopyUp(options) => (copied_up(destination, options)?, FileKind::Directory),
        };
        make_mount_point(open(Path::new("/"))?.as_fd(), destination, kind)?;
        attach(&tree, &open(destination)?).map_err(failed(destination))?;
    }
    if changes.is_empty() {
        return Ok(());
    }
    let mounted = open(destination)?;
    let bits = [(changes.one, Reach::One), (changes.below, Reach::Below)];
    for (bits, reach) in bits.into_iter().filter(|(bits, _)| !bits.is_empty()) {
        change(mounted.as_fd(), bits, 0, reach).map_err(failed(destination))?;
    }
    for (kind, reach) in &changes.propagation {
        change(mounted.as_fd(), Bits::default(), *kind, *reach).map_err(failed(destination))?;
    }
    Ok(())
}

/// For `map_err`: runc's words.
fn failed<E: Into<std::io::Error>>(destination: &Path) -> impl FnOnce(E) -> EnforceError {
    EnforceError::step(format!("error mounting to rootfs at {destination:?}"))
}

/// A detached file system with options as mount(8) takes them; attributes of the mount are changed afterwards.
fn file_system(typ: &str, source: &Path, options: &[String]) -> rustix::io::Result<OwnedFd> {
    let fs = fsopen(typ, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&fs, "source", source)?;
    configure(&fs, options)?;
    fsconfig_create(&fs)?;
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

fn copied_up(destination: &Path, options: &[String]) -> Result<OwnedFd, EnforceError> {
    make_mount_point(
        open(Path::new("/"))?.as_fd(),
        destination,
        FileKind::Directory,
    )?;
    let from = open(destination)?;
    let tree = file_system("tmpfs", Path::new("tmpfs"), options).map_err(failed(destination))?;
    copy_up::directory(from.as_fd(), tree.as_fd()).map_err(EnforceError::step(format!(
        "copy {destination:?} into its tmpfs"
    )))?;
    Ok(tree)
}

/// Opens a path of the container as every process in it would; what it is swapped for lies in the container too.
fn open(path: &Path) -> Result<OwnedFd, EnforceError> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(EnforceError::step(format!("open {path:?}")))
}

fn attach(mount: &OwnedFd, target: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", target, "", flags)
}

fn device(device: &Device) -> Result<(), EnforceError> {
    let Device { spec, node } = device;
    let path: PathBuf = spec.path().components().collect();
    let step = || format!("make the device {path:?}");
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(EnforceError::step(step()))?;
    }
    if let Some(node) = node {
        make_mount_point(open(Path::new("/"))?.as_fd(), &path, FileKind::Device)?;
        return attach(node, &open(&path)?).map_err(EnforceError::step(step()));
    }
    let kind = match spec.typ() {
        LinuxDeviceType::B => FileType::BlockDevice,
        LinuxDeviceType::P => FileType::Fifo,
        LinuxDeviceType::C | LinuxDeviceType::U | LinuxDeviceType::A => FileType::CharacterDevice,
    };
    let number = rustix::fs::makedev(spec.major() as u32, spec.minor() as u32);
    let mode = Mode::from_raw_mode(spec.file_mode().unwrap_or(0o666));
    match rustix::fs::mknodat(CWD, &path, kind, mode, number) {
        // Left from the container that had this root before, as runc sees it.
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(EnforceError::step(step())(e)),
    }
    let made = open(&path)?;
    // mknod(2) obeys the umask.
    rustix::fs::chmod(&path, mode).map_err(EnforceError::step(step()))?;
    let (uid, gid) = (spec.uid().unwrap_or(0), spec.gid().unwrap_or(0));
    rustix::fs::chownat(
        &made,
        "",
        Some(Uid::from_raw(uid)),
        Some(Gid::from_raw(gid)),
        rustix::fs::AtFlags::EMPTY_PATH,
    )
    .map_err(EnforceError::step(step()))
}

/// Makes what is at a path read-only by a mount of it over itself, with its other attributes. A missing path is fine.
fn read_only(path: &Path) -> Result<(), EnforceError> {
    let step = || format!("make {path:?} read-only");
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = match open_tree(CWD, path, flags) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        other => other.map_err(EnforceError::step(step()))?,
    };
    let bits = mount_options::changes([&"ro".to_owned()]).one;
    change(tree.as_fd(), bits, 0, Reach::One).map_err(EnforceError::step(step()))?;
    attach(&tree, &open(path)?).map_err(EnforceError::step(step()))
}

/// Makes a path empty: a directory by an empty read-only tmpfs, anything else by /dev/null. A missing path is fine.
fn mask(path: &Path, label: Option<&str>) -> Result<(), EnforceError> {
    let step = || format!("mask {path:?}");
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let target = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        other => other.map_err(EnforceError::step(step()))?,
    };
    let stat = rustix::fs::fstat(&target).map_err(EnforceError::step(step()))?;
    let cover = if FileKind::of(stat.st_mode) == FileKind::Directory {
        let options = label.map(|l| format!("context={l}"));
        let tree = file_system("tmpfs", Path::new("tmpfs"), options.as_slice())
            .map_err(EnforceError::step(step()))?;
        let bits = mount_options::changes([&"ro".to_owned()]).one;
        change(tree.as_fd(), bits, 0, Reach::One).map_err(EnforceError::step(step()))?;
        tree
    } else {
        null()?
    };
    attach(&cover, &target).map_err(EnforceError::step(step()))
}

/// /dev/null as a mount; anything else there would show itself in every masked file (CVE-2025-31133).
fn null() -> Result<OwnedFd, EnforceError> {
    let step = || "take /dev/null for a mask";
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, "/dev/null", flags).map_err(EnforceError::step(step()))?;
    let stat = rustix::fs::fstat(&tree).map_err(EnforceError::step(step()))?;
    let is_null = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && stat.st_rdev == rustix::fs::makedev(1, 3);
    if is_null {
        Ok(tree)
    } else {
        Err(EnforceError::step(step())(Errno::NXIO))
    }
}

fn remount_read_only(path: &Path) -> Result<(), EnforceError> {
    let bits = mount_options::changes([&"ro".to_owned()]).one;
    change(open(path)?.as_fd(), bits, 0, Reach::One)
        .map_err(EnforceError::step(format!("make {path:?} read-only")))
}
