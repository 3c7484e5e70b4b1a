//! Relays to servers of `wrap`'s user: processes beside the sidecar. One is for the keys that `--ssh-agent` lists, one for
//! the unix sockets that `--connect` names.
//!
//! ```text
//! workload --/run/agentbox/ssh-agent--> RELAY --the only file of its root--> the user's agent
//!                                         |
//!                                         +--> ssh.jsonl, a line for each signature
//!
//! workload --/run/postgresql/.s...----> RELAY --a directory of its root----> the database
//!                                         |
//!                                         +--> sockets.jsonl, two lines for each connection
//! ```
//!
//! They are not the sidecar. Such a server answers its own user alone (SO_PEERCRED), so a relay has that user's id, which
//! nothing that decides about the network may have. It reads messages of the workload: a flood, or a fault in reading
//! them, leaves the network's wall alone. And it is the same under every network mode.
//!
//! A relay has the agent's socket or the databases' directories, an empty network and no right. The decision about a signature is in
//! [`crate::egress::ssh`]. Each connection inside has one to the server, because an SSH agent keeps bindings to servers by
//! connection.
//!
//! It ends with the init process, and with `wrap`. Without it nothing signs.

mod connection;
mod duty;
mod log;
mod program;
pub mod question;
mod serve;
mod sockets;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;

pub use self::duty::SocketTarget;
pub use self::duty::VERB;
use self::duty::{RelayDuty, RelayReply, RelaySetup};
pub use self::program::main;
use super::error::SidecarError;
use super::protocol;
use super::record;
use crate::audit::Context;
use crate::egress::ssh::key::ListedKey;
use crate::sys::process::{self, NewProgram};
use crate::sys::socket;

/// From the clone to the answer; it takes milliseconds.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// What a relay needs.
#[derive(Debug)]
pub struct UserRelayConfig<'a> {
    /// The server's user, in this user namespace.
    pub uid: u32,
    /// That user's group.
    pub gid: u32,
    /// The context of its log's lines.
    pub context: Context,
    /// Its log, opened to append.
    pub journal: BorrowedFd<'a>,
    /// The init process.
    pub init: BorrowedFd<'a>,
    /// What it relays.
    pub work: RelayWork<'a>,
}

/// What a relay relays.
#[derive(Debug)]
pub enum RelayWork<'a> {
    /// Requests to the user's SSH agent.
    Sign {
        /// The keys that may sign.
        keys: Vec<ListedKey>,
        /// The agent's socket, as a detached mount.
        agent: BorrowedFd<'a>,
        /// The socket for the workload, which listens.
        listener: BorrowedFd<'a>,
        /// The line to the user, if each signature is confirmed.
        questions: Option<QuestionLine<'a>>,
    },
    /// Connections to unix sockets of databases.
    Connect(Vec<RelayedSocket<'a>>),
}

/// A unix socket of a database.
#[derive(Debug)]
pub struct RelayedSocket<'a> {
    /// Where it leads.
    pub target: SocketTarget,
    /// The directory with the server's socket, as a detached mount that follows no link.
    pub directory: BorrowedFd<'a>,
    /// The socket for the workload, which listens.
    pub listener: BorrowedFd<'a>,
}

/// The line by which the user is asked.
#[derive(Debug, Clone, Copy)]
pub struct QuestionLine<'a> {
    /// The relay's end of it.
    pub socket: BorrowedFd<'a>,
    /// How long a question waits, in seconds.
    pub seconds: u32,
}

/// A running relay, which ends when this is dropped.
#[derive(Debug)]
pub struct UserRelay {
    pidfd: OwnedFd,
    /// The name in messages.
    peer: &'static str,
    /// It ends when this closes.
    line: Option<OwnedFd>,
}

/// Starts a relay from `exe` (this program), and waits until it is confined. The calling process must be
/// single-threaded.
pub fn start(config: UserRelayConfig<'_>, exe: BorrowedFd<'_>) -> Result<UserRelay, SidecarError> {
    let (duty, fds) = config.work.split();
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
        arguments: &[duty.program().to_owned(), VERB.to_owned()],
        descriptors: &[null.as_fd(), null.as_fd(), null.as_fd(), theirs.as_fd()],
        namespaces: u64::from(namespaces.unsigned_abs()),
        cgroup: None,
    })
    .map_err(SidecarError::step("clone a relay of the user's"))?;
    drop(theirs);
    let relay = UserRelay {
        pidfd: child.pidfd,
        peer: duty.peer(),
        line: Some(ours),
    };
    let setup = RelaySetup {
        uid: config.uid,
        gid: config.gid,
        context: config.context,
        duty,
    };
    // Dropped on an error, it ends.
    relay.greet(&setup, &[&[config.journal, config.init], &fds[..]].concat())?;
    Ok(relay)
}

impl<'a> RelayWork<'a> {
    /// The duty, and its descriptors.
    fn split(self) -> (RelayDuty, Vec<BorrowedFd<'a>>) {
        match self {
            Self::Sign {
                keys,
                agent,
                listener,
                questions,
            } => {
                let ask_seconds = questions.map(|line| line.seconds);
                let mut fds = vec![agent, listener];
                fds.extend(questions.map(|line| line.socket));
                (RelayDuty::Sign { keys, ask_seconds }, fds)
            }
            Self::Connect(sockets) => {
                let directories = sockets.iter().map(|socket| socket.directory);
                let listeners = sockets.iter().map(|socket| socket.listener);
                let fds = directories.chain(listeners).collect();
                let targets = sockets.iter().map(|socket| socket.target.clone());
                let targets = targets.collect();
                (RelayDuty::Connect { targets }, fds)
            }
        }
    }
}

impl UserRelay {
    fn greet(&self, setup: &RelaySetup, fds: &[BorrowedFd<'_>]) -> Result<(), SidecarError> {
        let Some(line) = &self.line else {
            return Ok(());
        };
        let (failed, peer) = (SidecarError::Protocol, self.peer);
        protocol::send(line.as_fd(), peer, setup, fds).map_err(failed)?;
        match protocol::receive(line.as_fd(), peer, "reply", READY_WITHIN).map_err(failed)? {
            (RelayReply::Ready, _) => Ok(()),
            (RelayReply::Failed { reason }, _) => Err(SidecarError::NoUserRelay { peer, reason }),
        }
    }
}

impl Drop for UserRelay {
    /// Lets it write its log's last lines, and reaps it.
    fn drop(&mut self) {
        drop(self.line.take());
        if record::wait_for_end(&self.pidfd).is_ok() {
            return;
        }
        let _gone = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        if let Err(error) = record::wait_for_end(&self.pidfd) {
            ::log::warn!("after the {}: {error}", self.peer);
        }
    }
}
