//! Messages between the sidecar and its reader, as JSON.
//!
//! The reader's own line carries clients' connections. Each comes with a line for questions about it, one at a time.
//! The questions come from a program that reads strangers' data: the sidecar decides by them, and trusts none.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::egress::phrase::RefusalExplanation;
use crate::rules::Host;
use crate::rules::request::calls::McpLists;
use crate::rules::request::{McpCall, Scheme};
use crate::sys::event::Messages;

/// The longest message, in bytes: an address of a request, which is part of a head, as JSON.
const LONGEST: usize = 80 << 10;
/// Bytes of one piece of what a client has already sent.
const PIECE: usize = 16 << 10;

/// How a client connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::sidecar) enum ClientRoute {
    /// Through the proxy: one request, which names its host.
    Proxy,
    /// To the host's own address: as many requests as the client likes.
    Direct,
}

/// A connection of a client. With it come the connection and the line for its questions. On that line, the client's
/// early bytes come first, in pieces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::sidecar) struct Arrival {
    pub way: ClientRoute,
    /// The destination of its requests.
    pub host: Host,
    pub port: u16,
    pub scheme: Scheme,
    /// Whether to open TLS from the client.
    pub opens: bool,
    /// The number of bytes that the client has already sent.
    pub early: usize,
}

/// The connections that can carry a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::sidecar) enum ConnectionChoice {
    /// The previous request's connection, which is still good, or a new one.
    Either,
    /// Only a new one.
    New,
}

/// The reader's question about a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(in crate::sidecar) enum ReaderQuestion {
    /// May this request be sent?
    Request {
        /// In canonical form: `METHOD https://HOST[:PORT]/PATH[?QUERY]`.
        address: String,
        /// Why it cannot be sent, whatever the rules say.
        unfit: Option<String>,
        /// The MCP calls in its body, once the sidecar has asked for them.
        calls: Option<Vec<McpCall>>,
        /// The connections that can carry it.
        by: ConnectionChoice,
    },
    /// The request has more than one meaning, or none.
    Unclear(String),
    /// The body must be held until the decision, and there is no room now.
    Busy,
    /// The allowed host is unreachable.
    Unreachable(String),
    /// The client sent no request; nothing more is read.
    Fault {
        why: String,
        /// An answer may have started.
        began: bool,
    },
    /// The client sent an unreadable head, and was told; nothing more is read.
    Malformed(String),
    /// The client sent TLS; nothing more is read.
    Tls,
    /// The client sent the honey value of this name; nothing more is read.
    Honey(String),
}

/// The answer to a question about a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(in crate::sidecar) enum RequestAnswer {
    /// Send it, over the connection that comes along, or else over the previous one.
    Go {
        /// The filters for lists in its answer, if it can have any.
        lists: Option<Box<McpLists>>,
    },
    /// The body decides: read it, then ask again.
    Read,
    /// Do not send it; the client receives this.
    Refused {
        status: u16,
        phrase: String,
        explanation: RefusalExplanation,
    },
}

/// One end of a channel for messages.
#[derive(Debug)]
pub(in crate::sidecar) struct MessageChannel(Messages);

impl MessageChannel {
    /// Must be called inside a tokio runtime.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Messages::new(fd).map(Self)
    }

    /// Sends a message.
    pub async fn say(&self, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.0.send(&serde_json::to_vec(message)?, fds).await
    }

    /// Receives a message; `None` if the other side is gone.
    pub async fn hear<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let (bytes, fds) = self.0.receive(LONGEST).await?;
        match bytes.is_empty() {
            true => Ok(None),
            false => Ok(Some((serde_json::from_slice(&bytes)?, fds))),
        }
    }

    /// Sends the client's early bytes.
    pub async fn say_early(&self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(PIECE) {
            self.0.send(piece, &[]).await?;
        }
        Ok(())
    }

    /// Receives the client's early bytes.
    pub async fn hear_early(&self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let (piece, _) = self.0.receive(PIECE).await?;
            if piece.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes.extend(piece);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_bytes_arrive_whole_and_before_the_next_message() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (a, b) = crate::sys::socket::pair().unwrap();
            let (a, b) = (
                MessageChannel::new(a).unwrap(),
                MessageChannel::new(b).unwrap(),
            );
            let early: Vec<u8> = (0..3 * PIECE + 7).map(|n| (n % 251) as u8).collect();
            a.say_early(&early).await.unwrap();
            a.say(&RequestAnswer::Read, &[]).await.unwrap();
            assert_eq!(b.hear_early(early.len()).await.unwrap(), early);
            let heard = b.hear::<RequestAnswer>().await.unwrap();
            assert_eq!(heard.unwrap().0, RequestAnswer::Read);
            drop(a);
            assert!(b.hear::<RequestAnswer>().await.unwrap().is_none());
        });
    }
}
