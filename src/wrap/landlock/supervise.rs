//! SHELL. Wrap's work while the command runs: it answers the filter's listener, passes signals on, and waits.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::net::sockopt::socket_cookie;
use rustix::process::{Pid, WaitOptions, WaitStatus};

use super::domain::DomainLine;
use super::refused::RefusedPorts;
use super::servers::PublishedPorts;
use super::terminals::PseudoTerminals;
use super::{attributes, loopback};
use crate::plan::TimePlan;
use crate::plan::time::EndCause;
use crate::runtime::foreground::ended::ChildExit;
use crate::runtime::foreground::relay::Relay;
use crate::sidecar::timekeeper;
use crate::sys::memory::Code;
use crate::sys::seccomp::notify::{self, NotifiedCall, NotifyAnswer};
use crate::sys::socket;

/// Signals for the command rather than for wrap.
const PASSED: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
    Signal::SIGCONT,
];
/// What a terminal sends to the whole group of a process that reads or sets it from the background: the command could stop wrap so,
/// and with it the time limit.
const OF_THE_BACKGROUND: [Signal; 2] = [Signal::SIGTTIN, Signal::SIGTTOU];
/// `SI_KERNEL`: the terminal sent it to the whole foreground group, including the command.
const BY_THE_TERMINAL: i32 = 0x80;

/// Blocks the signals, so that wrap reads them from a descriptor.
pub fn signals() -> Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in PASSED.into_iter().chain(OF_THE_BACKGROUND) {
        set.add(signal);
    }
    set.add(Signal::SIGCHLD);
    // A limit of file sizes is the command's: writing on for it fails.
    set.add(Signal::SIGXFSZ);
    set.thread_block().context("block the signals")?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .context("wait for signals")
}

/// The processes and descriptors of a run.
pub struct Supervisor<'a> {
    /// The filter's listener.
    pub listener: OwnedFd,
    /// The command.
    pub command: Pid,
    /// The proxy, if there is one.
    pub sidecar: Option<OwnedFd>,
    /// Tells the proxy about each new socket.
    pub clients: OwnedFd,
    /// See [`signals`].
    pub signals: SignalFd,
    /// Where the command may change files' attributes.
    pub writable: Vec<PathBuf>,
    /// Where the command may have servers.
    pub published: PublishedPorts,
    /// The ports that it may connect to.
    pub open: BTreeSet<u16>,
    /// The ports that it tried in vain.
    pub refused: &'a RefusedPorts,
    /// The command's pseudo-terminals.
    pub terminals: PseudoTerminals,
    /// The caller's files.
    pub relay: Relay,
    /// When the command ends.
    pub limit: Option<CommandLimit>,
    /// Ends all processes of the run.
    pub domain: Option<DomainLine>,
}

/// Orphans that are reaped before other events are looked at. Any number from 16 to 1,024 works; 64 is a guess.
const AT_ONCE: u32 = 64;

/// The time limit of a command. A second keeper ([`super::domain`], [`super::clock`]) acts if this process does not.
pub struct CommandLimit {
    timer: OwnedFd,
    plan: TimePlan,
}

impl CommandLimit {
    /// Time counts from here on.
    pub fn begin(plan: TimePlan) -> Result<Self> {
        let timer = timekeeper::timer(plan.sleep).context("make a timer")?;
        let limit = Self { timer, plan };
        // `time.idle` is refused under these walls.
        if let Some(wall) = plan.wall.lifetime() {
            limit.ring_after(wall.seconds())?;
        }
        Ok(limit)
    }

    /// Whether the time was over before this process acted: the second keeper has killed all.
    fn has_rung(&self) -> bool {
        matches!(
            socket::wait_readable(self.timer.as_fd(), Duration::ZERO),
            Ok(true)
        )
    }

    fn ring_after(&self, seconds: u32) -> Result<()> {
        let due = timekeeper::now(self.plan.sleep) + Duration::from_secs(seconds.into());
        timekeeper::ring_at(&self.timer, due).context("set the timer")
    }
}

