//! PURE. Events that share a quota.

use super::{ConnectionKind, Event, EventDetail, Verdict, WallName};

/// Events that share a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Names that were refused.
    Names,
    /// Connections that were refused.
    Connections,
    /// Connections that were allowed, and their ends.
    Allowed,
    /// Connections that were allowed and failed.
    Failed,
    /// Connections from outside.
    Inbound,
    /// What the kernel alone counts of the network, and what it refuses.
    Counts,
    /// Attempts at the sidecar's own socket.
    Control,
    /// System calls.
    Syscalls,
    /// Everything about files, rights and limits.
    Walls,
    /// What a policy that is only reported on would refuse.
    Audited,
    /// What `verify` tried: it takes no place from the workload's events.
    Verify,
    /// Decisions, and the container's own life.
    Life,
}

impl Class {
    pub(super) const ALL: [Self; 12] = [
        Self::Names,
        Self::Connections,
        Self::Allowed,
        Self::Failed,
        Self::Inbound,
        Self::Counts,
        Self::Control,
        Self::Syscalls,
        Self::Walls,
        Self::Audited,
        Self::Verify,
        Self::Life,
    ];

    /// The class of an event.
    pub fn of(event: &Event) -> Self {
        if event.is_verifys() {
            return Self::Verify;
        }
        match (event.wall, event.verdict, &event.what) {
            (_, Verdict::WouldDeny, _) => Self::Audited,
            (
                _,
                _,
                EventDetail::Connection {
                    via: Some(ConnectionKind::Control),
                    ..
                },
            ) => Self::Control,
            (
                _,
                _,
                EventDetail::Connection {
                    via: Some(ConnectionKind::Inbound | ConnectionKind::Outside),
                    ..
                },
            ) => Self::Inbound,
            (
                _,
                _,
                EventDetail::Connection {
                    via:
                        Some(
                            ConnectionKind::Unrouted
                            | ConnectionKind::Unanswered
                            | ConnectionKind::Tcp
                            | ConnectionKind::Udp,
                        ),
                    ..
                },
            ) => Self::Counts,
            (_, _, EventDetail::Name { .. }) => Self::Names,
            (WallName::Network, Verdict::Denied, _) => Self::Connections,
            (WallName::Network, Verdict::Failed, _) => Self::Failed,
            (WallName::Network, Verdict::Allowed | Verdict::Ended, _) => Self::Allowed,
            (WallName::Syscalls, ..) => Self::Syscalls,
            (WallName::Filesystem | WallName::Privileges | WallName::Resources, ..) => Self::Walls,
            (WallName::Rules | WallName::Life | WallName::Network, ..) => Self::Life,
        }
    }

    /// Its word in the line that counts what has none.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Names => "names",
            Self::Connections => "denied connections",
            Self::Allowed => "allowed connections",
            Self::Failed => "failed connections",
            Self::Inbound => "connections from outside",
            Self::Counts => "attempts by address",
            Self::Control => "the control socket",
            Self::Syscalls => "system calls",
            Self::Walls => "files, rights and limits",
            Self::Audited => "what another policy would refuse",
            Self::Verify => "attempts of verify",
            Self::Life => "life and decisions",
        }
    }

    /// The wall that such a line is about.
    pub(super) fn wall(self) -> WallName {
        match self {
            Self::Syscalls => WallName::Syscalls,
            Self::Walls => WallName::Privileges,
            Self::Verify | Self::Life => WallName::Life,
            Self::Names
            | Self::Connections
            | Self::Allowed
            | Self::Failed
            | Self::Inbound
            | Self::Counts
            | Self::Control
            | Self::Audited => WallName::Network,
        }
    }
}
