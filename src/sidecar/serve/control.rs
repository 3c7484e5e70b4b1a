//! What the runtime's verbs ask a running sidecar: one JSON line each way, on a socket in the container's directory
//! that only root reaches.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::spawn_local;

use super::wall::Wall;
use crate::egress::Rules;
use crate::policy::HostName;

/// The longest request: a list of rules and a hosts file.
const LONGEST: u64 = 1 << 20;
const WITHIN: Duration = Duration::from_secs(10);

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlRequest {
    /// Take over what the engine prepared; once, before the program runs.
    Pin(Pinned),
    /// Say what is going on.
    Status,
}

/// What the engine prepared for names and addresses, read when the container starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pinned {
    /// The resolvers.
    pub nameservers: Vec<IpAddr>,
    /// The search list, for internal names alone.
    pub search: Vec<HostName>,
    /// The engine's hosts file.
    pub hosts: Vec<(HostName, IpAddr)>,
    /// The node's own addresses.
    pub node: BTreeSet<IpAddr>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlReply {
    /// Done.
    Done,
    /// Not done, for this reason.
    Failed(String),
    /// What is going on.
    Status {
        /// The rules that hold.
        rules: Rules,
        /// Connections that were let through so far.
        allowed: u64,
        /// Connections that are open.
        open: u32,
        /// Bytes sent so far.
        sent: u64,
        /// Names that have a synthetic address.
        names: usize,
        /// Refusals so far.
        refused: u64,
    },
}

/// Serves the socket until the program ends.
pub(super) fn serve(wall: &Rc<Wall>, socket: OwnedFd) -> io::Result<()> {
    let listener = UnixListener::from_std(socket.into())?;
    let wall = Rc::clone(wall);
    spawn_local(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let wall = Rc::clone(&wall);
                    spawn_local(async move {
                        // A verb that went away has no use for an answer.
                        let _done = tokio::time::timeout(WITHIN, converse(&wall, stream)).await;
                    });
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    Ok(())
}

async fn converse(wall: &Wall, stream: UnixStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream).take(LONGEST);
    let mut line = String::new();
    reader.read_line(&mut line).await?;
    let reply = match serde_json::from_str(&line) {
        Ok(request) => answer(wall, request),
        Err(error) => ControlReply::Failed(format!("this is no request: {error}")),
    };
    let mut bytes = serde_json::to_vec(&reply)?;
    bytes.push(b'\n');
    reader.into_inner().into_inner().write_all(&bytes).await
}

fn answer(wall: &Wall, request: ControlRequest) -> ControlReply {
    match request {
        ControlRequest::Pin(pinned) => match wall.upstream.pin(pinned) {
            Ok(()) => ControlReply::Done,
            Err(why) => ControlReply::Failed(why),
        },
        ControlRequest::Status => {
            let (allowed, open, sent, names, refused) = wall.counts();
            ControlReply::Status {
                rules: wall.rules.borrow().clone(),
                allowed,
                open,
                sent,
                names,
                refused,
            }
        }
    }
}
