//! PURE. Changes in the life of a container and of its processes, and the ends of its logs.

use serde::{Deserialize, Serialize};

use super::plain::PlainText;

/// A change in the life of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LifeState {
    /// `create` made it.
    Created,
    /// Its program runs.
    Started,
    /// A signal was sent to it.
    Signalled,
    /// `pause` suspended it.
    Paused,
    /// `resume` continued it.
    Resumed,
    /// Its init process ended.
    Ended,
    /// `delete` removed it.
    Deleted,
}

/// A change in the life of an `exec` process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ProcessState {
    /// It executed its program.
    Began,
    /// It ended.
    Ended,
    /// It could not be started.
    Refused,
}

/// The end of a log file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LogHead {
    /// The file's name in the run's directory.
    pub file: PlainText,
    /// The number of its lines.
    pub seq: u64,
    /// SHA-256 of its last line: 64 hexadecimal digits. All zeros without a line.
    pub head: PlainText,
}
