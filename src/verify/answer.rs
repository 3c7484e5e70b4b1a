//! PURE. What the errno of an attempt means. This is the one place that tells a wall's answer from anything else: a probe lists the errnos
//! with which its wall answers, and no other errno counts as held.

use std::io;

use rustix::io::Errno;

use super::probe::{Finding, Outcome};

/// Errnos that say what the process lacks, and nothing of a wall: a neighbour of the same user lowers these limits by prlimit(2).
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

/// The errnos with which a standing wall answers a probe.
#[derive(Debug, Clone, Copy)]
pub struct Answers {
    held: &'static [Errno],
    other: Outcome,
}

impl Answers {
    /// With any other errno the attempt failed for a reason of its own: it was not tried.
    ///
    /// # Panics
    /// When the program is compiled, if a limit's errno is in the list.
    pub const fn or_not_tried(held: &'static [Errno]) -> Self {
        Self::new(held, Outcome::NotTried)
    }

    /// With any other errno the kernel itself has answered, and the wall has let the call through. That is so of a filter, which answers
    /// before the kernel looks for memory or a free descriptor (seccomp(2)).
    ///
    /// # Panics
    /// When the program is compiled, if a limit's errno is in the list.
    pub const fn or_not_held(held: &'static [Errno]) -> Self {
        Self::new(held, Outcome::NotHeld)
    }

    const fn new(held: &'static [Errno], other: Outcome) -> Self {
        assert!(!names_a_limit(held), "a limit's errno is no wall's answer");
        Self { held, other }
    }

    /// What this errno means.
    pub fn outcome(&self, errno: Errno) -> Outcome {
        match self.held.contains(&errno) {
            true => Outcome::Held,
            false => self.other,
        }
    }

    /// Likewise, as a finding about `what`.
    pub fn finding(&self, what: &str, errno: Errno) -> Finding {
        Finding {
            outcome: self.outcome(errno),
            saw: format!("{what}: {errno}"),
        }
    }

    /// Likewise of the standard library's error, which has no errno where the library itself gave up: that was not tried.
    pub fn of_error(&self, what: &str, error: &io::Error) -> Finding {
        match Errno::from_io_error(error) {
            Some(errno) => self.finding(what, errno),
            None => Finding::not_tried(format!("{what}: {error}")),
        }
    }
}

/// A loop, since it runs in the compiler.
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
    fn what_a_neighbour_can_bring_about_by_a_limit_is_never_held() {
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
