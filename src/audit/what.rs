//! PURE. The kinds of events, decoded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::LoggedCommand;
use super::command::{ArgumentCut, plain_arguments};
use super::plain::{plain, plain_list};

/// How somebody tried to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Via"))]
#[serde(rename_all = "kebab-case")]
pub enum ConnectionKind {
    /// A DNS question.
    Dns,
    /// A direct connection, without the proxy.
    Transparent,
    /// HTTP CONNECT or an http:// request to the proxy.
    Http,
    /// SOCKS5.
    Socks,
    /// A connection from outside to a port that leads in; the host is its own.
    Inbound,
    /// Connections from outside that nobody answered; no host is known.
    Outside,
    /// Attempts by address to which no route leads: the kernel's count alone, no host is known.
    Unrouted,
    /// Attempts on ports where nothing listens, the container's own among them: the kernel's count alone.
    Unanswered,
    /// A connection to a port that no rule names, which the kernel reset.
    Tcp,
    /// A datagram to a port where nothing listens.
    Udp,
    /// The socket of the runtime's verbs.
    Control,
}

/// What a container did, or what was done to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LifeState {
    /// `create` has made it.
    Created,
    /// Its program runs.
    Started,
    /// A signal was sent to it.
    Signalled,
    /// It was suspended.
    Paused,
    /// It goes on.
    Resumed,
    /// Its first process has ended.
    Ended,
    /// It was deleted.
    Deleted,
}

/// What became of a process of `exec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ProcessState {
    /// It has executed its program.
    Began,
    /// It has ended.
    Ended,
    /// It could not be started.
    Refused,
}

/// The end of a log: how many lines it has, and the hash of the last one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LogHead {
    /// The file's name.
    pub file: String,
    /// The number of its last line.
    pub seq: u64,
    /// SHA-256 of its last line, in hexadecimal; 64 zeros where it has none.
    pub head: String,
}

/// What an event is about, decoded.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "What"))]
#[serde(
    tag = "kind",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub enum EventDetail {
    /// A connection, out or in, or the attempt at one.
    Connection {
        /// How; not known of every connection that was allowed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        via: Option<ConnectionKind>,
        /// The other side: a name, or an address.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        host: String,
        /// The port; of an inbound connection the container's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
        /// Bytes that left the container.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sent: Option<u64>,
        /// Bytes that came in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        received: Option<u64>,
    },
    /// A name that was looked up.
    Name {
        /// How.
        via: ConnectionKind,
        /// The name.
        host: String,
    },
    /// A person's decision on a host.
    Approval {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// For how long: `once`, `always`, or seconds as `600s`; nothing for a denial.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lasting: Option<String>,
        /// Who decided.
        by: String,
    },
    /// A change of the network's rules.
    Rules {
        /// Rules of `network.allow` that are new.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        added: Vec<String>,
        /// Rules of `network.allow` that are gone.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        removed: Vec<String>,
        /// Rules of `network.deny` that are new.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        denied: Vec<String>,
        /// Who changed them.
        by: String,
    },
    /// A system call.
    Syscall {
        /// Its name.
        name: String,
        /// As C would call it, with the arguments that are numbers.
        call: String,
        /// The errno that the caller got.
        errno: String,
    },
    /// A mount that was asked for.
    Mount {
        /// Where it would be.
        destination: String,
        /// What would be mounted.
        source: String,
    },
    /// Capabilities, devices, options or settings that were asked for.
    Asked {
        /// In words.
        item: String,
    },
    /// The container.
    Container {
        /// What became of it.
        state: LifeState,
        /// The exit status, as a shell's: 128 + n for signal n. Not known under an engine before Linux 6.15.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<i32>,
        /// The signal that was sent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<String>,
        /// The ends of the other logs, when it was deleted.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        logs: Vec<LogHead>,
        /// What its first process executes, when it was created.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<LoggedCommand>,
        /// SHA-256, in hexadecimal, of what else is kept of it: `plan`, `filter` and the name of the `run` when it was created; the
        /// run's files by their names when it was deleted.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        kept: BTreeMap<String, String>,
        /// When it was deleted: the id of the key by which a receipt is signed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt_by: Option<String>,
    },
    /// A process that `exec` started.
    Process {
        /// What became of it.
        state: ProcessState,
        /// Program and arguments.
        arguments: Vec<String>,
        /// What stands in them for more than they have.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        cut: Vec<ArgumentCut>,
        /// User id in the container.
        uid: u32,
        /// Group id in the container.
        gid: u32,
        /// The exit status, as a shell's. Not known under an engine before Linux 6.15.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<i32>,
    },
    /// A limit that was reached.
    Limit {
        /// The field: `limits.memory`, `limits.pids`.
        limit: String,
        /// How often since the container began, as the kernel counts it.
        times: u64,
        /// The limit as the kernel has it: bytes, processes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<u64>,
    },
    /// Limits that `update` set.
    Update {
        /// Each as `name=value`.
        limits: Vec<String>,
    },
    /// `verify` tried the walls of the running container.
    Verified {
        /// `held`, `not-held`, `not-tried` or `not-promised`.
        result: String,
        /// Attempts that a wall held off.
        held: u64,
        /// Names of the attempts that succeeded.
        not_held: Vec<String>,
        /// Names of those that could not be made.
        not_tried: Vec<String>,
        /// SHA-256 of the whole report, `verify.json` beside the log, in hexadecimal.
        report: String,
    },
    /// Events without a line of their own.
    LeftOut {
        /// Their class.
        of: String,
        /// How many.
        events: u64,
    },
}

