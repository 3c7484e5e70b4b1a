//! SHELL. Control groups, of both versions (cgroups(7)): where a container's are, what they limit and count, and how they end.
//!
//! | module | what it does |
//! |---|---|
//! | [`path`] | the cgroup that a spec names is the container's own; it is removed with all that is in it |
//! | [`hierarchies`] | where the cgroup file systems are, and where a process is in them: the one reader |
//! | [`birthplace`] | that cgroup is made and limited, and the first process is born there |
//! | [`delegated`] | a cgroup of a person's own, from the person's systemd |
//! | [`controllers`] | the directories of a container's cgroup, in every hierarchy |
//! | [`systemd_v1`], [`joined_mount`], [`first_move`] | v1's `name=systemd`, its view in a joined namespace, the cost of a first migration |
//! | [`limits`], [`devices`] | what a container may use and which devices it may open |
//! | [`stats`], [`oom`] | what it uses, and when the kernel ended something for want of memory |
//! | [`sidecar`], [`quota`] | the cgroup of a container's sidecar, and its share of the parent's processor time |

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

pub use error::{CgroupError, PathRefusal};
