//! When a rule, an approval or a secret ends.
//!
//! A length of time ends by CLOCK_BOOTTIME, which counts suspension and which nobody can set. A date ends by the node's
//! clock, and by CLOCK_BOOTTIME as well: setting the clock back gives no time.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Days, LocalResult, NaiveTime, SecondsFormat, TimeZone};
use serde::{Deserialize, Serialize};

use crate::text::{ValueError, string_form};

/// Whether a word begins the end of a rule, in any case of its letters. No part of a rule is such a word.
pub(super) fn is_word_of_end(word: &str) -> bool {
    ["for", "until"]
        .iter()
        .any(|known| word.eq_ignore_ascii_case(known))
}

/// Both clocks, read at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClockReading {
    /// CLOCK_BOOTTIME, in milliseconds.
    pub boot_ms: u64,
    /// The node's clock, in seconds since 1970.
    pub unix: i64,
}

/// The last second that RFC 3339 can write: 9999-12-31T23:59:59Z.
const LAST: i64 = 253_402_300_799;

/// A date and time, written as RFC 3339 with its offset: `2026-12-01T18:00:00Z`. Shown in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EndDate(i64);

impl EndDate {
    /// The date at this second since 1970; `None` outside the years 1970 to 9999 in UTC: RFC 3339 has no text for it.
    pub fn of(unix: i64) -> Option<Self> {
        (0..=LAST).contains(&unix).then_some(Self(unix))
    }

    /// Its second since 1970.
    pub fn unix(self) -> i64 {
        self.0
    }

    /// The next such time in the zone of `now`. When clocks are set back a time comes twice: the first one counts that is
    /// not over. `None` if it comes neither today nor tomorrow.
    pub fn next<Z: TimeZone>(time: NaiveTime, now: &DateTime<Z>) -> Option<Self> {
        let zone = now.timezone();
        let today = now.date_naive();
        let days = [Some(today), today.checked_add_days(Days::new(1))];
        let times = days.into_iter().flatten().flat_map(|day| {
            match zone.from_local_datetime(&day.and_time(time)) {
                LocalResult::Single(one) => vec![one],
                LocalResult::Ambiguous(first, second) => vec![first, second],
                LocalResult::None => Vec::new(),
            }
        });
        let mut coming = times
            .map(|one| one.timestamp())
            .filter(|at| *at > now.timestamp());
        coming.next().and_then(Self::of)
    }
}

/// The time of a text that is exactly `HH:MM`.
pub fn time_of_day(text: &str) -> Option<NaiveTime> {
    let is_time = text.len() == 5 && text.as_bytes()[2] == b':';
    NaiveTime::parse_from_str(text, "%H:%M")
        .ok()
        .filter(|_| is_time)
}

impl FromStr for EndDate {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let grammar = "a date and a time with its offset (RFC 3339), such as 2026-12-01T18:00:00Z or 2026-12-01T18:00:00+01:00, in the years 1970 to 9999 (UTC)";
        // chrono also takes a space for the T.
        let date = DateTime::parse_from_rfc3339(text).ok();
        let date = date.filter(|_| text.as_bytes().get(10) == Some(&b'T'));
        // The offset can lead beyond the years that RFC 3339 can write.
        let end = date.and_then(|date| Self::of(date.timestamp()));
        end.ok_or_else(|| ValueError::grammar(text, grammar))
    }
}

impl fmt::Display for EndDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let date = DateTime::from_timestamp(self.0, 0).unwrap_or_default();
        f.write_str(&date.to_rfc3339_opts(SecondsFormat::Secs, true))
    }
}

string_form!(EndDate);

/// The end of a rule, an approval or a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expiry {
    /// The date. For a length of time only shown: a clock that is set changes nothing.
    until: EndDate,
    /// Whether the node's clock also ends it.
    by_date: bool,
    /// When CLOCK_BOOTTIME ends it, in milliseconds. `None` in a policy: known once the sidecar begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot_ms: Option<u64>,
}

impl Expiry {
    /// After so many seconds. `None` beyond the calendar.
    pub fn after(seconds: u32, now: ClockReading) -> Option<Self> {
        Some(Self {
            until: EndDate::of(now.unix.checked_add(i64::from(seconds))?)?,
            by_date: false,
            boot_ms: Some(now.boot_ms.saturating_add(u64::from(seconds) * 1000)),
        })
    }

    /// At a date.
    pub fn at(until: EndDate) -> Self {
        Self {
            until,
            by_date: true,
            boot_ms: None,
        }
    }

    /// Fixes what is left now, so that a clock that is set back later gives no more.
    #[must_use]
    pub fn pinned(self, now: ClockReading) -> Self {
        match self.by_date {
            true => Self {
                boot_ms: Some(now.boot_ms.saturating_add(self.left_ms(now))),
                ..self
            },
            false => self,
        }
    }

    /// Whether it has ended.
    pub fn is_over(self, now: ClockReading) -> bool {
        let by_boot = self.boot_ms.is_some_and(|end| end <= now.boot_ms);
        by_boot || self.by_date && self.until.unix() <= now.unix
    }

