//! The session keyring of a process.

use std::ffi::CString;

use super::EnforceError;
use crate::sys::keyring::{join_new_session_keyring, join_session_keyring};

/// Gives the process one of its own, without a name: no key of another process is in reach.
pub fn join_new() -> Result<(), EnforceError> {
    join_new_session_keyring().map_err(EnforceError::step("join a new session keyring"))
}

/// Gives the process the one that the processes of the container share (runc).
pub fn join_named(name: &CString) -> Result<(), EnforceError> {
    match join_session_keyring(name) {
        // Nothing to keep apart in a kernel without keys (runc).
        Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        other => other.map_err(EnforceError::step(format!("join the keyring {name:?}"))),
    }
}
