//! The sidecar's own program: drop every privilege, then answer one question and wait for init's end.

use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use seccompiler::BpfProgram;
use serde::de::DeserializeOwned;

use crate::audit::Context;
use crate::network::with_causes;
use crate::policy::Tool;
use crate::sidecar::ARGV0;
use crate::sidecar::account::{Identity, Procfs};
use crate::sidecar::attach::{ReceivedFds, ServedContainer, routes};
use crate::sidecar::attachment::Attachment;
use crate::sidecar::confine::{self, ConfineError, SidecarRlimits};
use crate::sidecar::counts::KernelCounts;
use crate::sidecar::error::SidecarError;
use crate::sidecar::filter;
use crate::sidecar::first_listener;
use crate::sidecar::loss;
use crate::sidecar::protocol::{
    self, Duty, InitQuestion, Loss, ProtocolError, Reply, SidecarSetup,
};
use crate::sidecar::reader;
use crate::sidecar::serve;
use crate::sidecar::waiting::{IdleLog, IdleLoop};
use crate::sidecar::warden::{self, WardenLine};
use crate::sys::memory::Code;
use crate::sys::{netns, process, socket};

/// Agreed with [`crate::sidecar::spawn`]: standard streams, then these.
const BOOTSTRAP_FD: RawFd = 3;
const HANDOVER_FD: RawFd = 4;
const RUNTIME_FD: RawFd = 5;

/// The runtime sends it immediately after the clone.
const SETUP_WITHIN: Duration = Duration::from_secs(10);
/// Meanwhile `create` runs the engine's hooks. The pidfd reports a dead runtime, so this limit is only for one that
/// hangs.
const ATTACH_WITHIN: Duration = Duration::from_secs(600);

/// Runs the sidecar; `argv[1]` is [`crate::sidecar::VERB`]. Must be called before any thread is made.
pub fn main() -> ExitCode {
    ExitCode::from(status(run()))
}

/// The exit status, which tells the warden why the container ends.
fn status(lived: Result<(), SidecarError>) -> u8 {
    match lived {
        Ok(()) => 0,
        // It is in the log.
        Err(SidecarError::Honeytoken) => loss::HONEYTOKEN,
        Err(error) => {
            complain(&error);
            1
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
            let mut bootstrap = Some(bootstrap);
            let stood = hidden.procfs.account().map_err(SidecarError::Confine);
            let stood = stood.and_then(|account| {
                warden::stand_over(identity, &code, account, |line| {
                    let Some(bootstrap) = bootstrap.take() else {
                        return 1;
                    };
                    i32::from(status(live(hidden, bootstrap, handover, Some(line))))
                })
            });
            match (stood, bootstrap) {
                (Ok(never), _) => match never {},
                (Err(error), Some(bootstrap)) => Err(bootstrap.give_up(error)),
                (Err(error), None) => Err(error),
            }
        }
    }
}

/// From the empty root to init's end.
fn live(
    hidden: IdleSidecar,
    bootstrap: Bootstrap,
    handover: OwnedFd,
    warden: Option<WardenLine>,
) -> Result<(), SidecarError> {
    // The warden exits when its line closes, and this process may be killed with it. So the line stays open until the
    // reason is sent.
    let became = become_nobody(hidden, &bootstrap, warden.as_ref());
    match became {
        Ok((served, ready)) => {
            bootstrap.reply(&ready)?;
            drop(bootstrap);
            if let (Some(calls), Some(warden)) = (&served.calls, warden) {
                calls.ask(warden);
            }
            serve(served, handover)
        }
        Err(error) => Err(bootstrap.give_up(error)),
    }
}

/// The socket to the runtime, until the sidecar is ready.
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

    /// Tells the runtime why there is no sidecar.
    fn give_up(&self, error: SidecarError) -> SidecarError {
        let reason = with_causes(&error);
        // The error itself matters more; if the runtime cannot hear it, it is gone.
        if let Err(unheard) = self.reply(&Reply::Failed { reason }) {
            complain(&unheard);
        }
        error
    }
}

