//! keyctl(2).
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

use std::ffi::CStr;
use std::io;

/// KEYCTL_JOIN_SESSION_KEYRING of `linux/keyctl.h`.
const JOIN_SESSION_KEYRING: libc::c_long = 1;
/// KEYCTL_SETPERM.
const SETPERM: libc::c_long = 5;
/// The kernel's rights of a new named keyring (all for its possessor; its owner may view, read and link), plus
/// KEY_USR_SEARCH for the owner: without it the keyring is not found by its name.
const FOUND_BY_NAME: libc::c_long = 0x3f13_0000 | 0x0008_0000;

/// Gives the calling process a new, empty, anonymous session keyring in place of its inherited one
/// (keyctl_join_session_keyring(3)): keys of the engine's session are then out of reach.
pub fn join_new_session_keyring() -> io::Result<()> {
    // SAFETY: with a null name the kernel reads no memory of ours; the remaining arguments are ignored.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            JOIN_SESSION_KEYRING,
            std::ptr::null::<libc::c_char>(),
            0,
            0,
            0,
        )
    };
    check(rc).map(drop)
}

/// Joins the session keyring of this name, and makes it if the user has none. As in runc, the processes of one
/// container share theirs.
pub fn join_session_keyring(name: &CStr) -> io::Result<()> {
    // SAFETY: `name` is NUL-terminated and lives until the call returns; the kernel only reads it.
    let id = check(unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            JOIN_SESSION_KEYRING,
            name.as_ptr(),
            0,
            0,
            0,
        )
    })?;
    // SAFETY: integers alone.
    check(unsafe { libc::syscall(libc::SYS_keyctl, SETPERM, id, FOUND_BY_NAME, 0, 0) }).map(drop)
}

fn check(rc: libc::c_long) -> io::Result<libc::c_long> {
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(rc)
    }
}
