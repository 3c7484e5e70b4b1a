//! The second message of the runtime to a sidecar: whom it serves, and which descriptors come along.

use serde::{Deserialize, Serialize};

use super::counts::CountKind;
use super::protocol::NamespaceId;
use super::watched::MountPaths;
use crate::audit::{Context, ReportedDenials};
use crate::plan::SetIdCause;

/// The message. Its descriptors are, in this order: init's pidfd; the inner namespace and the inner sysfs, if `inner` says so; the
/// namespace to be in, if `place` says so; the file of refusals, if there is one; those of `watched`; those of `counts`; if it answers denied calls, the socket for their
/// listeners, the program and, if that is its own, the log and the warden's; if it is to serve, the configuration, the log, the control
/// socket, the listeners and the sockets to dial with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Attachment {
    /// What init gets of it.
    pub inner: InnerAttachment,
    pub place: NetnsAttachment,
    /// The runtime's pid namespace.
    pub pid_namespace: NamespaceId,
    /// Which refusals the file shows the container that comes along for them, if one does.
    pub shows: Option<ReportedDenials>,
    /// The mounts whose descriptors come along for their first writes.
    pub watched: Vec<MountPaths>,
    /// What the kernel counts, whose files come along.
    pub counts: Vec<CountKind>,
    /// Whether it answers denied system calls, and where it logs them.
    pub calls: CallsAttachment,
    /// Why no file of the container can be made set-user-ID, where none can: for the log of its denied calls.
    pub set_id: Option<SetIdCause>,
    /// How many listeners and sockets to dial with come along; `None`: nothing is served.
    pub sockets: Option<usize>,
}

impl Attachment {
    /// How many descriptors it comes with.
    pub fn descriptors(&self) -> usize {
        1 + self.inner.descriptors()
            + self.place.descriptors()
            + usize::from(self.shows.is_some())
            + self.watched.len()
            + self.counts.iter().map(|of| of.files()).sum::<usize>()
            + self.calls.descriptors()
            + self.sockets.map_or(0, |count| 3 + count)
    }
}

/// The descriptors that are sent for denied system calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallsAttachment {
    /// Nothing: the kernel answers them.
    No,
    /// The socket and the program. They are logged where what is served is logged.
    SharedLog,
    /// The socket, the program, a log and the warden's, for whose lines this is the context.
    OwnLog(Context),
}

impl CallsAttachment {
    /// How many descriptors that is.
    pub fn descriptors(&self) -> usize {
        match self {
            Self::No => 0,
            Self::SharedLog => 2,
            Self::OwnLog(_) => 4,
        }
    }
}

/// Whether the sidecar's network namespace is sent or inherited. A sidecar that dials does it from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NetnsAttachment {
    /// In one that comes along: the engine's, or that of the network which the container shares.
    Sent,
    /// In the one it was started in.
    Inherited,
}

impl NetnsAttachment {
    /// How many descriptors that is.
    pub fn descriptors(self) -> usize {
        match self {
            Self::Sent => 1,
            Self::Inherited => 0,
        }
    }
}

/// Which inner network namespace the sidecar keeps for init.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum InnerAttachment {
    /// None: init is in another container's already.
    No,
    /// One with this cookie, and its sysfs.
    Cookie(u64),
}

impl InnerAttachment {
    /// How many descriptors that is.
    pub fn descriptors(self) -> usize {
        match self {
            Self::No => 0,
            Self::Cookie(_) => 2,
        }
    }
}
