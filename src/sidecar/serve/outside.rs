//! Connections from outside to ports without a listener: probes, `docker run -p`, hostPort and port-forward without
//! `network.inbound`. The kernel refuses them without notice; only its count of sent resets is visible.
//!
//! The count is read less and less often: five seconds after the sidecar's start, then after twice as long each time,
//! at last every five minutes. Lines become rarer still. While the container has connections of its own, resets may
//! belong to them, and are not logged.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::Duration;

use super::wall::Wall;
use crate::network::resets_sent;

/// From the start to the first look.
const FIRST: u64 = 5;
/// The longest time between two looks.
const MOST_DELAY: u64 = 300;
/// The longest time between two lines.
const MOST_GAP: u64 = 3600;
/// The file has about 1500 bytes.
const MOST_BYTES: usize = 8192;

/// Reads the count until the sidecar ends, or a read fails.
pub(super) fn serve(wall: &Rc<Wall>, snmp: OwnedFd) {
    let wall = Rc::clone(wall);
    let file = File::from(snmp);
    tokio::task::spawn_local(async move {
        let Some(count) = read(&file) else { return };
        let mut pace = Pace::new(count);
        let mut opened = wall.opened();
        loop {
            tokio::time::sleep(Duration::from_secs(pace.delay)).await;
            let Some(count) = read(&file) else { return };
            let now = wall.opened();
            // No connection is open, was open at the last look, or was opened since.
            let own = match now == opened && now.open == 0 {
                true => OwnConnections::None,
                false => OwnConnections::Some,
            };
            opened = now;
            if let Some(refused) = pace.look(count, own, wall.milliseconds() / 1000) {
                wall.note_outside(refused);
            }
        }
    });
}

fn read(file: &File) -> Option<u64> {
    let mut text = [0; MOST_BYTES];
    let length = file.read_at(&mut text, 0).ok()?;
    resets_sent(std::str::from_utf8(&text[..length]).ok()?)
}

/// Whether the container had connections since the last look: their resets are counted too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnConnections {
    None,
    Some,
}

/// When to look, and when to log. Times are seconds.
#[derive(Debug)]
struct Pace {
    delay: u64,
    /// The count of the last look.
    last: u64,
    /// The resets without a line so far.
    unsaid: u64,
    /// The earliest time of the next line, and the gap after it.
    next_line: u64,
    gap: u64,
}

impl Pace {
    fn new(count: u64) -> Self {
        Self {
            delay: FIRST,
            last: count,
            unsaid: 0,
            next_line: 0,
            gap: FIRST,
        }
    }

    /// The number for a line, if one is due now.
    fn look(&mut self, count: u64, own: OwnConnections, now: u64) -> Option<u64> {
        let new = count.saturating_sub(self.last);
        self.last = count;
        self.delay = (self.delay * 2).min(MOST_DELAY);
        if own == OwnConnections::None {
            self.unsaid = self.unsaid.saturating_add(new);
        }
        if self.unsaid == 0 || now < self.next_line {
            return None;
        }
        self.gap = (self.gap * 2).min(MOST_GAP);
        self.next_line = now.saturating_add(self.gap);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a run of so many seconds, with so many resets a second.
    fn run(seconds: u64, a_second: f64, own: OwnConnections) -> Vec<(u64, u64)> {
        let mut pace = Pace::new(100);
        let (mut now, mut lines) = (0, Vec::new());
        while now < seconds {
            now += pace.delay;
            let count = 100 + (now as f64 * a_second) as u64;
            lines.extend(pace.look(count, own, now).map(|n| (now, n)));
        }
        lines
    }

    #[test]
    fn the_first_probe_is_logged_soon() {
        assert_eq!(run(600, 0.2, OwnConnections::None)[0], (5, 1));
    }

    #[test]
    fn an_endless_probe_gets_a_line_an_hour() {
        let day = run(86_400, 0.1, OwnConnections::None);
        assert!((24..40).contains(&day.len()), "{}", day.len());
        let said: u64 = day.iter().map(|line| line.1).sum();
        assert!(said > 8000, "{said}: all but the last ones");
    }

    #[test]
    fn an_idle_sidecar_hardly_wakes() {
        let mut pace = Pace::new(0);
        let (mut now, mut looks) = (0, 0);
        while now < 86_400 {
            now += pace.delay;
            looks += 1;
            assert_eq!(pace.look(0, OwnConnections::None, now), None);
        }
        assert!(looks < 300, "{looks}");
    }

    #[test]
    fn resets_that_may_be_the_containers_own_are_not_logged() {
        assert!(run(10_000, 1.0, OwnConnections::Some).is_empty());
        let mut pace = Pace::new(0);
        assert_eq!(pace.look(9, OwnConnections::Some, 5), None);
        assert_eq!(pace.look(9, OwnConnections::None, 15), None);
        assert_eq!(pace.look(11, OwnConnections::None, 35), Some(2));
    }
}
