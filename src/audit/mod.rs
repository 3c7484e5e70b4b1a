//! PURE. The log of a container: what its walls denied and allowed, and the results. One JSON line for each event.
//!
//! ```text
//! Event --Quotas--> the events to write now --Chain--> lines, each with the hash of the line before
//! lines --read----> Line, and faults of the file
//! ```
//! A run has one file for each writer, so that no writer waits for another or can rewrite its lines. The runtime writes
//! `node.jsonl`, the sidecar `sidecar.jsonl`, the warden the one line of `warden.jsonl`, and the relay to the user's SSH
//! agent `ssh.jsonl`.
//!
//! | Module | Purpose |
//! |---|---|
//! | [`event`], [`what`], [`life`] | the types, whose JSON Schema is docs/event.schema.json |
//! | [`chain`] | events to lines |
//! | [`quota`], [`class`], [`rate`], [`fold`] | which events are written, which are folded, which are only counted |
//! | [`read`] | lines to events, and breaks of the chain |
//! | [`recent`] | the last refusals, for the container itself |
//! | [`whole`] | whether the files of one run fit each other |
//! | [`report`], [`words`], [`signatures`], [`markdown`] | events for people; `rows`: which of many |
//! | [`ocsf`] | events for other programs |
//! | [`kernel`], [`loopback`] | what the kernel alone counts; ports of the loopback that it refuses |
//! | [`mounts`] | mounts that may be written, and whether they were |
//! | [`suggest`] | refusals to additions to a policy |
//! | [`receipt`] | a run to a signed statement, and back |
//! | [`schema`] | the published form of a line |

pub mod chain;
mod class;
mod command;
pub mod event;
mod expired;
mod fold;
pub mod kernel;
mod life;
pub mod loopback;
pub mod markdown;
pub mod mounts;
pub mod ocsf;
mod plain;
pub mod quota;
mod rate;
pub mod read;
pub mod receipt;
pub mod recent;
pub mod report;
mod rows;
pub mod schema;
pub mod signatures;
pub mod suggest;
#[cfg(test)]
mod tests;
mod what;
pub mod whole;
pub mod words;

pub use chain::{Chain, hash};
pub use class::Class;
pub use command::LoggedCommand;
pub use event::{Actor, Context, Event, LogLine, PUBLISHED, Verdict, WallName};
pub use expired::ExpiredItem;
pub use kernel::CountedLimit;
pub use life::{LifeState, LogHead, ProcessState};
pub use plain::{PlainList, PlainText};
pub use quota::Quotas;
pub use read::{Log, LogFault};
pub use recent::{DenialNotice, RecentDenials, ReportedDenials};
pub use what::{ConnectionKind, EventDetail};

/// The cause of an event that learn mode allowed.
pub const LEARNT: &str = "learnt";
/// The cause of the warden's line about a sidecar that died.
pub const SIDECAR_LOST: &str = "sidecar-lost";
/// The cause of an event about a honeytoken.
pub const HONEY: &str = "honey";
/// Name and version of a line's form.
pub const SCHEMA: &str = "agentbox.event/1";

/// The log that the sidecar writes.
pub const SIDECAR: &str = "sidecar.jsonl";
/// The log that the runtime's verbs write.
pub const NODE: &str = "node.jsonl";
/// The log that the warden writes.
pub const WARDEN: &str = "warden.jsonl";
/// The log that the relay to the user's SSH agent writes. Runs without one lack it.
pub const SSH: &str = "ssh.jsonl";
/// The log that the relay to unix sockets of databases writes. Runs without one lack it.
pub const SOCKETS: &str = "sockets.jsonl";
/// The log of one line that the timekeeper writes when it ends the container. Runs without a time limit lack it.
pub const TIME: &str = "time.jsonl";
/// All logs that a run can have.
pub const LOGS: [&str; 6] = [NODE, SIDECAR, WARDEN, SSH, SOCKETS, TIME];
