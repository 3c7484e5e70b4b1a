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
//! | [`event`], [`what`], [`life`], `cause` | the types, whose JSON Schema is docs/event.schema.json |
//! | [`log_files`] | names of files that several files need |
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

mod cause;
pub mod chain;
mod class;
mod command;
pub mod event;
mod expired;
mod fold;
pub mod kernel;
mod life;
mod log_files;
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

pub use cause::{EventCause, KnownCause};
pub use chain::{Chain, hash};
pub use class::Class;
pub use command::LoggedCommand;
pub use event::{Actor, Context, Event, LogLine, SCHEMA, Verdict, WallName};
pub use expired::ExpiredItem;
pub use kernel::CountedLimit;
pub use life::{LifeState, LogHead, ProcessState};
pub use log_files::{LOGS, NODE, SIDECAR, SOCKETS, SSH, TIME, WARDEN};
pub use plain::{PlainList, PlainText};
pub use quota::Quotas;
pub use read::{Log, LogFault};
pub use recent::{DenialNotice, RecentDenials, ReportedDenials};
pub use what::{ConnectionKind, EventDetail};
