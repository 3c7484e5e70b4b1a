//! The sidecar's own program: become nobody, then answer one question and wait for init's end.

use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use seccompiler::BpfProgram;
use serde::de::DeserializeOwned;

use crate::network::with_causes;
use crate::sidecar::account::{Identity, Procfs};
use crate::sidecar::attach::{Attached, Served, routes};
use crate::sidecar::confine::{self, Limits};
use crate::sidecar::filter;
use crate::sidecar::protocol::{self, Duty, Loss, Question, Reply, Setup};
use crate::sidecar::serve;
use crate::sidecar::warden::{self, WardenLine};
use crate::sidecar::{ARGV0, ConfineError, SidecarError};
use crate::sys::memory::Code;
use crate::sys::{process, socket};

/// Agreed with [`crate::sidecar::spawn`]: standard streams, then these.
const BOOTSTRAP_FD: RawFd = 3;
const HANDOVER_FD: RawFd = 4;
const RUNTIME_FD: RawFd = 5;

/// The runtime sends it right after the clone.
const SETUP_WITHIN: Duration = Duration::from_secs(10);
/// In between, `create` runs the engine's hooks. A runtime that dies is noticed by its pidfd, so
/// this bounds only one that hangs.
const ATTACH_WITHIN: Duration = Duration::from_secs(600);

/// Runs the sidecar; `argv[1]` was [`crate::sidecar::VERB`]. Must be called before any thread is made.
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn complain(error: &SidecarError) {
    // A log file, if the runtime gave one, or /dev/null.
    eprintln!("agentbox-sidecar: {}", with_causes(error));
}

fn run() -> Result<(), SidecarError> {
    let inherited = |fd| socket::take_inherited(fd).map_err(SidecarError::NotStartedByRuntime);
    let bootstrap = Bootstrap {
        socket: inherited(BOOTSTRAP_FD)?,
        runtime: inherited(RUNTIME_FD)?,
    };
    let handover = inherited(HANDOVER_FD)?;
    let (hidden, loss) = match hide(&bootstrap) {
        Ok(hidden) => hidden,
        Err(error) => return Err(bootstrap.give_up(error)),
    };
    match loss {
        Loss::Tolerated => live(hidden, bootstrap, handover, None),
        Loss::EndsContainer => {
            let (identity, code) = (hidden.identity, hidden.code.clone());
            let account = hidden.procfs.account().map_err(SidecarError::Confine)?;
            let never = warden::stand_over(identity, &code, account, |line| {
                let lived = live(hidden, bootstrap, handover, Some(line));
                i32::from(lived.inspect_err(complain).is_err())
            });
            never.map(|never| match never {})
        }
    }
}

