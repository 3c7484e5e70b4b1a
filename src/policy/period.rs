//! Lengths of time: how long a container may run, and how long a signal may take.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::{ValueError, string_form};

/// The units, largest first. The first one that divides a period gives its shortest form.
const UNITS: [(&str, u32); 4] = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];

/// A whole number of seconds within bounds, written `90s`, `30m`, `1h30m` or `1d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Period<const LEAST: u32, const MOST: u32>(u32);

/// How long something may last: at most a year.
pub type Lifetime = Period<1, 31_622_400>;
/// How long an end may take after its signal: at most an hour.
pub type Grace = Period<0, 3600>;

impl<const LEAST: u32, const MOST: u32> Period<LEAST, MOST> {
    /// The seconds.
    pub const fn seconds(self) -> u32 {
        self.0
    }

    /// The period of so many seconds; `None` beyond the bounds.
    pub fn of(seconds: u32) -> Option<Self> {
        (LEAST..=MOST).contains(&seconds).then_some(Self(seconds))
    }
}

impl<const LEAST: u32, const MOST: u32> FromStr for Period<LEAST, MOST> {
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        parse(value).and_then(Self::of).ok_or_else(|| {
            let (least, most) = (Self(LEAST), Self(MOST));
            let grammar = format!("a time from {least} to {most}, {FORMS}");
            ValueError::grammar(value, &grammar)
        })
    }
}

/// The words for the grammar.
const FORMS: &str = "such as 90s, 30m, 2h or 1h30m";

/// Seconds of whole numbers with units, the largest unit first.
fn parse(value: &str) -> Option<u32> {
    let mut rest = value;
    let mut units = UNITS.iter();
    let mut seconds = 0_u32;
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (part, after) = rest.split_at_checked(end + 1)?;
        let (name, unit) = units.by_ref().find(|(name, _)| part.ends_with(name))?;
        seconds = seconds.checked_add(part_of(part.strip_suffix(name)?, *unit)?)?;
        rest = after;
    }
    (!value.is_empty()).then_some(seconds)
}

fn part_of(digits: &str, unit: u32) -> Option<u32> {
    // One spelling for each number: `u32::from_str` takes a `+`.
    let plain = digits.bytes().all(|b| b.is_ascii_digit());
    let plain = plain && (digits == "0" || !digits.starts_with('0'));
    digits
        .parse::<u32>()
        .ok()
        .filter(|_| plain)?
        .checked_mul(unit)
}

impl<const LEAST: u32, const MOST: u32> fmt::Display for Period<LEAST, MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |unit: u32| self.0 >= unit && self.0.is_multiple_of(unit);
        let unit = UNITS.iter().find(|(_, unit)| divides(*unit));
        let (name, unit) = unit.copied().unwrap_or(("s", 1));
        write!(f, "{}{name}", self.0 / unit)
    }
}

impl<const LEAST: u32, const MOST: u32> TryFrom<String> for Period<LEAST, MOST> {
    type Error = ValueError;

    fn try_from(value: String) -> Result<Self, ValueError> {
        value.parse()
    }
}

impl<const LEAST: u32, const MOST: u32> From<Period<LEAST, MOST>> for String {
    fn from(period: Period<LEAST, MOST>) -> Self {
        period.to_string()
    }
}

/// A time limit, or none. Ordered from the shortest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TimeLimit {
    /// At most this long.
    Is(Lifetime),
    /// No limit.
    Unlimited,
}

impl TimeLimit {
    /// The limit, if there is one.
    pub fn lifetime(self) -> Option<Lifetime> {
        match self {
            Self::Is(lifetime) => Some(lifetime),
            Self::Unlimited => None,
        }
    }
}

impl FromStr for TimeLimit {
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        match value {
            "unlimited" => Ok(Self::Unlimited),
            _ => value.parse().map(Self::Is).map_err(|_| {
                ValueError::grammar(
                    value,
                    &format!("a time from 1s to 366d or unlimited, {FORMS}"),
                )
            }),
        }
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(lifetime) => lifetime.fmt(f),
            Self::Unlimited => f.write_str("unlimited"),
        }
    }
}

string_form!(TimeLimit);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_has_one_spelling() {
        for (text, seconds, canonical) in [
            ("1s", 1, "1s"),
            ("90s", 90, "90s"),
            ("60s", 60, "1m"),
            ("30m", 1800, "30m"),
            ("24h", 86_400, "1d"),
            ("366d", 31_622_400, "366d"),
            ("1h30m", 5400, "90m"),
            ("1d2h3m4s", 93_784, "93784s"),
            ("1h0m", 3600, "1h"),
        ] {
            let period: Lifetime = text.parse().unwrap();
            let written = (period.seconds(), period.to_string());
            assert_eq!(written, (seconds, canonical.to_owned()));
        }
        assert_eq!("0s".parse::<Grace>().unwrap().to_string(), "0s");
        for bad in [
            "",
            "s",
            "30",
            "30 m",
            "+30m",
            "-1s",
            "030m",
            "1.5h",
            "30m1h",
            "1h1h",
            "1hm",
            "1h30",
            "1h 30m",
            "1h030m",
            "365d24h1s60m",
            "366d1s",
            "30M",
            "367d",
            "0s",
            "99999999999s",
            "4294967295d",
            "30m\n",
        ] {
            assert!(bad.parse::<Lifetime>().is_err(), "{bad:?}");
            assert!(bad.parse::<TimeLimit>().is_err(), "{bad:?}");
        }
        assert!("61m".parse::<Grace>().is_err());
    }

    #[test]
    fn no_limit_is_the_longest() {
        let limit = |text: &str| text.parse::<TimeLimit>().unwrap();
        assert!(limit("1s") < limit("2s") && limit("366d") < limit("unlimited"));
        assert_eq!(limit("unlimited").lifetime(), None);
    }
}
