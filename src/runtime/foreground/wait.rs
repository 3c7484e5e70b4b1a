//! Waiting for a child in the foreground: its exit status, signals passed on, its terminal relayed.
//!
//! A pidfd, opened before the child could be reaped, watches the child, so that the end of a very short program is
//! never lost (youki's `run` loses it: SIGCHLD before it is blocked).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags};

use crate::runtime::RuntimeError;
use crate::runtime::foreground::notify::ReadinessRelay;
use crate::runtime::foreground::relay;
use crate::runtime::foreground::tty;

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

/// What a signal does that the first process of a pid namespace neither handles nor ignores. To every other process
/// most are deadly; to this one they do nothing (pid_namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDefault {
    /// Nothing, as with every container.
    Ignore,
    /// It ends the process, so that a command ends as it would without a pid namespace.
    End,
}

/// A child in the foreground.
pub struct Foreground {
    /// Passes on what it says to systemd.
    pub notify: Option<ReadinessRelay>,
    /// Pipes in place of the caller's terminal.
    pub relay: Option<relay::Relay>,
    /// What signals do that it leaves to the kernel.
    pub on_default: OnDefault,
    ended_by: Option<Signal>,
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
            notify: None,
            relay: None,
            on_default: OnDefault::Ignore,
            ended_by: None,
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
        if let Some(master) = terminal.as_ref().filter(|_| output) {
            drain(master);
        }
        if let Some(relay) = &mut self.relay {
            relay.drain();
        }
        drop(raw);
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.before), None)
            .map_err(RuntimeError::io("restore the signal mask"))?;
        let status = status(self.pid)?;
        Ok(self.ended_by.map_or(status, |signal| 128 + signal as i32))
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
        let piped = fds.len();
        let waits = self.relay.iter().flat_map(relay::Relay::waits);
        fds.extend(waits.map(|(fd, what)| PollFd::from_borrowed_fd(fd, what)));
        // Last, because it comes and goes.
        let relayed = fds.len();
        if let Some(relay) = &self.notify {
            fds.push(PollFd::from_borrowed_fd(relay.fd(), PollFlags::IN));
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
                *input = self.type_in(stdin, master)?;
            }
        }
        if let Some(relay) = &mut self.relay {
            relay.pump(&ready[piped..relayed]);
        }
        if ready.get(relayed) == Some(&true) {
            // The caller supervises this process, so it must live as long as the container.
            let own = i32::try_from(std::process::id()).unwrap_or_default();
            self.notify = self.notify.take().filter(|relay| !relay.pump(own));
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
                (Some(signal), _) if !KEPT.contains(&signal) => self.pass(signal)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn pass(&mut self, signal: Signal) -> Result<(), RuntimeError> {
        self.end_by_default(signal)?;
        self.kill(signal)
    }

    fn kill(&self, signal: Signal) -> Result<(), RuntimeError> {
        match nix::sys::signal::kill(self.pid, signal) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(e) => Err(RuntimeError::io("pass on a signal")(e)),
        }
    }

    /// Ends the process where the kernel would end any other.
    fn end_by_default(&mut self, signal: Signal) -> Result<(), RuntimeError> {
        if self.on_default == OnDefault::End && is_deadly(signal) && is_default(self.pid, signal) {
            self.ended_by = Some(signal);
            self.kill(Signal::SIGKILL)?;
        }
        Ok(())
    }

    /// Moves what was typed to the container's terminal. `false` at the end.
    fn type_in(&mut self, stdin: BorrowedFd<'_>, master: &OwnedFd) -> Result<bool, RuntimeError> {
        let mut typed = Vec::new();
        let open = tty::copy_seen(stdin, master.as_fd(), &mut typed);
        for signal in tty::signals_of(master.as_fd(), &typed, self.pid) {
            self.end_by_default(signal)?;
        }
        Ok(open)
    }
}

/// What the program wrote before it ended and nobody has read yet.
fn drain(master: &OwnedFd) {
    let mut open = true;
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

/// Signals whose default is to end the process (signal(7)), of those that are passed on.
fn is_deadly(signal: Signal) -> bool {
    !matches!(
        signal,
        Signal::SIGCHLD
            | Signal::SIGURG
            | Signal::SIGWINCH
            | Signal::SIGCONT
            | Signal::SIGSTOP
            | Signal::SIGTSTP
            | Signal::SIGTTIN
            | Signal::SIGTTOU
    )
}

/// Whether a process neither handles nor ignores a signal (proc_pid_status(5), SigCgt and SigIgn).
fn is_default(pid: Pid, signal: Signal) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name));
        line.and_then(|l| u64::from_str_radix(l.trim(), 16).ok())
    };
    let bit = 1 << (signal as u64 - 1);
    match (mask("SigCgt:"), mask("SigIgn:")) {
        (Some(caught), Some(ignored)) => (caught | ignored) & bit == 0,
        // It has ended.
        _ => false,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_leaves_to_the_kernel_is_in_proc() {
        let own = Pid::this();
        // The Rust runtime ignores it.
        assert!(!is_default(own, Signal::SIGPIPE));
        assert!(is_default(own, Signal::SIGUSR2));
        assert!(is_deadly(Signal::SIGTERM) && !is_deadly(Signal::SIGCONT));
    }
}
