//! The second message of the runtime to a sidecar: what each descriptor is for that comes along.

use serde::{Deserialize, Serialize};

use super::counts::CountKind;
use super::protocol::NamespaceId;
use super::watched::MountPaths;
use crate::audit::{Context, ReportedDenials};
use crate::plan::SetIdCause;

/// The message. It comes with one descriptor for each tag, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Attachment {
    /// What the descriptors are for.
    pub tags: Vec<FdTag>,
    /// The runtime's pid namespace.
    pub pid_namespace: NamespaceId,
    /// Why no file of the container can be made set-user-ID, where none can: for the log of its denied calls.
    pub set_id: Option<SetIdCause>,
}

/// What a descriptor is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FdTag {
    /// Init's pidfd.
    Init,
    /// The inner network namespace, which init gets, with its cookie. None comes where init is in another container's already.
    Inner(u64),
    /// The sysfs of that.
    Sysfs,
    /// The network namespace that the sidecar is to be in: the engine's, or that of the network which the container shares. None
    /// comes where it is in it already.
    Outer,
    /// The file in which the container is shown these denials.
    Denials(ReportedDenials),
    /// A mount of which the first write is recorded.
    Watched(MountPaths),
    /// A file in which the kernel counts this; some counts have several.
    Count(CountKind),
    /// The socket for listeners of denied system calls. None comes where the kernel answers them.
    Calls,
    /// The container's filter.
    Filter,
    /// The log of denied calls alone, with the context of its lines. Where the network is served they are logged with that.
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
    /// A socket of the inner namespace to dial with.
    Dialer,
    /// One that hears of attempts which the kernel refuses there ([`crate::network::refused`]).
    Tap,
}
