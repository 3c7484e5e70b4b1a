//! One line on the user's terminal about a step that takes longer than a second. It is erased at the step's end.
//!
//! Without it, `wrap` in a large directory would look like a program that hangs.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{LOGGER, LogReader};
use crate::text::{bounded, escape};

/// How long a step takes before it is told.
const AFTER: Duration = Duration::from_secs(1);

/// Time between two lines.
const EVERY: Duration = Duration::from_millis(200);

/// Columns of a terminal that does not tell them.
const COLUMNS: u16 = 80;

/// Back to the first column, and erase the line (ECMA-48, CR and EL).
const ERASE: &str = "\r\x1b[K";

/// Whether a line is on the terminal.
static SHOWN: AtomicBool = AtomicBool::new(false);

/// `--quiet`.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Shows no line from now on.
pub fn silence() {
    QUIET.store(true, Ordering::Relaxed);
}

/// A step that may take long. Its line disappears with the value.
pub struct Progress {
    /// `None` if no user reads standard error.
    what: Option<String>,
    begun: Instant,
    last: Option<Instant>,
}

impl Progress {
    /// A step that is not reported.
    pub fn none() -> Self {
        Self {
            what: None,
            begun: Instant::now(),
            last: None,
        }
    }

    /// Begins a step.
    pub fn begin(what: impl FnOnce() -> String) -> Self {
        let is_read = LOGGER
            .get()
            .is_some_and(|logger| logger.form == LogReader::Person && !logger.debug)
            && rustix::termios::isatty(rustix::stdio::stderr());
        Self {
            what: (is_read && !QUIET.load(Ordering::Relaxed)).then(what),
            ..Self::none()
        }
    }

    /// Shows how far the step is, if it already takes long and the last line is old.
    pub fn tell(&mut self, far: impl FnOnce() -> String) {
        let Some(what) = &self.what else {
            return;
        };
        let now = Instant::now();
        if !is_due(now - self.begun, self.last.map(|last| now - last)) {
            return;
        }
        self.last = Some(now);
        let size = rustix::termios::tcgetwinsize(rustix::stdio::stderr());
        let columns = size.map_or(0, |size| size.ws_col);
        let line = line(what, &far(), columns);
        SHOWN.store(true, Ordering::Relaxed);
        let _nobody = std::io::stderr().write_all(line.as_bytes());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.last.is_some() {
            erase();
        }
    }
}

/// Makes room for another line on the terminal.
pub(super) fn erase() {
    if SHOWN.swap(false, Ordering::Relaxed) {
        let _nobody = std::io::stderr().write_all(ERASE.as_bytes());
    }
}

fn is_due(since_begin: Duration, since_last: Option<Duration>) -> bool {
    since_begin >= AFTER && since_last.is_none_or(|last| last >= EVERY)
}

/// One line of the terminal: a longer one would not be erased as a whole.
fn line(what: &str, far: &str, columns: u16) -> String {
    let columns = match columns {
        0 => COLUMNS,
        told => told,
    };
    let most = usize::from(columns.saturating_sub(1));
    let text = escape(&format!("agentbox: {what}: {far}"));
    format!("{ERASE}{}", bounded(&text, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_told_after_a_second_and_five_times_in_each() {
        let ms = Duration::from_millis;
        assert!(!is_due(ms(999), None));
        assert!(is_due(ms(1000), None));
        assert!(!is_due(ms(1199), Some(ms(199))));
        assert!(is_due(ms(1200), Some(ms(200))));
    }

    #[test]
    fn a_line_fits_the_terminal_and_gives_it_no_commands() {
        let told = line("searching \"/a\x1b[2J\nb\"", "9 entries", 0);
        let told = told.strip_prefix(ERASE).unwrap();
        assert!(!told.contains(['\x1b', '\n']), "{told:?}");
        for columns in [1, 10, 40, 80] {
            let long = line(&"directory".repeat(30), "9 entries", columns);
            let long = long.strip_prefix(ERASE).unwrap();
            assert!(
                long.chars().count() < usize::from(columns).max(6),
                "{columns}: {long}"
            );
        }
        assert!(line(&"d".repeat(300), "9 entries", 40).ends_with("9 entries"));
    }
}
