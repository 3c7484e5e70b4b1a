//! Allowed rules that end: `RULE for 10m`, counted from `create`, or `RULE until 2026-12-01T18:00:00Z`.
//!
//! A time of day alone is refused in files and annotations: it would be another moment in each run.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, TimeZone};

use super::list::{Item, list_text, split};
use super::period::Lifetime;
use crate::rules::request::RequestRule;
use crate::rules::{ClockReading, EgressRule, EndDate, Expiry, RuleItem, time_of_day};
use crate::text::{ValueError, string_form};

const GRAMMAR: &str = "a rule and its end: RULE or @PRESET, then for 10m (1s to 366d), or until 2026-12-01T18:00:00Z (a date, a time and its \
                       offset)";

/// The end of a rule in a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleTerm {
    /// So long after `create`, by CLOCK_BOOTTIME.
    For(Lifetime),
    /// At this date.
    Until(EndDate),
}

impl RuleTerm {
    /// Whether it never ends later than the other, whenever a run begins.
    pub fn is_within(self, other: Self) -> bool {
        match (self, other) {
            (Self::For(own), Self::For(most)) => own <= most,
            (Self::Until(own), Self::Until(most)) => own <= most,
            (Self::For(_), Self::Until(_)) | (Self::Until(_), Self::For(_)) => false,
        }
    }

    /// The end in a run that begins now. `None` beyond the calendar.
    pub fn end(self, now: ClockReading) -> Option<Expiry> {
        match self {
            Self::For(time) => Expiry::after(time.seconds(), now),
            Self::Until(date) => Some(Expiry::at(date).pinned(now)),
        }
    }

    /// The text before the end, and the end. `None` if the text has none.
    fn split(text: &str) -> Option<(&str, Self)> {
        let (head, value) = text.rsplit_once(' ')?;
        let (item, word) = head.rsplit_once(' ')?;
        let term = match word {
            "for" => Self::For(value.parse().ok()?),
            "until" => Self::Until(value.parse().ok()?),
            _ => return None,
        };
        Some((item, term))
    }
}

impl fmt::Display for RuleTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(time) => write!(f, "for {time}"),
            Self::Until(date) => write!(f, "until {date}"),
        }
    }
}

/// A list of rules in two: those without an end, and those with one or what is meant as one. Only a list with both kinds
/// or with ends is parted, so that an error names the text as it is.
pub(super) fn parted(list: &str) -> (Option<String>, Option<String>) {
    let is_temporary = |item: &&str| {
        let words: Vec<&str> = item.split(' ').collect();
        let is_end = |at: usize| matches!(words.get(at), Some(&("for" | "until")));
        // `for 10 minutes`. A method of MCP may have the name.
        let is_long = words.len() > 3 && is_end(words.len() - 3);
        words.len() > 2 && is_end(words.len() - 2) || is_long && !RequestRule::is_mcp_meant(item)
    };
    let items = split::<TemporaryItem>(list);
    let (temporary, lasting): (Vec<&str>, Vec<&str>) = items.into_iter().partition(is_temporary);
    let text = |items: &[&str]| (!items.is_empty()).then(|| list_text(items));
    match temporary.is_empty() {
        true => (Some(list.to_owned()), None),
        false => (text(&lasting), text(&temporary)),
    }
}

/// A list whose rules end at a date where they had a time of day: the user who types one means the next such time.
pub(super) fn dated<Z: TimeZone>(list: &str, now: &DateTime<Z>) -> String {
    let with_date = |item: &str| {
        let (rule, text) = item.rsplit_once(" until ")?;
        let date = EndDate::next(time_of_day(text)?, now)?;
        Some(format!("{rule} until {date}"))
    };
    let items = split::<TemporaryItem>(list);
    match items.iter().any(|item| with_date(item).is_some()) {
        true => list_text(
            items
                .into_iter()
                .map(|item| with_date(item).unwrap_or_else(|| item.to_owned())),
        ),
        false => list.to_owned(),
    }
}

