//! SHELL. Runs inside the container's processes, between libcontainer's set-up and execve.
//!
//! [`executor`] has the order of the walls, [`walls`] their types; each other file makes one step. [`unconfined`] is
//! only for containers without a policy, which behave as with runc: it has no walls. Everything here only restricts:
//! decisions arrive as values, and opened files as descriptors.

pub mod capabilities;
mod cover;
mod devices;
pub mod error;
pub mod exec_process;
pub mod executor;
mod file_system;
pub mod hidden;
pub mod home;
pub mod hooks;
pub mod image;
pub mod kernel;
mod keyring;
mod label;
pub mod leader;
pub mod listener;
pub mod owner;
pub mod privileges;
pub mod process;
pub mod program;
mod reaper;
pub mod report;
pub mod rootfs;
mod scheduling;
mod scratch;
pub mod stdio;
pub mod trust;
pub mod unconfined;
pub mod verify;
mod visible_files;
pub mod walls;

pub use error::{EnforceError, WallKind};
