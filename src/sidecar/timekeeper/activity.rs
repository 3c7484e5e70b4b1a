//! What a container does, for `time.idle`: its processor time, and the packets of its network. A container is idle while
//! it uses less than [`SHARE`] of a processor and sends nothing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::network::counters;
use crate::policy::SleepRule;

/// One part in this many of one processor's time is activity: 2 %, twice what an editor or an agent takes that waits at
/// its prompt. Any value from 20 to 200 works; 50 is a guess.
const SHARE: u32 = 50;
/// The time between two samples, at most. Each wakes two processes.
const LONGEST_SAMPLE: Duration = Duration::from_secs(10);
/// Samples within a limit, at least: it ends that much of itself later at most.
const SAMPLES: u32 = 5;
/// The largest file that is read; snmp6 takes about 4 KiB.
const LARGEST: usize = 16 << 10;

/// Files in which the kernel counts what a container does.
#[derive(Debug)]
pub struct ActivityFiles {
    /// The processor time of its cgroup.
    pub processor: ProcessorFile,
    /// `net/snmp` of its network, and `net/snmp6` with IPv6.
    pub network: Vec<OwnedFd>,
    /// Whether it is paused: `cgroup.events` of cgroup v2, `freezer.state` of v1, if it has a freezer.
    pub freezer: Option<OwnedFd>,
}

/// The file with a cgroup's processor time.
#[derive(Debug)]
pub enum ProcessorFile {
    /// `cpu.stat` of cgroup v2.
    Stat(OwnedFd),
    /// `cpuacct.usage` of v1.
    Usage(OwnedFd),
}

/// The same, without descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::sidecar) struct ActivityKind {
    processor: ProcessorUnit,
    v6: bool,
    pauses: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProcessorUnit {
    Stat,
    Usage,
}

impl ActivityFiles {
    pub(super) fn kind(&self) -> ActivityKind {
        ActivityKind {
            processor: match self.processor {
                ProcessorFile::Stat(_) => ProcessorUnit::Stat,
                ProcessorFile::Usage(_) => ProcessorUnit::Usage,
            },
            v6: self.network.len() > 1,
            pauses: self.freezer.is_some(),
        }
    }

    /// Always four descriptors: `filler` where there is none.
    pub(super) fn descriptors<'a>(&'a self, filler: BorrowedFd<'a>) -> [BorrowedFd<'a>; 4] {
        let (ProcessorFile::Stat(processor) | ProcessorFile::Usage(processor)) = &self.processor;
        let network = |at: usize| self.network.get(at).map_or(filler, AsFd::as_fd);
        let freezer = self.freezer.as_ref().map_or(filler, AsFd::as_fd);
        [processor.as_fd(), network(0), network(1), freezer]
    }
}

/// What the kernel has counted so far. `None`: it cannot be read, which is no activity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ActivityCount {
    /// Nanoseconds of a processor.
    processor: Option<u64>,
    /// IPv4 and IPv6 packets sent.
    sent: [Option<u64>; 2],
    is_paused: bool,
}

impl ActivityKind {
    /// Reads the files of [`ActivityFiles::descriptors`]. Without memory of its own: on cgroup v2 the timekeeper's filter
    /// allows little of that.
    pub(super) fn count(self, files: &[OwnedFd; 4]) -> ActivityCount {
        let mut buffer = [0; LARGEST];
        let mut read = |file: usize, find: &dyn Fn(&str) -> Option<u64>| {
            text(&files[file], &mut buffer).and_then(find)
        };
        ActivityCount {
            processor: read(0, &|text| match self.processor {
                ProcessorUnit::Stat => stat(text),
                ProcessorUnit::Usage => text.trim_ascii().parse().ok(),
            }),
            sent: [
                read(1, &counters::sent),
                if self.v6 {
                    read(2, &counters::sent_v6)
                } else {
                    None
                },
            ],
            is_paused: self.pauses && read(3, &|text| is_paused(text).then_some(1)).is_some(),
        }
    }
}

/// The content of a file of the kernel's.
fn text(file: impl AsFd, buffer: &mut [u8]) -> Option<&str> {
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::pread(&file, &mut buffer[filled..], filled as u64).ok()? {
            0 => break,
            length => filled += length,
        }
    }
    std::str::from_utf8(&buffer[..filled]).ok()
}

