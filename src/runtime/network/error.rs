//! Why a container's network is not changed, or says nothing.

use std::path::PathBuf;

use crate::policy::{EgressRule, MOST_PORTS, NetworkRule};

/// Why the sidecar does not do what it is asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// In its own words.
    #[error("{0}")]
    Refused(String),
    /// A reply to another request.
    #[error("unexpected reply from the sidecar")]
    Unexpected,
    /// The engine's resolver and hosts file at `start`.
    #[error("the sidecar does not take the engine's resolver: {0}")]
    Resolver(String),
    /// The hosts file of a container that joins another one's network.
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
    /// They are more than the policy of another container in this network allows.
    #[error("container {id} is in this network: {why}")]
    Member {
        /// That container.
        id: String,
        /// What its policy says.
        why: String,
    },
    /// A rule to be removed that is not there.
    #[error(
        "network.allow has no rule {0}: nothing was changed; `agentbox network` lists those that it has"
    )]
    NoRule(Box<EgressRule>),
    /// A host of a secret would be opened whole.
    #[error("{0}")]
    Secret(String),
    /// A host that the container's authority is not good for.
    #[error(
        "TLS is opened for this container (network.tls) by a certificate authority that is good for the hosts of its first rules for \
         requests, and {0} is none of them: create the container with a rule for requests to it"
    )]
    NotOpened(Box<NetworkRule>),
    /// A connection that comes in there would go out through the wall.
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
    /// A listener stays for the container's life.
    #[error(
        "with these rules the wall would listen on {0} ports; it does on {most} at most while a container lives",
        most = MOST_PORTS
    )]
    Ports(usize),
}
