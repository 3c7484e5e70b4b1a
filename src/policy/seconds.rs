//! Times: how long a question waits, how long a pause lasts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::text::ValueError;

/// A whole number of seconds within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Seconds<const LEAST: u32, const MOST: u32>(u32);

/// How long a connection waits for a person: at most ten minutes.
pub type AskSeconds = Seconds<1, 600>;
/// How long nothing is allowed after a budget was used up: at most a day.
pub type CoolDown = Seconds<0, 86_400>;

impl<const LEAST: u32, const MOST: u32> Seconds<LEAST, MOST> {
    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

fn bad<const LEAST: u32, const MOST: u32>(value: &str) -> ValueError {
    ValueError::grammar(
        value,
        &format!("a whole number of seconds from {LEAST} to {MOST}"),
    )
}

impl<const LEAST: u32, const MOST: u32> TryFrom<u32> for Seconds<LEAST, MOST> {
    type Error = ValueError;

    fn try_from(number: u32) -> Result<Self, ValueError> {
        match (LEAST..=MOST).contains(&number) {
            true => Ok(Self(number)),
            false => Err(bad::<LEAST, MOST>(&number.to_string())),
        }
    }
}

impl<const LEAST: u32, const MOST: u32> From<Seconds<LEAST, MOST>> for u32 {
    fn from(seconds: Seconds<LEAST, MOST>) -> Self {
        seconds.0
    }
}

impl<const LEAST: u32, const MOST: u32> fmt::Display for Seconds<LEAST, MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const LEAST: u32, const MOST: u32> FromStr for Seconds<LEAST, MOST> {
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        let digits = value.bytes().all(|b| b.is_ascii_digit());
        let plain = digits && (value == "0" || !value.starts_with('0'));
        let number: Option<u32> = value.parse().ok().filter(|_| plain);
        number
            .and_then(|number| number.try_into().ok())
            .ok_or_else(|| bad::<LEAST, MOST>(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_plain_numbers_in_range() {
        assert_eq!("0".parse::<CoolDown>().unwrap().get(), 0);
        assert_eq!("86400".parse::<CoolDown>().unwrap().to_string(), "86400");
        assert_eq!("600".parse::<AskSeconds>().unwrap().get(), 600);
        for bad in ["", "0", "601", "030", "+1", "-1", "1s", " 1"] {
            assert!(bad.parse::<AskSeconds>().is_err(), "{bad:?}");
        }
        assert!("86401".parse::<CoolDown>().is_err());
    }
}
