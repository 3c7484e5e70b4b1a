//! The command of `wrap` as a job of the person's shell. It is the child of a first process of ours
//! ([`crate::enforce::leader`]), which is asked for signals, and says when the command has stopped: then `wrap` stops too,
//! and when the shell lets it go on, the command goes on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::unistd::Pid;

use crate::enforce::leader::{self, Addressee, Leader, News, Order};
use crate::runtime::RuntimeError;
use crate::sys::signal;

/// `si_code` of a signal that the kernel itself sent (sigaction(2)): somebody typed it, or the terminal has gone.
pub const BY_THE_KERNEL: i32 = 0x80;

/// The way to the first process.
pub struct Job {
    channel: OwnedFd,
    /// The first process may still say something: a side that was closed is always ready.
    open: bool,
    /// A stop that came to `wrap` alone: its group has it already, or was not meant.
    asked_alone: bool,
    /// The signal that has ended the command.
    ended_by: Option<Signal>,
}

impl Job {
    /// The first process's side and ours.
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

    /// What to poll: it says that the command has stopped. Nothing once the first process has ended, which takes a while with all that
    /// was mounted.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.open.then(|| self.channel.as_fd())
    }

    /// Passes a signal on that came with this `si_code`. One that was typed at the terminal is for the whole group, as it was for
    /// the group of `wrap`.
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

    /// What has stopped the command, if it has.
    pub fn stopped(&mut self) -> Option<Signal> {
        let known = |signal: rustix::process::Signal| Signal::try_from(signal.as_raw()).ok();
        match leader::news(&self.channel)? {
            News::Stopped(signal) => return known(signal),
            News::Ended(signal) => self.ended_by = known(signal),
            News::Closed => self.open = false,
        }
        None
    }

    /// The signal that has ended the command, if one has. To be called when the first process has ended.
    pub fn ended_by(&mut self) -> Option<Signal> {
        // The last news; what stopped it before means nothing now.
        while self.ended_by.is_none() && self.stopped().is_some() {}
        self.ended_by
    }

    /// Stops this process as the command was stopped, and lets the command go on when somebody lets this process go on. Where
    /// nobody could (a group without a shell, setpgid(2)) the kernel does not stop it, and the command goes on at once, as without
    /// `wrap`.
    pub fn stop(&mut self, signal: Signal) {
        // What is typed reaches everybody in the foreground: a pipeline, or a script with its children.
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

    /// Lets the command go on.
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
    fn a_first_process_that_has_ended_is_not_waited_for_again_and_again() {
        let (leader, mut job) = Job::new().unwrap();
        assert!(job.fd().is_some());
        drop(leader);
        assert_eq!(job.stopped(), None);
        assert!(job.fd().is_none());
        assert_eq!(job.ended_by(), None);
    }
}
