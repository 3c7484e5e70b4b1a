//! What the sidecar and its reader say to each other: JSON, one message each.
//!
//! Over the reader's own line come connections of clients. With each comes a line for questions about it, one at a time. Whatever
//! the reader says there is the word of a program that reads what strangers sent: the sidecar decides by it and believes nothing.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::egress::mcp::McpLists;
use crate::egress::phrase::RefusalExplanation;
use crate::policy::Host;
use crate::policy::request::{McpCall, Scheme};
use crate::sys::event::Messages;

/// The longest message, in bytes: an address of a request, which is part of a head, as JSON.
const LONGEST: usize = 80 << 10;
/// What came of a client already is sent in pieces of this many bytes.
const PIECE: usize = 16 << 10;

/// How a client connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::sidecar) enum ClientRoute {
    /// By the proxy: one request, which names its host itself.
    Proxy,
    /// To the host's own address, as many requests as the client likes.
    Direct,
}

/// A connection of a client. With it come that connection and the line for its questions, on which pieces of what the client has
/// said already come first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::sidecar) struct Arrival {
    pub way: ClientRoute,
    /// Where its requests go.
    pub host: Host,
    pub port: u16,
    pub scheme: Scheme,
    /// Whether TLS that comes is opened.
    pub opens: bool,
    /// How many bytes the client has said already.
    pub early: usize,
}

/// By which connection a request can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::sidecar) enum ConnectionChoice {
    /// The connection of the request before, which is still good, or a new one.
    Either,
    /// A new one alone.
    New,
}

/// What the reader asks about a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(in crate::sidecar) enum Question {
    /// May this request go?
    Request {
        /// In its one form: `METHOD https://HOST[:PORT]/PATH[?QUERY]`.
        address: String,
        /// Why it cannot be sent, whatever the rules say.
        unfit: Option<String>,
        /// The calls of MCP in its body, once they were asked for.
        calls: Option<Vec<McpCall>>,
        /// What it can go by.
        by: ConnectionChoice,
    },
    /// What came is a request that has more than one meaning, or none.
    Unclear(String),
    /// It is held until it is decided about, and there is no room for that now.
    Busy,
    /// The host that was allowed was not to be had.
    Unreachable(String),
    /// What came is no request; nothing more is read.
    Fault {
        why: String,
        /// An answer may be under way.
        began: bool,
    },
    /// What came is no head that can be read, which the client was told; nothing more is read.
    Malformed(String),
    /// What came is TLS; nothing more is read.
    Tls,
    /// What came has the honey value of this name in it; nothing more is read.
    Honey(String),
}

/// The answer to a question about a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(in crate::sidecar) enum RequestAnswer {
    /// It may go, over the connection that comes along, or else over the one before.
    Go {
        /// What lists in its answer may show, where it can have some.
        lists: Option<Box<McpLists>>,
    },
    /// What is in it decides: it is to be read, and asked about again.
    Read,
    /// It may not, and this is what the client is told.
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

    /// Says something.
    pub async fn say(&self, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.0.send(&serde_json::to_vec(message)?, fds).await
    }

    /// Hears something; `None` where the other side is gone.
    pub async fn hear<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let (bytes, fds) = self.0.receive(LONGEST).await?;
        match bytes.is_empty() {
            true => Ok(None),
            false => Ok(Some((serde_json::from_slice(&bytes)?, fds))),
        }
    }

    /// Sends what came of a client already.
    pub async fn say_early(&self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(PIECE) {
            self.0.send(piece, &[]).await?;
        }
        Ok(())
    }

    /// Takes it.
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
    fn what_came_early_arrives_whole_behind_its_message() {
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
