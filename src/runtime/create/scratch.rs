//! A disk for what is thrown away: an ext4 file system of the container's own, in a sparse file that has no name, by way of
//! a loop device. The mount is detached and goes to the container's first process; when the last part of it is
//! unmounted there, however the container ends, the kernel lets go of the device, and with it of the file. Nobody but
//! the kernel ever writes the file once it is mounted.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use oci_spec::runtime::Spec;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use rustix::process::{Pid, Resource, Signal, WaitOptions};

use crate::render::ext4::{Blank, Owner};
use crate::sys::{loopback, process, socket};

/// Where the files are until they are unlinked, which is at once.
const DIRECTORY: &str = "/var/lib/agentbox/scratch";

/// How often a free device is looked for, which another container may take first.
const TRIES: usize = 64;

/// TMPFS_MAGIC and RAMFS_MAGIC of linux/magic.h.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// Why this node cannot, as far as that is seen without trying; nothing where it can.
pub fn why_not() -> Option<String> {
    let control = OpenOptions::new().read(true).write(true).open(CONTROL);
    if let Err(error) = control {
        return Some(format!("{CONTROL}: {error}"));
    }
    if fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC).is_err() {
        return Some("the kernel has no ext4".to_owned());
    }
    let there = Path::new(DIRECTORY).ancestors().find(|p| p.exists());
    let found = rustix::fs::statfs(there.unwrap_or(Path::new("/")));
    if found.is_ok_and(|found| IN_MEMORY.contains(&found.f_type)) {
        return Some(format!("{DIRECTORY} lies in memory itself"));
    }
    // Whoever goes beyond is killed by SIGXFSZ.
    let limit = rustix::process::getrlimit(Resource::Fsize).current;
    limit.map(|_| "RLIMIT_FSIZE bounds the size of files".to_owned())
}

const CONTROL: &str = "/dev/loop-control";

/// How long the disk may take; it takes milliseconds, most of which it waits.
const WITHIN: Duration = Duration::from_secs(10);

/// The longest reason that the child tells.
const REASON: usize = 1024;

/// A child that makes the disk while the runtime does other work. Dropped, it is killed and reaped.
pub struct Maker {
    child: Option<Pid>,
    socket: OwnedFd,
}

impl Maker {
    /// Forks the child. The calling process must be single-threaded.
    pub fn begin(bytes: u64, spec: &Spec) -> io::Result<Self> {
        let (ours, theirs) = socket::pair()?;
        let child = process::fork_into(|| {
            let sent = match make(bytes, spec) {
                Ok(disk) => socket::send(theirs.as_fd(), b"+", &[disk.as_fd()]),
                Err(error) => {
                    let mut why = error.to_string().into_bytes();
                    why.truncate(REASON);
                    socket::send(theirs.as_fd(), &why, &[])
                }
            };
            // Where nothing could be sent the parent sees the socket close.
            i32::from(sent.is_err())
        })?;
        Ok(Self {
            child: Some(child),
            socket: ours,
        })
    }

    /// Waits for the disk.
    pub fn finish(mut self) -> io::Result<OwnedFd> {
        let mut buffer = [0; REASON];
        let answer = socket::receive_within(self.socket.as_fd(), &mut buffer, WITHIN)?;
        self.reap()?;
        match answer.fds.into_iter().next() {
            Some(disk) => Ok(disk),
            None => {
                let why = String::from_utf8_lossy(&buffer[..answer.len]);
                Err(io::Error::other(why.into_owned()))
            }
        }
    }

    fn reap(&mut self) -> io::Result<()> {
        let Some(child) = self.child.take() else {
            return Ok(());
        };
        let options = WaitOptions::empty();
        match rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(child), options)) {
            // Where SIGCHLD is ignored the kernel has reaped it already.
            Ok(_) | Err(rustix::io::Errno::CHILD) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        let Some(child) = self.child else { return };
        // Not reaped yet, so the number is still this child's.
        if let Err(error) = rustix::process::kill_process(child, Signal::KILL) {
            log::debug!("the maker of a disk could not be killed: {error}");
        }
        if let Err(error) = self.reap() {
            log::debug!("{error}");
        }
    }
}

/// Makes an empty file system of this size, whose root directory belongs to root of the container.
fn make(bytes: u64, spec: &Spec) -> io::Result<OwnedFd> {
    let blank = Blank::new(bytes, root_of(spec));
    let file = file_without_name().map_err(within(&format!("make a file in {DIRECTORY}")))?;
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

/// Whom root of the container is on the node.
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

/// For root alone, and gone when it is closed.
fn file_without_name() -> io::Result<File> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(DIRECTORY)?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, DIRECTORY, flags, Mode::from_raw_mode(0o600)) {
        Ok(fd) => return Ok(fd.into()),
        // A file system without nameless files.
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
    // What nobody reads is not written, and nobody waits for a disk: it is thrown away.
    fsconfig_set_flag(&fs, "noinit_itable")?;
    fsconfig_set_flag(&fs, "nobarrier")?;
    fsconfig_create(&fs)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOATIME;
    Ok(fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}
