//! The relay's own program: it drops every right, and serves.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::time::Duration;

use super::serve::{self, RelayFds};
use super::{ARGV0, RelayReply, RelaySetup};
use crate::network::with_causes;
use crate::sidecar::account::{Identity, Procfs};
use crate::sidecar::confine::{self, SidecarRlimits, not_held};
use crate::sidecar::journal::Journal;
use crate::sidecar::protocol::{self, ProtocolError};
use crate::sidecar::{ConfineError, SidecarError, filter};
use crate::sys::memory::Code;
use crate::sys::{process, socket, user_namespace};

/// Agreed with [`super::start`]: standard streams, then this.
const LINE_FD: RawFd = 3;
/// `wrap` sends it immediately after the clone.
const SETUP_WITHIN: Duration = Duration::from_secs(10);
/// Two descriptors for each connection, and a few. Its log has the bound of every log.
const LIMITS: SidecarRlimits = SidecarRlimits {
    open_files: 256,
    file_bytes: crate::audit::quota::MOST_BYTES + (1 << 20),
};

/// Runs the relay; `argv[1]` is [`super::VERB`]. Must be called before any thread is made.
pub fn main() -> ExitCode {
    let line = match socket::take_inherited(LINE_FD) {
        Ok(line) => line,
        Err(error) => {
            let error = SidecarError::NotStartedByRuntime(error);
            eprintln!("{}: {}", ARGV0.to_string_lossy(), with_causes(&error));
            return ExitCode::FAILURE;
        }
    };
    match begin(&line).and_then(|ready| ready.serve(line.as_fd())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If `wrap` cannot hear that, it sees the line close.
            let reason = with_causes(&error);
            let reply = RelayReply::Failed { reason };
            let _unheard = protocol::send(line.as_fd(), "wrap", &reply, &[]);
            ExitCode::FAILURE
        }
    }
}

/// A relay that is confined.
struct ConfinedRelay {
    setup: RelaySetup,
    listener: OwnedFd,
    journal: OwnedFd,
    init: OwnedFd,
    line: OwnedFd,
    questions: Option<OwnedFd>,
}

fn begin(line: &OwnedFd) -> Result<ConfinedRelay, SidecarError> {
    process::set_name(ARGV0).map_err(SidecarError::step("set the name"))?;
    process::block_signals().map_err(SidecarError::step("block the signals"))?;
    let received = protocol::receive(line.as_fd(), "wrap", "setup", SETUP_WITHIN);
    let (setup, fds): (RelaySetup, Vec<OwnedFd>) = received.map_err(SidecarError::Protocol)?;
    let need = 4 + usize::from(setup.ask_seconds.is_some());
    let wrong = |have| {
        SidecarError::Protocol(ProtocolError::Descriptors {
            peer: "wrap",
            need,
            have,
        })
    };
    let mut fds = fds;
    // Without the line nothing may sign: a missing one is no permission.
    if fds.len() != need {
        return Err(wrong(fds.len()));
    }
    let questions = fds.drain(4..).next();
    let [agent, listener, journal, init] =
        <[OwnedFd; 4]>::try_from(fds).map_err(|fds| wrong(fds.len()))?;
    // In a static binary the crate opens /dev/urandom once and reads it.
    getrandom::fill(&mut [0]).map_err(|error| SidecarError::Step {
        step: "open the source of randomness",
        source: std::io::Error::other(error.to_string()),
    })?;
    // The first look at the clock finds the vDSO by calls that the filter does not allow.
    let _found = std::time::Instant::now();
    let copy = line
        .try_clone()
        .map_err(SidecarError::step("copy the line"))?;
    let identity = Identity {
        uid: setup.uid,
        gid: setup.gid,
    };
    leave_groups(identity)?;
    confined(agent, identity).map_err(SidecarError::Confine)?;
    Ok(ConfinedRelay {
        setup,
        listener,
        journal,
        init,
        line: copy,
        questions,
    })
}

/// Leaves the groups of root itself, whose agent answers root alone. Only in a user namespace with one user they stay.
fn leave_groups(identity: Identity) -> Result<(), SidecarError> {
    let alone = user_namespace::only_user().map_err(SidecarError::step("read the user's map"))?;
    if !identity.is_callers() || alone.is_some() {
        return Ok(());
    }
    rustix::thread::set_thread_groups(&[]).map_err(SidecarError::step("clear the groups"))?;
    let left = rustix::process::getgroups().map_err(SidecarError::step("read the groups"))?;
    match left.is_empty() {
        true => Ok(()),
        false => Err(SidecarError::Confine(not_held(
            "no supplementary group",
            left,
        ))),
    }
}

fn confined(agent: OwnedFd, identity: Identity) -> Result<(), ConfineError> {
    let program = filter::of_ssh_relay().map_err(ConfineError::Filter)?;
    let code = Code::find().map_err(ConfineError::step("find the program's own code"))?;
    let procfs = Procfs::open()?;
    confine::hide_all_but(agent.as_fd(), LIMITS)?;
    // A descriptor of the mount would be one of the node's file system.
    drop(agent);
    let account = procfs.account()?;
    drop(procfs);
    let abi = confine::drop_all_but_socket(identity)?;
    confine::verify(identity, LIMITS, abi, &account)?;
    drop(account);
    code.release()
        .map_err(ConfineError::step("give back the code of the start"))?;
    confine::seal(&program)
}

impl ConfinedRelay {
    /// Serves until the init process or `wrap` has ended.
    fn serve(self, ready: BorrowedFd<'_>) -> Result<(), SidecarError> {
        let Self {
            setup,
            listener,
            journal,
            init,
            line,
            questions,
        } = self;
        protocol::send(ready, "wrap", &RelayReply::Ready, &[]).map_err(SidecarError::Protocol)?;
        let fds = RelayFds {
            listener,
            init,
            line,
        };
        let questions = setup.ask_seconds.zip(questions);
        let keys = setup.keys.into_iter().collect();
        let journal = Journal::new(journal, setup.context);
        serve::run(fds, keys, journal, questions)
            .map_err(SidecarError::step("serve the SSH agent's socket"))
    }
}
