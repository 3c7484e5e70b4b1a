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
//! Where rules are for requests, the sidecar has a child that reads them, the [`reader`].
//!
//! Where the container is to end with its sidecar, what the runtime clones is the sidecar's parent, the [`warden`].
//!
//! A container in another one's network is there already: its sidecar has no namespace to hand over, and answers denied calls alone.
//!
//! It keeps nothing alive and opens nothing when it dies: without it `start` has no namespace to
//! enter, and a started container has no way out. No thread: a single poll loop, or under the mode `allowlist` the
//! event loop of [`serve`].

mod account;
mod attach;
mod attachment;
pub mod bare;
mod buffer;
mod callers;
pub mod calls;
mod confine;
mod counts;
mod filter;
mod handed;
mod inside;
mod journal;
mod program;
pub mod protocol;
mod reader;
mod record;
mod serve;
mod spawn;
mod tls;
mod waiting;
mod warden;
mod watched;

use std::ffi::CStr;
use std::io;

pub use crate::cgroup::CgroupError;
pub use crate::cgroup::sidecar::{CgroupConfig, CgroupLimits};
pub use confine::{ConfineError, SidecarRlimits};
pub use counts::{CountKind, KernelCount};
pub use handed::{AttachRequest, CallsFds, CallsLog, ServingFds};
pub use program::main;
pub use protocol::{Duty, Handover, Loss, ProtocolError, own_pid_namespace, request_namespace};
pub use reader::{Authority, ReadSecret, ReaderConfig, SHORTEST};
pub use record::{SidecarRecord, WardenRecord, await_end, kill, remove};
pub use serve::{
    AskDecision, AskDecisionTarget, ControlReply, ControlRequest, EngineNames, EngineNetworks,
    Proxy, ServingConfig, Tls,
};
pub use spawn::{SidecarConfig, StartingSidecar, spawn};
pub use watched::{MOST_WATCHED, MountPaths, WatchedMount};

/// argv[0] of the sidecar, as ps(1) shows it.
pub const ARGV0: &CStr = c"agentbox-sidecar";
/// argv[1]: the hidden verb that [`main`] serves.
pub const VERB: &CStr = c"sidecar";

/// Why a sidecar does not run, or could not be ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SidecarError {
    /// The uid or gid it was to become is not one that it may have.
    #[error("the sidecar may not have the id {id}")]
    BadIdentity {
        /// The uid or gid.
        id: u32,
    },
    /// Something was refused on the runtime's side.
    #[error("cannot {step} for the sidecar")]
    Step {
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The two sides did not understand each other.
    #[error("the sidecar and the runtime do not understand each other")]
    Protocol(#[source] ProtocolError),
    /// Its cgroup was refused.
    #[error("the sidecar's cgroup is refused")]
    Cgroup(#[source] CgroupError),
    /// What it was given to serve cannot be read.
    #[error("the sidecar's configuration cannot be read")]
    Configuration(#[source] io::Error),
    /// A port that leads in is taken, or may not be listened on.
    #[error("cannot listen on port {port} (network.inbound) in the engine's network")]
    Inbound {
        /// The port.
        port: u16,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// An address that `wrap --publish` names is taken, or may not be listened at.
    #[error(
        "--publish: cannot listen at {address} on this node: choose another port, or end what listens there"
    )]
    Published {
        /// The address.
        address: std::net::SocketAddr,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// It could not confine itself.
    #[error("the sidecar could not confine itself")]
    Confine(#[source] ConfineError),
    /// Its warden could not confine itself.
    #[error("the sidecar has no warden: {reason}")]
    NoWarden {
        /// What the warden said.
        reason: String,
    },
    /// The process that reads requests could not confine itself.
    #[error("the sidecar has no reader of requests: {reason}")]
    NoReader {
        /// What the reader said.
        reason: String,
    },
    /// It gave up and said why.
    #[error("the sidecar did not start: {reason}")]
    Refused {
        /// Its error with the causes.
        reason: String,
    },
    /// It ended without a word.
    #[error("the sidecar ended before it was ready")]
    Gone,
    /// It did not answer, or did not end, in time.
    #[error("the sidecar did not {what} within {seconds} s")]
    TimedOut {
        /// What it should have done.
        what: &'static str,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The verb was typed by somebody.
    #[error("`sidecar` is not a command: the runtime starts it, with its sockets")]
    NotStartedByRuntime(#[source] io::Error),
}

impl SidecarError {
    /// For `map_err`: wraps what the kernel said about one step.
    fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Step {
            step,
            source: source.into(),
        }
    }
}
