//! How a child in the foreground ended.
//!
//! At ^C a shell ends its own loop if the program that it waits for ended by SIGINT. If the program exits with 130 it
//! has handled ^C, and the loop goes on (bash(1), "SIGNALS").

use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::unistd::Pid;

/// The end of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildExit {
    /// Its status as a shell shows it: 128 + n for signal n.
    pub code: i32,
    /// SIGINT ended it.
    is_interrupted: bool,
}

impl ChildExit {
    /// It exited.
    pub fn with(code: i32) -> Self {
        Self {
            code,
            is_interrupted: false,
        }
    }

    /// A signal ended it.
    pub fn by(signal: i32) -> Self {
        Self {
            code: 128 + signal,
            is_interrupted: signal == Signal::SIGINT as i32,
        }
    }

    /// If SIGINT ended the child, ends this process the same way. Otherwise, or if SIGINT is ignored, returns the exit
    /// status.
    pub fn follow(self) -> i32 {
        if self.is_interrupted {
            let mut one = SigSet::empty();
            one.add(Signal::SIGINT);
            let open = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&one), None);
            if let Err(error) = open.and_then(|()| kill(Pid::this(), Signal::SIGINT)) {
                log::debug!("end by SIGINT: {error}");
            }
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_alone_is_no_interrupt() {
        assert_eq!(ChildExit::by(2).code, 130);
        assert_ne!(ChildExit::by(2), ChildExit::with(130));
        assert_eq!(ChildExit::by(15), ChildExit::with(143));
    }
}
