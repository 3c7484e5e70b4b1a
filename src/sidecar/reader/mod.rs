//! The reader: the process that reads requests, beside a sidecar with request rules.
//!
//! ```text
//! sidecar                                   reader
//! fork(), configuration-------------------> own empty network namespace, no capability, Landlock, no file, seccomp
//!         <--Ready or Failed---------------
//! client's connection, Arrival------------> reads a request, puts it into canonical form
//!         <--ReaderQuestion::Request-------
//! decides, dials, Answer::Go + a stream---> TLS if the rule says https, the request, its answer
//! carries the stream's bytes: budget, log, end of a rule
//! ```
//!
//! Only the reader reads requests and answers of strangers, and their TLS. It decides nothing, and can make no socket.
//! A hole in it leads only to the hosts of rules, over connections that the sidecar dialled for an allowed request,
//! counts and ends. It is forked before the sidecar knows anything of its container, and dies with it. It is not
//! restarted: without it no request is sent.
//!
//! ```text
//! authority     the container's own certificate authority, to open TLS
//! messages      messages between the sidecar and the reader
//! life          its confinement, and its loop
//! conversation  one connection of a client: reads, asks, answers
//! rewrite       a message for the other connection, without the fields of its own
//! opened        the TLS of a client
//! redaction     overwrites secrets in answers
//! refused       the wall's own answers
//! secrets       the node's secrets: into requests, and out of answers
//! mcp           MCP messages, and lists in answers
//! held          bodies that are held whole, and the room for them
//! outside       the connection to the host
//! stream        the client's connection for hyper, behind the guard
//! websocket     the handshake of a WebSocket, and what follows it
//! ```

mod authority;
mod conversation;
mod held_body;
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

use super::confine::ConfineError;
use super::error::SidecarError;
use super::protocol::{self, Reply};
use crate::policy::HoneyValue;
use crate::rules::request::FieldPattern;
use crate::sys::{process, socket};

/// The longest configuration: the certificates of two stores.
const MOST_CONFIGURATION: u64 = 8 << 20;
/// From the fork to the acknowledgement; about a hundred certificates are read meanwhile.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// The configuration of a reader.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReaderConfig {
    /// The certificates to verify hosts with (PEM).
    pub roots: String,
    /// The node's secrets, to put into requests.
    pub secrets: Vec<ReadSecret>,
    /// The node's honey values, which must not leave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub honey: Vec<HoneyValue>,
    /// Request fields that are sent on besides the known ones.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub fields: BTreeSet<FieldPattern>,
    /// The authority to open TLS with, if it is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<Authority>,
}

impl ReaderConfig {
    /// Writes it to an unnamed file, to hand over. No copy stays in this process's memory. The error is the kernel's.
    pub fn to_file(&self) -> std::io::Result<OwnedFd> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::memfd_create("agentbox-reader", flags)?);
        // Large enough from the start: a buffer that grows leaves copies behind.
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

/// A started reader that has not yet confirmed its confinement.
pub(super) struct StartedReader(OwnedFd);

/// Forks a reader. It drops its rights with `confine`, which returns the Landlock ABI, closes every descriptor but its
/// line, and reports that. The calling process must be single-threaded.
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
            // Already reported.
            Err(_) => 1,
        }
    })
    .map_err(SidecarError::step("fork the reader of requests"))?;
    ours.map(StartedReader).ok_or(SidecarError::Gone)
}

impl StartedReader {
    /// Waits until it is confined; returns its line.
    pub fn ready(self) -> Result<OwnedFd, SidecarError> {
        let reply = protocol::receive(self.0.as_fd(), "reader", "reply", READY_WITHIN);
        match reply.map_err(SidecarError::Protocol)?.0 {
            Reply::Ready { .. } => Ok(self.0),
            Reply::Failed { reason } => Err(SidecarError::NoReader { reason }),
        }
    }
}
