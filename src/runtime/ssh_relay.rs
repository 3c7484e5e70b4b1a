//! The relay to the SSH agent of `wrap`'s user: its socket for the workload, its log, its start.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::fs::{Mode, OFlags};

use crate::audit;
use crate::egress::ssh::key::ListedKey;
use crate::plan::NetworkPlan;
use crate::plan::signing::SSH_SOCKET;
use crate::policy::SshFingerprint;
use crate::runtime::RuntimeError;
use crate::runtime::network::{control, shown};
use crate::runtime::runs::{self, RunDir};
use crate::runtime::state::identity;
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::store::ContainerPaths;
use crate::sidecar::ssh_relay::{self, QuestionLine, SshRelay, SshRelayConfig};

/// The SSH agent of `wrap`'s user.
#[derive(Debug)]
pub struct UserAgent {
    /// The user's id, in this user namespace.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// The agent's socket, as a detached mount.
    pub socket: OwnedFd,
    /// The keys that the agent has.
    pub keys: Vec<ListedKey>,
    /// The user's comments for them.
    pub comments: BTreeMap<SshFingerprint, String>,
}

/// The relay, and the line by which it asks the user, if there is one.
#[derive(Debug)]
pub struct Signer {
    /// It ends when this is dropped.
    pub relay: SshRelay,
    /// The user's end of the line. If this is dropped, the relay asks nobody and nothing signs.
    pub questions: Option<UnixStream>,
}

/// Starts the relay of a container that waits for `start`, if its plan has keys.
pub fn begin(
    place: &ContainerPaths,
    record: &Record,
    init: ProcessId,
    agent: Option<&UserAgent>,
) -> Result<Option<Signer>, RuntimeError> {
    let Some(network) = record.plan().map(|plan| &plan.network) else {
        return Ok(None);
    };
    let Some(plan) = network.signing.as_ref() else {
        return Ok(None);
    };
    let line = line(network)?;
    let agent = agent.ok_or(RuntimeError::NoSshAgent)?;
    let listed = agent
        .keys
        .iter()
        .filter(|key| plan.keys.contains(&key.shown));
    let listener = listen(place, agent)?;
    let journal = RunDir::of(place).open(audit::SSH)?;
    let pid = rustix::process::Pid::from_raw(init.pid).ok_or(RuntimeError::NotRunning)?;
    let init = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
        .map_err(RuntimeError::io("open the container's process"))?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let exe = rustix::fs::open("/proc/self/exe", flags, Mode::empty())
        .map_err(RuntimeError::io("open the runtime's own file"))?;
    let config = SshRelayConfig {
        uid: agent.uid,
        gid: agent.gid,
        keys: listed.copied().collect(),
        context: runs::context(record, identity::of(record)),
        agent: agent.socket.as_fd(),
        listener: listener.as_fd(),
        journal: journal.as_fd(),
        init: init.as_fd(),
        questions: line.as_ref().map(|line| QuestionLine {
            socket: line.relays.as_fd(),
            seconds: line.seconds,
        }),
    };
    Ok(Some(Signer {
        relay: ssh_relay::start(config, exe.as_fd())?,
        questions: line.map(|line| line.users),
    }))
}

/// Both ends of the line for questions.
struct Line {
    users: UnixStream,
    relays: UnixStream,
    seconds: u32,
}

/// A line, if the user confirms each signature.
fn line(network: &NetworkPlan) -> Result<Option<Line>, RuntimeError> {
    let Some(seconds) = network.confirms_signatures() else {
        return Ok(None);
    };
    let step = "make the line for questions about signatures";
    let (users, relays) = UnixStream::pair().map_err(RuntimeError::io(step))?;
    for end in [&users, &relays] {
        end.set_nonblocking(true).map_err(RuntimeError::io(step))?;
    }
    Ok(Some(Line {
        users,
        relays,
        seconds,
    }))
}

/// Makes the socket in the directory that the container sees. Only the agent's user may connect, whom the workload runs as.
fn listen(place: &ContainerPaths, agent: &UserAgent) -> Result<UnixListener, RuntimeError> {
    let dir = shown::directory(&place.dir());
    let made = control::short(&dir, SSH_SOCKET, |path| {
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        chown(path, Some(agent.uid), Some(agent.gid))?;
        listener.set_nonblocking(true)?;
        std::io::Result::Ok(listener)
    });
    made?.map_err(RuntimeError::io(format!("listen in {dir:?}")))
}
