//! SHELL. The life of a container: the thin, ordered layer between the verbs and libcontainer.

pub mod agent;
pub mod bundle;
pub mod cgroup;
mod cgroup_mount;
pub mod controllers;
pub mod create;
pub mod delete;
pub mod descriptors;
pub mod devices;
pub mod error;
pub mod exec;
pub mod filter;
pub mod foreground;
pub mod hooks;
pub mod late;
pub mod limits;
pub mod membership;
mod neighbours;
pub mod network_wall;
pub mod oom;
pub mod overlay;
pub mod record;
pub mod report;
pub mod resolve;
pub mod seal;
pub mod signal;
pub mod start;
pub mod stats;
pub mod store;
pub mod tty;
pub mod wait;
pub mod wanted;
pub mod warm;

pub use error::RuntimeError;
