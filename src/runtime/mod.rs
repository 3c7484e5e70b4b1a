//! SHELL. The life of a container: the thin, ordered layer between the verbs and libcontainer.
//!
//! | room | what happens there |
//! |---|---|
//! | [`create`] | from a bundle to a process that waits, behind walls |
//! | [`start`], [`exec`], [`foreground`] | its program runs; another one beside it; both for somebody who waits |
//! | [`signal`], [`delete`] | it ends, and nothing of it is left |
//! | [`launch`], `libcontainer_log` | what `create` and `exec` tell libcontainer alike; what its log says of a failure |
//! | [`input`] | what callers hand in: bundle, node's files, descriptors |
//! | [`network`] | the wall, the sidecar's orders, names and what was refused |
//! | [`state`] | what is remembered of containers, and how they are found |
//! | [`unprivileged`] | the user namespace of a caller without root's rights |
//! | [`runs`] | the logs of containers, which stay when they are gone |
//! | [`hooks`], [`agent`] | programs of the engine's that have a say |
//! | [`filter`], [`seal`], [`pidfd`] | the system call filter as kept bytes; the runtime's own file; descriptors of processes |

pub mod agent;
pub mod create;
pub mod delete;
pub mod error;
pub mod exec;
pub mod filter;
pub mod foreground;
pub mod hooks;
pub mod input;
pub mod launch;
mod libcontainer_log;
pub mod network;
pub mod pidfd;
pub mod ps;
pub mod runs;
pub mod seal;
pub mod signal;
pub mod start;
pub mod state;
pub mod unprivileged;

pub use crate::enforce::report::{FailureKind, FailureReport};
pub use error::RuntimeError;
