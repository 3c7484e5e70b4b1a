//! SHELL. Control groups, of both versions (cgroups(7)): a container's directories, limits, counters and removal.
//!
//! | module | what it does |
//! |---|---|
//! | [`path`] | checks that the cgroup in a spec is the container's own; removes it with everything in it |
//! | [`hierarchies`] | the cgroup file systems, and a process's place in them: the only reader |
//! | [`birthplace`] | makes and limits that cgroup; the container's processes are born there |
//! | [`delegated`] | a cgroup of the user's own, from the user's systemd |
//! | [`controllers`] | the directories of a container's cgroup, in every hierarchy |
//! | [`systemd_v1`], [`joined_mount`], [`first_move`] | v1's `name=systemd`, its view in a joined namespace, the cost of a first migration |
//! | [`limits`], [`devices`] | what a container may use, and which devices it may open |
//! | [`stats`], [`oom`] | what it uses; when the kernel killed a process for lack of memory |
//! | [`sidecar`], [`quota`] | the cgroup of a container's sidecar, and its share of the parent's CPU time |

pub mod birthplace;
pub mod controllers;
pub mod delegated;
pub mod devices;
mod error;
pub mod first_move;
pub mod hierarchies;
pub mod joined_mount;
pub mod limits;
pub mod oom;
pub mod path;
mod quota;
mod remove;
pub mod sidecar;
pub mod stats;
pub mod systemd_v1;

pub use error::CgroupError;