/// The processor time in `cpu.stat`, which has microseconds.
fn stat(text: &str) -> Option<u64> {
    let usage = text
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "))?;
    usage.parse::<u64>().ok()?.checked_mul(1000)
}

/// `cgroup.events` of cgroup v2, or `freezer.state` of v1.
fn is_paused(text: &str) -> bool {
    text.lines()
        .any(|line| line == "frozen 1" || line == "FROZEN")
}

/// Since when a container is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IdleWatch {
    limit: Duration,
    sleep: SleepRule,
    /// The last activity.
    since: Duration,
    sampled: Duration,
    last: ActivityCount,
}

impl IdleWatch {
    /// Begins now, as if there were activity.
    pub(super) fn begin(
        limit: Duration,
        sleep: SleepRule,
        now: Duration,
        first: ActivityCount,
    ) -> Self {
        Self {
            limit,
            sleep,
            since: now,
            sampled: now,
            last: first,
        }
    }

    /// The last activity.
    pub(super) fn since(&self) -> Duration {
        self.since
    }

    /// When the limit is reached. Only a sample from then on shows that there was no activity until then: the one before may
    /// be an interval old.
    pub(super) fn due(&self) -> Duration {
        let end = self.since.saturating_add(self.limit);
        match self.sampled >= end {
            true => end,
            false => self.next().max(end),
        }
    }

    /// When the next sample is due: one falls on the limit.
    pub(super) fn next(&self) -> Duration {
        let next = self.sampled.saturating_add(self.interval());
        let end = self.since.saturating_add(self.limit);
        match self.sampled < end {
            true => next.min(end),
            false => next,
        }
    }

    fn interval(&self) -> Duration {
        (self.limit / SAMPLES).min(LONGEST_SAMPLE)
    }

