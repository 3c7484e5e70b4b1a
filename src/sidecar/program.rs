//! The sidecar's own program: become nobody, then answer one question and wait for init's end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use seccompiler::BpfProgram;
use serde::de::DeserializeOwned;

use crate::egress::Kept;
use crate::sidecar::confine::{self, Identity, LandlockNeed, Limits};
use crate::sidecar::filter;
use crate::sidecar::protocol::{
    self, Attachment, Loss, NamespaceId, ProtocolError, Question, Reply, Setup, Work,
};
use crate::sidecar::serve::{self, Callers, Ears, Serving};
use crate::sidecar::warden::{self, Line};
use crate::sidecar::{ARGV0, ConfineError, SidecarError};
use crate::sys::memory::Code;
use crate::sys::netlink::RouteSocket;
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
/// Bytes of a configuration: 64 ports and some thousand rules.
const MOST_CONFIGURATION: u64 = 1 << 20;

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
            let never = warden::stand_over(identity, &code, |line| {
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
    warden: Option<Line>,
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

/// Whom a ready sidecar serves.
struct Served {
    init: OwnedFd,
    netns: OwnedFd,
    sysfs: OwnedFd,
    cookie: u64,
    serving: Option<(Serving, Ears)>,
}

impl Served {
    fn journal(&self) -> Option<BorrowedFd<'_>> {
        let (_, ears) = self.serving.as_ref()?;
        Some(ears.journal.as_fd())
    }
}

/// A sidecar in an empty root, which knows nothing of its container yet.
struct Hidden {
    identity: Identity,
    limits: Limits,
    landlock: LandlockNeed,
    work: Work,
    filter: BpfProgram,
    code: Code,
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
        landlock,
        cgroup,
        work,
        loss,
    } = setup;
    let identity = Identity { uid, gid };
    let filter = filter::compile(work)
        .map_err(ConfineError::Filter)
        .map_err(SidecarError::Confine)?;
    // What the start touched of a whole runtime's code is not needed again: looked up while /proc is still there, and given
    // back when nothing of the start is left to be done.
    let code = Code::find().map_err(SidecarError::step("find the program's own code"))?;
    if work != Work::Wait {
        // In a static binary the crate reads /dev/urandom, which it opens once; later there is no /dev.
        getrandom::fill(&mut [0]).map_err(|error| SidecarError::Step {
            step: "open the source of randomness",
            source: std::io::Error::other(error.to_string()),
        })?;
    }
    // Before the root goes, which hides the cgroup file systems.
    cgroup.enter().map_err(SidecarError::Cgroup)?;
    confine::hide(limits).map_err(SidecarError::Confine)?;
    let hidden = Hidden {
        identity,
        limits,
        landlock,
        work,
        filter,
        code,
    };
    Ok((hidden, loss))
}

/// Everything else up to the acknowledgement, in the order that [`confine`] explains.
fn become_nobody(
    hidden: Hidden,
    bootstrap: &Bootstrap,
    warden: Option<Line>,
) -> Result<(Served, Reply), SidecarError> {
    let Hidden {
        identity,
        limits,
        landlock,
        work,
        filter,
        code,
    } = hidden;
    let attached = receive_attachment(bootstrap)?;
    // Here, where it is the runtime's namespace still: a socket belongs to the one that it was made in. Its requests
    // need no privilege, and a change would need one that nobody here has from now on.
    let node = match work {
        Work::Serve | Work::Refuse => Some(routes("open a routing socket of the node")?),
        Work::Wait => None,
    };
    if let Some(engine) = &attached.engine {
        confine::join_engine(engine.as_fd()).map_err(SidecarError::Confine)?;
    }
    let served = attached.prepare(node)?;
    let abi = confine::drop_privileges(identity, landlock, work).map_err(SidecarError::Confine)?;
    confine::verify(identity, limits, abi).map_err(SidecarError::Confine)?;
    code.release()
        .map_err(SidecarError::step("give back the code of the start"))?;
    confine::seal(&filter).map_err(SidecarError::Confine)?;
    let pid = warden
        .map(|line| line.entrust(served.init.as_fd(), served.journal()))
        .transpose()?;
    let landlock_abi = abi;
    Ok((served, Reply::Ready { landlock_abi, pid }))
}

/// What came with the attachment, as it came.
struct Attached {
    init: OwnedFd,
    netns: OwnedFd,
    sysfs: OwnedFd,
    cookie: u64,
    pid_namespace: NamespaceId,
    engine: Option<OwnedFd>,
    /// Configuration, log, control socket, listeners.
    serving: Vec<OwnedFd>,
}

