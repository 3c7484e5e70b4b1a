//! The network of a container, from the runtime's side: made at `create`, changed and queried afterwards.
//!
//! | module | what it does |
//! |---|---|
//! | [`wall`], [`companion`] | the sidecar and the inner namespace, while `create` makes them |
//! | [`resolver`], [`upstream`], [`engine_networks`], [`reading`] | what the engine and the node prepared: names, a proxy, networks for containers, certificates and secrets |
//! | [`control`], [`rules`], [`ends`], [`ports`] | requests to a running sidecar: new rules, later ports |
//! | [`clients`], [`refused`] | which program has a connection; which connections from outside were denied |
//! | [`sandbox`] | a pod whose sidecar died |
//! | [`tried`] | tells the sidecar what `verify` tries |

pub mod approvals;
pub mod calls;
pub mod clients;
pub mod companion;
pub mod control;
pub mod counted;
pub mod denial_dir;
mod ends;
pub mod engine_networks;
mod error;
pub mod inbound;
pub mod listeners;
pub mod member;
pub mod ports;
pub mod reading;
pub mod refused;
pub mod resolver;
pub mod rules;
pub mod sandbox;
pub mod tried;
pub mod upstream;
pub mod wall;

pub use error::{ControlError, RulesError};