impl Supervisor<'_> {
    /// Runs until the command ends, and ends what is left of it. Returns its end, and the cause if its time was over.
    pub fn finish(mut self) -> Result<(ChildExit, Option<EndCause>)> {
        let ended = self.run();
        crate::log::plain::program_has_written();
        if !self.end_all() {
            log::warn!("processes of the command go on, behind the walls: look for them with `ps`");
        }
        let relayed = self.relay.drain();
        let ended = ended?;
        super::streams::judge(relayed, &ended.0)?;
        Ok(ended)
    }

    /// Ends all that is left of the run. `false` if some of it survives.
    fn end_all(&mut self) -> bool {
        if let Some(sidecar) = &self.sidecar {
            end_proxy(sidecar);
        }
        if let Some(domain) = self.domain.take() {
            domain.end_all();
        }
        end_the_rest()
    }

    /// Runs until the command ends. Returns its end, and the cause if its time was over.
    fn run(&mut self) -> Result<(ChildExit, Option<EndCause>)> {
        // From here on it mostly sleeps.
        Code::find().and_then(|code| code.release()).ok();
        let mut over_time = None;
        loop {
            let timer = self.limit.as_ref().map(|limit| limit.timer.as_fd());
            let sidecar = self
                .sidecar
                .as_ref()
                .map_or(self.signals.as_fd(), AsFd::as_fd);
            let mut fds = vec![
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
                PollFd::new(&self.listener, PollFlags::IN),
                PollFd::from_borrowed_fd(sidecar, PollFlags::IN),
                PollFd::from_borrowed_fd(timer.unwrap_or(sidecar), PollFlags::IN),
            ];
            let streams = self.relay.waits();
            fds.extend(streams.map(|(fd, what)| PollFd::from_borrowed_fd(fd, what)));
            rustix::io::retry_on_intr(|| poll(&mut fds, None)).context("wait for the command")?;
            let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
            let [signals, calls, ended, rung, streams @ ..] = &ready[..] else {
                bail!("poll(2) answers for each descriptor");
            };
            let streams: Vec<bool> = streams.iter().map(|ready| !ready.is_empty()).collect();
            self.relay.pump(&streams);
            if let Some(limit) = self.limit.as_ref().filter(|_| rung.contains(PollFlags::IN)) {
                let signal = match over_time {
                    None => rustix::process::Signal::TERM,
                    Some(_) => rustix::process::Signal::KILL,
                };
                self.end(limit, signal)?;
                over_time = Some(EndCause::Wall);
            }
            if calls.contains(PollFlags::IN)
                && let Some(call) = notify::receive(self.listener.as_fd()).context("take a call")?
            {
                self.answer(&call)?;
            }
            // All processes under the filter are gone, so the command has ended. poll(2) would return at once from now
            // on.
            let over = calls.intersects(PollFlags::HUP | PollFlags::ERR);
            if (signals.contains(PollFlags::IN) || over)
                && let Some(status) = self.hear()?
            {
                let is_over = || self.limit.as_ref().is_some_and(CommandLimit::has_rung);
                let by_other = status == ChildExit::by(Signal::SIGKILL as i32) && is_over();
                return Ok((status, over_time.or(by_other.then_some(EndCause::Wall))));
            }
            if self.sidecar.is_some() && ended.contains(PollFlags::IN) {
                match over_time {
                    // The second keeper of the time has killed all.
                    Some(_) => return Ok((ChildExit::by(Signal::SIGKILL as i32), over_time)),
                    None => bail!("the network's proxy has ended, and the command with it"),
                }
            }
        }
    }

    /// Sends the command a signal, and sets the timer for the next one. Its children end after it.
    fn end(&self, limit: &CommandLimit, signal: rustix::process::Signal) -> Result<()> {
        // It is reaped below, so its number was not reused.
        let _gone = rustix::process::kill_process(self.command, signal);
        // Again while it does not end: it may be in an uninterruptible call.
        limit.ring_after(limit.plan.grace.seconds().max(1))
    }

    /// Passes signals on and reaps processes. Returns the command's end, if it has ended.
    fn hear(&self) -> Result<Option<ChildExit>> {
        while let Some(heard) = self.signals.read_signal().context("read a signal")? {
            let number = i32::try_from(heard.ssi_signo).unwrap_or_default();
            let Ok(signal) = Signal::try_from(number) else {
                continue;
            };
            let is_the_terminals = heard.ssi_code == BY_THE_TERMINAL;
            if PASSED.contains(&signal) && !is_the_terminals {
                let pid = nix::unistd::Pid::from_raw(self.command.as_raw_pid());
                // It may have just ended.
                let _gone = nix::sys::signal::kill(pid, signal);
            }
        }
        let exit = |status: WaitStatus| {
            let by_signal = status.terminating_signal().map(ChildExit::by);
            status.exit_status().map(ChildExit::with).or(by_signal)
        };
        let ended = rustix::process::waitpid(Some(self.command), WaitOptions::NOHANG);
        let mut found = ended.ok().flatten().and_then(|(_, status)| exit(status));
        // The command's orphans are children of this process. Those that come as fast as they are reaped must not keep it from
        // the timer.
        for _ in 0..AT_ONCE {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.command => found = exit(status).or(found),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        Ok(found)
    }

    fn answer(&self, call: &NotifiedCall) -> Result<()> {
        let listener = self.listener.as_fd();
        let answered = |made: Result<(), Errno>| {
            let failed = |errno: Errno| NotifyAnswer::Failed(errno.raw_os_error());
            let answer = made.map_or_else(failed, |()| NotifyAnswer::Done);
            notify::answer(listener, call, answer)
        };
        let done = match call.number {
            libc::SYS_socket => self.give_socket(call),
            libc::SYS_open | libc::SYS_openat => self.terminals.answer(listener, call),
            libc::SYS_connect => {
                self.refused.note_connection(listener, call, &self.open);
                notify::answer(listener, call, NotifyAnswer::Continue)
            }
            libc::SYS_bind => {
                let ports = self.published.ports();
                self.refused.note_server(listener, call, ports);
                answered(self.published.make(listener, call))
            }
            libc::SYS_listen => answered(self.published.make(listener, call)),
            _ => answered(attributes::change(listener, call, &self.writable)),
        };
        // A caller that was killed meanwhile must not end wrap.
        if let Err(error) = done {
            log::debug!("answer a call: {error}");
        }
        Ok(())
    }

    /// Gives the caller a TCP socket that is bound to the loopback interface ([`loopback`]). The proxy serves no connection of
    /// another socket.
    fn give_socket(&self, call: &NotifiedCall) -> std::io::Result<()> {
        let listener = self.listener.as_fd();
        if self.sidecar.is_none() {
            return notify::answer(listener, call, NotifyAnswer::Failed(libc::EACCES));
        }
        let made = loopback_socket(call.args[1]).and_then(|made| {
            // Told before the command gets the socket, so before it can connect.
            let cookie = socket_cookie(&made.0)?;
            socket::send(self.clients.as_fd(), &cookie.to_ne_bytes(), &[])?;
            Ok(made)
        });
        match made {
            Ok((socket, flags)) => notify::give(listener, call, socket.as_fd(), flags),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EACCES);
                notify::answer(listener, call, NotifyAnswer::Failed(errno))
            }
        }
    }
}

