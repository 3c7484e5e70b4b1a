//! Why a connection that waited for an approval is refused.

use serde::{Deserialize, Serialize};

use super::expiry::EndDate;

/// The word under which refusals by the end of an approval are counted.
pub const APPROVAL_EXPIRED: &str = "approval-expired";

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
            Self::Expired(..) => APPROVAL_EXPIRED,
            Self::Refused => "denied-by-a-person",
            Self::TooMany(_) => "too-many-waiting",
        }
    }
}
