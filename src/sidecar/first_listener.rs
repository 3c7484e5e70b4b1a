//! The listener of the init process's filter: the first one that the sidecar awaits.

use std::os::fd::OwnedFd;

use super::calls::Calls;
use super::error::SidecarError;
use super::protocol::InitQuestion;

/// After its question, init's listener comes over the same socket.
pub(super) fn expect(
    calls: Option<&mut Calls>,
    socket: OwnedFd,
    question: InitQuestion,
) -> Result<(), SidecarError> {
    match calls {
        Some(calls) if question == InitQuestion::Enter => calls
            .expect_first(socket)
            .map_err(SidecarError::step("wait for the first listener")),
        _ => Ok(()),
    }
}
