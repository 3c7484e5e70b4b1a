//! The relay to the SSH agent of `wrap`'s user: a process beside the sidecar, for the keys that `--ssh-agent` lists.
//!
//! ```text
//! workload --/run/agentbox/ssh-agent--> RELAY --the only file of its root--> the user's agent
//!                                         |
//!                                         +--> ssh.jsonl, a line for each signature
//! ```
//!
//! It is not the sidecar. An agent answers its own user alone (SO_PEERCRED), so the relay has that user's id, which
//! nothing that decides about the network may have. It reads messages of the workload: a flood, or a fault in reading
//! them, leaves the network's wall alone. And it is the same under every network mode.
//!
//! It has the agent's socket, an empty network and no right. The decision is in [`crate::egress::ssh`]. Each connection
//! inside has one to the agent, because an agent keeps bindings to servers by connection.
//!
//! It ends with the init process, and with `wrap`. Without it nothing signs.

mod connection;
mod program;
pub mod question;
mod serve;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

pub use self::program::main;
use super::SidecarError;
use super::protocol;
use super::record;
use crate::audit::Context;
use crate::egress::ssh::key::ListedKey;
use crate::sys::process::{self, NewProgram};
use crate::sys::socket;

/// argv[0], as ps(1) shows it.
const ARGV0: &std::ffi::CStr = c"agentbox-ssh";
/// argv[1]: the hidden verb that [`main`] serves.
pub const VERB: &std::ffi::CStr = c"ssh-relay";
/// The name in messages.
const PEER: &str = "relay to the SSH agent";
/// From the clone to the answer; it takes milliseconds.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// What the relay needs.
#[derive(Debug)]
pub struct SshRelayConfig<'a> {
    /// The agent's user, in this user namespace.
    pub uid: u32,
    /// That user's group.
    pub gid: u32,
    /// The keys that may sign.
    pub keys: Vec<ListedKey>,
    /// The context of its log's lines.
    pub context: Context,
    /// The agent's socket, as a detached mount.
    pub agent: BorrowedFd<'a>,
    /// The socket for the workload, which listens.
    pub listener: BorrowedFd<'a>,
    /// Its log, opened to append.
    pub journal: BorrowedFd<'a>,
    /// The init process.
    pub init: BorrowedFd<'a>,
    /// The line to the user, if each signature is confirmed.
    pub questions: Option<QuestionLine<'a>>,
}

/// The line by which the user is asked.
#[derive(Debug, Clone, Copy)]
pub struct QuestionLine<'a> {
    /// The relay's end of it.
    pub socket: BorrowedFd<'a>,
    /// How long a question waits, in seconds.
    pub seconds: u32,
}

/// The first message to it. Four descriptors come with it: agent, listener, journal, init; a fifth for questions.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RelaySetup {
    uid: u32,
    gid: u32,
    keys: Vec<ListedKey>,
    context: Context,
    /// How long a question waits; `None` if the user is not asked.
    ask_seconds: Option<u32>,
}

/// Its answer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum RelayReply {
    /// It is confined, and serves.
    Ready,
    /// It failed, and exits.
    Failed { reason: String },
}

/// A running relay, which ends when this is dropped.
#[derive(Debug)]
pub struct SshRelay {
    pidfd: OwnedFd,
    /// It ends when this closes.
    line: Option<OwnedFd>,
}

/// Starts the relay from `exe` (this program), and waits until it is confined. The calling process must be
/// single-threaded.
pub fn start(config: SshRelayConfig<'_>, exe: BorrowedFd<'_>) -> Result<SshRelay, SidecarError> {
    let (ours, theirs) = socket::pair().map_err(SidecarError::step("make a socket pair"))?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let null = rustix::fs::open("/dev/null", flags, Mode::empty())
        .map_err(SidecarError::step("open /dev/null"))?;
    let namespaces = libc::CLONE_NEWPID
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWNET;
    let child = process::spawn(&NewProgram {
        file: exe,
        arguments: &[ARGV0.to_owned(), VERB.to_owned()],
        descriptors: &[null.as_fd(), null.as_fd(), null.as_fd(), theirs.as_fd()],
        namespaces: u64::from(namespaces.unsigned_abs()),
        cgroup: None,
    })
    .map_err(SidecarError::step("clone the relay to the SSH agent"))?;
    drop(theirs);
    let relay = SshRelay {
        pidfd: child.pidfd,
        line: Some(ours),
    };
    // Dropped on an error, it ends.
    relay.greet(config)?;
    Ok(relay)
}

impl SshRelay {
    fn greet(&self, config: SshRelayConfig<'_>) -> Result<(), SidecarError> {
        let SshRelayConfig {
            uid,
            gid,
            keys,
            context,
            agent,
            listener,
            journal,
            init,
            questions,
        } = config;
        let Some(line) = &self.line else {
            return Ok(());
        };
        let setup = RelaySetup {
            uid,
            gid,
            keys,
            context,
            ask_seconds: questions.map(|line| line.seconds),
        };
        let failed = SidecarError::Protocol;
        let mut fds = vec![agent, listener, journal, init];
        fds.extend(questions.map(|line| line.socket));
        protocol::send(line.as_fd(), PEER, &setup, &fds).map_err(failed)?;
        match protocol::receive(line.as_fd(), PEER, "reply", READY_WITHIN).map_err(failed)? {
            (RelayReply::Ready, _) => Ok(()),
            (RelayReply::Failed { reason }, _) => Err(SidecarError::NoSshRelay { reason }),
        }
    }
}

impl Drop for SshRelay {
    /// Lets it write its log's last lines, and reaps it.
    fn drop(&mut self) {
        drop(self.line.take());
        if record::wait_for_end(&self.pidfd).is_ok() {
            return;
        }
        let _gone = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        if let Err(error) = record::wait_for_end(&self.pidfd) {
            log::warn!("after the relay to the SSH agent: {error}");
        }
    }
}
