//! The session keyring of a process.

use std::ffi::CString;

use super::error::EnforceError;
use crate::sys::keyring::{join_new_session_keyring, join_session_keyring};

/// Gives the process its own unnamed session keyring, out of reach of other processes' keys.
pub fn join_new() -> Result<(), EnforceError> {
    join_new_session_keyring().map_err(EnforceError::step("join a new session keyring"))
}

/// Gives the process the keyring that the container's processes share (runc).
pub fn join_named(name: &CString) -> Result<(), EnforceError> {
    match join_session_keyring(name) {
        // A kernel without keys has nothing to separate (runc).
        Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        other => other.map_err(EnforceError::step(format!("join the keyring {name:?}"))),
    }
}
