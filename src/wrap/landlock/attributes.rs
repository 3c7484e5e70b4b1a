//! SHELL. Changes of owner, mode, times and attributes, made in the command's place.
//!
//! Landlock does not control these changes: any reachable path could be changed, such as by `chmod 777 ~/.ssh`. So the
//! filter sends each such call here. This process opens the file from its own copy of the path. It changes the file by
//! that descriptor, if the command may write there. Later changes in the caller's memory have no effect
//! (seccomp_unotify(2)).

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use super::caller::Caller;
use crate::sys::seccomp::notify::NotifiedCall;

/// The largest value of an attribute (xattr(7)).
const LARGEST: usize = 64 << 10;

/// The file that a call names.
enum FileTarget {
    /// By a path, seen from a descriptor or `AT_FDCWD`.
    Path { from: i32, at: u64, follow: bool },
    /// By a descriptor.
    Descriptor(i32),
}

/// The change to make.
enum Change {
    Mode(u32),
    Owner(u32, u32),
    Times(Timestamps),
    Set(CString, Vec<u8>, XattrFlags),
    Remove(CString),
}

/// Makes the change if the command may write the file.
pub fn change(
    listener: BorrowedFd<'_>,
    call: &NotifiedCall,
    writable: &[PathBuf],
) -> Result<(), Errno> {
    let caller = Caller::open(listener, call)?;
    let (target, change) = read(&caller, call)?;
    let file = open(&caller, &target)?;
    if !is_within(&file, &target, writable)? {
        return Err(Errno::PERM);
    }
    make(&file, &change)
}

/// Reads the call's target and change.
fn read(caller: &Caller, call: &NotifiedCall) -> Result<(FileTarget, Change), Errno> {
    let [a, b, c, d, e, _] = call.args;
    let path = |at, follow| FileTarget::Path {
        from: libc::AT_FDCWD,
        at,
        follow,
    };
    let owner = |uid, gid| Change::Owner(int(uid).cast_unsigned(), int(gid).cast_unsigned());
    let mode = |mode| Change::Mode(int(mode).cast_unsigned() & 0o7777);
    Ok(match call.number {
        libc::SYS_chmod => (path(a, true), mode(b)),
        libc::SYS_fchmod => (FileTarget::Descriptor(int(a)), mode(b)),
        libc::SYS_fchmodat => (at(caller, a, b, 0)?, mode(c)),
        libc::SYS_fchmodat2 => (at(caller, a, b, int(d))?, mode(c)),
        libc::SYS_chown => (path(a, true), owner(b, c)),
        libc::SYS_lchown => (path(a, false), owner(b, c)),
        libc::SYS_fchown => (FileTarget::Descriptor(int(a)), owner(b, c)),
        libc::SYS_fchownat => (at(caller, a, b, int(e))?, owner(c, d)),
        libc::SYS_utime => (path(a, true), Change::Times(caller.times_of_utime(b)?)),
        libc::SYS_utimes => (path(a, true), Change::Times(caller.times_of_utimes(b)?)),
        libc::SYS_utimensat if b == 0 => (
            FileTarget::Descriptor(int(a)),
            Change::Times(caller.times(c)?),
        ),
        libc::SYS_utimensat => (at(caller, a, b, int(d))?, Change::Times(caller.times(c)?)),
        libc::SYS_setxattr => (path(a, true), set(caller, call)?),
        libc::SYS_lsetxattr => (path(a, false), set(caller, call)?),
        libc::SYS_fsetxattr => (FileTarget::Descriptor(int(a)), set(caller, call)?),
        libc::SYS_removexattr => (path(a, true), Change::Remove(attribute(caller, b)?)),
        libc::SYS_lremovexattr => (path(a, false), Change::Remove(attribute(caller, b)?)),
        libc::SYS_fremovexattr => (
            FileTarget::Descriptor(int(a)),
            Change::Remove(attribute(caller, b)?),
        ),
        _ => return Err(Errno::NOSYS),
    })
}

/// The low half of a register, as the kernel reads an int.
fn int(register: u64) -> i32 {
    (register as u32).cast_signed()
}

/// The target of a call with a descriptor, a path and flags.
fn at(caller: &Caller, from: u64, at: u64, flags: i32) -> Result<FileTarget, Errno> {
    let known = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
    if flags & !known != 0 {
        return Err(Errno::INVAL);
    }
    let from = int(from);
    if flags & libc::AT_EMPTY_PATH != 0 && caller.text(at)?.is_empty() {
        return Ok(FileTarget::Descriptor(from));
    }
    Ok(FileTarget::Path {
        from,
        at,
        follow: flags & libc::AT_SYMLINK_NOFOLLOW == 0,
    })
}

fn set(caller: &Caller, call: &NotifiedCall) -> Result<Change, Errno> {
    let [_, name, value, size, flags, _] = call.args;
    let size = usize::try_from(size).map_err(|_| Errno::TOOBIG)?;
    if size > LARGEST {
        return Err(Errno::TOOBIG);
    }
    let mut bytes = vec![0; size];
    caller.memory(value, &mut bytes)?;
    let flags = XattrFlags::from_bits(int(flags).cast_unsigned()).ok_or(Errno::INVAL)?;
    Ok(Change::Set(attribute(caller, name)?, bytes, flags))
}

