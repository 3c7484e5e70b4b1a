//! The relay to the SSH agent of `wrap`'s user: its keys, and the line for questions.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::egress::ssh::key::ListedKey;
use crate::plan::NetworkPlan;
use crate::plan::signing::SSH_SOCKET;
use crate::policy::SshFingerprint;
use crate::runtime::RuntimeError;
use crate::runtime::network::shown;
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::store::ContainerPaths;
use crate::runtime::user_relay;
use crate::sidecar::user_relay::{QuestionLine, RelayWork, UserRelay};
use crate::sys::user_namespace::Ids;

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
    pub relay: UserRelay,
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
    let ids = Ids {
        uid: agent.uid,
        gid: agent.gid,
    };
    let listener = user_relay::listen(&shown::directory(&place.dir()), SSH_SOCKET, ids)?;
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
        relay: user_relay::start(place, record, init, ids, work)?,
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
