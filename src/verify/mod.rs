//! `agentbox verify`: the attacks of docs/threats.md, tried in harmless forms inside a sandbox, by its first process and by a process
//! of `exec`.
//!
//! ```text
//!  verify --policy P   sandbox.rs   a container of its own, made like an engine's, taken away afterwards
//!  verify ID           running.rs   a process of `exec` in a container that runs
//!                          |
//!          the program itself, by descriptor: inside.rs, which tries each of probes/ in a child with a time limit
//!                          |
//!                      report.rs    what was promised (promise.rs, from the plan) against what was found
//! ```
//!
//! The plan says which walls were promised; whether one stands is found out by trying and from the kernel alone.

mod answer;
pub mod inside;
mod mounted;
pub mod probe;
pub mod probes;
pub mod promise;
pub mod report;
mod running;
mod sandbox;
mod table;
mod tenant;

pub use report::{ProbeVerdict, VerifyReport};
pub use running::running;
pub use sandbox::sandbox;
