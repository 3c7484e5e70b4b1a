//! SHELL. The life of a container: the thin, ordered layer between the verbs and libcontainer.

pub mod bundle;
pub mod cgroup;
pub mod create;
pub mod delete;
pub mod descriptors;
pub mod error;
pub mod exec;
pub mod filter;
pub mod foreground;
pub mod hooks;
pub mod late;
pub mod network_wall;
pub mod overlay;
pub mod record;
pub mod report;
pub mod resolve;
pub mod seal;
pub mod signal;
pub mod start;
pub mod store;
pub mod tty;
pub mod wait;
pub mod warm;

pub use error::RuntimeError;
