//! How a verb ends: its exit status, and what is said beside an error.

use std::process::ExitCode;

use crate::runtime::RuntimeError;
use crate::runtime::unprivileged;

/// Says where a container may be that root does not find: a user's sandboxes are in the user's own records. Engines, which
/// read what is printed, do not call through sudo.
pub fn hint_at_sudo(error: &anyhow::Error) {
    let unknown = matches!(error.downcast_ref(), Some(RuntimeError::Unknown(_)));
    if unknown && std::env::var_os("SUDO_UID").is_some() && unprivileged::person().is_none() {
        crate::log::complain(
            "agentbox: a sandbox that `agentbox wrap` made without sudo is its user's: leave sudo out",
        );
    }
}

/// An exit status for a shell: 255 if it does not fit in a byte.
pub fn exit_code(status: i32) -> ExitCode {
    ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))
}
