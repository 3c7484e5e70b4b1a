//! Why a connection that waited for an approval is refused.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Denial, EndDate};

/// Why a connection that waited is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AskRefusal {
    /// No decision within this many seconds.
    TimedOut(u32),
    /// The same, after an approval that has expired.
    Expired(u32, EndDate),
    /// The operator denied it.
    Refused,
    /// This many connections wait already.
    TooMany(usize),
}

impl AskRefusal {
    /// The word under which it is counted.
    pub fn kind(self) -> &'static str {
        match self {
            Self::TimedOut(_) => "not-approved-in-time",
            Self::Expired(..) => "approval-expired",
            Self::Refused => "denied-by-a-person",
            Self::TooMany(_) => "too-many-waiting",
        }
    }
}

impl fmt::Display for AskRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NOT_LISTED: Denial = Denial::NotListed;
        match self {
            Self::TimedOut(seconds) => write!(
                f,
                "{NOT_LISTED}, and it was not approved within {seconds} s"
            ),
            Self::Expired(seconds, end) => write!(
                f,
                "its approval expired at {end}, and it was not approved again within {seconds} s"
            ),
            Self::Refused => f.write_str("the operator denied it (agentbox deny)"),
            Self::TooMany(most) => write!(
                f,
                "{NOT_LISTED}, and {most} connections wait for approval already"
            ),
        }
    }
}
