//! Protects the runtime's own file from writes through a container's /proc (CVE-2019-5736).
//!
//! A process of the container begins as this program, and /proc/<pid>/exe leads to its file. So the verbs that enter a
//! container execute themselves again from a read-only, detached bind mount of that file. Opening the link for writing
//! then fails with EROFS, and a detached mount cannot be remounted. A sealed copy in memory (runc's first fix) costs
//! milliseconds a command.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatVfsMountFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::kernel::mount_options::{Bits, MountReach};
use crate::runtime::RuntimeError;
use crate::sys::file_size;
use crate::sys::mount::change;

const EXE: &str = "/proc/self/exe";

/// A verb's use of descriptors from systemd (sd_listen_fds(3)). libcontainer passes them on, even if they are for
/// another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenFds {
    /// Pass them to the container, if LISTEN_PID is this process.
    Pass,
    /// Drop them.
    Forget,
}

impl ListenFds {
    fn keeps(self, name: &OsStr) -> bool {
        self.keeps_for(std::process::id, name, || std::env::var("LISTEN_PID").ok())
    }

    /// Whether process `own`, which is asked for only if it matters, keeps a variable; `listen_pid` is the value of LISTEN_PID.
    fn keeps_for(
        self,
        own: impl FnOnce() -> u32,
        name: &OsStr,
        listen_pid: impl FnOnce() -> Option<String>,
    ) -> bool {
        let is_ours = || listen_pid().is_some_and(|pid| pid == own().to_string());
        (name != "LISTEN_FDS" && name != "LISTEN_PID") || (self == Self::Pass && is_ours())
    }
}

/// The program's path before this process left its mount namespace. Not set for a process that runs from a sealed mount already.
static PATH: OnceLock<PathBuf> = OnceLock::new();

/// Saves the program's path. Call this before the process makes a mount namespace: when the old one has no process
/// left, its mounts are taken apart, and the kernel then names the file only by its path in its own mount (d_path in
/// the kernel).
pub fn remember_path() {
    let exe = rustix::fs::open(EXE, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    // Without a right to mount it is not to be told, and [`crate::sys::start`] has not sealed it.
    if exe.and_then(|exe| is_sealed(&exe)).unwrap_or(false) {
        return;
    }
    if let Ok(path) = std::fs::read_link(EXE) {
        PATH.get_or_init(|| path);
    }
}

/// Executes this program again from a read-only mount, without LISTEN_FDS for other processes, unless it runs so
/// already. [`crate::sys::start`] has usually done it.
pub fn ensure(listen: ListenFds) -> Result<(), RuntimeError> {
    let step = "protect the runtime's own file (CVE-2019-5736)";
    let exe = rustix::fs::open(EXE, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(RuntimeError::io(step))?;
    // In a new mount namespace a file that the old one mounts by itself, read-only, looks sealed, and is not. Besides, only a program
    // that was executed in its user namespace belongs to it (ptrace(2), would_dump in fs/exec.c).
    let sealed = PATH.get().is_none() && is_sealed(&exe).map_err(RuntimeError::io(step))?;
    let clean = std::env::vars_os().all(|(name, _)| listen.keeps(&name));
    if sealed && clean {
        return Ok(());
    }
    let tree = own_tree(&exe).map_err(RuntimeError::io(step))?;
    change(tree.as_fd(), Bits::READ_ONLY, None, MountReach::One).map_err(RuntimeError::io(step))?;
    Err(RuntimeError::io(step)(execute_again(&tree, listen)))
}

/// Whether it runs from a mount as [`ensure`] makes it: read-only, of the file alone, and in no mount namespace, where
/// it could be made writable again. A node may have the file on a read-only mount that is remounted for upgrades. A
/// process of a container that keeps a descriptor would wait for that.
fn is_sealed(exe: &OwnedFd) -> rustix::io::Result<bool> {
    let read_only = rustix::fs::fstatvfs(exe)?
        .f_flag
        .contains(StatVfsMountFlags::RDONLY);
    // Since Linux 5.8; statx(2).
    let known = rustix::fs::statx(exe, c"", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
    let alone = known.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    if !(read_only && alone) {
        return Ok(false);
    }
    // Only a mount of this namespace can be cloned (open_tree(2)).
    match open_tree(CWD, EXE, CLONE) {
        Err(Errno::INVAL) => Ok(true),
        Ok(_) => Ok(false),
        Err(error) => Err(error),
    }
}

/// For open_tree(2).
const CLONE: OpenTreeFlags = OpenTreeFlags::OPEN_TREE_CLONE.union(OpenTreeFlags::OPEN_TREE_CLOEXEC);

/// A detached mount of the program's file.
fn own_tree(exe: &OwnedFd) -> std::io::Result<OwnedFd> {
    match open_tree(CWD, EXE, CLONE) {
        // The process has a new mount namespace ([`super::unprivileged`]) and was executed from the old one, of which
        // nothing can be cloned. The file's path leads to it in the new one too.
        Err(Errno::INVAL) => {
            let path = match PATH.get() {
                Some(path) => path.clone(),
                None => std::fs::read_link(EXE)?,
            };
            let tree = open_tree(CWD, path, CLONE)?;
            let [found, own] = [rustix::fs::fstat(&tree)?, rustix::fs::fstat(exe)?];
            match (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino) {
                true => Ok(tree),
                false => Err(std::io::Error::other("another file has taken its place")),
            }
        }
        opened => Ok(opened?),
    }
}

fn execute_again(tree: &OwnedFd, listen: ListenFds) -> std::io::Error {
    let strings = |items: Vec<std::ffi::OsString>| {
        items
            .iter()
            .map(|i| CString::new(i.as_bytes()))
            .collect::<Result<Vec<_>, _>>()
    };
    let kept = std::env::vars_os().filter(|(name, _)| listen.keeps(name));
    let env = kept.map(|(mut k, v)| {
        k.push("=");
        k.push(v);
        k
    });
    let (Ok(args), Ok(env)) = (
        strings(std::env::args_os().collect()),
        strings(env.collect()),
    ) else {
        return std::io::Error::other("an argument has a NUL byte");
    };
    // It raises the limit again, and must know the caller's.
    if let Err(error) = file_size::give_back(None) {
        return error;
    }
    let Err(errno) = nix::unistd::fexecve(tree.as_raw_fd(), &args, &env);
    errno.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_of_systemd_are_passed_on_only_by_their_process_to_a_verb_that_wants_them() {
        let keeps = |listen: ListenFds, name: &str, pid: Option<&str>| {
            listen.keeps_for(|| 7, OsStr::new(name), || pid.map(str::to_owned))
        };
        for name in ["LISTEN_FDS", "LISTEN_PID"] {
            assert!(keeps(ListenFds::Pass, name, Some("7")), "{name}");
            for pid in [None, Some("8"), Some("07"), Some("")] {
                assert!(!keeps(ListenFds::Pass, name, pid), "{name} {pid:?}");
            }
            assert!(!keeps(ListenFds::Forget, name, Some("7")), "{name}");
        }
        for listen in [ListenFds::Pass, ListenFds::Forget] {
            assert!(keeps(listen, "PATH", None) && keeps(listen, "LISTEN_FDNAMES", None));
        }
    }
}
