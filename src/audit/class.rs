//! PURE. Events that share a quota.

use super::cause::KnownCause;
use super::event::{Event, Verdict, WallName};
use super::what::{ConnectionKind, EventDetail};

/// Events that share a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Denied names.
    Names,
    /// Denied connections.
    Connections,
    /// Honeytokens on their way out, which no flood of other denials hides.
    Honey,
    /// Allowed connections, and their ends.
    Allowed,
    /// Allowed connections that failed.
    Failed,
    /// Connections from outside.
    Inbound,
    /// Denied attempts by address, most of them known only from the kernel's counters.
    Counts,
    /// Connections to the sidecar's control socket.
    Control,
    /// Signatures, and those that failed.
    Signatures,
    /// Denied requests to the SSH agent.
    AgentRequests,
    /// System calls.
    Syscalls,
    /// All events about files, rights and limits.
    Walls,
    /// Events that a report-only policy would deny.
    Audited,
    /// Attempts of `verify`, which take no quota from the workload's events.
    Verify,
    /// Decisions, and the container's own life.
    Life,
}

impl Class {
    pub(super) const ALL: [Self; 15] = [
        Self::Names,
        Self::Connections,
        Self::Honey,
        Self::Allowed,
        Self::Failed,
        Self::Inbound,
        Self::Counts,
        Self::Control,
        Self::Signatures,
        Self::AgentRequests,
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
        // The line that counts omitted events is of their class.
        if let EventDetail::LeftOut { of, .. } = &event.what
            && let Some(class) = Self::ALL.into_iter().find(|class| *of == class.as_str())
        {
            return class;
        }
        match (event.wall, event.verdict, &event.what) {
            (_, Verdict::WouldDeny, _) => Self::Audited,
            _ if event.has_cause(KnownCause::Honey) => Self::Honey,
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
            (WallName::Keys, Verdict::Denied, _) => Self::AgentRequests,
            (WallName::Keys, ..) => Self::Signatures,
            (WallName::Syscalls, ..) => Self::Syscalls,
            (WallName::Filesystem | WallName::Privileges | WallName::Resources, ..) => Self::Walls,
            (WallName::Rules | WallName::Life | WallName::Network, ..) => Self::Life,
        }
    }

    /// Its word in the line that counts omitted events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Names => "names",
            Self::Connections => "denied connections",
            Self::Honey => "honeytokens",
            Self::Allowed => "allowed connections",
            Self::Failed => "failed connections",
            Self::Inbound => "connections from outside",
            Self::Counts => "attempts by address",
            Self::Control => "the control socket",
            Self::Signatures => "signatures",
            Self::AgentRequests => "denied requests to the SSH agent",
            Self::Syscalls => "system calls",
            Self::Walls => "files, rights and limits",
            Self::Audited => "what another policy would refuse",
            Self::Verify => "attempts of verify",
            Self::Life => "life and decisions",
        }
    }

    /// The wall in that line.
    pub(super) fn wall(self) -> WallName {
        match self {
            Self::Signatures | Self::AgentRequests => WallName::Keys,
            Self::Syscalls => WallName::Syscalls,
            Self::Walls => WallName::Privileges,
            Self::Verify | Self::Life => WallName::Life,
            Self::Names
            | Self::Connections
            | Self::Honey
            | Self::Allowed
            | Self::Failed
            | Self::Inbound
            | Self::Counts
            | Self::Control
            | Self::Audited => WallName::Network,
        }
    }
}
