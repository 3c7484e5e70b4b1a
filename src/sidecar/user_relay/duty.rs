//! What a relay is told, and what it answers.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use crate::audit::Context;
use crate::egress::ssh::key::ListedKey;
use crate::policy::connect::ServiceSocket;
use crate::sys::event::readable;

/// argv[1]: the hidden verb that [`main`] serves.
pub const VERB: &CStr = c"user-relay";

/// Where the connections to a unix socket lead.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketTarget {
    /// The path that the user named, which the log has.
    pub socket: ServiceSocket,
    /// The name of the server's socket in its directory.
    pub name: String,
    /// The server's user, as this user namespace shows it.
    pub server: u32,
}

/// The first message to it. Descriptors come with it: journal, init, and those of its duty.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RelaySetup {
    pub uid: u32,
    pub gid: u32,
    pub context: Context,
    pub duty: RelayDuty,
}

/// What it does.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(super) enum RelayDuty {
    /// Agent and listener come with it, and the line for questions if it has `ask_seconds`.
    Sign {
        keys: Vec<ListedKey>,
        /// How long a question waits; `None` if the user is not asked.
        ask_seconds: Option<u32>,
    },
    /// A directory for each comes with it, then a listener for each.
    Connect { targets: Vec<SocketTarget> },
}

impl RelayDuty {
    /// argv[0], as ps(1) shows it.
    pub fn program(&self) -> &'static CStr {
        match self {
            Self::Sign { .. } => c"agentbox-ssh",
            Self::Connect { .. } => c"agentbox-unix",
        }
    }

    /// The name in messages.
    pub fn peer(&self) -> &'static str {
        match self {
            Self::Sign { .. } => "relay to the SSH agent",
            Self::Connect { .. } => "relay to unix sockets",
        }
    }

    /// How many descriptors it needs.
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Sign { ask_seconds, .. } => 2 + usize::from(ask_seconds.is_some()),
            Self::Connect { targets } => 2 * targets.len(),
        }
    }
}

/// Its answer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(super) enum RelayReply {
    /// It is confined, and serves.
    Ready,
    /// It failed, and exits.
    Failed { reason: String },
}

/// How a relay learns that it is not needed any more.
pub(super) struct RelayFds {
    pub init: OwnedFd,
    pub line: OwnedFd,
}

impl RelayFds {
    /// Waits until the init process or `wrap` has ended. `wrap` sends nothing more: the line is readable when it has
    /// closed.
    pub async fn ended(&self) -> io::Result<()> {
        tokio::select! {
            ended = readable(&self.init) => ended,
            ended = readable(&self.line) => ended,
        }
    }
}
