//! The init process in front of a command of `wrap` ([`super::leader`] says why). It is behind the same walls as the
//! command, its child, and executes nothing. It passes signals on, reaps, and ends when the command ends.
//!
//! It is no way out. Its memory was the runtime's, so it is not dumpable: no process of the container may trace it or
//! open its memory, environment or descriptors (ptrace(2), "Ptrace access mode checking"). It keeps two descriptors, no
//! arguments and no environment. Of its capabilities it keeps at most the one to signal a command that has changed its
//! user.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

use super::error::EnforceError;
use super::leader::{self, Addressee, Order, OrderPoll};
use super::{privileges, verify};
use crate::sys::memory::Code;
use crate::sys::{process, signal};

/// A shell's status for a program that SIGKILL has ended; also used when `wrap` has gone.
const KILLED: i32 = 137;

/// Makes `program` a child of this process, which becomes its reaper. `program` executes the command, or returns its
/// exit status if that fails. Returns only an error, before the command has begun.
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
    // If SIGCHLD were ignored, the kernel would reap and the status would be lost (wait(2)).
    signal::reset();
    process::block_signals().map_err(step("block signals"))?;
    // Before there is a child, which needs it.
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
    // Parent and child both do this; the first one counts. Once the child has executed the command, it fails
    // harmlessly.
    rustix::process::setpgid(Some(child), Some(child)).ok();
    // From here on errors cannot be reported; the command ends with this process.
    let alone = withdraw(channel, &signals);
    // Their numbers are reused.
    std::mem::forget(signals);
    let fds = [0, 1].map(process::borrow_inherited);
    match (alone, fds) {
        (Ok(()), [Some(channel), Some(signals)]) => process::end(attend(channel, signals, child)),
        _ => process::end(KILLED),
    }
}

/// Gives the command its own process group and makes it the terminal's foreground group, if there is a terminal. It
/// stays in this process's session, so that ^Z can stop it: the kernel stops no orphaned group (setpgid(2)).
fn stand_in_front() -> Result<(), Errno> {
    rustix::process::setpgid(None, None)?;
    let input = rustix::stdio::stdin();
    if rustix::termios::isatty(input) {
        // SIGTTOU is blocked.
        rustix::termios::tcsetpgrp(input, rustix::process::getpid())?;
    }
    Ok(())
}

/// Drops everything that the init process does not need.
fn withdraw(channel: BorrowedFd<'_>, signals: &SignalFd) -> Result<(), EnforceError> {
    process::keep_only([channel, signals.as_fd()]).map_err(EnforceError::step("close"))?;
    process::forget_arguments().map_err(EnforceError::step("forget the arguments"))?;
    privileges::keep_kill()?;
    verify::hidden_from_tracers()?;
    // It mostly sleeps from here on. Memory that cannot be given back is harmless.
    Code::find().and_then(|code| code.release()).ok();
    Ok(())
}

/// Runs until the command has ended; returns the status to exit with.
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
        // It may have ended, or have become a user that this process may not signal.
        match self.addressee {
            Addressee::Program => rustix::process::kill_process(child, self.signal),
            Addressee::Group => rustix::process::kill_process_group(child, self.signal),
        }
        .ok();
    }
}

/// Passes on signals that others sent here, such as `agentbox kill`.
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

/// Reaps ended children, and notes stops; returns the command's status if it has ended.
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
