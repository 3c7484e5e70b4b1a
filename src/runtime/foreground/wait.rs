//! Waiting for a child in the foreground: its exit status, passing on signals, relaying its terminal.
//!
//! A pidfd, opened before the child could be reaped, watches the child, so that the end of a very short program is not
//! lost (youki's `run` loses it: SIGCHLD comes before it is blocked).

use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::cli::OWN_FAILURE;
use crate::runtime::RuntimeError;
use crate::runtime::foreground::ended::ChildExit;
use crate::runtime::foreground::job::{self, Job};
use crate::runtime::foreground::notify::ReadinessRelay;
use crate::runtime::foreground::prompt::{self, Prompts};
use crate::runtime::foreground::relay;
use crate::runtime::foreground::tty::Terminal;
use crate::runtime::network::listeners::ListenerWatch;
use crate::sys::memory::Code;

/// Signals for this process, or the terminal's job control, that are not passed on.
const KEPT: &[Signal] = &[
    Signal::SIGCHLD,
    Signal::SIGWINCH,
    Signal::SIGPIPE,
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
];

/// How often a background job checks whether it is in the foreground.
const TURN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 300_000_000,
};

/// A child in the foreground.
pub struct Foreground {
    /// Passes on its readiness to systemd.
    pub notify: Option<ReadinessRelay>,
    /// Pipes in place of the caller's terminal.
    pub relay: Option<relay::Relay>,
    /// Asks about waiting connections.
    pub prompts: Option<Prompts>,
    /// The channel to our init process, if one stands in front of the program.
    pub job: Option<Job>,
    /// Notes the program's servers.
    pub watch: Option<ListenerWatch>,
    pid: Pid,
    pidfd: OwnedFd,
    signals: SignalFd,
    before: SigSet,
}

