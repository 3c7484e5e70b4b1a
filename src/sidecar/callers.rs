//! Which processes may talk to a running sidecar: the node's runtime.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::protocol::NamespaceId;
use crate::sys::socket::{netns_cookie, peer_uid};

/// The accepted callers: processes of the runtime's user, in the node's network namespace. They prove with a descriptor
/// that they are in the node's pid namespace. A container has other namespaces, unless it was given both, and cannot
/// open the node's from inside.
#[derive(Debug, Clone, Copy)]
pub struct Callers {
    /// The user.
    pub uid: u32,
    /// The cookie of the network namespace.
    pub cookie: u64,
    /// The pid namespace.
    pub pid_namespace: NamespaceId,
}

impl Callers {
    /// Why the first descriptor from the caller does not prove its pid namespace.
    pub fn refuse_proof(self, shown: Option<&OwnedFd>) -> Option<String> {
        let shown = shown.and_then(|shown| NamespaceId::of(shown.as_fd()).ok());
        (shown != Some(self.pid_namespace)).then(|| {
            "the caller did not prove that it is in the node's pid namespace: it is in a container with the node's network, or \
             no agentbox"
                .to_owned()
        })
    }

    /// Why the caller is refused, if it is.
    pub fn refuse(self, socket: BorrowedFd<'_>) -> Option<String> {
        let uid = peer_uid(socket).ok();
        // accept(2) makes its socket in the namespace of the connecting process (`unix_stream_connect`, af_unix.c).
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
