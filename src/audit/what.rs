//! PURE. The kinds of events, decoded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::command::ArgumentCut;
use super::command::LoggedCommand;
use super::expired::ExpiredItem;
use super::life::{LifeState, LogHead, ProcessState};
use super::plain::{PlainList, PlainText};

/// The way of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Via"))]
#[serde(rename_all = "kebab-case")]
pub enum ConnectionKind {
    /// A DNS query.
    Dns,
    /// A direct connection, without the proxy.
    Transparent,
    /// HTTP CONNECT, or an http:// request to the proxy.
    Http,
    /// SOCKS5 to the proxy.
    Socks,
    /// A connection from outside to a port of `network.inbound`. `host` is the client's address.
    Inbound,
    /// Connections from outside that nothing answered. `host` is absent.
    Outside,
    /// Attempts to addresses without a route, from the kernel's counter. `host` is absent.
    Unrouted,
    /// Under `wrap`, the first connection to a port of `localhost` where nothing listens (cause `loopback`); else attempts
    /// on ports where nothing listens, also the container's own, from the kernel's counter, and `host` is absent.
    Unanswered,
    /// A TCP connection to a port that no rule names. The kernel reset it.
    Tcp,
    /// A UDP datagram to a port where nothing listens.
    Udp,
    /// The sidecar's control socket, which only agentbox may use.
    Control,
    /// A unix socket of a database, outside. `host` is its path.
    Socket,
}

