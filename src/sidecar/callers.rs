//! Who may talk to a sidecar that runs: the node's runtime.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::protocol::NamespaceId;
use crate::sys::socket::{netns_cookie, peer_uid};

/// Who may ask: the user that the runtime runs as, in the node's network namespace, who shows by a descriptor that it is in the
/// node's pid namespace. A container of any runtime has others, unless it was given both, and cannot open the node's from inside.
#[derive(Debug, Clone, Copy)]
pub struct Callers {
    /// The user.
    pub uid: u32,
    /// The namespace's number.
    pub cookie: u64,
    /// The pid namespace.
    pub pid_namespace: NamespaceId,
}

impl Callers {
    /// Why this descriptor, the first that came, does not show where the other end is.
    pub fn refuse_proof(self, shown: Option<&OwnedFd>) -> Option<String> {
        let shown = shown.and_then(|shown| NamespaceId::of(shown.as_fd()).ok());
        (shown != Some(self.pid_namespace)).then(|| {
            "somebody asks who does not show that it is in the node's pid namespace: a container with the node's network, or \
             another program than agentbox"
                .to_owned()
        })
    }

    /// Why the other end may not ask, if it may not.
    pub fn refuse(self, socket: BorrowedFd<'_>) -> Option<String> {
        let uid = peer_uid(socket).ok();
        // The end that accept(2) gives is made in the namespace of whoever connected (`unix_stream_connect`, af_unix.c).
        let cookie = netns_cookie(socket).ok();
        let why = match (uid, cookie) {
            (Some(uid), Some(cookie)) if uid == self.uid && cookie == self.cookie => return None,
            (Some(uid), Some(cookie)) if cookie == self.cookie => {
                format!("the user {uid} asks, who is not the runtime's")
            }
            _ => "the caller is not in the node's network namespace: a container, or a shell with its own network"
                .to_owned(),
        };
        Some(why)
    }
}
