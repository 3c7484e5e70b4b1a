//! SHELL. A disk for scratch: an ext4 file system of the container's own, in a sparse file without a name, on a loop device.
//! The mount is detached and goes to the init process. When the last of it is unmounted there, however the container
//! ends, the kernel frees the device and the file. Once it is mounted, only the kernel writes the file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

use oci_spec::runtime::Spec;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};

use super::ext4::{EmptyImage, Owner};
use super::handover::{self, DiskAnswer};
use super::possible::{CONTROL, DIRECTORY};
use crate::sys::owned_child::OwnedChild;
use crate::sys::{loopback, socket};

/// How often a free device is looked for: another container may take it first.
const TRIES: usize = 64;

/// A child that makes the disk while the runtime does other work. Dropped, it is killed and reaped.
pub struct DiskMaker {
    child: OwnedChild,
    /// Receives the result.
    outcome: OwnedFd,
    /// Receives the disk, for the container's init process.
    arrives: Option<OwnedFd>,
}

impl DiskMaker {
    /// Forks the child. The calling process must be single-threaded. `check` refuses a directory for the file that other
    /// users may write.
    pub fn begin(
        bytes: u64,
        spec: &Spec,
        check: impl Fn(&Path) -> io::Result<()>,
    ) -> io::Result<Self> {
        let (outcome, says) = socket::pair()?;
        let (arrives, sends) = socket::pair()?;
        let child = OwnedChild::fork("the maker of a disk", || {
            let made = make(bytes, spec, &check);
            let sent = match &made {
                Ok(mount) => handover::send(sends.as_fd(), Ok(mount.as_fd()))
                    .and_then(|()| handover::send(says.as_fd(), Ok(mount.as_fd()))),
                Err(error) => {
                    let why = error.to_string();
                    handover::send(sends.as_fd(), Err(&why))
                        .and_then(|()| handover::send(says.as_fd(), Err(&why)))
                }
            };
            // If nothing could be sent, the receivers see the sockets close.
            i32::from(sent.is_err())
        })?;
        Ok(Self {
            child,
            outcome,
            arrives: Some(arrives),
        })
    }

    /// The socket end on which the init process waits for the disk.
    pub fn take_end(&mut self) -> Option<OwnedFd> {
        self.arrives.take()
    }

    /// Waits until the child has ended. Returns why there is no disk, or `None` if there is one.
    pub fn outcome(mut self) -> io::Result<Option<String>> {
        let arrived = handover::receive(self.outcome.as_fd());
        self.child.reap()?;
        Ok(match arrived? {
            DiskAnswer::Disk(_) => None,
            DiskAnswer::None(why) => Some(why),
        })
    }
}

/// Makes an empty file system of this size, whose root directory belongs to the container's root.
fn make(bytes: u64, spec: &Spec, check: impl Fn(&Path) -> io::Result<()>) -> io::Result<OwnedFd> {
    let blank = EmptyImage::new(bytes, root_of(spec));
    let file = file_without_name(check).map_err(within(&format!("make a file in {DIRECTORY}")))?;
    file.set_len(blank.bytes)
        .and_then(|()| file.write_all_at(&blank.head, 0))
        .map_err(within("write the file system"))?;
    let (device, path) = attach(&file).map_err(within("get a loop device"))?;
    let mount = mount(&path).map_err(within("mount it"))?;
    // From here on the mount alone holds the device, and the device the file.
    drop((device, file));
    Ok(mount)
}

fn within(step: &str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{step}: {error}"))
}

/// The ids of the container's root on the node.
fn root_of(spec: &Spec) -> Owner {
    let linux = spec.linux().as_ref();
    let root = |maps: Option<&Vec<oci_spec::runtime::LinuxIdMapping>>| {
        let mut maps = maps.into_iter().flatten();
        maps.find(|m| m.container_id() == 0)
            .map_or(0, |m| m.host_id())
    };
    Owner {
        uid: root(linux.and_then(|l| l.uid_mappings().as_ref())),
        gid: root(linux.and_then(|l| l.gid_mappings().as_ref())),
    }
}

/// A file for root only, that is gone when it is closed.
fn file_without_name(check: impl Fn(&Path) -> io::Result<()>) -> io::Result<File> {
    check(Path::new(DIRECTORY))?;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(DIRECTORY)?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, DIRECTORY, flags, Mode::from_raw_mode(0o600)) {
        Ok(fd) => return Ok(fd.into()),
        // The file system has no nameless files.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {}
        Err(e) => return Err(e.into()),
    }
    let path = Path::new(DIRECTORY).join(format!("{}", std::process::id()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// The device, and its path.
fn attach(file: &File) -> io::Result<(File, String)> {
    let control = OpenOptions::new().read(true).write(true).open(CONTROL)?;
    let mut last = io::Error::from_raw_os_error(libc::EBUSY);
    for _ in 0..TRIES {
        let path = format!("/dev/loop{}", loopback::find_free(control.as_fd())?);
        let device = OpenOptions::new().read(true).write(true).open(&path)?;
        match loopback::attach(device.as_fd(), file.as_fd(), "agentbox") {
            Ok(()) => return Ok((device, path)),
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => last = e,
            Err(e) => return Err(e),
        }
    }
    Err(last)
}

fn mount(device: &str) -> io::Result<OwnedFd> {
    let fs = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&fs, "source", device)?;
    // The disk is thrown away: do not write blocks that are never read.
    fsconfig_set_flag(&fs, "noinit_itable")?;
    fsconfig_set_flag(&fs, "nobarrier")?;
    fsconfig_create(&fs)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOATIME;
    Ok(fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}