    /// Takes a sample. The threshold does not grow with a late one: so a suspension of the machine hides no activity.
    pub(super) fn take(&mut self, now: Duration, count: ActivityCount) {
        let more = |now: Option<u64>, before: Option<u64>| match (now, before) {
            (Some(now), Some(before)) => now.saturating_sub(before),
            _ => 0,
        };
        let used = Duration::from_nanos(more(count.processor, self.last.processor));
        let sent = (0..2).any(|family| more(count.sent[family], self.last.sent[family]) > 0);
        if used > self.interval() / SHARE || sent {
            self.since = now;
        } else if count.is_paused && self.sleep == SleepRule::Pauses {
            self.since += now.saturating_sub(self.sampled);
        }
        self.sampled = now;
        self.last = count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Milliseconds of a processor, and packets of both families.
    fn count(processor: u64, v4: u64, v6: u64) -> ActivityCount {
        ActivityCount {
            processor: Some(processor * 1_000_000),
            sent: [Some(v4), Some(v6)],
            is_paused: false,
        }
    }

    fn watch(sleep: SleepRule) -> IdleWatch {
        IdleWatch::begin(at(300), sleep, at(1000), count(0, 0, 0))
    }

    /// Each sample is a little late, and what happened since the last one counts.
    #[test]
    fn activity_in_the_last_interval_before_the_limit_counts() {
        let late = Duration::from_millis(1);
        for limit in [95, 300] {
            let mut watch =
                IdleWatch::begin(at(limit), SleepRule::Counts, at(1000), count(0, 0, 0));
            let end = at(1000 + limit);
            let mut samples = 0;
            while watch.next() < end {
                let now = watch.next() + late;
                watch.take(now, count(0, 0, 0));
                assert!(watch.due() > now, "not yet");
                samples += 1;
            }
            assert!(samples >= 9, "{samples}");
            // The sample on the limit shows work that began just before.
            assert_eq!(watch.next(), end);
            let mut idle = watch;
            watch.take(end + late, count(0, 1, 0));
            assert_eq!(watch.due(), end + late + at(limit));
            // The control.
            idle.take(end + late, count(0, 0, 0));
            assert!(idle.due() <= end + late);
        }
    }

    #[test]
    fn processor_time_and_packets_are_activity() {
        let begun = watch(SleepRule::Counts);
        assert_eq!((begun.due(), begun.next()), (at(1300), at(1010)));
        for (sample, is_active) in [
            (count(0, 0, 0), false),
            // 2 % of ten seconds are 200 ms.
            (count(200, 0, 0), false),
            (count(201, 0, 0), true),
            (count(0, 1, 0), true),
            (count(0, 0, 1), true),
            // Unreadable: it gives no time.
            (ActivityCount::default(), false),
        ] {
            let mut watch = begun;
            watch.take(at(1010), sample);
            let since = if is_active { at(1010) } else { at(1000) };
            assert_eq!(watch.since(), since, "{sample:?}");
            assert_eq!(watch.next(), at(1020));
        }
        // Small amounts do not add up: each sample begins anew.
        let mut watch = begun;
        for step in 1..=10 {
            watch.take(at(1000 + 10 * step), count(150 * step, 0, 0));
        }
        assert_eq!(watch.since(), at(1000));
        // A cgroup's count can be set to 0, by root.
        watch.take(at(1110), count(0, 0, 0));
        assert_eq!(watch.since(), at(1000));
    }

    #[test]
    fn a_late_sample_hides_no_activity() {
        // Stopped for an hour, in which the container worked for a second.
        let mut late = watch(SleepRule::Counts);
        late.take(at(4600), count(1000, 0, 0));
        assert_eq!(late.since(), at(4600));
        // The control: suspended for an hour, which counts.
        let mut suspended = watch(SleepRule::Counts);
        suspended.take(at(4600), count(5, 0, 0));
        assert!(suspended.due() < at(4600));
    }

    #[test]
    fn a_pause_counts_as_time_sleep_says() {
        let paused = ActivityCount {
            is_paused: true,
            ..count(0, 0, 0)
        };
        for (sleep, since) in [(SleepRule::Counts, 1000), (SleepRule::Pauses, 1010)] {
            let mut watch = watch(sleep);
            watch.take(at(1010), paused);
            watch.take(at(1020), count(0, 0, 0));
            assert_eq!(watch.since(), at(since), "{sleep}");
        }
    }

    #[test]
    fn a_short_limit_is_sampled_more_often() {
        for (limit, interval) in [
            (1000, 200),
            (10_000, 2000),
            (50_000, 10_000),
            (3_600_000, 10_000),
        ] {
            let [limit, interval] = [limit, interval].map(Duration::from_millis);
            let watch = IdleWatch::begin(limit, SleepRule::Counts, at(0), count(0, 0, 0));
            assert_eq!(watch.next(), interval);
        }
    }

    #[test]
    fn the_kernels_files_are_read() {
        let v2 = "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nnr_periods 0\n";
        assert_eq!(stat(v2), Some(SECOND / 1_000_000 * 1500));
        assert_eq!(stat("user_usec 7\n"), None);
        assert_eq!(stat("usage_usec 99999999999999999999\n"), None);
        for (text, expected) in [
            ("populated 1\nfrozen 1\n", true),
            ("populated 1\nfrozen 0\n", false),
            ("FROZEN\n", true),
            ("THAWED\n", false),
            ("FREEZING\n", false),
        ] {
            assert_eq!(is_paused(text), expected, "{text}");
        }
    }

    #[test]
    fn a_sample_of_real_files_has_every_count() {
        let file = |content: &str| -> OwnedFd {
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            let file = rustix::fs::memfd_create("count", flags).unwrap();
            rustix::io::write(&file, content.as_bytes()).unwrap();
            file
        };
        let files = ActivityFiles {
            processor: ProcessorFile::Usage(file("7000000\n")),
            network: vec![
                file("Ip: InReceives OutRequests\nIp: 9 3\n"),
                file("Ip6OutRequests   \t5\n"),
            ],
            freezer: Some(file("FROZEN\n")),
        };
        let filler = file("");
        let kind = files.kind();
        let opened = files
            .descriptors(filler.as_fd())
            .map(|fd| fd.try_clone_to_owned().unwrap());
        let expected = ActivityCount {
            is_paused: true,
            ..count(7, 3, 5)
        };
        assert_eq!(kind.count(&opened), expected);
        // Neither IPv6 nor a freezer, and cgroup v2.
        let files = ActivityFiles {
            processor: ProcessorFile::Stat(file("usage_usec 7000\n")),
            network: vec![file("Ip: OutRequests\nIp: 3\n")],
            freezer: None,
        };
        let kind = files.kind();
        let opened = files
            .descriptors(filler.as_fd())
            .map(|fd| fd.try_clone_to_owned().unwrap());
        let expected = ActivityCount {
            sent: [Some(3), None],
            ..count(7, 3, 0)
        };
        assert_eq!(kind.count(&opened), expected);
    }
}
