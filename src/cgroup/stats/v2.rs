//! What a container uses, from cgroup v2, in cgroup v1's terms as runc shows it.

use std::fs;
use std::path::Path;

use crate::cgroup::stats::{Entry, IoEntry, Stats, number, page_sizes, pressure, table};

pub fn read(dir: &Path) -> Stats {
    let mut stats = Stats::default();
    let cpu = table(dir, "cpu.stat");
    let value = |name: &str| cpu.get(name).copied().unwrap_or(0);
    stats.cpu.usage.total = value("usage_usec") * 1000;
    stats.cpu.usage.user = value("user_usec") * 1000;
    stats.cpu.usage.kernel = value("system_usec") * 1000;
    stats.cpu.throttling.periods = value("nr_periods");
    stats.cpu.throttling.throttled_periods = value("nr_throttled");
    stats.cpu.throttling.throttled_time = value("throttled_usec") * 1000;
    stats.cpu.psi = pressure(dir, "cpu.pressure");
    memory(dir, &mut stats);
    stats.pids.current = number(dir, "pids.current");
    stats.pids.limit = Some(number(dir, "pids.max"))
        .filter(|m| *m != u64::MAX)
        .unwrap_or(0);
    let text = fs::read_to_string(dir.join("io.stat")).unwrap_or_default();
    for (name, entry) in text.lines().flat_map(entries) {
        stats.blkio.entry(name).or_default().push(entry);
    }
    for size in page_sizes(dir, ".current") {
        let events = table(dir, &format!("hugetlb.{size}.events"));
        let entry = Entry {
            usage: number(dir, &format!("hugetlb.{size}.current")),
            failcnt: events.get("max").copied().unwrap_or(0),
            ..Entry::default()
        };
        stats.hugetlb.insert(size, entry);
    }
    stats
}

fn memory(dir: &Path, stats: &mut Stats) {
    let memory = &mut stats.memory;
    memory.raw = table(dir, "memory.stat");
    memory.cache = memory.raw.get("file").copied().unwrap_or(0);
    let events = table(dir, "memory.events");
    memory.usage = Entry {
        limit: number(dir, "memory.max"),
        usage: number(dir, "memory.current"),
        max: number(dir, "memory.peak"),
        failcnt: events.get("max").copied().unwrap_or(0),
    };
    // cgroup v1 includes memory.
    memory.swap = Entry {
        limit: number(dir, "memory.swap.max").saturating_add(memory.usage.limit),
        usage: number(dir, "memory.swap.current").saturating_add(memory.usage.usage),
        ..Entry::default()
    };
    memory.psi = pressure(dir, "memory.pressure");
}

/// A line `major:minor rbytes=1 wbytes=2 rios=3 wios=4 ...`.
fn entries(line: &str) -> Vec<(&'static str, IoEntry)> {
    let mut words = line.split_ascii_whitespace();
    let device = words.next().and_then(|d| d.split_once(':'));
    let numbers = device.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    let Some((major, minor)) = numbers else {
        return Vec::new();
    };
    let entry = |word: &str| {
        let (key, value) = word.split_once('=')?;
        let (name, op) = match key {
            "rbytes" => ("ioServiceBytesRecursive", "Read"),
            "wbytes" => ("ioServiceBytesRecursive", "Write"),
            "rios" => ("ioServicedRecursive", "Read"),
            "wios" => ("ioServicedRecursive", "Write"),
            _ => return None,
        };
        let op = op.to_owned();
        let value = value.parse().ok()?;
        Some((
            name,
            IoEntry {
                major,
                minor,
                op,
                value,
            },
        ))
    };
    words.filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_io_stat_is_four_entries() {
        let found = entries("8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6");
        let seen: Vec<_> = found
            .iter()
            .map(|(n, e)| (*n, e.op.as_str(), e.value))
            .collect();
        assert_eq!(
            seen,
            [
                ("ioServiceBytesRecursive", "Read", 1),
                ("ioServiceBytesRecursive", "Write", 2),
                ("ioServicedRecursive", "Read", 3),
                ("ioServicedRecursive", "Write", 4),
            ]
        );
        assert!(entries("nonsense").is_empty());
    }
}