/// The name of an attribute. Attributes of the security modules are refused: a kernel with SELinux lets owners set
/// labels while no policy is loaded, and they take effect once one is.
fn attribute(caller: &Caller, name: u64) -> Result<CString, Errno> {
    let name = caller.text(name)?;
    match is_the_nodes(&name) {
        true => Err(Errno::PERM),
        false => Ok(name),
    }
}

fn is_the_nodes(name: &CStr) -> bool {
    let kinds: [&[u8]; 2] = [b"security.", b"trusted."];
    kinds.iter().any(|kind| name.to_bytes().starts_with(kind))
}

/// Opens the target, without access to its content.
fn open(caller: &Caller, target: &FileTarget) -> Result<OwnedFd, Errno> {
    match target {
        FileTarget::Descriptor(libc::AT_FDCWD) => caller.link("cwd"),
        FileTarget::Descriptor(number) => caller.descriptor(*number),
        FileTarget::Path { from, at, follow } => {
            let path = caller.text(*at)?;
            let path = Path::new(OsStr::from_bytes(path.to_bytes()));
            if path.as_os_str().is_empty() {
                return Err(Errno::NOENT);
            }
            // The C library's path for a file that it has open. Resolved here, it would be this process's descriptor.
            if let Some(number) = own_descriptor(path, caller.thread()).filter(|_| *follow) {
                return caller.descriptor(number);
            }
            let base = match (path.is_absolute(), *from) {
                (true, _) => None,
                (false, libc::AT_FDCWD) => Some(caller.link("cwd")?),
                (false, number) => Some(caller.descriptor(number)?),
            };
            let base = base.as_ref().map_or(CWD, AsFd::as_fd);
            let mut flags = OFlags::PATH | OFlags::CLOEXEC;
            if !follow {
                flags |= OFlags::NOFOLLOW;
            }
            rustix::fs::openat2(
                base,
                path,
                flags,
                Mode::empty(),
                ResolveFlags::NO_MAGICLINKS,
            )
        }
    }
}

/// N of /proc/self/fd/N and its other spellings.
fn own_descriptor(path: &Path, thread: i32) -> Option<i32> {
    let text = path.to_str()?;
    let by_number = format!("/proc/{thread}/fd/");
    let places = [
        "/proc/self/fd/",
        "/proc/thread-self/fd/",
        "/dev/fd/",
        &by_number,
    ];
    let number = places.iter().find_map(|place| text.strip_prefix(place))?;
    number.parse().ok()
}

/// Whether the file lies below a directory that the command may write. A file without a name is the command's own.
fn is_within(file: &OwnedFd, target: &FileTarget, writable: &[PathBuf]) -> Result<bool, Errno> {
    let name = name_of(file)?;
    let anonymous = !name.starts_with("/") || name.as_os_str().as_bytes().starts_with(b"/memfd:");
    if anonymous {
        return Ok(matches!(target, FileTarget::Descriptor(_)));
    }
    Ok(writable.iter().any(|place| name.starts_with(place)))
}

fn name_of(file: &OwnedFd) -> Result<PathBuf, Errno> {
    let name = rustix::fs::readlink(by_descriptor(file), Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// A path that leads to an open file again.
fn by_descriptor(file: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn make(file: &OwnedFd, change: &Change) -> Result<(), Errno> {
    let path = by_descriptor(file);
    match change {
        Change::Mode(mode) => rustix::fs::chmod(&path, Mode::from_raw_mode(*mode)),
        Change::Owner(uid, gid) => {
            // The largest number means no change (chown(2)).
            let uid = (*uid != u32::MAX).then(|| Uid::from_raw(*uid));
            let gid = (*gid != u32::MAX).then(|| Gid::from_raw(*gid));
            rustix::fs::chownat(file, "", uid, gid, AtFlags::EMPTY_PATH)
        }
        Change::Times(times) => rustix::fs::utimensat(CWD, &path, times, AtFlags::empty()),
        Change::Set(name, value, flags) => rustix::fs::setxattr(&path, name, value, *flags),
        Change::Remove(name) => rustix::fs::removexattr(&path, name),
    }
}

/// Both times set to now.
pub(super) fn now() -> Timestamps {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: rustix::fs::UTIME_NOW,
    };
    Timestamps {
        last_access: now,
        last_modification: now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L2: the command cannot set labels of security modules.
    #[test]
    fn labels_of_security_modules_are_the_nodes() {
        for name in [c"security.selinux", c"security.capability", c"trusted.x"] {
            assert!(is_the_nodes(name), "{name:?}");
        }
        for name in [c"user.x", c"system.posix_acl_access", c"user.security.x"] {
            assert!(!is_the_nodes(name), "{name:?}");
        }
    }
}
