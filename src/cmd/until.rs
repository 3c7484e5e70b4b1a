//! A time of `--until`: a date with its offset, or `HH:MM` of the next 24 hours. A time of `--since`.

use anyhow::{Context, Result, bail, ensure};
use chrono::{DateTime, Local, SecondsFormat, TimeZone, Utc};

use super::events::duration;
use crate::rules::{EndDate, time_of_day};

/// The date of this text, which must not be over.
pub fn date(text: &str) -> Result<EndDate> {
    date_from(text, Local::now())
}

fn date_from<Z: TimeZone>(text: &str, now: DateTime<Z>) -> Result<EndDate> {
    let date = match time_of_day(text) {
        Some(time) => EndDate::next(time, &now)
            .with_context(|| format!("--until {text}: no such time here today or tomorrow"))?,
        None => text.parse().context("--until")?,
    };
    ensure!(
        date.unix() > now.timestamp(),
        "--until {text}: that is over"
    );
    Ok(date)
}

/// A time in the form of the log, which can be compared as text.
pub(super) fn since(text: &str) -> Result<String> {
    let ago = duration(text).and_then(|ago| chrono::Duration::from_std(ago).ok());
    let ago = ago.and_then(|ago| Utc::now().checked_sub_signed(ago));
    let when: DateTime<Utc> = match (DateTime::parse_from_rfc3339(text), ago) {
        (Ok(time), _) => time.into(),
        (Err(_), Some(ago)) => ago,
        (Err(_), None) => {
            bail!(
                "--since {text:?} is neither a time such as 2026-01-02T03:04:05Z nor a duration such as 10m"
            )
        }
    };
    Ok(when.to_rfc3339_opts(SecondsFormat::Millis, true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::FixedOffset;

    #[test]
    fn a_time_of_day_is_the_next_one_here() {
        let zone = FixedOffset::east_opt(3600).unwrap();
        let now = zone.with_ymd_and_hms(2026, 11, 30, 17, 30, 0).unwrap();
        for (text, date) in [
            ("18:00", "2026-11-30T17:00:00Z"),
            ("17:30", "2026-12-01T16:30:00Z"),
            ("09:05", "2026-12-01T08:05:00Z"),
            ("2026-12-24T18:00:00+01:00", "2026-12-24T17:00:00Z"),
        ] {
            assert_eq!(date_from(text, now).unwrap().to_string(), date, "{text}");
        }
        for bad in [
            "",
            "9:05",
            "24:00",
            "18:00:00",
            "18.00",
            "2026-11-30T17:29:59+01:00",
            "1800",
            "é:00",
        ] {
            assert!(date_from(bad, now).is_err(), "{bad:?}");
        }
    }
}
