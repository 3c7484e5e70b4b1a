//! What a container uses, from the hierarchies of cgroup v1.

use std::fs;
use std::path::Path;

use crate::cgroup::controllers::Controllers;
use crate::cgroup::stats::{Entry, IoEntry, Stats, number, page_sizes, table};

/// The unit of cpuacct.stat: USER_HZ is 100 on every supported architecture (time(7)).
const NANOSECONDS_PER_TICK: u64 = 10_000_000;

pub fn read(controllers: &Controllers) -> Stats {
    let mut stats = Stats::default();
    if let Some(dir) = controllers.v1("cpuacct") {
        usage(dir, &mut stats);
    }
    if let Some(dir) = controllers.v1("cpu") {
        let values = table(dir, "cpu.stat");
        let value = |name: &str| values.get(name).copied().unwrap_or(0);
        stats.cpu.throttling.periods = value("nr_periods");
        stats.cpu.throttling.throttled_periods = value("nr_throttled");
        stats.cpu.throttling.throttled_time = value("throttled_time");
    }
    if let Some(dir) = controllers.v1("cpuset") {
        cpuset(dir, &mut stats);
    }
    if let Some(dir) = controllers.v1("memory") {
        stats.memory.raw = table(dir, "memory.stat");
        stats.memory.cache = stats.memory.raw.get("cache").copied().unwrap_or(0);
        stats.memory.usage = memory(dir, "");
        stats.memory.swap = memory(dir, "memsw.");
        stats.memory.kernel = memory(dir, "kmem.");
        stats.memory.kernel_tcp = memory(dir, "kmem.tcp.");
    }
    if let Some(dir) = controllers.v1("pids") {
        stats.pids.current = number(dir, "pids.current");
        stats.pids.limit = Some(number(dir, "pids.max"))
            .filter(|m| *m != u64::MAX)
            .unwrap_or(0);
    }
    if let Some(dir) = controllers.v1("blkio") {
        io(dir, &mut stats);
    }
    if let Some(dir) = controllers.v1("hugetlb") {
        for size in page_sizes(dir, ".usage_in_bytes") {
            let value = |what: &str| number(dir, &format!("hugetlb.{size}.{what}"));
            let entry = Entry {
                limit: 0,
                usage: value("usage_in_bytes"),
                max: value("max_usage_in_bytes"),
                failcnt: value("failcnt"),
            };
            stats.hugetlb.insert(size, entry);
        }
    }
    stats
}

fn usage(dir: &Path, stats: &mut Stats) {
    let usage = &mut stats.cpu.usage;
    usage.total = number(dir, "cpuacct.usage");
    let ticks = table(dir, "cpuacct.stat");
    let nanoseconds = |name: &str| ticks.get(name).map_or(0, |t| t * NANOSECONDS_PER_TICK);
    usage.kernel = nanoseconds("system");
    usage.user = nanoseconds("user");
    let text = fs::read_to_string(dir.join("cpuacct.usage_percpu")).unwrap_or_default();
    usage.percpu = text
        .split_ascii_whitespace()
        .filter_map(|n| n.parse().ok())
        .collect();
    // A header, then `cpu user system` in nanoseconds.
    let text = fs::read_to_string(dir.join("cpuacct.usage_all")).unwrap_or_default();
    for line in text.lines().skip(1) {
        let numbers: Vec<u64> = line.split(' ').filter_map(|n| n.parse().ok()).collect();
        if let [_, user, system] = numbers[..] {
            usage.percpu_user.push(user);
            usage.percpu_kernel.push(system);
        }
    }
}

fn cpuset(dir: &Path, stats: &mut Stats) {
    for (name, file) in [("cpus", "cpuset.cpus"), ("mems", "cpuset.mems")] {
        let list = list(&fs::read_to_string(dir.join(file)).unwrap_or_default());
        if !list.is_empty() {
            stats.cpuset.insert(name, list.into());
        }
    }
    for name in [
        "cpu_exclusive",
        "mem_hardwall",
        "mem_exclusive",
        "memory_migrate",
        "memory_spread_page",
        "memory_spread_slab",
        "memory_pressure",
        "sched_load_balance",
    ] {
        stats
            .cpuset
            .insert(name, number(dir, &format!("cpuset.{name}")).into());
    }
    let level = fs::read_to_string(dir.join("cpuset.sched_relax_domain_level")).unwrap_or_default();
    let level: i64 = level.trim().parse().unwrap_or(0);
    stats
        .cpuset
        .insert("sched_relax_domain_level", level.into());
}

/// `0-2,7` as numbers (cpuset(7), list format).
fn list(text: &str) -> Vec<u16> {
    let mut all = Vec::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse()) {
            all.extend(first..=last);
        }
    }
    all
}

fn memory(dir: &Path, kind: &str) -> Entry {
    let value = |what: &str| number(dir, &format!("memory.{kind}{what}"));
    Entry {
        limit: value("limit_in_bytes"),
        usage: value("usage_in_bytes"),
        max: value("max_usage_in_bytes"),
        failcnt: value("failcnt"),
    }
}

/// The scheduler's own counters if it has them, else the throttle layer's.
fn io(dir: &Path, stats: &mut Stats) {
    const BFQ: &[(&str, &str)] = &[
        (
            "ioServiceBytesRecursive",
            "blkio.bfq.io_service_bytes_recursive",
        ),
        ("ioServicedRecursive", "blkio.bfq.io_serviced_recursive"),
        ("ioQueueRecursive", "blkio.bfq.io_queued_recursive"),
        (
            "ioServiceTimeRecursive",
            "blkio.bfq.io_service_time_recursive",
        ),
        ("ioWaitTimeRecursive", "blkio.bfq.io_wait_time_recursive"),
        ("ioMergedRecursive", "blkio.bfq.io_merged_recursive"),
        ("ioTimeRecursive", "blkio.bfq.time_recursive"),
        ("sectorsRecursive", "blkio.bfq.sectors_recursive"),
    ];
    const THROTTLE: &[(&str, &str)] = &[
        (
            "ioServiceBytesRecursive",
            "blkio.throttle.io_service_bytes_recursive",
        ),
        (
            "ioServicedRecursive",
            "blkio.throttle.io_serviced_recursive",
        ),
    ];
    let files = if entries(dir, BFQ[1].1).is_empty() {
        THROTTLE
    } else {
        BFQ
    };
    for (name, file) in files {
        let entries = entries(dir, file);
        if !entries.is_empty() {
            stats.blkio.insert(name, entries);
        }
    }
}

/// Lines `major:minor operation number`, or without the operation; the last one is a sum.
fn entries(dir: &Path, file: &str) -> Vec<IoEntry> {
    let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
    text.lines().filter_map(entry).collect()
}

fn entry(line: &str) -> Option<IoEntry> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let (device, op, value) = match words[..] {
        [device, op, value] => (device, op, value),
        [device, value] => (device, "", value),
        _ => return None,
    };
    let (major, minor) = device.split_once(':')?;
    Some(IoEntry {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        op: op.to_owned(),
        value: value.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_blkio_are_entries_and_the_sum_is_none() {
        let read = entry("8:16 Read 4096").unwrap();
        assert_eq!(
            (read.major, read.minor, read.op.as_str(), read.value),
            (8, 16, "Read", 4096)
        );
        assert_eq!(entry("8:0 77").unwrap().value, 77);
        assert_eq!(entry("Total 4096"), None);
    }

    #[test]
    fn a_list_of_processors_has_ranges() {
        assert_eq!(list("0-2,7\n"), [0, 1, 2, 7]);
        assert!(list("\n").is_empty());
    }
}
