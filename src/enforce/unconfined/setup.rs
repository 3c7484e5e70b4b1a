//! The parts of a spec without a policy that libcontainer 0.7.0 does not do. The container's init process does them
//! after pivot_root: mounts that libcontainer cannot make or makes differently, devices outside of /dev, the working
//! directory. Last come read-only and masked paths, and the root itself.
//!
//! Not for a container under a policy: its mounts are checked ones ([`crate::enforce::rootfs`]).

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxDevice, LinuxDeviceType};
use rustix::fs::{CWD, FileType, Gid, Mode, Uid};
use rustix::io::Errno;

use super::copy_up;
use crate::enforce::cover::{
    FollowLinks, Masks, ReadOnlyScope, attach, read_only, remount_read_only,
};
use crate::enforce::error::EnforceError;
use crate::enforce::file_system::NewFileSystem;
use crate::enforce::rootfs::make_mount_point;
use crate::kernel::mount_options::{Bits, Changes, MountReach};
use crate::plan::FileKind;
use crate::sys::mount::change;
use crate::sys::netlink::RouteSocket;
use crate::sys::user::with_files_of_root;

/// Paths are the spec's own.
const FOLLOW: FollowLinks = FollowLinks::AsTheProgramWould;

/// The part of the setup that the init process does itself.
#[derive(Default)]
pub struct UnconfinedSetup {
    /// Mounts, in the spec's order.
    pub steps: Vec<MountStep>,
    /// Device nodes outside of /dev.
    pub devices: Vec<Device>,
    /// Working directory, made if it is missing.
    pub cwd: PathBuf,
    /// linux.readonlyPaths
    pub readonly: Vec<PathBuf>,
    /// linux.maskedPaths
    pub masked: Vec<PathBuf>,
    /// linux.mountLabel, for the masks.
    pub mount_label: Option<String>,
    /// /dev is requested read-only, and must be writable until the end.
    pub dev_read_only: bool,
    /// root.readonly
    pub root_read_only: bool,
    /// The network namespace is new: its `lo` is down.
    pub new_network: bool,
}

impl UnconfinedSetup {
    /// Whether device nodes may have to be made, for which the set-up needs CAP_MKNOD.
    pub fn makes_nodes(&self) -> bool {
        let copies = |s: &MountStep| matches!(s.mount, Some(MountSource::CopyUp(_)));
        self.devices.iter().any(|d| d.node.is_none()) || self.steps.iter().any(copies)
    }
}

/// The work at one mount point.
pub struct MountStep {
    /// The mount point, without symbolic links.
    pub destination: PathBuf,
    /// The mount to make there; `None` if libcontainer has made one.
    pub mount: Option<MountSource>,
    /// Changes to it.
    pub changes: Changes,
}

/// The source of a mount.
pub enum MountSource {
    /// A detached copy of a bind mount's source.
    Tree(OwnedFd, FileKind),
    /// A new file system of this type, from this source, with these options.
    FileSystem(String, PathBuf, Vec<String>),
    /// A tmpfs with these options, which begins with a copy of the files at the mount point.
    CopyUp(Vec<String>),
}

/// A device node, to be made or, in a user namespace, bound from the node's.
pub struct Device {
    /// Its description in the spec.
    pub spec: LinuxDevice,
    /// The node's device.
    pub node: Option<OwnedFd>,
}

/// Makes mounts, devices and the working directory.
pub fn make(left: &UnconfinedSetup) -> Result<(), EnforceError> {
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

/// As runc and crun do.
fn set_lo_up() -> std::io::Result<()> {
    let mut route = RouteSocket::open()?;
    let lo = route.links()?.into_iter().find(|link| link.is_loopback());
    match lo {
        Some(lo) => route.set_up(lo.index),
        None => Err(std::io::ErrorKind::NotFound.into()),
    }
}

fn make_as_root(left: &UnconfinedSetup) -> Result<(), EnforceError> {
    left.steps.iter().try_for_each(step)?;
    left.devices.iter().try_for_each(device)?;
    let cwd = &left.cwd;
    std::fs::create_dir_all(cwd).map_err(EnforceError::step(format!("mkdir {}", cwd.display())))
}

/// Makes paths read-only and masks others, last.
pub fn seal(left: &UnconfinedSetup) -> Result<(), EnforceError> {
    let readonly = |path| read_only(path, FOLLOW, ReadOnlyScope::Alone);
    left.readonly.iter().try_for_each(|p| readonly(p))?;
    let mut masks = Masks::new(FOLLOW, left.mount_label.as_deref());
    left.masked.iter().try_for_each(|p| masks.mask(p))?;
    if left.dev_read_only {
        remount(Path::new("/dev"))?;
    }
    if left.root_read_only {
        remount(Path::new("/"))?;
    }
    Ok(())
}

fn remount(path: &Path) -> Result<(), EnforceError> {
    remount_read_only(path, FOLLOW, MountReach::One)
        .map_err(EnforceError::step(format!("make {path:?} read-only")))
}

fn step(step: &MountStep) -> Result<(), EnforceError> {
    let MountStep {
        destination,
        mount,
        changes,
    } = step;
    if let Some(source) = mount {
        let (tree, kind) = match source {
            MountSource::Tree(tree, kind) => {
                (tree.try_clone().map_err(failed(destination))?, *kind)
            }
            MountSource::FileSystem(typ, from, options) => (
                file_system(typ, from, options).map_err(failed(destination))?,
                FileKind::Directory,
            ),
            MountSource::CopyUp(options) => (copied_up(destination, options)?, FileKind::Directory),
        };
        make_mount_point(open(Path::new("/"))?.as_fd(), destination, kind)?;
        attach(&tree, &open(destination)?).map_err(failed(destination))?;
    }
    if changes.is_empty() {
        return Ok(());
    }
    let mounted = open(destination)?;
    let bits = [
        (changes.one, MountReach::One),
        (changes.below, MountReach::Below),
    ];
    for (bits, reach) in bits.into_iter().filter(|(bits, _)| !bits.is_empty()) {
        change(mounted.as_fd(), bits, None, reach).map_err(failed(destination))?;
    }
    for (kind, reach) in &changes.propagation {
        change(mounted.as_fd(), Bits::default(), Some(*kind), *reach)
            .map_err(failed(destination))?;
    }
    Ok(())
}

/// For `map_err`: runc's words.
fn failed<E: Into<std::io::Error>>(destination: &Path) -> impl FnOnce(E) -> EnforceError {
    EnforceError::step(format!("error mounting to rootfs at {destination:?}"))
}

/// A detached file system with options as mount(8) takes them; attributes of the mount are changed afterwards.
fn file_system(typ: &str, source: &Path, options: &[String]) -> rustix::io::Result<OwnedFd> {
    let fs = NewFileSystem::begin(typ, source)?;
    fs.set_options(options)?;
    fs.mount(Bits::default())
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

/// Opens a path as any process of the container would; a swapped path lies in the container too.
fn open(path: &Path) -> Result<OwnedFd, EnforceError> {
    FOLLOW
        .open(path)
        .map_err(EnforceError::step(format!("open {path:?}")))
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
        // Left by an earlier container with this root; runc does the same.
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