/// What allows until its end.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(
    try_from = "String",
    into = "String",
    bound(
        serialize = "Self: Clone + Into<String>",
        deserialize = "Self: TryFrom<String, Error = ValueError>"
    )
)]
pub struct TemporaryEntry<T> {
    /// What is allowed.
    pub item: T,
    /// Its end.
    pub term: RuleTerm,
}

/// The end of `RULE for 10 minutes` as it is written here.
fn suggested_end(text: &str) -> Option<String> {
    const UNITS: [(&str, &[&str]); 4] = [
        ("s", &["s", "sec", "secs", "second", "seconds"]),
        ("m", &["m", "min", "mins", "minute", "minutes"]),
        ("h", &["h", "hour", "hours"]),
        ("d", &["d", "day", "days"]),
    ];
    let (item, time) = text.rsplit_once(" for ")?;
    let at = time.find(|c: char| !c.is_ascii_digit())?;
    let (number, word) = time.split_at(at);
    let word = word.trim_start().to_ascii_lowercase();
    let unit = UNITS.iter().find(|(_, all)| all.contains(&word.as_str()));
    let (unit, _) = unit?;
    let rule = format!("{item} for {number}{unit}");
    let (item, _) = RuleTerm::split(&rule)?;
    let is_rule = item.parse::<RuleItem>().is_ok();
    is_rule.then_some(rule)
}

/// A rule that allows until its end.
pub type TemporaryRule = TemporaryEntry<EgressRule>;
/// The same in a policy's list, where it may be a preset.
pub(super) type TemporaryItem = TemporaryEntry<RuleItem>;

impl Item for TemporaryItem {
    fn begins_with(word: &str, item: &str) -> bool {
        RuleItem::begins_with(word, item)
    }
}

impl<T: fmt::Display> fmt::Display for TemporaryEntry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.item, self.term)
    }
}

impl<T: FromStr<Err = ValueError>> FromStr for TemporaryEntry<T> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (item, term) = RuleTerm::split(text).ok_or_else(|| ValueError {
            suggestion: suggested_end(text),
            ..ValueError::grammar(text, GRAMMAR)
        })?;
        let item = item.parse()?;
        Ok(Self { item, term })
    }
}

string_form!(TemporaryRule);
string_form!(TemporaryItem);

#[cfg(test)]
mod tests {
    use super::*;

    fn item(text: &str) -> Result<TemporaryItem, ValueError> {
        text.parse()
    }

    #[test]
    fn a_rule_with_an_end_is_written_as_it_is_read() {
        for text in [
            "a.test for 10m",
            "internal:db.test:5432 for 1d",
            "@github until 2026-12-01T18:00:00Z",
            "GET,HEAD https://a.test/x/** for 90s",
            "mcp:https://a.test/mcp tools/call:for tools/list for 90s",
        ] {
            assert_eq!(item(text).unwrap().to_string(), text);
        }
        let shown = item("a.test  until  2026-12-01T18:00:00+01:00");
        assert!(shown.is_err(), "one space, as everywhere in a rule");
        let shown = item("a.test until 2026-12-01T18:00:00+01:00").unwrap();
        assert_eq!(shown.to_string(), "a.test until 2026-12-01T17:00:00Z");
    }

    #[test]
    fn a_list_is_parted_by_what_ends() {
        let some = |text: &str| Some(text.to_owned());
        for (list, lasting, temporary) in [
            ("", some(""), None),
            ("a.test, @github", some("a.test, @github"), None),
            ("a.test for 10m", None, some("a.test for 10m")),
            (
                "GET,HEAD https://a.test/x for 10m, b.test,GET https://c.test/",
                some("b.test,GET https://c.test/"),
                some("GET,HEAD https://a.test/x for 10m"),
            ),
            ("a.test until later", None, some("a.test until later")),
            ("for 10m", some("for 10m"), None),
        ] {
            assert_eq!(parted(list), (lasting, temporary), "{list}");
        }
    }