/// The operation of an event. `kind` tells which fields it has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "What"))]
#[serde(
    tag = "kind",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub enum EventDetail {
    /// A connection or an attempt, outgoing or incoming.
    Connection {
        /// The way. Absent for some allowed connections.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        via: Option<ConnectionKind>,
        /// The name or address of the other side. Absent if it is not known.
        #[serde(default, skip_serializing_if = "str::is_empty")]
        host: PlainText,
        /// The TCP or UDP port, 1 to 65535; of an incoming connection, the container's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
        /// Bytes that left the container, at the end of the connection.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sent: Option<u64>,
        /// Bytes that the container received, at the end of the connection.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        received: Option<u64>,
    },
    /// A DNS query for a name.
    Name {
        /// Always `dns`.
        via: ConnectionKind,
        /// The name.
        host: PlainText,
    },
    /// An approval or a denial by the operator (`agentbox approve`, `deny`).
    Approval {
        /// The host's name.
        host: PlainText,
        /// The TCP port, 1 to 65535.
        port: u16,
        /// How long it lasts: `once`, `always`, or seconds, such as `600s`. Absent for a denial.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lasting: Option<PlainText>,
        /// The user on the node who decided.
        by: PlainText,
    },
    /// Network rules that changed while the container ran (`agentbox update`).
    Rules {
        /// Rules that were added to `network.allow`.
        #[serde(default, skip_serializing_if = "PlainList::is_empty")]
        added: PlainList,
        /// Rules that were removed from `network.allow`.
        #[serde(default, skip_serializing_if = "PlainList::is_empty")]
        removed: PlainList,
        /// Rules that were added to `network.deny`.
        #[serde(default, skip_serializing_if = "PlainList::is_empty")]
        denied: PlainList,
        /// Ports that were added to `network.inbound`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        inbound: Vec<u16>,
        /// The user on the node who changed them.
        by: PlainText,
    },
    /// A rule, an approval or a secret that has expired.
    Expired {
        /// The kind of item.
        of: ExpiredItem,
        /// The rule, the approval's `HOST:PORT`, or the secret's name.
        item: PlainText,
        /// When it expired (RFC 3339, UTC).
        until: PlainText,
    },
    /// A denied system call.
    Syscall {
        /// Its name, such as `mount`.
        name: PlainText,
        /// The call in C's notation, with those arguments that are numbers.
        call: PlainText,
        /// The error that the caller got, such as `EPERM`.
        errno: PlainText,
    },
    /// A signature with a key of the user's SSH agent: for a login to a server, or for a message.
    Signature {
        /// The key's fingerprint, as `ssh-add -l` prints it.
        key: PlainText,
        /// The user at the server. Absent for a message, and for unknown data.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<PlainText>,
        /// The fingerprint of the server's key, for which alone the signature counts. Absent if the signed data names none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        server: Option<PlainText>,
        /// SHA-256 of the id of a login's SSH connection, if `server` is absent: 64 hexadecimal digits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<PlainText>,
        /// The message's namespace: `git` for commits and tags. Absent for a login, and for unknown data.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<PlainText>,
    },
    /// A mount.
    Mount {
        /// The path inside the container.
        destination: PlainText,
        /// The path on the node, or the file system's name.
        source: PlainText,
    },
    /// Requested capabilities, devices, options or settings.
    Asked {
        /// The request as a phrase.
        item: PlainText,
    },
    /// The life of the container.
    Container {
        /// The change.
        state: LifeState,
        /// The exit status, 0 to 255: 128 + N for signal N. Absent under an engine before Linux 6.15.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<i32>,
        /// The name of the signal, if `state` is `signalled`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<PlainText>,
        /// The ends of the run's other logs, if `state` is `deleted`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        logs: Vec<LogHead>,
        /// The command of the init process, if `state` is `created`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<LoggedCommand>,
        /// SHA-256 of the run's files, in hexadecimal. If `state` is `created`: of `plan` and `filter`, and the name of the
        /// `run`. If `deleted`: of each file, by its name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        kept: BTreeMap<PlainText, PlainText>,
        /// The id of the key that signs the receipt, if `state` is `deleted`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt_by: Option<PlainText>,
    },
    /// The life of an `exec` process.
    Process {
        /// The change.
        state: ProcessState,
        /// The program and its arguments, cut as those of a command.
        arguments: PlainList,
        /// The arguments that are cut in `arguments`. Absent if none is.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        cut: Vec<ArgumentCut>,
        /// The user id inside the container.
        uid: u32,
        /// The group id inside the container.
        gid: u32,
        /// The exit status, 0 to 255: 128 + N for signal N. Absent under an engine before Linux 6.15, and before the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<i32>,
    },
    /// A limit that the container reached.
    Limit {
        /// The policy's field: `limits.memory` or `limits.pids`.
        limit: PlainText,
        /// How often it was reached since the container began, by the kernel's count.
        times: u64,
        /// The limit in the kernel: bytes, or a number of processes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<u64>,
    },
    /// New limits (`agentbox update`).
    Update {
        /// The new limits, each as `name=value`.
        limits: PlainList,
    },
    /// The result of `agentbox verify` in this container.
    Verified {
        /// The result as a whole: `held`, `not-held`, `not-tried` or `not-promised`.
        result: PlainText,
        /// How many attempts the walls refused.
        held: u64,
        /// The names of attempts that succeeded although the policy promises otherwise.
        not_held: Vec<PlainText>,
        /// The names of attempts that could not be made.
        not_tried: Vec<PlainText>,
        /// SHA-256 of the whole report, `verify.json` beside the log: 64 hexadecimal digits.
        report: PlainText,
    },
    /// The number of events that got no line, because their class used up its quota.
    LeftOut {
        /// The class, such as `denied connections`.
        of: PlainText,
        /// How many events got no line.
        events: u64,
    },
}

impl EventDetail {
    /// An attempt to connect, whose result is not known.
    pub fn attempt(via: ConnectionKind, host: &str, port: Option<u16>) -> Self {
        match (via, port) {
            (ConnectionKind::Dns, _) => Self::Name {
                via,
                host: host.into(),
            },
            _ => Self::Connection {
                via: Some(via),
                host: host.into(),
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
            host: host.into(),
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

    /// A change of an `exec` process's state.
    pub fn process(state: ProcessState, command: LoggedCommand, exit: Option<i32>) -> Self {
        let LoggedCommand {
            arguments,
            cut,
            uid,
            gid,
        } = command;
        Self::Process {
            state,
            arguments,
            cut,
            uid,
            gid,
            exit,
        }
    }

    /// Its host, if it has one.
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::Connection { host, .. }
            | Self::Name { host, .. }
            | Self::Approval { host, .. } => Some(host)
                .filter(|host| !host.is_empty())
                .map(PlainText::as_str),
            Self::Rules { .. }
            | Self::Expired { .. }
            | Self::Syscall { .. }
            | Self::Signature { .. }
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
}
