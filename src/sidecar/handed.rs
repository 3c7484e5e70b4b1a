//! What the runtime gives a sidecar once the container exists, as descriptors.

use std::os::fd::{BorrowedFd, OwnedFd};

use crate::audit::{Context, ReportedDenials};
use crate::network::InnerNamespace;
use crate::plan::CallReasons;
use crate::sidecar::counts::KernelCount;
use crate::sidecar::watched::WatchedMount;

/// The descriptors and settings that the runtime gives a sidecar for its container.
#[derive(Debug)]
pub struct AttachRequest<'a> {
    /// The network namespace to enter: the engine's, to dial from, or the shared one. `None`: stay.
    pub netns: Option<BorrowedFd<'a>>,
    /// The container's init: the sidecar ends with it.
    pub init_pidfd: BorrowedFd<'a>,
    /// The inner namespace, for init, with its listeners; `None` if init is in another container's.
    pub inner: Option<InnerNamespace>,
    /// The file that shows the container these denials, opened to write.
    pub shown: Option<(ReportedDenials, OwnedFd)>,
    /// Mounts whose first write is recorded.
    pub watched: Vec<WatchedMount>,
    /// The kernel's counters.
    pub counts: Vec<KernelCount>,
    /// For a sidecar that answers denied system calls.
    pub calls: Option<CallsFds>,
    /// For a sidecar that serves the network.
    pub serving: Option<ServingFds>,
}

/// What a sidecar needs to answer denied system calls.
#[derive(Debug)]
pub struct CallsFds {
    /// A listening UNIX socket that receives the seccomp listeners.
    pub listening: OwnedFd,
    /// The container's filter, as saved.
    pub program: OwnedFd,
    /// What tells why a call is denied.
    pub reasons: CallReasons,
    /// Its own log, if the network is not served.
    pub log: Option<CallsLog>,
}

/// The log of denied system calls only.
#[derive(Debug)]
pub struct CallsLog {
    /// Opened to append.
    pub file: OwnedFd,
    /// The warden's log, opened to append.
    pub warden: OwnedFd,
    /// The context of the lines in both.
    pub context: Context,
}

/// What a serving sidecar needs besides its listeners.
#[derive(Debug)]
pub struct ServingFds {
    /// The configuration, read from the start: [`crate::sidecar::ServingConfig`] as JSON.
    pub config: OwnedFd,
    /// The log, opened to append.
    pub journal: OwnedFd,
    /// The kernel's count of resets in the engine's network: /proc/PID/net/snmp.
    pub outside: Option<OwnedFd>,
    /// The warden's log, opened to append.
    pub warden: Option<OwnedFd>,
    /// A listening UNIX socket.
    pub control: OwnedFd,
}
