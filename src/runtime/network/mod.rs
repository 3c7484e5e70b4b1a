//! The network of a container as its runtime sees it: raised at `create`, changed and asked about afterwards.
//!
//! | module | what it does |
//! |---|---|
//! | [`wall`], [`companion`] | the sidecar and the inner namespace, while `create` raises them |
//! | [`resolver`], [`upstream`], [`engine_networks`], [`reading`] | what the engine and the node prepared: names, a proxy, networks for containers, certificates and secrets |
//! | [`control`], [`rules`], [`ports`] | the line to a running sidecar: other rules, later ports |
//! | [`clients`], [`refused`] | which program has a connection; what was refused from outside |
//! | [`sandbox`] | a pod whose sidecar died |
//! | [`tried`] | what `verify` tries, told to the sidecar |

pub mod approvals;
pub mod calls;
pub mod clients;
pub mod companion;
pub mod control;
pub mod counted;
pub mod engine_networks;
mod error;
pub mod member;
pub mod ports;
pub mod reading;
pub mod refused;
pub mod resolver;
pub mod rules;
pub mod sandbox;
pub mod shown;
pub mod tried;
pub mod upstream;
pub mod wall;

pub use error::{ControlError, RulesError};
