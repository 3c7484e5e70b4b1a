//! What the runtime hands a sidecar when the container stands, as descriptors.

use std::os::fd::{BorrowedFd, OwnedFd};

use crate::audit::{Context, ReportedDenials};
use crate::network::InnerNamespace;
use crate::plan::SetIdCause;
use crate::sidecar::counts::KernelCount;
use crate::sidecar::watched::WatchedMount;

/// The descriptors and settings that the runtime gives a sidecar for its container.
#[derive(Debug)]
pub struct AttachRequest<'a> {
    /// The network namespace that it is to be in: the engine's, for it to dial from, or the shared one. `None`: where it is.
    pub netns: Option<BorrowedFd<'a>>,
    /// The container's init: the sidecar ends with it.
    pub init_pidfd: BorrowedFd<'a>,
    /// The inner namespace, for init, with its listeners; `None` where init is in another container's.
    pub inner: Option<InnerNamespace>,
    /// The file in which the container is shown these refusals, opened to write.
    pub shown: Option<(ReportedDenials, OwnedFd)>,
    /// Mounts of which the first write is recorded.
    pub watched: Vec<WatchedMount>,
    /// What the kernel counts.
    pub counts: Vec<KernelCount>,
    /// What it answers denied system calls with, where it is to.
    pub calls: Option<CallsFds>,
    /// What it serves with, where it is to.
    pub serving: Option<ServingFds>,
}

/// What a sidecar needs to answer denied system calls.
#[derive(Debug)]
pub struct CallsFds {
    /// A UNIX socket that listens, by which listeners come.
    pub listening: OwnedFd,
    /// The container's filter as it is kept.
    pub program: OwnedFd,
    /// Why no file of the container can be made set-user-ID, where none can.
    pub set_id: Option<SetIdCause>,
    /// Its own log, where nothing is served that has one.
    pub log: Option<CallsLog>,
}

/// The log of denied system calls alone.
#[derive(Debug)]
pub struct CallsLog {
    /// Opened to append.
    pub file: OwnedFd,
    /// The warden's, opened to append.
    pub warden: OwnedFd,
    /// The context of the lines of both.
    pub context: Context,
}

/// What a serving sidecar needs besides its listeners.
#[derive(Debug)]
pub struct ServingFds {
    /// The configuration, to be read from its beginning: [`crate::sidecar::ServingConfig`] as JSON.
    pub config: OwnedFd,
    /// The log, opened to append.
    pub journal: OwnedFd,
    /// The kernel's count of resets in the engine's network: /proc/PID/net/snmp.
    pub outside: Option<OwnedFd>,
    /// The warden's log, opened to append.
    pub warden: Option<OwnedFd>,
    /// A UNIX socket that listens.
    pub control: OwnedFd,
}
