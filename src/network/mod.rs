//! The network wall: a namespace without a route.
//!
//! The workload does not run in the engine's namespace, but in an **inner** one with only `lo`. [`inner`] makes it at
//! `create`, in a short-lived child, and enters it at `start`, in the container's init, with a check that refuses
//! every other namespace. [`sysctl`] parses the `net.*` keys that are written into it.
//!
//! This module must not decide on hosts (the policy does), or touch the engine's namespace.

pub mod counters;
mod error;
mod fallback;
pub mod inner;
mod listeners;
mod maker;
pub mod refused;
mod resets;
pub mod sysctl;

pub use error::NetworkError;
pub use fallback::{foreign_links, is_fallback};
pub use inner::{InnerConfig, InnerMode, InnerNamespace, enter, verify_current};
pub use listeners::{ListenPorts, Listeners, Stub, dial_sockets, listen_at, listen_everywhere};
pub use maker::{Maker, spawn_maker, with_causes};
pub use refused::TapScope;
pub use resets::resets_sent;
pub use sysctl::Sysctl;
