//! SHELL. The life of a container: the thin, ordered layer between the verbs and libcontainer.
//!
//! | module | what it does |
//! |---|---|
//! | [`create`] | from a bundle to a process that waits, behind walls |
//! | [`start`], [`exec`], [`foreground`] | runs its program; runs another in it; both for a caller who waits |
//! | [`signal`], [`delete`] | ends it; removes everything of it |
//! | `child` | the process that either clones |
//! | [`launch`], `libcontainer_log` | what `create` and `exec` both tell libcontainer; what its log says of a failure |
//! | [`input`] | what callers give: bundle, node's files, descriptors |
//! | [`network`] | the network wall, requests to the sidecar, names, denied connections |
//! | [`state`] | the state of containers, and how they are found |
//! | [`unprivileged`], [`own_sandbox`] | the user namespace of a caller without root's rights; that of a sandbox of theirs |
//! | [`obstacle`] | what a container around this program keeps from `wrap` |
//! | [`runs`] | the logs of containers, which stay after their end |
//! | [`hooks`], [`agent`] | the engine's hooks and seccomp agent |
//! | [`files`], [`status`] | its own small files; libcontainer's view of a container |
//! | [`filter`], [`seal`], [`pidfd`] | the syscall filter as saved bytes; the runtime's own file; descriptors of processes |

pub mod agent;
mod child;
pub mod clock;
pub mod create;
pub mod delete;
pub mod error;
pub mod exec;
pub mod files;
pub mod filter;
pub mod foreground;
pub mod hooks;
pub mod input;
pub mod launch;
mod libcontainer_log;
pub mod network;
pub mod obstacle;
pub mod own_sandbox;
pub mod pidfd;
mod planted;
pub mod ps;
pub mod runs;
pub mod seal;
pub mod signal;
pub mod start;
pub mod state;
pub mod status;
pub mod unprivileged;
pub mod user_relay;

pub use crate::enforce::report::{FailureKind, FailureReport};
pub use error::RuntimeError;
