//! The command of `wrap` as a job of the user's shell. It is the child of our own init process
//! ([`crate::enforce::leader`]), which sends it signals and reports when it has stopped. Then `wrap` stops too. When
//! the shell continues `wrap`, the command continues.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::unistd::Pid;

use crate::enforce::leader::{self, Addressee, Leader, Order, ProgramNotice};
use crate::runtime::RuntimeError;
use crate::sys::signal;

/// `si_code` of a signal from the kernel itself (sigaction(2)): a key was typed, or the terminal has gone.
pub const BY_THE_KERNEL: i32 = 0x80;

/// The channel to the init process.
pub struct Job {
    channel: OwnedFd,
    /// The init process may still send news. Poll only then: a closed side is always ready.
    open: bool,
    /// A stop was sent to `wrap` alone: its group has it already, or is not meant to get it.
    asked_alone: bool,
    /// The signal that has ended the command.
    ended_by: Option<Signal>,
}

impl Job {
    /// The init process's side and ours.
    pub fn new() -> Result<(Leader, Self), RuntimeError> {
        let (theirs, channel) =
            leader::pair().map_err(RuntimeError::io("make a socket for the first process"))?;
        let job = Self {
            channel,
            open: true,
            asked_alone: false,
            ended_by: None,
        };
        Ok((Leader::Reaper(theirs), job))
    }

    /// What to poll for a stop of the command. `None` once the init process has closed its side: unmounting then takes
    /// a while.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.open.then(|| self.channel.as_fd())
    }

    /// Passes on a signal that came with this `si_code`. A signal typed at the terminal goes to the whole group, as it
    /// did to the group of `wrap`.
    pub fn pass(&mut self, number: i32, code: i32) {
        self.asked_alone |= number == Signal::SIGTSTP as i32;
        let addressee = match code {
            BY_THE_KERNEL => Addressee::Group,
            _ => Addressee::Program,
        };
        if let Some(signal) = signal::of(number) {
            self.order(Order { signal, addressee });
        }
    }

    /// The signal that has stopped the command, if any.
    pub fn stopped(&mut self) -> Option<Signal> {
        let known = |signal: rustix::process::Signal| Signal::try_from(signal.as_raw()).ok();
        match leader::news(&self.channel)? {
            ProgramNotice::Stopped(signal) => return known(signal),
            ProgramNotice::Ended(signal) => self.ended_by = known(signal),
            ProgramNotice::Closed => self.open = false,
        }
        None
    }

    /// The signal that has ended the command, if any. Call this when the init process has ended.
    pub fn ended_by(&mut self) -> Option<Signal> {
        // The last news counts; earlier stops mean nothing now.
        while self.ended_by.is_none() && self.stopped().is_some() {}
        self.ended_by
    }

    /// Stops this process as the command was stopped, until it is continued. In a group without a shell (setpgid(2))
    /// nothing could continue it, so the kernel does not stop it, and the command goes on at once, as without `wrap`.
    pub fn stop(&mut self, signal: Signal) {
        // A typed stop reaches the whole foreground group: a pipeline, or a script with its children.
        let typed = signal == Signal::SIGTSTP && !std::mem::take(&mut self.asked_alone);
        let whom = if typed { Pid::from_raw(0) } else { Pid::this() };
        let mut one = SigSet::empty();
        one.add(signal);
        let set = |how| sigprocmask(how, Some(&one), None);
        let stopped = kill(whom, signal).and_then(|()| set(SigmaskHow::SIG_UNBLOCK));
        if let Err(error) = stopped.and_then(|()| set(SigmaskHow::SIG_BLOCK)) {
            log::debug!("stop: {error}");
        }
    }

    /// Continues the command.
    pub fn go_on(&self) {
        self.order(Order {
            signal: rustix::process::Signal::CONT,
            addressee: Addressee::Group,
        });
    }

    fn order(&self, order: Order) {
        // A command that has ended needs no signal.
        if let Err(error) = order.send(self.channel.as_fd()) {
            log::debug!("pass on a signal: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_init_process_is_not_polled_again() {
        let (leader, mut job) = Job::new().unwrap();
        assert!(job.fd().is_some());
        drop(leader);
        assert_eq!(job.stopped(), None);
        assert!(job.fd().is_none());
        assert_eq!(job.ended_by(), None);
    }
}