fn receive_attachment(bootstrap: &Bootstrap) -> Result<Attached, SidecarError> {
    let (attachment, fds): (Attachment, _) = bootstrap.receive("attachment", ATTACH_WITHIN)?;
    let (have, need) = (fds.len(), attachment.descriptors());
    let mut fds = fds.into_iter();
    match (fds.next(), fds.next(), fds.next()) {
        (Some(init), Some(netns), Some(sysfs)) if have == need => {
            let engine = (attachment.engine_netns == protocol::EngineNetns::Sent)
                .then(|| fds.next())
                .flatten();
            Ok(Attached {
                init,
                netns,
                sysfs,
                cookie: attachment.cookie,
                pid_namespace: attachment.pid_namespace,
                engine,
                serving: fds.collect(),
            })
        }
        _ => Err(SidecarError::Protocol(ProtocolError::Descriptors {
            peer: "runtime",
            need,
            have,
        })),
    }
}

impl Attached {
    /// Reads the configuration and opens what must be opened in the engine's namespace, while there is the right to.
    fn prepare(self, node: Option<RouteSocket>) -> Result<Served, SidecarError> {
        let Self {
            init,
            netns,
            sysfs,
            cookie,
            pid_namespace,
            engine: _,
            serving,
        } = self;
        let serving = node
            .map(|node| prepare_serving(serving, node, pid_namespace))
            .transpose()?;
        Ok(Served {
            init,
            netns,
            sysfs,
            cookie,
            serving,
        })
    }
}

/// A routing socket of the namespace that this is in, which hears of changes.
fn routes(step: &'static str) -> Result<RouteSocket, SidecarError> {
    RouteSocket::open()
        .and_then(|mut route| route.watch().map(|()| route))
        .map_err(SidecarError::step(step))
}

fn prepare_serving(
    fds: Vec<OwnedFd>,
    node: RouteSocket,
    pid_namespace: NamespaceId,
) -> Result<(Serving, Ears), SidecarError> {
    use std::io::Read;
    let have = fds.len();
    let mut fds = fds.into_iter();
    let (Some(config), Some(journal), Some(control)) = (fds.next(), fds.next(), fds.next()) else {
        return Err(SidecarError::Protocol(ProtocolError::Descriptors {
            peer: "runtime",
            need: 3,
            have,
        }));
    };
    let mut text = String::new();
    std::fs::File::from(config)
        .take(MOST_CONFIGURATION)
        .read_to_string(&mut text)
        .map_err(SidecarError::Configuration)?;
    let serving: Serving =
        serde_json::from_str(&text).map_err(|error| SidecarError::Configuration(error.into()))?;
    let wrong = || {
        SidecarError::Protocol(ProtocolError::Descriptors {
            peer: "runtime",
            need: 3 + usize::from(serving.kept) + usize::from(serving.outside) + serving.sockets(),
            have,
        })
    };
    let kept = match serving.kept {
        true => Some(read_kept(fds.next().ok_or_else(wrong)?)?),
        false => None,
    };
    let outside = match serving.outside {
        true => Some(fds.next().ok_or_else(wrong)?),
        false => None,
    };
    if fds.len() != serving.sockets() {
        return Err(wrong());
    }
    let listeners = match &serving.ports {
        Some(_) => {
            let ears = fds.by_ref().take(serving.listeners());
            Some(crate::network::Listeners::from_fds(serving.stub(), ears).ok_or_else(wrong)?)
        }
        None => None,
    };
    let doors = serving.inbound.iter().map(|port| {
        crate::network::listen_everywhere(*port)
            .map(|door| (*port, door))
            .map_err(|source| SidecarError::Inbound {
                port: *port,
                source,
            })
    });
    let doors = doors.collect::<Result<_, _>>()?;
    let engine = routes("open a routing socket of the engine's network")?;
    // Whoever runs this program on the node: this process itself, until it becomes nobody.
    let callers = Callers {
        uid: rustix::process::getuid().as_raw(),
        cookie: node
            .netns_cookie()
            .map_err(SidecarError::step("read the node's SO_NETNS_COOKIE"))?,
        pid_namespace,
    };
    let ears = Ears {
        callers,
        listeners,
        doors,
        dialers: fds.collect(),
        journal,
        kept,
        outside,
        control,
        routes: [engine, node],
    };
    Ok((serving, ears))
}

/// What earlier runs used. The runtime has read the file before: here it is what is counted from.
fn read_kept(file: OwnedFd) -> Result<(Kept, OwnedFd), SidecarError> {
    use std::io::Read;
    let mut file = std::fs::File::from(file);
    let mut text = String::new();
    file.read_to_string(&mut text)
        .map_err(SidecarError::Configuration)?;
    let kept = Kept::parse(&text).map_err(|line| {
        let why = format!("line {line} of what earlier runs used is not understood");
        SidecarError::Configuration(std::io::Error::other(why))
    })?;
    Ok((kept, file.into()))
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
        Some((serving, ears)) => {
            let answer = move |socket: &OwnedFd| answer(socket, cookie, &netns, &sysfs);
            serve::run(serving, ears, &init, (handover, answer))
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

pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