/// From an empty root to init's end.
fn live(
    hidden: Hidden,
    bootstrap: Bootstrap,
    handover: OwnedFd,
    warden: Option<WardenLine>,
) -> Result<(), SidecarError> {
    match become_nobody(hidden, &bootstrap, warden) {
        Ok((served, ready)) => {
            bootstrap.reply(&ready)?;
            drop(bootstrap);
            serve(served, handover)
        }
        Err(error) => Err(bootstrap.give_up(error)),
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

    /// Says why there is no sidecar.
    fn give_up(&self, error: SidecarError) -> SidecarError {
        let reason = with_causes(&error);
        // The error itself is what matters; a runtime that cannot hear it is gone.
        if let Err(unheard) = self.reply(&Reply::Failed { reason }) {
            complain(&unheard);
        }
        error
    }
}

/// A sidecar in an empty root, which knows nothing of its container yet.
struct Hidden {
    identity: Identity,
    limits: Limits,
    duty: Duty,
    filter: BpfProgram,
    code: Code,
    procfs: Procfs,
}

/// What needs privileges and no knowledge of the container.
fn hide(bootstrap: &Bootstrap) -> Result<(Hidden, Loss), SidecarError> {
    process::set_name(ARGV0).map_err(SidecarError::step("set the name"))?;
    // It is pid 1 of its namespace, where only SIGKILL and SIGSTOP from outside have an effect
    // anyway; blocked, no signal can interrupt a call either.
    process::block_signals().map_err(SidecarError::step("block the signals"))?;
    let (setup, _) = bootstrap.receive("setup", SETUP_WITHIN)?;
    let Setup {
        uid,
        gid,
        limits,
        cgroup,
        duty,
        loss,
    } = setup;
    let identity = Identity { uid, gid };
    let filter = filter::compile(duty)
        .map_err(ConfineError::Filter)
        .map_err(SidecarError::Confine)?;
    // What the start touched of a whole runtime's code is not needed again: looked up while /proc is still there, and given
    // back when nothing of the start is left to be done.
    let code = Code::find().map_err(SidecarError::step("find the program's own code"))?;
    if duty != Duty::Wait {
        // In a static binary the crate reads /dev/urandom, which it opens once; later there is no /dev.
        getrandom::fill(&mut [0]).map_err(|error| SidecarError::Step {
            step: "open the source of randomness",
            source: std::io::Error::other(error.to_string()),
        })?;
    }
    let procfs = Procfs::open().map_err(SidecarError::Confine)?;
    // Before the root goes, which hides the cgroup file systems.
    cgroup.enter().map_err(SidecarError::Cgroup)?;
    confine::hide(limits).map_err(SidecarError::Confine)?;
    let hidden = Hidden {
        identity,
        limits,
        duty,
        filter,
        code,
        procfs,
    };
    Ok((hidden, loss))
}

/// Everything else up to the acknowledgement, in the order that [`confine`] explains.
fn become_nobody(
    hidden: Hidden,
    bootstrap: &Bootstrap,
    warden: Option<WardenLine>,
) -> Result<(Served, Reply), SidecarError> {
    let Hidden {
        identity,
        limits,
        duty,
        filter,
        code,
        procfs,
    } = hidden;
    let account = procfs.account().map_err(SidecarError::Confine)?;
    drop(procfs);
    let (attachment, fds) = bootstrap.receive("attachment", ATTACH_WITHIN)?;
    let attached = Attached::new(&attachment, fds)?;
    // Here, where it is the runtime's namespace still: a socket belongs to the one that it was made in. Its requests
    // need no privilege, and a change would need one that nobody here has from now on.
    let node = match duty {
        Duty::Serve | Duty::Refuse => Some(routes("open a routing socket of the node")?),
        Duty::Wait => None,
    };
    if let Some(engine) = &attached.engine {
        confine::join_engine(engine.as_fd()).map_err(SidecarError::Confine)?;
    }
    let mut served = attached.prepare(node)?;
    let abi = confine::drop_privileges(identity, duty).map_err(SidecarError::Confine)?;
    confine::verify(identity, limits, abi, &account).map_err(SidecarError::Confine)?;
    drop(account);
    code.release()
        .map_err(SidecarError::step("give back the code of the start"))?;
    confine::seal(&filter).map_err(SidecarError::Confine)?;
    let pid = warden
        .map(|line| {
            let log = served.take_wardens_log();
            line.entrust(served.init.as_fd(), log)
        })
        .transpose()?;
    let landlock_abi = abi;
    Ok((served, Reply::Ready { landlock_abi, pid }))
}

/// Waits for init's question and init's end. Under the filter now.
fn serve(served: Served, handover: OwnedFd) -> Result<(), SidecarError> {
    let Served {
        init,
        netns,
        sysfs,
        cookie,
        serving,
    } = served;
    match serving {
        None => wait_for_init(&init, &netns, (handover, sysfs), cookie),
        Some((serving, descriptors)) => {
            let answer = move |socket: &OwnedFd| answer(socket, cookie, &netns, &sysfs);
            serve::run(serving, descriptors, &init, (handover, answer))
        }
    }
}

/// The whole work of a sidecar that serves nothing: poll, recvmsg, sendmsg, close.
fn wait_for_init(
    init: &OwnedFd,
    netns: &OwnedFd,
    pending: (OwnedFd, OwnedFd),
    cookie: u64,
) -> Result<(), SidecarError> {
    // Both are let go with the one answer, or when nobody is left to ask.
    let mut pending = Some(pending);
    loop {
        let (ended, asked) = wait(init, pending.as_ref().map(|(socket, _)| socket))?;
        // `asked` only while somebody may ask.
        if let Some((socket, sysfs)) = pending.take_if(|_| asked) {
            answer(&socket, cookie, netns, &sysfs);
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
