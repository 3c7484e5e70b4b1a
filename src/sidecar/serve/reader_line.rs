//! The line to the process that reads requests.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use tokio::net::TcpStream;

use crate::sidecar::reader::messages::{Arrival, MessageChannel};
use crate::sys::socket;

/// Why no request is sent, for the log and for clients.
pub(super) const GONE: &str = "the sidecar's reader of requests has ended, and without it no request goes: start the container again";

/// The line to the process that reads requests.
pub(super) struct Reader(MessageChannel);

impl Reader {
    /// Must be called inside a tokio runtime.
    pub fn new(line: OwnedFd) -> io::Result<Self> {
        MessageChannel::new(line).map(Self)
    }

    /// Waits until the reader has ended. It sends nothing over this line: if it does, it counts as ended.
    pub async fn ended(&self) {
        let _said = self.0.hear::<serde::de::IgnoredAny>().await;
    }

    /// Gives the reader a connection; returns the line for its questions.
    pub async fn give(
        &self,
        client: &TcpStream,
        arrival: &Arrival,
        early: &[u8],
    ) -> io::Result<MessageChannel> {
        let (ours, theirs) = socket::pair()?;
        let line = MessageChannel::new(ours)?;
        let fds = [client.as_fd(), theirs.as_fd()];
        self.0.say(arrival, &fds).await?;
        drop(theirs);
        line.say_early(early).await?;
        Ok(line)
    }
}