    #[test]
    fn an_end_that_is_not_exact_is_refused() {
        for text in [
            "a.test",
            "a.test for",
            "for 10m",
            "a.test for ten minutes",
            "a.test for 0s",
            "a.test for 367d",
            "a.test for unlimited",
            "a.test until 18:00",
            "a.test until 2026-12-01",
            "a.test until 2026-12-01T18:00:00",
            "a.test until tomorrow",
            "a.test for 10m until 2026-12-01T18:00:00Z",
            "a.test until 2026-12-01T18:00:00Z for 10m",
            "a.test FOR 10m",
            "mcp:https://a.test/mcp tools/call:x for 10m for 20m",
            "mcp:https://a.test/mcp tools/call:x for for 20m",
            "mcp:https://a.test/mcp for 20m",
            "mcp:https://a.test/mcp until tools/call:x for 20m",
            "git:push a.test/o/r for 10m for 20m",
            "@github for 10m for 20m",
            "a.test for 10m ",
        ] {
            assert!(item(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_time_in_words_is_refused_and_the_end_is_named() {
        for (text, rule) in [
            ("a.test for 10 minutes", "a.test for 10m"),
            ("@github for 90 sec", "@github for 90s"),
            (
                "GET https://a.test/x for 1 Hour",
                "GET https://a.test/x for 1h",
            ),
            ("a.test for 2days", "a.test for 2d"),
        ] {
            let error = item(text).unwrap_err();
            assert_eq!(error.suggestion.as_deref(), Some(rule), "{text}");
            assert_eq!(parted(text), (None, Some(text.to_owned())));
        }
        for text in [
            "a.test for ten minutes",
            "a.test for 10 parsecs",
            "a.test for 0 minutes",
            "a b for 10 minutes",
            "a.test until 10 minutes",
        ] {
            assert_eq!(item(text).unwrap_err().suggestion, None, "{text}");
        }
        let mcp = "mcp:https://a.test/mcp for tools/list tools/call";
        assert_eq!(parted(mcp), (Some(mcp.to_owned()), None));
    }

    #[test]
    fn an_end_is_within_a_later_one_of_its_kind() {
        let term = |text: &str| item(&format!("a.test {text}")).unwrap().term;
        for (own, most, within) in [
            ("for 10m", "for 10m", true),
            ("for 10m", "for 600s", true),
            ("for 11m", "for 10m", false),
            (
                "until 2026-12-01T18:00:00Z",
                "until 2026-12-01T19:00:00+01:00",
                true,
            ),
            (
                "until 2026-12-01T18:00:01Z",
                "until 2026-12-01T18:00:00Z",
                false,
            ),
            // When a run begins is not known here.
            ("for 1s", "until 2999-12-01T18:00:00Z", false),
            ("until 1971-01-01T00:00:00Z", "for 366d", false),
        ] {
            assert_eq!(term(own).is_within(term(most)), within, "{own} {most}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_prolongs_neither_form() {
        let at = |boot_s: u64, unix| ClockReading {
            boot_ms: boot_s * 1000,
            unix,
        };
        let now = at(100, 1_700_000_000);
        let date = EndDate::of(1_700_000_600).unwrap();
        for term in [RuleTerm::For("10m".parse().unwrap()), RuleTerm::Until(date)] {
            let end = term.end(now).unwrap();
            assert_eq!(end.date(), date);
            assert!(!end.is_over(at(699, 1_700_000_599)), "{term}");
            assert!(end.is_over(at(700, 0)), "{term}");
        }
        // Set ahead: a date is over, a length of time is not.
        let ahead = at(101, 1_700_000_600);
        assert!(RuleTerm::Until(date).end(now).unwrap().is_over(ahead));
        let length = RuleTerm::For("10m".parse().unwrap());
        assert!(!length.end(now).unwrap().is_over(ahead));
        // A run that begins after the date has no such rule.
        assert!(RuleTerm::Until(date).end(ahead).unwrap().is_over(ahead));
        assert_eq!(length.end(at(0, i64::MAX)), None);
    }
}
