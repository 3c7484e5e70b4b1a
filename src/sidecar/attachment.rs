//! The runtime's second message to a sidecar: the purpose of each descriptor that comes with it.

use serde::{Deserialize, Serialize};

use super::counts::CountKind;
use super::protocol::NamespaceId;
use super::watched::MountPaths;
use crate::audit::{Context, ReportedDenials};
use crate::plan::CallReasons;

/// The message. It comes with one descriptor for each tag, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Attachment {
    /// What the descriptors are for.
    pub tags: Vec<FdTag>,
    /// The runtime's pid namespace.
    pub pid_namespace: NamespaceId,
    /// What tells why a call is denied, for the log.
    pub reasons: CallReasons,
}

/// The purpose of a descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FdTag {
    /// Init's pidfd.
    Init,
    /// The inner network namespace, for init, with its cookie. Missing if init is already in another container's.
    Inner(u64),
    /// The inner namespace's sysfs.
    Sysfs,
    /// The network namespace that the sidecar enters: the engine's, or the one that the container shares. Missing if
    /// the sidecar is already there.
    Outer,
    /// The file that shows the container these denials.
    Denials(ReportedDenials),
    /// A mount whose first write is recorded.
    Watched(MountPaths),
    /// A file of this kernel counter; some counters have several.
    Count(CountKind),
    /// The socket for listeners of denied system calls. Missing if the kernel answers them.
    Calls,
    /// The container's filter.
    Filter,
    /// The log of denied calls only, with the context of its lines. If the network is served, its log takes them.
    CallsLog(Context),
    /// The warden's log.
    WardensLog,
    /// The configuration of a sidecar that serves.
    Config,
    /// Its log.
    Journal,
    /// Its control socket.
    Control,
    /// The kernel's count of resets in the engine's network.
    Outside,
    /// Its listeners, as [`crate::network::Listeners::into_fds`] has them.
    Listener,
    /// A socket of the inner namespace, to dial with.
    Dialer,
    /// A socket that hears of attempts that the kernel refuses there ([`crate::network::refused`]).
    Tap,
}