/// A sidecar in an empty root. It has read nothing of its container yet.
struct IdleSidecar {
    identity: Identity,
    limits: SidecarRlimits,
    duty: Duty,
    filter: BpfProgram,
    code: Code,
    procfs: Procfs,
    /// The input of its reader of requests.
    reading: Option<OwnedFd>,
}

/// The steps that need privileges but nothing of the container.
fn hide(bootstrap: &Bootstrap) -> Result<(IdleSidecar, Loss), SidecarError> {
    process::set_name(ARGV0).map_err(SidecarError::step("set the name"))?;
    // It is pid 1 of its namespace, where only SIGKILL and SIGSTOP from outside work anyway. Blocked signals cannot
    // interrupt a call either.
    process::block_signals().map_err(SidecarError::step("block the signals"))?;
    let (setup, mut fds) = bootstrap.receive("setup", SETUP_WITHIN)?;
    let SidecarSetup {
        uid,
        gid,
        limits,
        cgroup,
        duty,
        loss,
        reads,
    } = setup;
    if fds.len() != usize::from(reads) {
        return Err(SidecarError::Protocol(ProtocolError::Descriptors {
            peer: "runtime",
            need: usize::from(reads),
            have: fds.len(),
        }));
    }
    let identity = Identity { uid, gid };
    let filter = filter::compile(duty)
        .map_err(ConfineError::Filter)
        .map_err(SidecarError::Confine)?;
    // The start touches code of the whole runtime that is not needed again. It is located while /proc is still there,
    // and released at the end of the start.
    let code = Code::find().map_err(SidecarError::step("find the program's own code"))?;
    if duty != Duty::Wait {
        // In a static binary the crate opens /dev/urandom once and reads it. Later there is no /dev.
        getrandom::fill(&mut [0]).map_err(|error| SidecarError::Step {
            step: "open the source of randomness",
            source: std::io::Error::other(error.to_string()),
        })?;
    }
    let procfs = Procfs::open().map_err(SidecarError::Confine)?;
    // Before the new root, which hides the cgroup file systems.
    cgroup.enter().map_err(SidecarError::Cgroup)?;
    confine::hide(limits).map_err(SidecarError::Confine)?;
    let hidden = IdleSidecar {
        identity,
        limits,
        duty,
        filter,
        code,
        procfs,
        reading: fds.pop(),
    };
    Ok((hidden, loss))
}

/// The other steps up to the acknowledgement, in the order that [`confine`] explains.
fn become_nobody(
    hidden: IdleSidecar,
    bootstrap: &Bootstrap,
    warden: Option<&WardenLine>,
) -> Result<(ServedContainer, Reply), SidecarError> {
    let IdleSidecar {
        identity,
        limits,
        duty,
        filter,
        code,
        procfs,
        reading,
    } = hidden;
    // Before anything of the container is read.
    let reader = reading
        .map(|reading| {
            reader::start(reading, || {
                let account = procfs.account()?;
                confine::leave_network()?;
                // The reader connects to nothing.
                let abi = confine::drop_privileges(identity, Duty::Wait)?;
                confine::verify_beside(identity, limits, abi, &account)?;
                give_back(&code)?;
                Ok(abi)
            })
        })
        .transpose()?;
    let account = procfs.account().map_err(SidecarError::Confine)?;
    drop(procfs);
    let (attachment, fds): (Attachment, _) = bootstrap.receive("attachment", ATTACH_WITHIN)?;
    let attached = ReceivedFds::new(&attachment.tags, fds)?;
    // Opened here, in the runtime's namespace: a socket belongs to the namespace where it was made. Its requests need
    // no privilege. Changes would need one that the sidecar drops.
    let node = match duty {
        Duty::Serve | Duty::Refuse => Some(routes("open a routing socket of the node")?),
        Duty::Wait => None,
    };
    let node_cookie =
        netns::current_cookie().map_err(SidecarError::step("read the node's SO_NETNS_COOKIE"))?;
    if let Some(outer) = &attached.outer {
        confine::join_network(outer.as_fd()).map_err(SidecarError::Confine)?;
    }
    let mut served = attached.prepare(attachment, node, node_cookie)?;
    let reader = reader.map(reader::StartedReader::ready).transpose()?;
    if let Some((_, descriptors)) = &mut served.serving {
        descriptors.reader = reader;
    }
    let abi = confine::drop_privileges(identity, duty).map_err(SidecarError::Confine)?;
    confine::verify(identity, limits, abi, &account).map_err(SidecarError::Confine)?;
    drop(account);
    give_back(&code).map_err(SidecarError::Confine)?;
    confine::seal(&filter).map_err(SidecarError::Confine)?;
    if let Some(calls) = &mut served.calls {
        calls.give_back_after_start(code);
    }
    let pid = warden
        .map(|line| {
            let log = served.take_wardens_log();
            line.entrust(served.init.as_fd(), log)
        })
        .transpose()?;
    let landlock_abi = abi;
    Ok((served, Reply::Ready { landlock_abi, pid }))
}

