//! `agentbox verify`: the attacks of docs/threats.md, tried in harmless forms inside a sandbox, by its init process and
//! by an exec process.
//!
//! ```text
//!  verify --policy P   sandbox.rs   its own container, created like an engine's, removed afterwards
//!  verify ID           running.rs   an exec process in a running container
//!                          |
//!          the program itself, by descriptor: inside.rs, which tries each of probes/ in a child with a time limit
//!                          |
//!                      report.rs    the promises (promise.rs, from the plan) against the findings
//! ```
//!
//! The plan says which walls are promised. Whether a wall stands is found only by trying, and from the kernel.

mod answer;
mod compared_mounts;
pub mod inside;
mod mounted;
pub mod probe;
mod probe_process;
pub mod probes;
mod program;
pub mod promise;
pub mod report;
mod running;
mod sandbox;

pub use report::{ProbeVerdict, VerifyReport};
pub use running::running;
pub use sandbox::sandbox;
