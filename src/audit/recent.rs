//! PURE. The last denials of a container, as the container reads them: one line each, newest last.
//!
//! The file is limited in lines and in their length, whatever the workload does. Equal denials are one line with a
//! count.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::event::WallName;
use super::plain::PlainText;
use crate::text::bounded;

/// Most lines.
pub const MOST_LINES: usize = 64;
/// The longest line, in characters.
const LONGEST_LINE: usize = 600;

/// The pointer to the file of mounts.
const BESIDE: &str = "mounts that are read-only or left out: the file mounts";

/// Which denials the container's file lists. Its first line says so, even before the first denial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedDenials {
    /// All denials of its sidecar.
    #[default]
    All,
    /// Only system calls: another container's sidecar serves the network, and does not know this file.
    Calls,
}

impl ReportedDenials {
    /// The file's first line, without its end.
    pub fn head(self) -> &'static str {
        match self {
            Self::All => {
                "# What agentbox denied this container: the last 64 denials, newest last, times in UTC"
            }
            Self::Calls => {
                "# What agentbox denied this container: the last 64 denied system calls, newest last, times in UTC; \
                 refused hosts are at /denied of the proxy, if the container whose network this is has report.denied"
            }
        }
    }
}

/// A denial in the words that the container reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenialNotice {
    /// The wall.
    pub wall: WallName,
    /// Host and port, or the call.
    pub what: String,
    /// Why.
    pub why: String,
    /// The rule that would allow it, if any.
    pub ask: Option<String>,
}

impl DenialNotice {
    /// Its line without the time and the count.
    fn line(&self) -> String {
        let Self {
            wall,
            what,
            why,
            ask,
        } = self;
        let mut line = format!(
            "{} {}: {}",
            wall.as_str(),
            PlainText::from(&**what),
            PlainText::from(&**why)
        );
        if let Some(ask) = ask {
            line.push_str("; to ask for: ");
            line.push_str(&PlainText::from(&**ask));
        }
        bounded(&line, LONGEST_LINE)
    }
}

/// The denials that a container can read.
#[derive(Debug, Default)]
pub struct RecentDenials {
    shows: ReportedDenials,
    kept: VecDeque<DenialEntry>,
    /// The file's length when it was last written.
    length: usize,
}

/// One denial, and how often it happened.
#[derive(Debug)]
struct DenialEntry {
    time: String,
    wall: WallName,
    line: String,
    times: u64,
}

impl RecentDenials {
    /// An empty list with the first line for `shows`.
    pub fn of(shows: ReportedDenials) -> Self {
        Self {
            shows,
            ..Self::default()
        }
    }

    /// Adds a denial with its count. An equal line moves to the end.
    pub fn take(&mut self, time: &str, refused: &DenialNotice, times: u64) {
        let line = refused.line();
        let before = self.kept.iter().position(|kept| kept.line == line);
        let before = before.and_then(|at| self.kept.remove(at));
        self.kept.push_back(DenialEntry {
            time: time.to_owned(),
            wall: refused.wall,
            line,
            times: before.map_or(0, |kept| kept.times).saturating_add(times),
        });
        while self.kept.len() > MOST_LINES {
            self.kept.pop_front();
        }
    }

    /// The denials of the selected walls.
    pub fn text(&self, meant: impl Fn(WallName) -> bool) -> String {
        self.under(self.shows.head(), meant)
    }

    /// All denials, for a file that is overwritten and never shortened: spaces at the end of the first line fill it up.
    pub fn file(&mut self) -> String {
        let head = format!("{}; {BESIDE}", self.shows.head());
        let text = self.under(&head, |_| true);
        let missing = self.length.saturating_sub(text.len());
        self.length = self.length.max(text.len());
        match missing {
            0 => text,
            missing => self.under(&format!("{head}{}", " ".repeat(missing)), |_| true),
        }
    }

    fn under(&self, head: &str, meant: impl Fn(WallName) -> bool) -> String {
        let mut text = format!("{head}\n");
        for kept in self.kept.iter().filter(|kept| meant(kept.wall)) {
            text.push_str(&format!("{} {}", kept.time, kept.line));
            if kept.times > 1 {
                text.push_str(&format!(" (x{})", kept.times));
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn refused(what: &str) -> DenialNotice {
        DenialNotice {
            wall: WallName::Network,
            what: what.to_owned(),
            why: "no rule in network.allow matches it".to_owned(),
            ask: Some("the rule a.test".to_owned()),
        }
    }

    #[test]
    fn the_newest_is_last_and_equal_ones_are_one_line() {
        let mut recent = RecentDenials::default();
        recent.take(NOW, &refused("a.test:443"), 1);
        recent.take(NOW, &refused("b.test:443"), 1);
        recent.take("2026-01-02T03:04:06Z", &refused("a.test:443"), 4);
        let text = recent.text(|_| true);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], ReportedDenials::All.head());
        assert!(
            lines[1].starts_with("2026-01-02T03:04:05Z network b.test:443: no rule"),
            "{text}"
        );
        assert_eq!(
            lines[2],
            "2026-01-02T03:04:06Z network a.test:443: no rule in network.allow matches it; to ask for: the rule a.test (x5)"
        );
        assert_eq!(lines.len(), 3);
        assert_eq!(
            recent.text(|wall| wall != WallName::Network),
            format!("{}\n", ReportedDenials::All.head())
        );
    }

    #[test]
    fn a_workloads_text_neither_makes_a_line_nor_reaches_a_terminal() {
        let mut recent = RecentDenials::default();
        let hostile = format!(
            "a\n{NOW} network all is allowed\u{1b}[2J\u{202e}{}",
            "x".repeat(9000)
        );
        recent.take(NOW, &refused(&hostile), 1);
        let text = recent.text(|_| true);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            text.chars().all(|c| c == '\n' || (' '..='~').contains(&c)),
            "{text}"
        );
    }

    #[test]
    fn a_flood_stays_within_the_limit_and_the_file_never_shrinks() {
        for shows in [ReportedDenials::All, ReportedDenials::Calls] {
            flood(shows);
        }
    }

    fn flood(shows: ReportedDenials) {
        let mut recent = RecentDenials::of(shows);
        let mut length = recent.file().len();
        for number in 0..5_000 {
            let long = if number % 100 < 50 { 9000 } else { 3 };
            recent.take(NOW, &refused(&format!("h{number}.{}", "x".repeat(long))), 1);
            let text = recent.file();
            assert!(
                text.len() >= length && text.len() <= 48 << 10,
                "{}",
                text.len()
            );
            assert!(text.lines().count() <= MOST_LINES + 1);
            let head = format!("{}; {BESIDE}", shows.head());
            assert_eq!(text.lines().next().unwrap().trim_end(), head);
            length = text.len();
        }
        assert!(recent.file().ends_with('\n'));
    }
}
