//! The first process of a command of `wrap` ([`super::leader`] says why). It stands behind the same walls as the command, which
//! is its child, and executes nothing: it passes signals on, reaps, and ends as the command ends.
//!
//! It is no way out. Its memory was the runtime's, so it is not dumpable: no process of the container may trace it or open its
//! memory, environment or descriptors (ptrace(2), "Ptrace access mode checking"). It keeps two descriptors of its own, neither
//! arguments nor environment, and of its capabilities at most the one to send signals to a command that has changed its user.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

use super::leader::{self, Addressee, Order, OrderPoll};
use super::{EnforceError, privileges, verify};
use crate::sys::memory::Code;
use crate::sys::{process, signal};

/// What a shell says of a program that SIGKILL has ended, and so of one whose `wrap` has gone.
const KILLED: i32 = 137;

/// Makes `program` a child of this process, which becomes its reaper. `program` executes the command, or answers the status of
/// one that could not be. Returns only the reason why nothing was begun.
pub fn become_reaper(channel: BorrowedFd<'_>, program: impl FnOnce() -> i32) -> EnforceError {
    match begin(channel, program) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

fn begin(
    channel: BorrowedFd<'_>,
    program: impl FnOnce() -> i32,
) -> Result<std::convert::Infallible, EnforceError> {
    let step = EnforceError::step;
    // With SIGCHLD ignored the kernel would reap, and nobody would learn the status (wait(2)).
    signal::reset();
    process::block_signals().map_err(step("block signals"))?;
    // Before there is a child: it cannot do without one of these.
    let signals = SignalFd::with_flags(
        &SigSet::all(),
        SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK,
    )
    .map_err(|error| step("read signals")(error.into()))?;
    let child = process::fork_into(|| {
        let begun = stand_in_front();
        begun.map_or(1, |()| program())
    })
    .map_err(step("make the command's process"))?;
    // Whichever of the two comes first; afterwards it cannot be done any more, and need not be.
    rustix::process::setpgid(Some(child), Some(child)).ok();
    // From here on an error has nobody to go to but the command, which ends with this process.
    let alone = withdraw(channel, &signals);
    // Their numbers belong to others now.
    std::mem::forget(signals);
    let fds = [0, 1].map(process::borrow_inherited);
    match (alone, fds) {
        (Ok(()), [Some(channel), Some(signals)]) => process::end(attend(channel, signals, child)),
        _ => process::end(KILLED),
    }
}

/// The command has a process group of its own, which is the one that the terminal reads for, if there is one. It stays in the
/// session of this process, so that ^Z can stop it: the kernel stops no orphaned group (setpgid(2)).
fn stand_in_front() -> Result<(), Errno> {
    rustix::process::setpgid(None, None)?;
    let input = rustix::stdio::stdin();
    if rustix::termios::isatty(input) {
        // SIGTTOU is blocked.
        rustix::termios::tcsetpgrp(input, rustix::process::getpid())?;
    }
    Ok(())
}

/// Gives up all that the first process does not need.
fn withdraw(channel: BorrowedFd<'_>, signals: &SignalFd) -> Result<(), EnforceError> {
    process::keep_only([channel, signals.as_fd()]).map_err(EnforceError::step("close"))?;
    process::forget_arguments().map_err(EnforceError::step("forget the arguments"))?;
    privileges::keep_kill()?;
    verify::hidden_from_tracers()?;
    // It sleeps from here on. Memory that is not given back is no fault of the walls.
    Code::find().and_then(|code| code.release()).ok();
    Ok(())
}

/// Until the command has ended; the status to end with.
fn attend(channel: BorrowedFd<'_>, signals: BorrowedFd<'_>, child: Pid) -> i32 {
    loop {
        let mut fds = [channel, signals].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return KILLED,
        }
        let [said, signalled] = fds.map(|fd| !fd.revents().is_empty());
        if said {
            match Order::receive(channel) {
                Ok(OrderPoll::Order(order)) => order.obey(child),
                Ok(OrderPoll::Nothing) => {}
                Ok(OrderPoll::End) | Err(_) => return KILLED,
            }
        }
        if signalled {
            pass_on(signals, child);
            if let Some(status) = reap(channel, child) {
                return status;
            }
        }
    }
}

impl Order {
    fn obey(self, child: Pid) {
        // It may have ended, and it may have become somebody whom this process cannot reach.
        match self.addressee {
            Addressee::Program => rustix::process::kill_process(child, self.signal),
            Addressee::Group => rustix::process::kill_process_group(child, self.signal),
        }
        .ok();
    }
}

/// Signals that others sent here, `agentbox kill` say, are the command's.
fn pass_on(signals: BorrowedFd<'_>, child: Pid) {
    const INFO: usize = size_of::<libc::signalfd_siginfo>();
    let mut info = [0; INFO];
    while let Ok(INFO) = rustix::io::read(signals, &mut info) {
        // `ssi_signo`, its first field (signalfd(2)).
        let number = info.first_chunk().map_or(0, |n| i32::from_ne_bytes(*n));
        let addressee = Addressee::Program;
        match signal::of(number) {
            None | Some(Signal::CHILD) => {}
            Some(signal) => Order { signal, addressee }.obey(child),
        }
    }
}

/// Takes up what has ended or stopped; the status of the command if it is among that.
fn reap(channel: BorrowedFd<'_>, child: Pid) -> Option<i32> {
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
    loop {
        let (pid, status) = match rustix::process::wait(options) {
            Ok(Some(changed)) => changed,
            Err(Errno::INTR) => continue,
            Ok(None) | Err(_) => return None,
        };
        if pid != child {
            continue;
        }
        if let Some(signal) = status.stopping_signal() {
            leader::say_stopped(channel, signal);
        }
        let by_signal = status.terminating_signal().map(|signal| {
            leader::say_ended(channel, signal);
            128 + signal
        });
        if let Some(end) = status.exit_status().or(by_signal) {
            return Some(end);
        }
    }
}
