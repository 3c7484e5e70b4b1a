//! The relay's own program: it drops every right, and serves.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::time::Duration;

use super::duty::{RelayDuty, RelayFds, RelayReply, RelaySetup, VERB};
use super::serve;
use super::sockets;
use crate::network::with_causes;
use crate::sidecar::account::{Identity, Procfs};
use crate::sidecar::confine::{self, ConfineError, SidecarRlimits, not_held};
use crate::sidecar::error::SidecarError;
use crate::sidecar::filter;
use crate::sidecar::journal::Journal;
use crate::sidecar::protocol::{self, ProtocolError};
use crate::sidecar::root::RootContent;
use crate::sys::memory::Code;
use crate::sys::{process, socket, user_namespace};

/// Agreed with [`super::start`]: standard streams, then this.
const LINE_FD: RawFd = 3;
/// `wrap` sends it immediately after the clone.
const SETUP_WITHIN: Duration = Duration::from_secs(10);
/// Two descriptors for each connection, and a few. Its log has the bound of every log.
fn limits(duty: &RelayDuty) -> SidecarRlimits {
    SidecarRlimits {
        open_files: match duty {
            RelayDuty::Sign { .. } => 256,
            RelayDuty::Connect { .. } => 1024,
        },
        file_bytes: crate::audit::quota::MOST_BYTES + (1 << 20),
    }
}

/// Runs the relay; `argv[1]` is [`super::VERB`]. Must be called before any thread is made.
pub fn main() -> ExitCode {
    let line = match socket::take_inherited(LINE_FD) {
        Ok(line) => line,
        Err(error) => {
            let error = SidecarError::NotStartedByRuntime(error);
            eprintln!(
                "agentbox {}: {}",
                VERB.to_string_lossy(),
                with_causes(&error)
            );
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
    journal: OwnedFd,
    fds: RelayFds,
    /// What the duty still needs.
    rest: Vec<OwnedFd>,
}

fn begin(line: &OwnedFd) -> Result<ConfinedRelay, SidecarError> {
    process::block_signals().map_err(SidecarError::step("block the signals"))?;
    let received = protocol::receive(line.as_fd(), "wrap", "setup", SETUP_WITHIN);
    let (setup, mut fds): (RelaySetup, Vec<OwnedFd>) = received.map_err(SidecarError::Protocol)?;
    process::set_name(setup.duty.program()).map_err(SidecarError::step("set the name"))?;
    let need = 2 + setup.duty.descriptors();
    let wrong = |have| {
        SidecarError::Protocol(ProtocolError::Descriptors {
            peer: "wrap",
            need,
            have,
        })
    };
    // Without the line for questions nothing may sign: a missing one is no permission.
    if fds.len() != need {
        return Err(wrong(fds.len()));
    }
    let mut rest = fds.split_off(2);
    let [journal, init] = <[OwnedFd; 2]>::try_from(fds).map_err(|fds| wrong(fds.len()))?;
    let shown: Vec<OwnedFd> = match &setup.duty {
        RelayDuty::Sign { .. } => rest.drain(..1).collect(),
        RelayDuty::Connect { targets } => rest.drain(..targets.len()).collect(),
    };
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
    confined(&setup.duty, shown, identity).map_err(SidecarError::Confine)?;
    Ok(ConfinedRelay {
        setup,
        journal,
        fds: RelayFds { init, line: copy },
        rest,
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

/// Confines the relay to these parts of the node, detached mounts.
fn confined(duty: &RelayDuty, shown: Vec<OwnedFd>, identity: Identity) -> Result<(), ConfineError> {
    let program = filter::of_user_relay().map_err(ConfineError::Filter)?;
    let code = Code::find().map_err(ConfineError::step("find the program's own code"))?;
    let procfs = Procfs::open()?;
    let limits = limits(duty);
    let content = match (duty, &shown[..]) {
        (RelayDuty::Sign { .. }, [agent]) => RootContent::Agent(agent.as_fd()),
        (RelayDuty::Sign { .. }, _) => RootContent::Nothing,
        (RelayDuty::Connect { .. }, directories) => RootContent::Directories(directories),
    };
    confine::hide_all_but(content, limits)?;
    // A descriptor of a mount would be one of the node's file system.
    drop(shown);
    let account = procfs.account()?;
    drop(procfs);
    let abi = confine::drop_all_but_socket(identity)?;
    confine::verify(identity, limits, abi, &account)?;
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
            journal,
            fds,
            rest,
        } = self;
        protocol::send(ready, "wrap", &RelayReply::Ready, &[]).map_err(SidecarError::Protocol)?;
        let journal = Journal::new(journal, setup.context);
        let mut rest = rest.into_iter();
        let served = match setup.duty {
            RelayDuty::Sign { keys, ask_seconds } => {
                let listener = rest.next().ok_or(std::io::ErrorKind::NotFound);
                let questions = ask_seconds.zip(rest.next());
                let keys = keys.into_iter().collect();
                listener
                    .map_err(Into::into)
                    .and_then(|listener| serve::run(fds, listener, keys, journal, questions))
            }
            RelayDuty::Connect { targets } => {
                sockets::run(fds, rest.zip(targets).collect(), journal)
            }
        };
        served.map_err(SidecarError::step("serve the user's socket"))
    }
}
