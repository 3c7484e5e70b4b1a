//! Tests of agentbox from outside, as one test binary.
//!
//! Tests of `docker` need a real engine. A plain `cargo test` ignores them; `hack/test` runs them in a rig (`hack/rig`)
//! with `--include-ignored`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that meets something unexpected has failed"
)]

mod alone;
mod asking;
mod clock;
mod command;
mod direct;
mod docker;
mod documents;
mod fixtures;
mod fuzz;
mod golden;
mod hostile;
mod inner_namespace;
mod install;
mod layering;
mod lifecycle;
mod ordinary;
mod policy;
mod properties;
mod review;
mod sidecar;
mod spec;
mod verify;
mod warden;
pub(crate) mod wrap;