impl EventDetail {
    /// An attempt to connect, whose result is not known.
    pub fn attempt(via: ConnectionKind, host: &str, port: Option<u16>) -> Self {
        match (via, port) {
            (ConnectionKind::Dns, _) => Self::Name {
                via,
                host: host.to_owned(),
            },
            _ => Self::Connection {
                via: Some(via),
                host: host.to_owned(),
                port,
                sent: None,
                received: None,
            },
        }
    }

    /// A connection to a host of any kind.
    pub fn to(host: &str, port: u16) -> Self {
        Self::Connection {
            via: None,
            host: host.to_owned(),
            port: Some(port),
            sent: None,
            received: None,
        }
    }

    /// A change of the container's state.
    pub fn life(state: LifeState) -> Self {
        Self::Container {
            state,
            exit: None,
            signal: None,
            logs: Vec::new(),
            command: None,
            kept: BTreeMap::new(),
            receipt_by: None,
        }
    }

    /// Its host, if it has one.
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::Connection { host, .. }
            | Self::Name { host, .. }
            | Self::Approval { host, .. } => Some(host)
                .filter(|host| !host.is_empty())
                .map(String::as_str),
            Self::Rules { .. }
            | Self::Syscall { .. }
            | Self::Mount { .. }
            | Self::Asked { .. }
            | Self::Container { .. }
            | Self::Process { .. }
            | Self::Limit { .. }
            | Self::Update { .. }
            | Self::Verified { .. }
            | Self::LeftOut { .. } => None,
        }
    }

    pub(super) fn plain(self) -> Self {
        match self {
            Self::Connection {
                via,
                host,
                port,
                sent,
                received,
            } => Self::Connection {
                via,
                host: plain(&host),
                port,
                sent,
                received,
            },
            Self::Name { via, host } => Self::Name {
                via,
                host: plain(&host),
            },
            Self::Approval {
                host,
                port,
                lasting,
                by,
            } => Self::Approval {
                host: plain(&host),
                port,
                lasting,
                by: plain(&by),
            },
            Self::Rules {
                added,
                removed,
                denied,
                by,
            } => Self::Rules {
                added: plain_list(added),
                removed: plain_list(removed),
                denied: plain_list(denied),
                by: plain(&by),
            },
            Self::Syscall { name, call, errno } => Self::Syscall {
                name: plain(&name),
                call: plain(&call),
                errno: plain(&errno),
            },
            Self::Mount {
                destination,
                source,
            } => Self::Mount {
                destination: plain(&destination),
                source: plain(&source),
            },
            Self::Asked { item } => Self::Asked { item: plain(&item) },
            process @ Self::Process { .. } => process.with_plain_arguments(),
            Self::Update { limits } => Self::Update {
                limits: plain_list(limits),
            },
            // Numbers, agentbox's own words, and a command, which was made plain.
            same @ (Self::Container { .. }
            | Self::Limit { .. }
            | Self::Verified { .. }
            | Self::LeftOut { .. }) => same,
        }
    }

    /// Makes a process's arguments plain, and records the cuts.
    fn with_plain_arguments(mut self) -> Self {
        if let Self::Process { arguments, cut, .. } = &mut self
            && cut.is_empty()
        {
            (*arguments, *cut) = plain_arguments(std::mem::take(arguments));
        }
        self
    }
}
