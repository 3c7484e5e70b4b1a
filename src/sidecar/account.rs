//! The sidecar's uid and gid, and its status as the kernel reports it. The status is opened while /proc is visible, and
//! read after every privilege is dropped.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

use crate::sidecar::confine::{ConfineError, not_held};

/// The ids that the sidecar takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Identity {
    pub uid: u32,
    pub gid: u32,
}

impl Identity {
    /// Whether it stays the caller, as root of a user namespace without another user ([`super::spawn`] allows root
    /// nowhere else). The caller's supplementary groups stay too: setgroups(2) is forbidden there. The relay to an SSH
    /// agent may also be root itself: it leaves the groups before.
    pub(super) fn is_callers(self) -> bool {
        self.uid == 0
    }
}

/// The node's /proc, opened before the root is replaced.
pub(super) struct Procfs(OwnedFd);

impl Procfs {
    pub fn open() -> Result<Self, ConfineError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open("/proc", flags, Mode::empty());
        opened.map(Self).map_err(ConfineError::step("open /proc"))
    }

    /// Opens the status of this process. To be called before Landlock, which forbids every open.
    pub fn account(&self) -> Result<Account, ConfineError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.0, "self/status", flags, Mode::empty());
        opened
            .map(Account)
            .map_err(ConfineError::step("open the process's status"))
    }
}

/// The open status of this process.
pub(super) struct Account(OwnedFd);

impl Account {
    /// Reads a set of capabilities (proc_pid_status(5)). One read is enough; prctl(2) needs a call for each capability.
    pub fn capabilities(&self, name: &'static str) -> Result<u64, ConfineError> {
        let mut text = [0; 8192];
        let length = rustix::io::pread(&self.0, &mut text, 0)
            .map_err(ConfineError::step("read the process's status"))?;
        let text = String::from_utf8_lossy(&text[..length]);
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        let value = value.map(|digits| u64::from_str_radix(digits.trim(), 16));
        match value {
            Some(Ok(set)) => Ok(set),
            _ => Err(not_held("readable capabilities", name)),
        }
    }
}