/// Releases the code that only the start needed.
fn give_back(code: &Code) -> Result<(), ConfineError> {
    code.release()
        .map_err(ConfineError::step("give back the code of the start"))
}

/// Waits for init's question and init's end. The filter is loaded.
fn serve(served: ServedContainer, handover: OwnedFd) -> Result<(), SidecarError> {
    let ServedContainer {
        init,
        inner,
        watched,
        counts,
        mut calls,
        calls_log,
        serving,
    } = served;
    let context = serving.as_ref().map(|(serving, _)| &serving.context);
    let context = context.or(calls_log.as_ref().map(|log| &log.context));
    let tool = context.map_or(Tool::default(), Context::tool);
    let counts = KernelCounts::new(counts, tool, Instant::now());
    let Some(inner) = inner else {
        // Init asks for nothing: its first message is its listener.
        first_listener::expect(calls.as_mut(), handover, InitQuestion::Enter)?;
        return IdleLoop {
            init,
            pending: None::<(OwnedFd, fn(&OwnedFd) -> InitQuestion)>,
            watched,
            counts,
            log: calls_log.map(|log| IdleLog::of(log, calls.as_ref())),
            calls,
        }
        .run();
    };
    let (netns, sysfs, cookie) = (inner.netns, inner.sysfs, inner.cookie);
    match serving {
        None => IdleLoop {
            init,
            // The namespace is kept to the end; the sysfs goes with the answer.
            pending: Some((handover, |socket: &OwnedFd| {
                let sysfs = sysfs;
                answer(socket, cookie, &netns, &sysfs)
            })),
            watched,
            counts,
            log: calls_log.map(|log| IdleLog::of(log, calls.as_ref())),
            calls,
        }
        .run(),
        Some((serving, descriptors)) => {
            let answer = move |socket: &OwnedFd| answer(socket, cookie, &netns, &sysfs);
            serve::run(
                serving,
                descriptors,
                &init,
                (handover, answer),
                serve::Watches {
                    calls,
                    mounts: watched,
                    counts,
                },
            )
        }
    }
}

/// Answers init, or prints the error to standard error: then init has no namespace and does not start.
fn answer(handover: &OwnedFd, cookie: u64, netns: &OwnedFd, sysfs: &OwnedFd) -> InitQuestion {
    let asked = protocol::receive_question(handover.as_fd());
    let answered = asked.and_then(|question| match question {
        InitQuestion::Enter => {
            protocol::send_answer(handover.as_fd(), cookie, netns, sysfs).map(|()| question)
        }
        InitQuestion::Closed => Ok(question),
    });
    answered.unwrap_or_else(|error| {
        eprintln!("agentbox-sidecar: {}", with_causes(&error));
        InitQuestion::Closed
    })
}
