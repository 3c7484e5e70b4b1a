//! SHELL. Whether this node can make a scratch disk ([`super::maker`] makes it).

use std::fs::OpenOptions;
use std::path::Path;

use rustix::mount::{FsOpenFlags, fsopen};
use rustix::process::Resource;

/// The directory of the disk files, which are unlinked at once.
pub const DIRECTORY: &str = "/var/lib/agentbox/scratch";

/// Assigns loop devices (loop(4)).
pub const CONTROL: &str = "/dev/loop-control";

/// TMPFS_MAGIC and RAMFS_MAGIC of linux/magic.h.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// The reason why this node cannot, from checks that make no disk; `None` if none objects.
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
    // The kernel kills a process that writes beyond this limit with SIGXFSZ.
    let limit = rustix::process::getrlimit(Resource::Fsize).current;
    limit.map(|_| "RLIMIT_FSIZE bounds the size of files".to_owned())
}
