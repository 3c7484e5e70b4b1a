//! PURE. A running container of this runtime whose namespaces another one names.

use super::namespace::PlannedNamespace;
use super::network::{NetworkPlan, SharedNetwork};
use crate::policy::Policy;

/// A running container of this runtime in a namespace that another container wants to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Its id.
    pub id: String,
    /// Its policy; `None` under `unconfined`.
    pub policy: Option<Policy>,
    /// Its namespaces, as in [`super::Plan::namespaces`].
    pub namespaces: Vec<PlannedNamespace>,
    /// Its network, if it has walls.
    pub network: Option<NeighbourNetwork>,
    /// It may make set-user-ID files: none can be another user's on the node (`privileges.set-id = "auto"`).
    pub sets_ids: bool,
}

/// The network of a running container, for a container that wants to share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeighbourNetwork {
    /// What is enforced there.
    pub plan: NetworkPlan,
    /// Whether it can be shared.
    pub state: NetworkState,
}

/// Whether a container's network can be shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkState {
    /// Its init process has not entered the inner namespace: its path still leads to the engine's.
    NotStarted,
    /// Its sidecar is gone.
    Dead,
    /// It is up.
    Standing(SharedNetwork),
}
