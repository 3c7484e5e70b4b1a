//! The reader: the process that reads requests, beside a sidecar whose rules name any.
//!
//! ```text
//! sidecar                                   reader
//! fork(), configuration-------------------> own empty network namespace, no capability, Landlock, no file, seccomp
//!         <--Ready or Failed---------------
//! client's connection, Arrival------------> reads a request, brings it into its one form
//!         <--Question::Request-------------
//! decides, dials, Answer::Go + a stream---> TLS where the rule says https, the request, its answer
//! carries the stream's bytes: budget, log, end of a rule
//! ```
//!
//! What strangers send as requests and answers, and TLS with them, is read here and nowhere else. The reader decides about nothing
//! and can make no socket: a hole in it leads to the hosts that rules name, over connections that the sidecar has dialled for a
//! request that it allowed and that it counts and ends. It is forked before the sidecar knows anything of its container, dies with
//! it, and is not started again: without it no request goes.
//!
//! ```text
//! authority     the container's own certificate authority, by which TLS is opened
//! messages      what the two say to each other
//! life          its confinement, and its loop
//! conversation  one connection of a client: reads, asks, answers
//! rewrite       a message without what belongs to one connection, for the other one
//! opened        the TLS of a client
//! redaction     secrets out of answers
//! refused       the wall's own answers
//! secrets       the node's secrets: into requests, and out of answers
//! mcp           messages of MCP, and lists in answers
//! held          what of these is held whole, and the room for it
//! outside       the connection to the host
//! stream        the client's connection as hyper wants it, behind the guard
//! websocket     the handshake of a WebSocket, and what follows it
//! ```

mod authority;
mod conversation;
mod held;
mod life;
mod mcp;
pub(super) mod messages;
mod opened;
mod outside;
mod redaction;
mod refused;
mod rewrite;
mod secrets;
mod stream;
mod websocket;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

pub use authority::Authority;
pub use secrets::{ReadSecret, SHORTEST};

use super::protocol::{self, Reply};
use super::{ConfineError, SidecarError};
use crate::policy::HoneyValue;
use crate::policy::request::FieldPattern;
use crate::sys::{process, socket};

/// Bytes of a configuration: the certificates of two stores.
const MOST_CONFIGURATION: u64 = 8 << 20;
/// From the fork to the acknowledgement: some hundred certificates are read meanwhile.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// The configuration of a reader.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReaderConfig {
    /// The certificates that hosts are known by (PEM).
    pub roots: String,
    /// The node's secrets that are put into requests.
    pub secrets: Vec<ReadSecret>,
    /// The node's honey values, which are not to leave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub honey: Vec<HoneyValue>,
    /// Fields of requests that are sent on besides the known ones.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub fields: BTreeSet<FieldPattern>,
    /// By which it opens TLS, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<Authority>,
}

impl ReaderConfig {
    /// As a file without a name, to be handed over; no copy stays in this process's memory. An error is the kernel's.
    pub fn to_file(&self) -> std::io::Result<OwnedFd> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::memfd_create("agentbox-reader", flags)?);
        // Large enough at once: what grows leaves copies behind.
        let secrets: usize = self
            .secrets
            .iter()
            .map(|secret| 8192 + secret.value.len())
            .sum();
        let mut text = Zeroizing::new(Vec::with_capacity(
            2 * self.roots.len() + 4096 + 2 * secrets,
        ));
        serde_json::to_writer(&mut *text, self)?;
        file.write_all(&text)?;
        file.rewind()?;
        Ok(file.into())
    }

    fn read(file: OwnedFd) -> std::io::Result<Self> {
        let mut bytes = Zeroizing::new(Vec::new());
        let mut file = File::from(file).take(MOST_CONFIGURATION);
        file.read_to_end(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    }
}

/// A started reader that has not confirmed yet that it is confined.
pub(super) struct StartedReader(OwnedFd);

/// Forks a reader, which gives its rights away by `confine`, whose result is the Landlock ABI, closes every descriptor but its
/// line, and says so. The calling process has one thread.
pub(super) fn start(
    configuration: OwnedFd,
    confine: impl FnOnce() -> Result<u32, ConfineError>,
) -> Result<StartedReader, SidecarError> {
    let pair = socket::pair().map_err(SidecarError::step("make a socket pair"))?;
    let (mut ours, theirs) = (Some(pair.0), pair.1);
    let held = &mut ours;
    process::fork_into(move || {
        drop(held.take());
        match life::live(configuration, theirs, confine) {
            Ok(()) => 0,
            // Said already.
            Err(_) => 1,
        }
    })
    .map_err(SidecarError::step("fork the reader of requests"))?;
    ours.map(StartedReader).ok_or(SidecarError::Gone)
}

impl StartedReader {
    /// Waits until it says that it is confined; its line.
    pub fn ready(self) -> Result<OwnedFd, SidecarError> {
        let reply = protocol::receive(self.0.as_fd(), "reader", "reply", READY_WITHIN);
        match reply.map_err(SidecarError::Protocol)?.0 {
            Reply::Ready { .. } => Ok(self.0),
            Reply::Failed { reason } => Err(SidecarError::NoReader { reason }),
        }
    }
}
