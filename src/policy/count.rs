//! Counts: connections, hosts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::text::ValueError;

/// The most that can be asked for.
const MOST: u32 = 1_000_000;

/// A whole number from 1 to 1,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "WrittenCount", into = "u32")]
pub struct Count(u32);

impl Count {
    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    fn new(number: u32) -> Option<Self> {
        (1..=MOST).contains(&number).then_some(Self(number))
    }
}

/// In a file it is a number.
#[derive(Deserialize)]
#[serde(transparent)]
struct WrittenCount(u32);

impl TryFrom<WrittenCount> for Count {
    type Error = ValueError;

    fn try_from(WrittenCount(number): WrittenCount) -> Result<Self, ValueError> {
        Self::new(number).ok_or_else(|| bad(&number.to_string()))
    }
}

impl From<Count> for u32 {
    fn from(count: Count) -> Self {
        count.0
    }
}

fn bad(value: &str) -> ValueError {
    ValueError::grammar(value, "a whole number from 1 to 1000000")
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Count {
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        let plain = value.bytes().all(|b| b.is_ascii_digit()) && !value.starts_with('0');
        value
            .parse()
            .ok()
            .filter(|_| plain)
            .and_then(Self::new)
            .ok_or_else(|| bad(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_plain_numbers_in_range() {
        assert_eq!("1".parse::<Count>().unwrap().get(), 1);
        assert_eq!("1000000".parse::<Count>().unwrap().to_string(), "1000000");
        for bad in [
            "",
            "0",
            "01",
            "+1",
            "-1",
            "1 ",
            "1e3",
            "1000001",
            "99999999999",
        ] {
            assert!(bad.parse::<Count>().is_err(), "{bad:?}");
        }
    }
}