impl Foreground {
    /// Takes charge of a child that was not waited for. Blocks all signals: they are read and passed on.
    pub fn new(pid: i32) -> Result<Self, RuntimeError> {
        let step = "watch the container's process";
        let raw = rustix::process::Pid::from_raw(pid).ok_or(RuntimeError::NotRunning)?;
        let pidfd = rustix::process::pidfd_open(raw, rustix::process::PidfdFlags::empty())
            .map_err(RuntimeError::io(step))?;
        let all = SigSet::all();
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&all), Some(&mut before))
            .map_err(RuntimeError::io(step))?;
        let signals = SignalFd::with_flags(&all, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(RuntimeError::io(step))?;
        Ok(Self {
            notify: None,
            relay: None,
            prompts: None,
            job: None,
            watch: None,
            pid: Pid::from_raw(pid),
            pidfd,
            signals,
            before,
        })
    }

    /// Waits for the child's end.
    pub fn wait(&mut self, terminal: Option<OwnedFd>) -> Result<ChildExit, RuntimeError> {
        let mut terminal = terminal.map(Terminal::new);
        // From here on it mostly sleeps.
        if self.job.is_some() {
            Code::find().and_then(|code| code.release()).ok();
        }
        while !self.turn(&mut terminal)? {}
        if let Some(terminal) = &mut terminal {
            terminal.drain();
        }
        let relayed = self.relay.as_mut().map(relay::Relay::drain);
        drop(terminal);
        crate::log::plain::program_has_written();
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.before), None)
            .map_err(RuntimeError::io("restore the signal mask"))?;
        let ended = status(self.pid)?;
        // Our init process in front of the program first reports its signal, then exits with its status.
        let by = self.job.as_mut().and_then(Job::ended_by);
        let ended = match by.map(|signal| ChildExit::by(signal as i32)) {
            Some(by) if by.code == ended.code => by,
            _ => ended,
        };
        Ok(match relayed {
            Some(Err(error)) => {
                crate::log::complain(&crate::log::chain(&error));
                // The program did not see it.
                if ended.code == 0 {
                    ChildExit::with(OWN_FAILURE.into())
                } else {
                    ended
                }
            }
            _ => ended,
        })
    }

    /// Waits for the next event and handles it; `true` when the child has ended.
    fn turn(&mut self, terminal: &mut Option<Terminal>) -> Result<bool, RuntimeError> {
        let ready = self.poll(terminal.as_ref())?;
        let mut ready = ready.into_iter();
        let mut next = |count: usize| ready.by_ref().take(count).collect::<Vec<_>>();
        let (ended, signalled) = (next(1) == [true], next(1) == [true]);
        if let Some(terminal) = terminal {
            terminal.pump(&next(2));
            terminal.take();
        }
        if let Some(relay) = &mut self.relay {
            relay.pump(&next(relay.waits().count()));
        }
        if self.job.as_ref().and_then(Job::fd).is_some() && next(1) == [true] {
            self.stop(terminal);
        }
        if self.notify.is_some() && next(1) == [true] {
            // The caller supervises this process, so it must live as long as the container.
            let own = i32::try_from(std::process::id()).unwrap_or_default();
            self.notify = self.notify.take().filter(|relay| !relay.pump(own));
        }
        if signalled {
            self.pass_signals(terminal.as_ref())?;
        }
        if !ended {
            self.ask();
        }
        Ok(ended)
    }

    /// Asks the user about a waiting connection. Nothing is relayed meanwhile.
    fn ask(&mut self) {
        let others = [self.pidfd.as_fd(), self.signals.as_fd()];
        let asked = self.prompts.as_mut().map(|prompts| prompts.turn(&others));
        if asked == Some(true)
            && let Some(job) = &mut self.job
        {
            // Lets full-screen programs redraw.
            job.pass(Signal::SIGWINCH as i32, job::BY_THE_KERNEL);
        }
    }

    /// What is ready: the child, signals, the terminal, the relay, the job, the notifications.
    fn poll(&mut self, terminal: Option<&Terminal>) -> Result<Vec<bool>, RuntimeError> {
        let look = self.watch.as_mut().map(ListenerWatch::turn);
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.pidfd.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
        ];
        fds.extend(
            terminal
                .iter()
                .flat_map(|terminal| terminal.waits(self.pidfd.as_fd())),
        );
        let waits = self.relay.iter().flat_map(relay::Relay::waits);
        fds.extend(waits.map(|(fd, what)| PollFd::from_borrowed_fd(fd, what)));
        let others = [
            self.job.as_ref().and_then(Job::fd),
            self.notify.as_ref().map(ReadinessRelay::fd),
        ];
        let others = others.into_iter().flatten();
        fds.extend(others.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let background = terminal.is_some_and(Terminal::waits_for_its_turn)
            || self
                .relay
                .as_ref()
                .is_some_and(relay::Relay::waits_for_its_turn);
        let turn = match (&self.prompts, background) {
            (Some(_), _) => Some(prompt::TURN),
            (None, true) => Some(TURN),
            (None, false) => look.and_then(|time| Timespec::try_from(time).ok()),
        };
        match rustix::event::poll(&mut fds, turn.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(RuntimeError::io("wait for the container's process")(e)),
        }
        Ok(fds.iter().map(|f| !f.revents().is_empty()).collect())
    }

    /// The program has stopped; this process stops too, until it is continued.
    fn stop(&mut self, terminal: &mut Option<Terminal>) {
        let Some((job, signal)) = self.job.as_mut().and_then(|job| {
            let signal = job.stopped()?;
            Some((job, signal))
        }) else {
            return;
        };
        if let Some(terminal) = terminal {
            terminal.give_back();
        }
        job.stop(signal);
        if let Some(terminal) = terminal {
            terminal.take();
        }
        job.go_on();
    }

    fn pass_signals(&mut self, terminal: Option<&Terminal>) -> Result<(), RuntimeError> {
        while let Some(info) = self
            .signals
            .read_signal()
            .map_err(RuntimeError::io("read signals"))?
        {
            let number = i32::try_from(info.ssi_signo).unwrap_or_default();
            let signal = Signal::try_from(number).ok();
            match (signal, terminal, &mut self.job) {
                (Some(Signal::SIGWINCH), Some(terminal), _) => terminal.resize(),
                (Some(signal), _, _) if KEPT.contains(&signal) => {}
                (_, _, Some(job)) => job.pass(number, info.ssi_code),
                (Some(signal), _, None) => self.kill(signal)?,
                (None, _, None) => {}
            }
        }
        Ok(())
    }

    fn kill(&self, signal: Signal) -> Result<(), RuntimeError> {
        match nix::sys::signal::kill(self.pid, signal) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(e) => Err(RuntimeError::io("pass on a signal")(e)),
        }
    }
}

fn status(pid: Pid) -> Result<ChildExit, RuntimeError> {
    loop {
        match waitpid(pid, None) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(ChildExit::with(code)),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(ChildExit::by(signal as i32)),
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(RuntimeError::io("wait for the container's process")(e)),
        }
    }
}
