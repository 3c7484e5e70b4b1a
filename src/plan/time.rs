//! PURE. The time limit of a container.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::policy::{Grace, Lifetime, ResolvedPolicy, SleepRule, Time, TimeLimit};

/// When a container ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimePlan {
    /// From `create` to SIGTERM.
    pub wall: Lifetime,
    /// From SIGTERM to SIGKILL.
    pub grace: Grace,
    /// Whether the time in which the machine is suspended counts.
    pub sleep: SleepRule,
    /// The shortest limit of the ceilings: `agentbox extend` gives no more in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<Lifetime>,
}

impl TimePlan {
    /// The limit of this policy; `None` if it has none.
    pub fn of(resolved: &ResolvedPolicy) -> Option<Self> {
        let Time { wall, grace, sleep } = resolved.policy.time;
        let ceilings = resolved.limits.iter().map(|ceiling| ceiling.time.wall);
        Some(Self {
            wall: wall.lifetime()?,
            grace,
            sleep,
            most: ceilings.min().and_then(TimeLimit::lifetime),
        })
    }
}

/// Why a container was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndCause {
    /// Its time was over.
    Wall,
    /// A process that keeps its time was killed.
    TimekeeperLost,
}

impl EndCause {
    /// All causes.
    pub const ALL: [Self; 2] = [Self::Wall, Self::TimekeeperLost];

    /// The cause as one byte of a file.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Wall => b'w',
            Self::TimekeeperLost => b'k',
        }
    }

    /// The field that ended it.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Wall | Self::TimekeeperLost => "time.wall",
        }
    }
}

impl fmt::Display for EndCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wall => "its time was over (time.wall)",
            Self::TimekeeperLost => "the process that keeps its time was killed (time.wall)",
        })
    }
}

/// The state of a container's clock, as its file has it. The runtime writes the deadline, a timekeeper the cause.
///
/// ```text
/// 00000000000000123456\n   milliseconds of the plan's clock
/// -\n                      running, or the byte of the cause
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockState {
    /// When SIGTERM is due, in milliseconds of the plan's clock.
    pub deadline: u64,
    /// Why it was ended, if it was.
    pub cause: Option<EndCause>,
}

impl ClockState {
    /// The bytes of the file.
    pub const LENGTH: usize = Self::CAUSE_AT + 2;
    /// Where the cause is.
    pub const CAUSE_AT: usize = Self::DIGITS + 1;
    /// The byte of a container that was not ended.
    pub const RUNNING: u8 = b'-';
    /// Every `u64` fits.
    const DIGITS: usize = 20;

    /// The deadline as the file has it, at its beginning.
    pub fn deadline_text(deadline: u64) -> String {
        format!("{deadline:0width$}", width = Self::DIGITS)
    }

    /// The file's content.
    pub fn to_text(self) -> String {
        let cause = self.cause.map_or(Self::RUNNING, EndCause::byte);
        format!(
            "{}\n{}\n",
            Self::deadline_text(self.deadline),
            char::from(cause)
        )
    }

    /// Reads the file's content; `None` if it is no such file's.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text: &[u8; Self::LENGTH] = text.try_into().ok()?;
        let (digits, rest) = text.split_at(Self::DIGITS);
        let digits = std::str::from_utf8(digits).ok()?;
        let digits = digits
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then_some(digits)?;
        let cause = match rest {
            [b'\n', Self::RUNNING, b'\n'] => None,
            [b'\n', byte, b'\n'] => {
                Some(EndCause::ALL.into_iter().find(|one| one.byte() == *byte)?)
            }
            _ => return None,
        };
        Some(Self {
            deadline: digits.parse().ok()?,
            cause,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_read_as_it_was_written() {
        let causes = EndCause::ALL.map(Some).into_iter().chain([None]);
        for (cause, deadline) in causes.zip([0, 123_456, u64::MAX]) {
            let state = ClockState { deadline, cause };
            let text = state.to_text();
            assert_eq!(ClockState::parse(text.as_bytes()), Some(state));
        }
        let good = ClockState {
            deadline: 7,
            cause: None,
        }
        .to_text();
        for bad in [
            String::new(),
            good.replace('-', "x"),
            good.replace('7', "+"),
            good.replace('\n', " "),
            format!("{good}\n"),
            "99999999999999999999\n-\n".to_owned(),
        ] {
            assert_eq!(ClockState::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
