//! Why a sidecar does not run.

use std::io;

use super::confine::ConfineError;
use super::protocol::ProtocolError;
use crate::cgroup::CgroupError;

/// Why a sidecar does not run, or could not be ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SidecarError {
    /// The sidecar may not take this uid or gid.
    #[error("the sidecar may not have the id {id}")]
    BadIdentity {
        /// The uid or gid.
        id: u32,
    },
    /// A step failed on the runtime's side.
    #[error("cannot {step} for the sidecar")]
    Step {
        /// The step.
        step: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A honeytoken whose `then` is `end` was found; the warden ends the container.
    #[error("a honeytoken ended the container")]
    Honeytoken,
    /// The two sides do not understand each other.
    #[error("the sidecar and the runtime do not understand each other")]
    Protocol(#[source] ProtocolError),
    /// The kernel refused its cgroup.
    #[error("the sidecar's cgroup is refused")]
    Cgroup(#[source] CgroupError),
    /// Its configuration cannot be read.
    #[error("the sidecar's configuration cannot be read")]
    Configuration(#[source] io::Error),
    /// An inbound port is taken, or listening on it is forbidden.
    #[error("cannot listen on port {port} (network.inbound) in the engine's network")]
    Inbound {
        /// The port.
        port: u16,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// An address of `wrap --publish` is taken, or listening at it is forbidden.
    #[error(
        "--publish: cannot listen at {address} on this node: {}", how_to_listen(.source)
    )]
    Published {
        /// The address.
        address: std::net::SocketAddr,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// It could not confine itself.
    #[error("the sidecar could not confine itself")]
    Confine(#[source] ConfineError),
    /// Its warden could not confine itself.
    #[error("the sidecar has no warden: {reason}")]
    NoWarden {
        /// The warden's error.
        reason: String,
    },
    /// The timekeeper could not confine itself.
    #[error("the container has no timekeeper: {reason}")]
    NoTimekeeper {
        /// The timekeeper's error.
        reason: String,
    },
    /// The reader could not confine itself.
    #[error("the sidecar has no reader of requests: {reason}")]
    NoReader {
        /// The reader's error.
        reason: String,
    },
    /// A relay of the user's could not confine itself.
    #[error("there is no {peer}: {reason}")]
    NoUserRelay {
        /// Which.
        peer: &'static str,
        /// The relay's error.
        reason: String,
    },
    /// It gave up, with a reason.
    #[error("the sidecar did not start: {reason}")]
    Refused {
        /// Its error with the causes.
        reason: String,
    },
    /// It ended without a reason.
    #[error("the sidecar ended before it was ready")]
    Gone,
    /// It did not answer, or did not end, in time.
    #[error("the sidecar did not {what} within {seconds} s")]
    TimedOut {
        /// The expected action.
        what: &'static str,
        /// The limit.
        seconds: u64,
    },
    /// A user typed the verb.
    #[error("`sidecar` is not a command: the runtime starts it, with its sockets")]
    NotStartedByRuntime(#[source] io::Error),
}

impl SidecarError {
    /// For `map_err`: wraps the kernel's error of one step.
    pub(super) fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Step {
            step,
            source: source.into(),
        }
    }
}

/// What helps a `wrap --publish` that cannot listen.
fn how_to_listen(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "a port below net.ipv4.ip_unprivileged_port_start (1024) takes root's rights: choose a higher one"
        }
        _ => "choose another port, or end what listens there",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_port_and_a_taken_one_have_their_cures() {
        let said = |kind: io::ErrorKind| {
            let address = ([127, 0, 0, 1], 80).into();
            let source = kind.into();
            SidecarError::Published { address, source }.to_string()
        };
        let refused = said(io::ErrorKind::PermissionDenied);
        assert!(refused.contains("choose a higher one"), "{refused}");
        let taken = said(io::ErrorKind::AddrInUse);
        assert!(taken.contains("end what listens there"), "{taken}");
    }
}
