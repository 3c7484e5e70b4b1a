//! Whom the sidecar becomes, and what the kernel says of a process of the sidecar's: its status is opened while /proc is in sight, and read after everything has
//! been given away.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

use crate::sidecar::confine::{ConfineError, not_held};

/// Whom the sidecar becomes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Identity {
    pub uid: u32,
    pub gid: u32,
}

impl Identity {
    /// Whether it stays the person who called, as root of a user namespace that has no other user ([`super::spawn`] lets it be
    /// root nowhere else). The person's supplementary groups stay too: setgroups(2) is forbidden there.
    pub(super) fn is_callers(self) -> bool {
        self.uid == 0
    }
}

/// The node's /proc, opened before the root goes.
pub(super) struct Procfs(OwnedFd);

impl Procfs {
    pub fn open() -> Result<Self, ConfineError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open("/proc", flags, Mode::empty());
        opened.map(Self).map_err(ConfineError::step("open /proc"))
    }

    /// Opens what the kernel says of the calling process, before Landlock, which lets nothing be opened.
    pub fn account(&self) -> Result<Account, ConfineError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.0, "self/status", flags, Mode::empty());
        opened
            .map(Account)
            .map_err(ConfineError::step("open the process's status"))
    }
}

/// What the kernel says of this process, when it is read.
pub(super) struct Account(OwnedFd);

impl Account {
    /// A set of capabilities (proc_pid_status(5)). One read for all, where prctl(2) has a call for each capability.
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
