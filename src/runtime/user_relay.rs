//! Relays to servers of `wrap`'s user, the SSH agent and databases: their sockets for the workload, their logs, their start.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::audit;
use crate::egress::ssh::key::ListedKey;
use crate::plan::signing::SSH_SOCKET;
use crate::plan::{NetworkPlan, Plan};
use crate::policy::SshFingerprint;
use crate::runtime::RuntimeError;
use crate::runtime::network::{control, denial_dir};
use crate::runtime::runs::{self, RunDir};
use crate::runtime::state::identity;
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::store::ContainerPaths;
use crate::sidecar::user_relay::{
    self, QuestionLine, RelayWork, RelayedSocket, SocketTarget, UserRelay, UserRelayConfig,
};
use crate::sys::user_namespace::Ids;

/// The SSH agent of `wrap`'s user.
#[derive(Debug)]
pub struct UserAgent {
    /// The user, in this user namespace.
    pub ids: Ids,
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
    pub relay: UserRelay,
    /// The user's end of the line. If this is dropped, the relay asks nobody and nothing signs.
    pub questions: Option<UnixStream>,
}

/// Starts the relay of a container that waits for `start`, if its plan has keys.
pub fn sign(
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
    let ids = agent.ids;
    let listener = listen(&denial_dir::directory(&place.dir()), SSH_SOCKET, ids)?;
    let work = RelayWork::Sign {
        keys: listed.copied().collect(),
        agent: agent.socket.as_fd(),
        listener: listener.as_fd(),
        questions: line.as_ref().map(|line| QuestionLine {
            socket: line.relays.as_fd(),
            seconds: line.seconds,
        }),
    };
    Ok(Some(Signer {
        relay: start(place, record, init, ids, work)?,
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

/// The sockets that `wrap`'s user names.
#[derive(Debug)]
pub struct UserSockets {
    /// The user, in this user namespace.
    pub ids: Ids,
    /// Each of them.
    pub sockets: Vec<UserSocket>,
}

/// A server's socket.
#[derive(Debug)]
pub struct UserSocket {
    /// Where connections lead.
    pub target: SocketTarget,
    /// The server's directory, as a detached mount that follows no link.
    pub directory: OwnedFd,
}

/// The directories with our sockets, by their places inside. The workload sees one where the server's lies outside, and
/// nothing else of that.
pub fn socket_directories<'a>(
    network: &'a NetworkPlan,
    dir: &Path,
) -> impl Iterator<Item = (&'a Path, PathBuf)> {
    let base = dir.join("sockets");
    let all = network.socket_directories().into_iter().enumerate();
    all.map(move |(index, inside)| (inside, base.join(index.to_string())))
}

/// Makes the directories of [`socket_directories`], empty.
pub fn make_socket_directories(dir: &Path, plan: &Plan) -> Result<(), RuntimeError> {
    for (_, directory) in socket_directories(&plan.network, dir) {
        let step = || format!("make {directory:?}");
        fs::create_dir_all(&directory).map_err(RuntimeError::io(step()))?;
        // Whatever the umask is. The directories above are the runtime's alone.
        fs::set_permissions(&directory, Permissions::from_mode(0o755))
            .map_err(RuntimeError::io(step()))?;
    }
    Ok(())
}

/// Starts the relay of a container that waits for `start`, if its plan has sockets.
pub fn connect(
    place: &ContainerPaths,
    record: &Record,
    init: ProcessId,
    user: Option<&UserSockets>,
) -> Result<Option<UserRelay>, RuntimeError> {
    let Some(network) = record.plan().map(|plan| &plan.network) else {
        return Ok(None);
    };
    if network.sockets.is_empty() {
        return Ok(None);
    }
    let user = user.ok_or(RuntimeError::NoUserSocket)?;
    let all: Vec<(&Path, PathBuf)> = socket_directories(network, &place.dir()).collect();
    let mut listening = Vec::new();
    for planned in &network.sockets {
        let named = |one: &&UserSocket| one.target.socket == *planned;
        let opened = user.sockets.iter().find(named);
        let opened = opened.ok_or(RuntimeError::NoUserSocket)?;
        let directory = all
            .iter()
            .find(|(inside, _)| *inside == planned.directory());
        let (_, directory) = directory.ok_or(RuntimeError::NoUserSocket)?;
        let listener = listen(directory, planned.name(), user.ids)?;
        listening.push((opened, listener));
    }
    let sockets = listening.iter().map(|(opened, listener)| RelayedSocket {
        target: opened.target.clone(),
        directory: opened.directory.as_fd(),
        listener: listener.as_fd(),
    });
    let work = RelayWork::Connect(sockets.collect());
    start(place, record, init, user.ids, work).map(Some)
}

/// Starts a relay with the user's ids, for a container that waits for `start`.
fn start(
    place: &ContainerPaths,
    record: &Record,
    init: ProcessId,
    ids: Ids,
    work: RelayWork<'_>,
) -> Result<UserRelay, RuntimeError> {
    let journal = RunDir::of(place).open(match &work {
        RelayWork::Sign { .. } => audit::SSH,
        RelayWork::Connect(_) => audit::SOCKETS,
    })?;
    let pid = rustix::process::Pid::from_raw(init.pid).ok_or(RuntimeError::NotRunning)?;
    let init = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
        .map_err(RuntimeError::io("open the container's process"))?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let exe = rustix::fs::open("/proc/self/exe", flags, Mode::empty())
        .map_err(RuntimeError::io("open the runtime's own file"))?;
    let config = UserRelayConfig {
        uid: ids.uid,
        gid: ids.gid,
        context: runs::context(record, identity::of(record)),
        journal: journal.as_fd(),
        init: init.as_fd(),
        work,
    };
    Ok(user_relay::start(config, exe.as_fd())?)
}

/// Makes a socket in a directory that the container sees. Only the user may connect, whom the workload runs as.
fn listen(dir: &Path, name: &str, ids: Ids) -> Result<UnixListener, RuntimeError> {
    let made = control::short(dir, name, |path| {
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        chown(path, Some(ids.uid), Some(ids.gid))?;
        listener.set_nonblocking(true)?;
        std::io::Result::Ok(listener)
    });
    made?.map_err(RuntimeError::io(format!("listen in {dir:?}")))
}
