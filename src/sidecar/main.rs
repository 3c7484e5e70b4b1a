//! The sidecar's own program: become nobody, then answer one question and wait for init's end.

use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use serde::de::DeserializeOwned;

use super::confine::{self, Identity};
use super::protocol::{self, Attachment, ProtocolError, Question, Reply, Setup};
use super::{ARGV0, ConfineError, SidecarError, filter};
use crate::sys::{memory, process, socket};

/// Agreed with [`super::spawn`]: standard streams, then these.
const BOOTSTRAP_FD: RawFd = 3;
const HANDOVER_FD: RawFd = 4;
const RUNTIME_FD: RawFd = 5;

/// The runtime sends it right after the clone.
const SETUP_WITHIN: Duration = Duration::from_secs(10);
/// In between, `create` runs the engine's hooks. A runtime that dies is noticed by its pidfd, so
/// this bounds only one that hangs.
const ATTACH_WITHIN: Duration = Duration::from_secs(600);

/// Runs the sidecar; `argv[1]` was [`super::VERB`]. Must be called before any thread is made.
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A log file, if the runtime gave one, or /dev/null.
            eprintln!("agentbox-sidecar: {}", with_causes(&error));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), SidecarError> {
    let inherited = |fd| socket::take_inherited(fd).map_err(SidecarError::NotStartedByRuntime);
    let bootstrap = Bootstrap {
        socket: inherited(BOOTSTRAP_FD)?,
        runtime: inherited(RUNTIME_FD)?,
    };
    let handover = inherited(HANDOVER_FD)?;
    match become_nobody(&bootstrap) {
        Ok((served, landlock_abi)) => {
            bootstrap.reply(&Reply::Ready { landlock_abi })?;
            drop(bootstrap);
            serve(served, handover)
        }
        Err(error) => {
            let reason = with_causes(&error);
            // The error itself is what matters; a runtime that cannot hear it is gone.
            if let Err(unheard) = bootstrap.reply(&Reply::Failed { reason }) {
                eprintln!("agentbox-sidecar: {unheard}");
            }
            Err(error)
        }
    }
}

/// The line to the runtime, until the sidecar is ready.
struct Bootstrap {
    socket: OwnedFd,
    /// The runtime's pidfd.
    runtime: OwnedFd,
}

impl Bootstrap {
    fn receive<T: DeserializeOwned>(
        &self,
        what: &'static str,
        limit: Duration,
    ) -> Result<(T, Vec<OwnedFd>), SidecarError> {
        let socket = self.socket.as_fd();
        protocol::wait_while_alive(socket, self.runtime.as_fd(), "runtime", limit)
            .and_then(|()| protocol::receive(socket, "runtime", what, limit))
            .map_err(SidecarError::Protocol)
    }

    fn reply(&self, message: &Reply) -> Result<(), SidecarError> {
        protocol::send(self.socket.as_fd(), "runtime", message, &[]).map_err(SidecarError::Protocol)
    }
}

/// Whom a ready sidecar serves.
struct Served {
    init: OwnedFd,
    netns: OwnedFd,
    sysfs: OwnedFd,
    cookie: u64,
}

/// Everything up to the acknowledgement, in the order that [`confine`] explains.
fn become_nobody(bootstrap: &Bootstrap) -> Result<(Served, u32), SidecarError> {
    process::set_name(ARGV0).map_err(SidecarError::step("set the name"))?;
    // It is pid 1 of its namespace, where only SIGKILL and SIGSTOP from outside have an effect
    // anyway; blocked, no signal can interrupt a call either.
    process::block_signals().map_err(SidecarError::step("block the signals"))?;
    let (setup, _) = bootstrap.receive("setup", SETUP_WITHIN)?;
    let Setup {
        uid,
        gid,
        limits,
        landlock,
        cgroup,
    } = setup;
    let identity = Identity { uid, gid };
    let filter = filter::compile()
        .map_err(ConfineError::Filter)
        .map_err(SidecarError::Confine)?;
    // While /proc is still there. What the start touched of a whole runtime's code is not needed again.
    memory::release_code().map_err(SidecarError::step("give back the code of the start"))?;
    // Before the root goes, which hides the cgroup file systems.
    cgroup.enter().map_err(SidecarError::Cgroup)?;
    confine::hide(limits).map_err(SidecarError::Confine)?;

    let (served, engine) = receive_attachment(bootstrap)?;
    if let Some(engine) = engine {
        confine::join_engine(engine.as_fd()).map_err(SidecarError::Confine)?;
    }
    let abi = confine::drop_privileges(identity, landlock).map_err(SidecarError::Confine)?;
    confine::verify(identity, limits, abi).map_err(SidecarError::Confine)?;
    confine::seal(&filter).map_err(SidecarError::Confine)?;
    Ok((served, abi))
}

fn receive_attachment(bootstrap: &Bootstrap) -> Result<(Served, Option<OwnedFd>), SidecarError> {
    let (attachment, fds) = bootstrap.receive("attachment", ATTACH_WITHIN)?;
    let Attachment {
        cookie,
        engine_netns,
    } = attachment;
    let have = fds.len();
    let need = engine_netns.descriptors();
    let mut fds = fds.into_iter();
    match (fds.next(), fds.next(), fds.next()) {
        (Some(init), Some(netns), Some(sysfs)) if have == need => {
            let served = Served {
                init,
                netns,
                sysfs,
                cookie,
            };
            Ok((served, fds.next()))
        }
        _ => Err(SidecarError::Protocol(ProtocolError::Descriptors {
            peer: "runtime",
            need,
            have,
        })),
    }
}

/// Waits for init's question and init's end. Under the filter now: poll, recvmsg, sendmsg, close.
fn serve(served: Served, handover: OwnedFd) -> Result<(), SidecarError> {
    let Served {
        init,
        netns,
        sysfs,
        cookie,
    } = served;
    // Both are let go with the one answer, or when nobody is left to ask.
    let mut pending = Some((handover, sysfs));
    loop {
        let (ended, asked) = wait(&init, pending.as_ref().map(|(socket, _)| socket))?;
        // `asked` only while somebody may ask.
        if let Some((socket, sysfs)) = pending.take_if(|_| asked) {
            answer(&socket, cookie, &netns, &sysfs);
        }
        if ended {
            return Ok(());
        }
    }
}

/// Which of the two became readable.
fn wait(init: &OwnedFd, handover: Option<&OwnedFd>) -> Result<(bool, bool), SidecarError> {
    let mut fds = [
        PollFd::new(init, PollFlags::IN),
        PollFd::new(handover.unwrap_or(init), PollFlags::IN),
    ];
    let watched = if handover.is_some() { 2 } else { 1 };
    rustix::io::retry_on_intr(|| poll(&mut fds[..watched], None))
        .map_err(SidecarError::step("wait"))?;
    let ready = |one: &PollFd<'_>| !one.revents().is_empty();
    Ok((ready(&fds[0]), handover.is_some() && ready(&fds[1])))
}

/// Answers init, or says on standard error why not: then init has no namespace and does not start.
fn answer(handover: &OwnedFd, cookie: u64, netns: &OwnedFd, sysfs: &OwnedFd) {
    let outcome = match protocol::receive_question(handover.as_fd()) {
        Ok(Question::Enter) => protocol::send_answer(handover.as_fd(), cookie, netns, sysfs),
        Ok(Question::Closed) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = outcome {
        eprintln!("agentbox-sidecar: {}", with_causes(&error));
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
