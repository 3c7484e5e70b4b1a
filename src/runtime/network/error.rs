//! Why a container's network cannot be changed or queried.

use std::io;
use std::path::PathBuf;

use crate::policy::MOST_PORTS;
use crate::rules::{EgressRule, NetworkRule};

/// Why the sidecar did not carry out a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// It refused, in its own words.
    #[error("{0}")]
    Refused(String),
    /// Nothing was sent to it.
    #[error("ask the sidecar at {path:?}")]
    Unreached {
        /// Its socket.
        path: PathBuf,
        /// The errno.
        source: io::Error,
    },
    /// A reply to another request.
    #[error("unexpected reply from the sidecar")]
    Unexpected,
    /// It refused the engine's resolver and hosts file at `start`.
    #[error("the sidecar does not take the engine's resolver: {0}")]
    Resolver(String),
    /// It refused the hosts file of a container that joins another one's network.
    #[error("the sidecar of the network does not take the hosts file {path:?}: {why}")]
    Hosts {
        /// The file.
        path: PathBuf,
        /// In the sidecar's words.
        why: String,
    },
}

/// Why a container's rules cannot be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// The policy of another container in this network does not allow them.
    #[error("container {id} is in this network: {why}")]
    Member {
        /// The other container.
        id: String,
        /// What its policy forbids.
        why: String,
    },
    /// A rule that should be removed does not exist.
    #[error(
        "network.allow has no rule {0}: nothing was changed; `agentbox network` lists those that it has"
    )]
    NoRule(Box<EgressRule>),
    /// An end for rules that are allowed without one.
    #[error(
        "network.allow has {0} without an end already: nothing was changed; remove it first (--network-remove {0})"
    )]
    Lasting(Box<EgressRule>),
    /// A rule would allow every request to a secret's host.
    #[error("{0}")]
    Secret(String),
    /// A host for which the container's certificate authority is not valid.
    #[error(
        "the certificate authority of this container (network.tls) is not valid for {0}: create the container with a request rule \
         for it"
    )]
    NotOpened(Box<NetworkRule>),
    /// The port is one for incoming connections, so it cannot lead out.
    #[error(
        "rules name the port {0}, which leads into this container (network.inbound): it cannot lead out as well"
    )]
    LeadsIn(u16),
    /// The port is taken.
    #[error(
        "rules name the port {0}, on which the proxy of this container listens: create it with a rule for that port, and the \
         proxy takes another"
    )]
    Proxy(u16),
    /// `*` among inbound ports opens nothing.
    #[error("network.inbound = \"*\" is for ceilings and opens no port: name the ports")]
    AnyPort,
    /// Too many ports: a listener stays for the container's life.
    #[error(
        "with these rules the wall would listen on {0} ports; it does on {most} at most while a container lives",
        most = MOST_PORTS
    )]
    Ports(usize),
}
