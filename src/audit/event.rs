//! PURE. An event, and its line in a log. [`super::what`] has the kinds of events.

use serde::{Deserialize, Serialize};

use super::plain::plain;
use super::what::EventDetail;
use crate::policy::Tool;

/// Whose events these are. Made once, by the runtime, and handed to each writer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Context {
    /// The container's id.
    pub container: String,
    /// The engine that made it: `docker`, `podman`, `cri-o`, `containerd NAMESPACE`, `wrap`, `agentbox`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The container's name, where the engine has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The image, as the engine was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The pod's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The pod's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The policy's name; `unconfined` where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// SHA-256 of the policy as it was resolved, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_hash: Option<String>,
    /// Unlisted hosts were allowed (`report.learn`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub learn: bool,
}

/// The cause of denied connections to a port that the engine publishes.
pub const PUBLISHED: &str = "published";

impl Context {
    /// The tool that started it.
    pub fn tool(&self) -> Tool {
        Tool::of(self.engine.as_deref())
    }

    /// Makes its texts bounded and harmless on a terminal.
    pub fn plain(self) -> Self {
        let option = |text: Option<String>| text.map(|text| plain(&text));
        Self {
            container: plain(&self.container),
            engine: option(self.engine),
            name: option(self.name),
            image: option(self.image),
            pod: option(self.pod),
            namespace: option(self.namespace),
            policy: option(self.policy),
            policy_hash: option(self.policy_hash),
            learn: self.learn,
        }
    }
}

/// Which part of agentbox an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum WallName {
    /// Connections and names.
    Network,
    /// System calls.
    Syscalls,
    /// Mounts.
    Filesystem,
    /// Capabilities, devices, settings of processes.
    Privileges,
    /// Memory, processes, processors.
    Resources,
    /// Changes of what is allowed, and a person's decisions.
    Rules,
    /// The container itself and processes of `exec`.
    Life,
}

impl WallName {
    /// All walls.
    pub const ALL: [Self; 7] = [
        Self::Network,
        Self::Syscalls,
        Self::Filesystem,
        Self::Privileges,
        Self::Resources,
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
            Self::Rules => "rules",
            Self::Life => "life",
        }
    }
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// A wall refused it, or left it out.
    Denied,
    /// It was allowed, and did not come about.
    Failed,
    /// It was allowed.
    Allowed,
    /// It is over.
    Ended,
    /// It is written down, and nothing was decided.
    Noted,
    /// It was allowed, and a policy that is only reported on would have refused it.
    WouldDeny,
}

impl Verdict {
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

/// Who acted where it was not the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Actor {
    /// `agentbox verify`, which tries the walls.
    Verify,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Which wall.
    pub wall: WallName,
    /// What it did.
    pub verdict: Verdict,
    /// With what.
    pub what: EventDetail,
    /// The reason in a word, by which refusals are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The reason in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The rule that would allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_rule: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The process, as the node numbers it, where the kernel tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Its program, where the kernel tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// So many events of this form since the last line of it; left out: one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Who did it, where it was not the workload; left out: the workload, or the runtime's caller.
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

    /// The number of events that a line stands for.
    pub fn times(&self) -> u64 {
        self.count.unwrap_or(1)
    }

    /// Makes its texts bounded and harmless on a terminal, even when a JSON reader prints them unescaped.
    pub fn plain(self) -> Self {
        let option = |text: Option<String>| text.map(|text| plain(&text));
        Self {
            what: self.what.plain(),
            cause: option(self.cause),
            reason: option(self.reason),
            rule: option(self.rule),
            missing_rule: option(self.missing_rule),
            hint: option(self.hint),
            program: option(self.program),
            ..self
        }
    }
}

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Line"))]
#[cfg_attr(test, schemars(extend("additionalProperties" = false)))]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// `agentbox.event/1`.
    #[cfg_attr(test, schemars(extend("const" = super::SCHEMA)))]
    pub schema: String,
    /// The line's number in its file, from 1.
    pub seq: u64,
    /// When it was written (RFC 3339, UTC).
    #[cfg_attr(test, schemars(extend("format" = "date-time")))]
    pub time: String,
    /// Whose it is.
    #[serde(flatten)]
    pub context: Context,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
    /// SHA-256 of the line before, without its end, in hexadecimal; 64 zeros in the first one.
    #[cfg_attr(test, schemars(extend("pattern" = "^[0-9a-f]{64}$")))]
    pub prev: String,
}
