//! The one line of a timekeeper's log: why it has ended the container.
//!
//! The runtime makes the line of each cause beforehand. A timekeeper adds the time, with neither memory nor code for more. Both
//! timekeepers may write: always the same line, at the same place.

use std::io::Write;
use std::os::fd::AsFd;

use chrono::{DateTime, Datelike, Timelike, Utc};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::audit::{Context, Event, EventDetail, LifeState, Verdict, WallName, chain};
use crate::plan::time::EndCause;

/// The longest line. A context with long names is shortened to the id.
const LONGEST: usize = 4096;
/// The length of a time, such as `2026-01-02T03:04:05.678Z`.
const TIME: usize = 24;

/// The lines of all causes, in their order: the text before and after the time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndLines(Vec<[String; 2]>);

/// The event of an end by a time limit.
pub fn event(cause: EndCause) -> Event {
    let what = EventDetail::life(LifeState::Ended);
    Event {
        cause: Some(cause.field().into()),
        reason: Some(cause.to_string().into()),
        ..Event::new(WallName::Life, Verdict::Ended, what)
    }
}

impl EndLines {
    /// The lines of a container's log.
    pub fn of(context: &Context) -> Self {
        let lines = |context: &Context| -> Vec<[String; 2]> {
            let all = EndCause::ALL.into_iter();
            all.filter_map(|cause| chain::around_time(context, event(cause)))
                .collect()
        };
        let whole = lines(context);
        let fits = |[before, after]: &[String; 2]| before.len() + TIME + after.len() <= LONGEST;
        match whole.iter().all(fits) {
            true => Self(whole),
            false => Self(lines(&Context {
                container: context.container.clone(),
                ..Context::default()
            })),
        }
    }

    /// Writes the line of this cause, if the log has none.
    pub fn write(&self, log: impl AsFd, cause: EndCause) {
        let at = EndCause::ALL.iter().position(|one| *one == cause);
        let Some([before, after]) = at.and_then(|at| self.0.get(at)) else {
            return;
        };
        if rustix::io::pread(&log, &mut [0], 0) != Ok(0) {
            return;
        }
        let mut line = [0; LONGEST];
        let mut rest = &mut line[..];
        let written = rest
            .write_all(before.as_bytes())
            .and_then(|()| write_now(&mut rest))
            .and_then(|()| rest.write_all(after.as_bytes()));
        let length = LONGEST - rest.len();
        if written.is_ok() {
            // On a full disk the line is lost. The cause is in the clock's file too.
            let _full = rustix::io::pwrite(&log, &line[..length], 0);
        }
    }
}

/// The time as the log has it, without memory of its own.
fn write_now(to: &mut impl Write) -> std::io::Result<()> {
    let now = clock_gettime(ClockId::Realtime);
    let date: DateTime<Utc> = DateTime::from_timestamp(now.tv_sec, 0).unwrap_or_default();
    write!(
        to,
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        date.year(),
        date.month(),
        date.day(),
        date.hour(),
        date.minute(),
        date.second(),
        now.tv_nsec / 1_000_000
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use rustix::fs::MemfdFlags;

    use super::*;
    use crate::audit::{Log, TIME as FILE};

    fn log() -> std::fs::File {
        let flags = MemfdFlags::CLOEXEC;
        rustix::fs::memfd_create("log", flags).unwrap().into()
    }

    fn content(log: &std::fs::File) -> Vec<u8> {
        let mut bytes = vec![0; 8192];
        let length = log.read_at(&mut bytes, 0).unwrap();
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn the_line_is_a_whole_log_and_written_once() {
        let context = Context {
            container: "c1".into(),
            name: Some("a \"quoted\" \u{e9} name".into()),
            ..Context::default()
        };
        for context in [
            context.clone(),
            Context {
                image: Some("x".repeat(5000).into()),
                ..context
            },
        ] {
            let lines = EndLines::of(&context);
            for cause in EndCause::ALL {
                let log = log();
                lines.write(&log, cause);
                let text = content(&log);
                let parsed = Log::parse(FILE, &text);
                assert!(parsed.faults.is_empty(), "{:?}", parsed.faults);
                assert_eq!(parsed.lines.len(), 1);
                let line = &parsed.lines[0];
                assert_eq!(line.event, event(cause));
                assert_eq!(line.context.container, "c1");
                let written = DateTime::parse_from_rfc3339(&line.time).unwrap();
                let age = Utc::now().signed_duration_since(written);
                assert!(age.num_seconds().abs() < 5, "{}", line.time);
                // The other one is late, with another cause even.
                lines.write(&log, EndCause::TimekeeperLost);
                assert_eq!(content(&log), text);
            }
        }
    }
}
