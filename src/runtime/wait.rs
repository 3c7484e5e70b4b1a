//! Waiting for a child in the foreground: its exit status, signals passed on, its terminal relayed.
//!
//! The child is watched by a pidfd that was opened while it could not have been reaped, so that a program that ends
//! at once is never lost (youki's `run` loses it: SIGCHLD before it is blocked).

use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags};

use super::{RuntimeError, tty};

/// Signals that mean this process, or the terminal's job control, and are not passed on.
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

/// A child in the foreground.
pub struct Foreground {
    pid: Pid,
    pidfd: OwnedFd,
    signals: SignalFd,
    before: SigSet,
}

impl Foreground {
    /// Takes charge of a child that has not been waited for. Blocks all signals: they are read and passed on.
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
            pid: Pid::from_raw(pid),
            pidfd,
            signals,
            before,
        })
    }

    /// Waits for the child's end and returns its status as a shell would: 128 + n for signal n.
    pub fn wait(mut self, terminal: Option<OwnedFd>) -> Result<i32, RuntimeError> {
        let raw = terminal.as_ref().map(|_| tty::RawTerminal::new());
        if let Some(master) = &terminal {
            tty::copy_size(master.as_fd());
        }
        let (mut input, mut output) = (terminal.is_some(), terminal.is_some());
        loop {
            let ended = self.turn(terminal.as_ref(), &mut input, &mut output)?;
            if ended {
                break;
            }
        }
        if let Some(master) = &terminal {
            drain(master, output);
        }
        drop(raw);
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.before), None)
            .map_err(RuntimeError::io("restore the signal mask"))?;
        status(self.pid)
    }

    /// Waits for the next event and handles it; `true` when the child has ended.
    fn turn(
        &mut self,
        terminal: Option<&OwnedFd>,
        input: &mut bool,
        output: &mut bool,
    ) -> Result<bool, RuntimeError> {
        let stdin = rustix::stdio::stdin();
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.pidfd.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
        ];
        if let Some(master) = terminal {
            let (none, read) = (PollFlags::empty(), PollFlags::IN);
            fds.push(PollFd::from_borrowed_fd(
                master.as_fd(),
                if *output { read } else { none },
            ));
            fds.push(PollFd::from_borrowed_fd(
                stdin,
                if *input { read } else { none },
            ));
        }
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(RuntimeError::io("wait for the container's process")(e)),
        }
        let ready: Vec<bool> = fds.iter().map(|f| !f.revents().is_empty()).collect();
        drop(fds);
        if let Some(master) = terminal {
            if *output && ready[2] {
                *output = tty::copy(master.as_fd(), rustix::stdio::stdout());
            }
            if *input && ready[3] {
                *input = tty::copy(stdin, master.as_fd());
            }
        }
        if ready[1] {
            self.pass_signals(terminal)?;
        }
        Ok(ready[0])
    }

    fn pass_signals(&mut self, terminal: Option<&OwnedFd>) -> Result<(), RuntimeError> {
        while let Some(info) = self
            .signals
            .read_signal()
            .map_err(RuntimeError::io("read signals"))?
        {
            let signal = Signal::try_from(i32::try_from(info.ssi_signo).unwrap_or_default()).ok();
            match (signal, terminal) {
                (Some(Signal::SIGWINCH), Some(master)) => tty::copy_size(master.as_fd()),
                (Some(signal), _) if !KEPT.contains(&signal) => {
                    match nix::sys::signal::kill(self.pid, signal) {
                        Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
                        Err(e) => return Err(RuntimeError::io("pass on a signal")(e)),
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// What the program wrote before it ended and nobody has read yet.
fn drain(master: &OwnedFd, mut open: bool) {
    while open {
        let mut fds = [PollFd::from_borrowed_fd(master.as_fd(), PollFlags::IN)];
        let none = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        open = matches!(rustix::event::poll(&mut fds, Some(&none)), Ok(n) if n > 0)
            && tty::copy(master.as_fd(), rustix::stdio::stdout());
    }
}

fn status(pid: Pid) -> Result<i32, RuntimeError> {
    loop {
        match waitpid(pid, None) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(code),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(128 + signal as i32),
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(RuntimeError::io("wait for the container's process")(e)),
        }
    }
}
