//! Ordinary use as outsiders experienced it at commit 9a4ca38: obstacles for honest users, by the number of the
//! finding.
//!
//! K: a real Kubernetes. A: real agents and builds. U, S: operators and other projects' suites.

mod files_again;
mod git;
mod hosts;
mod image;
mod indexes;
mod layer;
mod links;
mod network;
mod network_again;
mod network_lost;
mod network_outside;
mod operators;
mod pods;
mod tracing;
