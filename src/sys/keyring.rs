//! keyctl(2).
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

use std::io;

/// KEYCTL_JOIN_SESSION_KEYRING of `linux/keyctl.h`.
const JOIN_SESSION_KEYRING: libc::c_long = 1;

/// Gives the calling process a new, empty, anonymous session keyring in place of the one it inherited
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
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
