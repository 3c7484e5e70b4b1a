#![expect(
    unsafe_code,
    reason = "the event loop asks for a promise; the block states its proof"
)]
//! Waiting for a descriptor in the sidecar's event loop.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits until a descriptor is readable or hung up. Must be called inside a tokio runtime.
pub async fn readable(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: the registration is for `fd`'s number, which the borrow keeps open for as long as the returned value
    // lives, and that value is dropped in this function.
    let watched = unsafe { AsyncFd::register_with_interest(fd.as_fd(), Interest::READABLE) };
    let watched = watched.map_err(io::Error::from)?;
    watched.readable().await?.retain_ready();
    Ok(())
}
