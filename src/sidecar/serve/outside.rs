//! Connections from outside to ports on which nobody listens: probes, `docker run -p`, hostPort and port-forward
//! without `network.inbound`. The kernel refuses them without notice; only its count of sent resets is visible.
//!
//! The count is polled less and less often: five seconds after the sidecar's start, then after twice as long each
//! time, and at last every five minutes. Lines become rarer still. While there are connections of the container's
//! own, what the kernel sent may be theirs, and is not written down.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::Duration;

use super::wall::Wall;
use crate::network::resets_sent;

/// From the start to the first look, and from that to the next.
const FIRST: u64 = 5;
/// The longest time between two looks.
const MOST_DELAY: u64 = 300;
/// The longest time between two lines.
const MOST_GAP: u64 = 3600;
/// The file has some 1500 bytes.
const MOST_BYTES: usize = 8192;

/// Looks at the count until the sidecar ends. What cannot be read is not looked at again.
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
            // None is open, none was at the last look, and none has been opened since.
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

/// Whether the container itself had outbound connections since the last look. Their resets are counted too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnConnections {
    None,
    Some,
}

/// When to look, and when to write. Times are seconds.
#[derive(Debug)]
struct Pace {
    delay: u64,
    /// The count of the last look.
    last: u64,
    /// What no line has said yet.
    unsaid: u64,
    /// No line before this time, and how long after it the next one.
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

    /// What a line is to say now, if there is to be one.
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

    /// Looks for so long, with so many resets a second; the lines.
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
    fn the_first_probe_is_written_down_soon() {
        assert_eq!(run(600, 0.2, OwnConnections::None)[0], (5, 1));
    }

    #[test]
    fn a_probe_for_ever_is_a_line_an_hour() {
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
    fn what_may_be_the_containers_own_is_not_said() {
        assert!(run(10_000, 1.0, OwnConnections::Some).is_empty());
        let mut pace = Pace::new(0);
        assert_eq!(pace.look(9, OwnConnections::Some, 5), None);
        assert_eq!(pace.look(9, OwnConnections::None, 15), None);
        assert_eq!(pace.look(11, OwnConnections::None, 35), Some(2));
    }
}
