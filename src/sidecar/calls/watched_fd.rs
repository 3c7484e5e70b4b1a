//! The descriptors that a sidecar watches to answer denied calls.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use super::container::Container;
use super::processes::LoggedProcess;

/// A watched descriptor, and its state.
#[derive(Debug)]
pub(super) enum WatchedFd {
    /// The runtime has connected but not greeted; it has until then.
    Visitor(OwnedFd, Instant),
    /// It has greeted: the next message is this container's listener. Init's line waits as long as its `start` takes.
    Greeted(OwnedFd, Rc<Container>, Option<Instant>),
    /// Denied calls of this container.
    Listener(OwnedFd, Rc<Container>),
    /// Its listener has come; the runtime may still name the process.
    Unnamed(OwnedFd, Instant),
    /// A process of `exec`, whose end is logged.
    Process(LoggedProcess),
}

impl WatchedFd {
    /// Whether its time is over.
    pub fn is_late(&self, now: Instant) -> bool {
        match self {
            WatchedFd::Visitor(_, until)
            | WatchedFd::Greeted(_, _, Some(until))
            | WatchedFd::Unnamed(_, until) => *until <= now,
            WatchedFd::Greeted(_, _, None) | WatchedFd::Listener(..) | WatchedFd::Process(_) => {
                false
            }
        }
    }

    /// Whether it may still become a listener.
    pub fn is_visitor(&self) -> bool {
        matches!(self, WatchedFd::Visitor(..) | WatchedFd::Greeted(..))
    }

    pub fn is_listener(&self) -> bool {
        matches!(self, WatchedFd::Listener(..))
    }

    pub fn is_process(&self) -> bool {
        matches!(self, WatchedFd::Process(_))
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            WatchedFd::Visitor(fd, _)
            | WatchedFd::Greeted(fd, ..)
            | WatchedFd::Listener(fd, _)
            | WatchedFd::Unnamed(fd, _) => fd.as_fd(),
            WatchedFd::Process(process) => process.as_fd(),
        }
    }
}
