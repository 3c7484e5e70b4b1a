//! PURE. The meaning of an attempt's errno. Only this module tells a wall's answer from any other: a probe lists the
//! errnos of its wall, and no other errno counts as held.

use std::io;

use rustix::io::Errno;

use super::probe::{Finding, Outcome};

/// Errnos of exhausted limits, which prove no wall: a process of the same user may lower these limits by prlimit(2).
const EXHAUSTED: [Errno; 11] = [
    Errno::MFILE,
    Errno::NFILE,
    Errno::NOMEM,
    Errno::AGAIN,
    Errno::NOBUFS,
    Errno::NOSPC,
    Errno::DQUOT,
    Errno::USERS,
    Errno::INTR,
    Errno::BUSY,
    Errno::TIMEDOUT,
];

/// The errnos with which a wall answers a probe.
#[derive(Debug, Clone, Copy)]
pub struct Answers {
    held: &'static [Errno],
    other: Outcome,
}

impl Answers {
    /// With any other errno the attempt failed for another reason: not tried.
    ///
    /// # Panics
    /// At compile time, if the list has a limit's errno.
    pub const fn or_not_tried(held: &'static [Errno]) -> Self {
        Self::new(held, Outcome::NotTried)
    }

    /// With any other errno the kernel itself has answered, so the wall has let the call through: not held. That is
    /// true of a filter, which answers before the kernel needs memory or a free descriptor (seccomp(2)).
    ///
    /// # Panics
    /// At compile time, if the list has a limit's errno.
    pub const fn or_not_held(held: &'static [Errno]) -> Self {
        Self::new(held, Outcome::NotHeld)
    }

    const fn new(held: &'static [Errno], other: Outcome) -> Self {
        assert!(!names_a_limit(held), "a limit's errno is no wall's answer");
        Self { held, other }
    }

    /// The meaning of this errno.
    pub fn outcome(&self, errno: Errno) -> Outcome {
        match self.held.contains(&errno) {
            true => Outcome::Held,
            false => self.other,
        }
    }

    /// The same, as a finding about `what`.
    pub fn finding(&self, what: &str, errno: Errno) -> Finding {
        Finding {
            outcome: self.outcome(errno),
            saw: format!("{what}: {errno}"),
        }
    }

    /// The same for an error of the standard library. Without an errno the library itself gave up: not tried.
    pub fn of_error(&self, what: &str, error: &io::Error) -> Finding {
        match Errno::from_io_error(error) {
            Some(errno) => self.finding(what, errno),
            None => Finding::not_tried(format!("{what}: {error}")),
        }
    }
}

/// A loop, because it runs at compile time.
const fn names_a_limit(held: &[Errno]) -> bool {
    let mut at = 0;
    while at < held.len() {
        let mut limit = 0;
        while limit < EXHAUSTED.len() {
            if held[at].raw_os_error() == EXHAUSTED[limit].raw_os_error() {
                return true;
            }
            limit += 1;
        }
        at += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_of_a_lowered_limit_is_never_held() {
        let files = Answers::or_not_tried(&[Errno::NOENT, Errno::ACCESS]);
        let filter = Answers::or_not_held(&[Errno::PERM]);
        for errno in EXHAUSTED {
            assert_eq!(files.outcome(errno), Outcome::NotTried, "{errno:?}");
            assert_eq!(filter.outcome(errno), Outcome::NotHeld, "{errno:?}");
            assert!(names_a_limit(&[Errno::PERM, errno]));
        }
        assert!(!names_a_limit(&[Errno::PERM, Errno::NOENT]));
        assert_eq!(files.outcome(Errno::ACCESS), Outcome::Held);
        assert_eq!(filter.outcome(Errno::PERM), Outcome::Held);
    }

    #[test]
    fn an_error_without_an_errno_was_not_tried() {
        let answers = Answers::or_not_tried(&[Errno::CONNREFUSED]);
        let refused = io::Error::from(Errno::CONNREFUSED);
        assert_eq!(answers.of_error("x", &refused).outcome, Outcome::Held);
        let gave_up = io::Error::from(io::ErrorKind::TimedOut);
        assert_eq!(answers.of_error("x", &gave_up).outcome, Outcome::NotTried);
    }
}
