//! PURE. An event, and its line in a log. [`super::what`] has the kinds of events.

use serde::{Deserialize, Serialize};

use super::cause::{EventCause, KnownCause};
use super::plain::PlainText;
use super::what::EventDetail;
use crate::policy::Tool;

/// Whose events these are. Made once, by the runtime, and handed to each writer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Context {
    /// The container's id. Each text of a line is cut after 256 characters.
    pub container: PlainText,
    /// The engine that made the container: `docker`, `podman`, `cri-o`, `containerd NAMESPACE`, `wrap`, `agentbox`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<PlainText>,
    /// The container's name. Absent if the engine gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<PlainText>,
    /// The image, as the engine's caller wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<PlainText>,
    /// The pod's name. Absent outside of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PlainText>,
    /// The Kubernetes namespace of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<PlainText>,
    /// The name of the policy; `unconfined`: no walls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PlainText>,
    /// SHA-256 of the effective policy: 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_hash: Option<PlainText>,
    /// Whether learn mode (`report.learn`) allowed unlisted hosts. Absent: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub learn: bool,
}

/// Name and version of a line's form.
pub const SCHEMA: &str = "agentbox.event/1";

impl Context {
    /// The tool that started it.
    pub fn tool(&self) -> Tool {
        Tool::of(self.engine.as_deref())
    }
}

/// The part of agentbox that reports an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum WallName {
    /// Connections, requests and names.
    Network,
    /// System calls.
    Syscalls,
    /// Mounts and files.
    Filesystem,
    /// Capabilities, devices and settings of processes.
    Privileges,
    /// Limits of memory, processes and processors.
    Resources,
    /// Signatures with the user's SSH keys, and other requests to the user's SSH agent.
    Keys,
    /// Changed rules, and approvals.
    Rules,
    /// The life of the container and of `exec` processes.
    Life,
}

impl WallName {
    /// All walls.
    pub const ALL: [Self; 8] = [
        Self::Network,
        Self::Syscalls,
        Self::Filesystem,
        Self::Privileges,
        Self::Resources,
        Self::Keys,
        Self::Rules,
        Self::Life,
    ];

    /// Its word in a line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Syscalls => "syscalls",
            Self::Filesystem => "filesystem",
            Self::Privileges => "privileges",
            Self::Resources => "resources",
            Self::Keys => "keys",
            Self::Rules => "rules",
            Self::Life => "life",
        }
    }
}

/// The result of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// A wall refused it, or omitted it.
    Denied,
    /// The policy allowed it, but it failed: a host was not reached, for example.
    Failed,
    /// The policy allowed it.
    Allowed,
    /// A connection, a process or the container ended.
    Ended,
    /// Recorded; nothing was decided.
    Noted,
    /// The policy allowed it; the policy in `report.audit`, which is not enforced, would deny it.
    WouldDeny,
}

impl Verdict {
    /// How many events have it.
    pub fn times(self, lines: &[&LogLine]) -> u64 {
        let of_it = lines.iter().filter(|line| line.event.verdict == self);
        of_it.fold(0, |sum, line| sum.saturating_add(line.event.times()))
    }

    /// Its word in a line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::Allowed => "allowed",
            Self::Ended => "ended",
            Self::Noted => "noted",
            Self::WouldDeny => "would-deny",
        }
    }
}

/// The cause of an event, if not the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Actor {
    /// An attempt by `agentbox verify`.
    Verify,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The wall, or part of agentbox, that reports it.
    pub wall: WallName,
    /// The result.
    pub verdict: Verdict,
    /// The operation, with its details by `kind`.
    pub what: EventDetail,
    /// A short fixed word for the reason, to count by: `not-listed`, for example.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<PlainText>"))]
    pub cause: Option<EventCause>,
    /// The reason as a sentence, whose words may change between versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<PlainText>,
    /// The rule of the policy that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<PlainText>,
    /// The rule of `network.allow` that would allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_rule: Option<PlainText>,
    /// A remedy, for a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<PlainText>,
    /// The process id on the node. Absent if the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// The name of that process's program. Absent if the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PlainText>,
    /// How many events of this form happened since the last such line. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The cause, if not the workload. Absent: the workload or the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Actor>,
}

impl Event {
    /// An event without a reason.
    pub fn new(wall: WallName, verdict: Verdict, what: EventDetail) -> Self {
        Self {
            wall,
            verdict,
            what,
            cause: None,
            reason: None,
            rule: None,
            missing_rule: None,
            hint: None,
            pid: None,
            program: None,
            count: None,
            by: None,
        }
    }

    /// Whether `verify` caused it, and not the workload.
    pub fn is_verifys(&self) -> bool {
        self.by == Some(Actor::Verify)
    }

    /// Whether a rule allowed it until the rule's end.
    pub fn is_expired(&self) -> bool {
        self.has_cause(KnownCause::RuleExpired)
    }

    /// Whether this is its cause.
    pub fn has_cause(&self, cause: KnownCause) -> bool {
        self.known_cause() == Some(cause)
    }

    /// Its cause, if code compares with it.
    pub fn known_cause(&self) -> Option<KnownCause> {
        match self.cause {
            Some(EventCause::Known(known)) => Some(known),
            Some(EventCause::Other(_)) | None => None,
        }
    }

    /// The number of events that a line stands for.
    pub fn times(&self) -> u64 {
        self.count.unwrap_or(1)
    }
}

/// One line of a log: one JSON object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Line"))]
#[cfg_attr(test, schemars(extend("additionalProperties" = false)))]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// The format of the line, with its version.
    #[cfg_attr(test, schemars(extend("const" = SCHEMA)))]
    pub schema: String,
    /// The line's number in its file, from 1, without gaps.
    pub seq: u64,
    /// When the line was written, in UTC (RFC 3339).
    #[cfg_attr(test, schemars(extend("format" = "date-time")))]
    pub time: PlainText,
    /// Whose it is.
    #[serde(flatten)]
    pub context: Context,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
    /// SHA-256 of the previous line without its newline: 64 hexadecimal digits. All zeros in the first line.
    #[cfg_attr(test, schemars(extend("pattern" = "^[0-9a-f]{64}$")))]
    pub prev: String,
}
