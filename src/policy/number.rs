//! Whole numbers: connections, hosts, and seconds.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::ValueError;

/// A whole number within bounds: seconds, or a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Number<const LEAST: u32, const MOST: u32, const SECONDS: bool>(u32);

/// A number of connections or hosts.
pub type Count = Number<1, 1_000_000, false>;

/// Seconds that a connection waits for approval: at most ten minutes.
pub type AskSeconds = Number<1, 600, true>;
/// Seconds without new connections after a budget is used up: at most a day.
pub type CoolDown = Number<0, 86_400, true>;

impl<const LEAST: u32, const MOST: u32, const SECONDS: bool> Number<LEAST, MOST, SECONDS> {
    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    fn bad(value: &str) -> ValueError {
        let unit = if SECONDS { " of seconds" } else { "" };
        ValueError::grammar(
            value,
            &format!("a whole number{unit} from {LEAST} to {MOST}"),
        )
    }
}

impl<const LEAST: u32, const MOST: u32, const SECONDS: bool> TryFrom<u32>
    for Number<LEAST, MOST, SECONDS>
{
    type Error = ValueError;

    fn try_from(number: u32) -> Result<Self, ValueError> {
        match (LEAST..=MOST).contains(&number) {
            true => Ok(Self(number)),
            false => Err(Self::bad(&number.to_string())),
        }
    }
}

impl<const LEAST: u32, const MOST: u32, const SECONDS: bool> From<Number<LEAST, MOST, SECONDS>>
    for u32
{
    fn from(number: Number<LEAST, MOST, SECONDS>) -> Self {
        number.0
    }
}

impl<const LEAST: u32, const MOST: u32, const SECONDS: bool> fmt::Display
    for Number<LEAST, MOST, SECONDS>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const LEAST: u32, const MOST: u32, const SECONDS: bool> FromStr
    for Number<LEAST, MOST, SECONDS>
{
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        let digits = value.bytes().all(|b| b.is_ascii_digit());
        let plain = digits && (value == "0" || !value.starts_with('0'));
        let number: Option<u32> = value.parse().ok().filter(|_| plain);
        number
            .and_then(|number| number.try_into().ok())
            .ok_or_else(|| Self::bad(value))
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
