//! The sidecar: the one companion process of a sandbox.
//!
//! ```text
//! runtime, create                    sidecar                            container's init
//! spawn() --clone3, exec-----------> argv[1] == "sidecar"
//!         --Setup------------------> own cgroup, empty root, limits
//!   (libcontainer builds init, the inner namespace is made)
//! attach() --Attach + fds----------> engine's netns, uid, no capability,
//!         <--Ready or Failed-------- Landlock, read back, seccomp
//!                                    poll(init's pidfd, hand-over socket)
//!                                      <--Enter---------------------- start
//!                                      --cookie, netns, sysfs-------> setns, verify, execve
//!                                    init's pidfd is readable: exit
//! ```
//!
//! If the policy has request rules, the sidecar has a child that reads the requests, the [`reader`].
//!
//! If the user of `wrap` lets the workload sign, a relay to the user's SSH agent runs beside it, a [`user_relay`].
//!
//! If the container must end with its sidecar, the runtime clones the sidecar's parent, the [`warden`].
//!
//! A container in another one's network is there already. Its sidecar has no namespace to hand over, and only answers
//! denied calls.
//!
//! It keeps nothing alive, and its death opens nothing: without it `start` has no namespace to enter, and a started
//! container has no network. No threads: one poll loop, or in mode `allowlist` the event loop of [`serve`].

mod account;
mod attach;
mod attachment;
pub mod bare;
mod buffer;
mod callers;
pub mod calls;
mod confine;
mod counts;
mod error;
mod filter;
mod first_listener;
mod handed;
mod inside;
mod journal;
mod loss;
mod program;
pub mod protocol;
mod reader;
mod record;
mod root;
mod serve;
mod spawn;
pub mod timekeeper;
mod tls;
pub mod user_relay;
mod waiting;
mod warden;
mod watched;

use std::ffi::CStr;

pub use crate::cgroup::CgroupError;
pub use crate::cgroup::sidecar::{CgroupConfig, CgroupLimits};
pub use confine::{ConfineError, SidecarRlimits};
pub use counts::{CountKind, KernelCount};
pub use error::SidecarError;
pub use handed::{AttachRequest, CallsFds, CallsLog, ServingFds};
pub use program::main;
pub use protocol::{Duty, Handover, Loss, ProtocolError, own_pid_namespace, request_namespace};
pub use reader::{Authority, ReadSecret, ReaderConfig, SHORTEST};
pub use record::{SidecarRecord, WardenRecord, await_end, kill, remove};
pub use serve::{
    AskDecision, AskDecisionTarget, ControlReply, ControlRequest, DIALERS, EngineNames,
    EngineNetworks, LatePorts, Proxy, ServingConfig, Tls,
};
pub use spawn::{SidecarConfig, StartingSidecar, spawn};
pub use watched::{MOST_WATCHED, MountPaths, WatchedMount};

/// argv[0] of the sidecar, as ps(1) shows it.
pub const ARGV0: &CStr = c"agentbox-sidecar";
/// argv[1]: the hidden verb that [`main`] serves.
pub const VERB: &CStr = c"sidecar";