/// The socket that socket(2) of this kind asks for, and the flags of its descriptor.
fn loopback_socket(kind: u64) -> std::io::Result<(OwnedFd, u32)> {
    let kind = i32::try_from(kind & 0xffff_ffff).unwrap_or(-1);
    let mut flags = SocketFlags::empty();
    if kind & libc::SOCK_NONBLOCK != 0 {
        flags |= SocketFlags::NONBLOCK;
    }
    let closed = if kind & libc::SOCK_CLOEXEC != 0 {
        libc::O_CLOEXEC.cast_unsigned()
    } else {
        0
    };
    Ok((loopback::socket(flags)?, closed))
}

/// Ends the proxy, and waits a second for its end; it is reaped with the rest.
fn end_proxy(sidecar: &OwnedFd) {
    const WITHIN: Duration = Duration::from_secs(1);
    let _gone = rustix::process::pidfd_send_signal(sidecar, rustix::process::Signal::KILL);
    if let Err(error) = socket::wait_readable(sidecar.as_fd(), WITHIN) {
        log::debug!("wait for the proxy's end: {error}");
    }
}

/// Ends the command's remaining processes: they are children of this one, or will be when their parents end. `false` if
/// some survive.
fn end_the_rest() -> bool {
    const ROUNDS: u32 = 500;
    for _ in 0..ROUNDS {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                // No child is left.
                Err(_) => return true,
            }
        }
        for pid in children() {
            // It is reaped above, so its number was not reused.
            let _gone = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    false
}

/// This process's children, from proc_pid_stat(5): the kernel's own list needs a build with checkpoint support.
fn children() -> Vec<Pid> {
    let own = std::process::id().to_string();
    let is_child = |pid: &str| {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&stat).into_owned();
        // The name is in parentheses and may contain some. The state and the parent follow.
        let parent = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_ascii_whitespace().nth(1).map(str::to_owned));
        parent.as_deref() == Some(own.as_str())
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let pids = names.filter(|name| name.bytes().all(|b| b.is_ascii_digit()) && is_child(name));
    pids.filter_map(|name| Pid::from_raw(name.parse().ok()?))
        .collect()
}