    /// The milliseconds that are left, by the clock that ends it first.
    pub fn left_ms(self, now: ClockReading) -> u64 {
        let by_boot = self.boot_ms.map(|end| end.saturating_sub(now.boot_ms));
        let seconds = self.until.unix().saturating_sub(now.unix);
        let by_date = u64::try_from(seconds).unwrap_or(0).saturating_mul(1000);
        let by_date = self.by_date.then_some(by_date);
        by_boot.into_iter().chain(by_date).min().unwrap_or(0)
    }

    /// The date at which it ends, or ended.
    pub fn date(self) -> EndDate {
        self.until
    }

    /// The end in words: when, and how long that is from now.
    pub fn words(self, now: ClockReading) -> String {
        match self.is_over(now) {
            true => format!("expired at {}", self.until),
            false => {
                let seconds = self.left_ms(now).div_ceil(1000);
                format!(
                    "until {}, {} min {} s left",
                    self.until,
                    seconds / 60,
                    seconds % 60
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(boot_s: u64, unix: i64) -> ClockReading {
        ClockReading {
            boot_ms: boot_s * 1000,
            unix,
        }
    }

    #[test]
    fn a_date_has_a_day_a_time_and_an_offset() {
        for (text, shown) in [
            ("2026-12-01T18:00:00Z", "2026-12-01T18:00:00Z"),
            ("2026-12-01T18:00:00+01:00", "2026-12-01T17:00:00Z"),
        ] {
            let date: EndDate = text.parse().unwrap();
            assert_eq!(date.to_string(), shown);
        }
        for bad in [
            "",
            "18:00",
            "2026-12-01",
            "2026-12-01T18:00:00",
            "2026-12-01 18:00:00Z",
            "2026-02-30T18:00:00Z",
            "tomorrow",
            "9999-12-31T23:59:59-01:00",
            "0000-01-01T00:00:00+01:00",
            "1970-01-01T00:00:00+00:01",
            "+10000-01-01T00:59:59Z",
        ] {
            assert!(bad.parse::<EndDate>().is_err(), "{bad:?}");
        }
    }

    /// Records and the sidecar's configuration have the text of a date: each date that is accepted must be readable again.
    #[test]
    fn a_date_that_is_accepted_is_written_as_it_is_read() {
        let read_again = |date: EndDate| {
            assert_eq!(date.to_string().parse(), Ok(date), "{date}");
            let json = serde_json::to_string(&date).unwrap();
            assert_eq!(serde_json::from_str::<EndDate>(&json).unwrap(), date);
        };
        let mut accepted = 0;
        for year in ["0000", "0001", "1969", "1970", "2026", "9998", "9999"] {
            for day in ["01-01T00:00:00", "06-30T12:59:60", "12-31T23:59:59.9"] {
                for offset in ["Z", "+00:00", "-00:01", "+23:59", "-23:59"] {
                    let date = format!("{year}-{day}{offset}").parse();
                    accepted += usize::from(date.map(read_again).is_ok());
                }
            }
        }
        assert!(accepted > 40, "{accepted}");
        // Seconds, in steps that meet no calendar's period, and the bounds.
        for unix in (0..=LAST).step_by(98_765_431).chain([LAST]) {
            read_again(EndDate::of(unix).unwrap());
        }
        for unix in [-1, LAST + 1, i64::MIN, i64::MAX] {
            assert_eq!(EndDate::of(unix), None, "{unix}");
        }
    }

    #[test]
    fn a_length_of_time_ends_by_the_clock_that_nobody_sets() {
        let ends = Expiry::after(600, at(100, 5000)).unwrap();
        assert_eq!(ends.date().unix(), 5600);
        // The node's clock jumps, both ways.
        for unix in [0, 4000, 5_000_000] {
            assert!(!ends.is_over(at(699, unix)), "{unix}");
            assert!(ends.is_over(at(700, unix)), "{unix}");
            assert_eq!(ends.left_ms(at(400, unix)), 300_000);
        }
        // Looking at it again changes nothing.
        assert_eq!(ends.pinned(at(400, 0)), ends);
    }

    #[test]
    fn a_date_ends_by_whichever_clock_is_first() {
        let date = Expiry::at(EndDate::of(5600).unwrap());
        let ends = date.pinned(at(100, 5000));
        assert!(!ends.is_over(at(699, 5599)));
        // Set back by an hour: no more time than there was.
        assert!(ends.is_over(at(700, 2000)));
        assert_eq!(ends.left_ms(at(400, 2000)), 300_000);
        // Set ahead: it ends at once.
        assert!(ends.is_over(at(101, 5600)));
        // Pinned again after the clock was set back: not later than before.
        assert_eq!(ends.pinned(at(400, 2000)), ends);
        // A clock that was behind when it began, and is set right: the date counts.
        let early = date.pinned(at(100, 0));
        assert!(early.is_over(at(101, 5600)));
        // Over before it began.
        assert!(date.pinned(at(100, 9000)).is_over(at(100, 9000)));
        assert!(date.is_over(at(100, 9000)) && !date.is_over(at(100, 0)));
    }

    #[test]
    fn the_words_say_when_and_how_long() {
        let ends = Expiry::after(90, at(0, 0)).unwrap();
        assert_eq!(
            ends.words(at(0, 0)),
            "until 1970-01-01T00:01:30Z, 1 min 30 s left"
        );
        assert_eq!(ends.words(at(90, 0)), "expired at 1970-01-01T00:01:30Z");
    }
}
