//! The loop of a sidecar that does not serve the network.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::audit::Event;
use crate::sidecar::attach::OwnLog;
use crate::sidecar::calls::Calls;
use crate::sidecar::counts::{HeardAttempts, KernelCounts};
use crate::sidecar::error::SidecarError;
use crate::sidecar::first_listener;
use crate::sidecar::journal::Journal;
use crate::sidecar::protocol::InitQuestion;
use crate::sidecar::watched::WatchedMount;

/// The loop of a sidecar without a proxy: poll, recvmsg, sendmsg, close, and the answers to denied calls.
pub(super) struct IdleLoop<A> {
    pub init: OwnedFd,
    /// Both are dropped after the one answer, or when no process can ask any more.
    pub pending: Option<(OwnedFd, A)>,
    /// Mounts without a write so far.
    pub watched: Vec<WatchedMount>,
    /// The kernel's counters.
    pub counts: KernelCounts,
    pub calls: Option<Calls>,
    pub log: Option<IdleLog>,
}

/// The log of a sidecar without a proxy.
pub(super) struct IdleLog {
    journal: Rc<RefCell<Journal>>,
    began: Instant,
}

impl IdleLog {
    /// A log that receives denied calls from now on.
    pub fn of(log: OwnLog, calls: Option<&Calls>) -> Self {
        let tool = log.context.tool();
        let journal = Journal::new(log.file, log.context).showing(log.inside);
        let (journal, began) = (Rc::new(RefCell::new(journal)), Instant::now());
        if let Some(calls) = calls {
            let journal = Rc::clone(&journal);
            calls.log_to(
                tool,
                Rc::new(move |event| {
                    journal.borrow_mut().write(event, milliseconds(began));
                }),
            );
        }
        Self { journal, began }
    }

    /// The time until the next waiting line.
    fn due(&self) -> Option<Duration> {
        let due = self.journal.borrow().due_ms()?;
        let left = due.saturating_sub(milliseconds(self.began));
        Some(Duration::from_millis(left))
    }

    fn write(&self, event: Event) {
        self.journal
            .borrow_mut()
            .write(event, milliseconds(self.began));
    }

    fn flush(&self) {
        self.journal.borrow_mut().flush(milliseconds(self.began));
    }
}

fn milliseconds(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The descriptors that became readable.
struct ReadySources {
    /// Init has ended.
    ended: bool,
    /// The hand-over socket is readable.
    asked: bool,
    /// Denied calls wait, or processes with listeners.
    called: bool,
    /// Indexes in [`IdleLoop::watched`].
    written: Vec<usize>,
}

impl<A: FnOnce(&OwnedFd) -> InitQuestion> IdleLoop<A> {
    /// Runs until init ends.
    pub fn run(mut self) -> Result<(), SidecarError> {
        loop {
            let ReadySources {
                ended,
                asked,
                called,
                written,
            } = self.wait()?;
            self.note(written);
            if let Some(calls) = self.calls.as_mut().filter(|_| called) {
                calls
                    .turn()
                    .map_err(SidecarError::step("answer denied calls"))?;
            }
            // `asked` is only true while a process may ask.
            if let Some((socket, answer)) = self.pending.take_if(|_| asked) {
                let question = answer(&socket);
                first_listener::expect(self.calls.as_mut(), socket, question)?;
            }
            if let Some(log) = &self.log {
                let events = match ended {
                    true => self.counts.rest(HeardAttempts::default),
                    false => self.counts.look(Instant::now(), HeardAttempts::default),
                };
                events.into_iter().for_each(|event| log.write(event));
            }
            self.log.iter().for_each(IdleLog::flush);
            if ended {
                self.calls.iter_mut().for_each(Calls::settle);
                self.log
                    .iter()
                    .for_each(|log| log.journal.borrow_mut().close());
                return Ok(());
            }
        }
    }

    /// Logs each mount once, and stops watching it.
    fn note(&mut self, written: Vec<usize>) {
        // From the end, so that the other indexes stay valid.
        for index in written.into_iter().rev() {
            let event = self.watched.remove(index).written();
            self.log.iter().for_each(|log| log.write(event.clone()));
        }
    }

    /// The time until the next waiting line, or until the next look at the counters.
    fn due(&self, log: &IdleLog) -> Option<Timespec> {
        let look = self.counts.next_look();
        let look = look.map(|at| at.saturating_duration_since(Instant::now()));
        let first = log.due().into_iter().chain(look).min()?;
        Timespec::try_from(first).ok()
    }

    fn wait(&self) -> Result<ReadySources, SidecarError> {
        let asking = self.pending.as_ref().map(|(socket, _)| socket.as_fd());
        let calls = self.calls.as_ref().map(Calls::as_fd);
        let init = self.init.as_fd();
        let always = [init, asking.unwrap_or(init), calls.unwrap_or(init)];
        let mounts = self.watched.iter().map(AsFd::as_fd);
        let mut fds: Vec<PollFd<'_>> = always
            .into_iter()
            .chain(mounts)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let due = self.log.as_ref().and_then(|log| self.due(log));
        rustix::io::retry_on_intr(|| poll(&mut fds, due.as_ref()))
            .map_err(SidecarError::step("wait"))?;
        let is_ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let (always, mounts) = is_ready.split_at(always.len());
        let written = mounts.iter().enumerate().filter(|(_, ready)| **ready);
        Ok(ReadySources {
            ended: always[0],
            asked: asking.is_some() && always[1],
            called: calls.is_some() && always[2],
            written: written.map(|(index, _)| index).collect(),
        })
    }
}
