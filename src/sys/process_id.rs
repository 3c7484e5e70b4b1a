//! Identifies a process: pids are used again, but no two processes share a pid and a start time (proc_pid_stat(5)).

use std::fmt::Display;
use std::io;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use rustix::time::ClockId;
use serde::{Deserialize, Serialize};

use super::procfs;

/// A process, identified by its pid and its start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProcessId {
    /// The pid in the runtime's pid namespace.
    pub pid: i32,
    /// Field 22 of /proc/<pid>/stat (proc_pid_stat(5)), clock ticks after boot.
    pub start_time: u64,
}

impl ProcessId {
    /// The process that has this pid now.
    pub fn of(pid: i32) -> Option<Self> {
        Self::read(pid).ok()
    }

    /// The same, with an error if there is none.
    pub fn read(pid: i32) -> io::Result<Self> {
        let start_time = Stat::read(pid)?.field(22)?;
        Ok(Self { pid, start_time })
    }

    /// When it was started, since 1970 by the clock of now; `None` without a clock after 1970.
    pub fn begun(self) -> Option<Duration> {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .ok()?;
        let since_boot = rustix::time::clock_gettime(ClockId::Boottime);
        let since_boot = Duration::new(
            since_boot.tv_sec.try_into().ok()?,
            since_boot.tv_nsec.try_into().ok()?,
        );
        let ticks = rustix::param::clock_ticks_per_second();
        let milliseconds = self.start_time.checked_mul(1000)?.checked_div(ticks)?;
        (now + Duration::from_millis(milliseconds)).checked_sub(since_boot)
    }

    /// Whether it still runs (a zombie has ended).
    pub fn is_alive(self) -> bool {
        Stat::read(self.pid)
            .is_ok_and(|stat| stat.field(22).ok() == Some(self.start_time) && stat.runs())
    }
}

/// Whether a process runs on, although its first thread has ended: that alone is a zombie then (pthread_exit(3)).
pub fn outlives_first_thread(pid: i32) -> bool {
    Stat::read(pid).is_ok_and(|stat| stat.first_has_ended() && stat.runs())
}

/// The parent of a process.
pub fn parent(pid: i32) -> io::Result<i32> {
    Stat::read(pid)?.field(4)
}

/// The start time of a process, by its directory below /proc: a pid, or one below another /proc that is open there.
pub fn start_time(process: impl Display) -> io::Result<u64> {
    Stat::read(process)?.field(22)
}

/// Whether this child of the caller has executed a program, also if it has ended since and was not reaped. An error if
/// it is not known.
pub fn has_executed(child: i32) -> io::Result<bool> {
    /// `PF_FORKNOEXEC` (include/linux/sched.h): set by fork, and taken away by execve.
    const FORKED: u64 = 0x40;
    Ok(Stat::read(child)?.field::<u64>(9)? & FORKED == 0)
}

/// /proc/<pid>/stat (proc_pid_stat(5)).
pub(super) struct Stat(String);

impl Stat {
    /// Of a pid, or `self`.
    pub(super) fn read(process: impl Display) -> io::Result<Self> {
        // Its name may be any bytes; that must not hide a process.
        procfs::lossy(format!("/proc/{process}/stat")).map(Self)
    }

    fn first_has_ended(&self) -> bool {
        self.field(3)
            .is_ok_and(|state: char| matches!(state, 'Z' | 'X'))
    }

    /// Field 20 is the number of threads, of which one is the zombie.
    fn runs(&self) -> bool {
        !self.first_has_ended() || self.field(20).is_ok_and(|threads: u32| threads > 1)
    }

    /// Field 2, the name, is in parentheses and may hold anything, so fields count from the last closing one.
    pub(super) fn field<T: FromStr>(&self, number: usize) -> io::Result<T> {
        let fields = self.0.rsplit_once(')').map(|(_, rest)| rest);
        let from_third = number.checked_sub(3);
        let found = fields.zip(from_third).and_then(|(text, at)| {
            let field = text.split_ascii_whitespace().nth(at)?;
            field.parse().ok()
        });
        found.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_start_time_behind_any_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        let stat = Stat(format!("7 (a) b) (c) {rest}"));
        assert_eq!(stat.field(3).ok(), Some('S'));
        assert_eq!(stat.field(9).ok(), Some(6));
        assert_eq!(stat.field(22).ok(), Some(4242));
        assert!(has_executed(i32::try_from(std::process::id()).unwrap()).unwrap());
        for (text, number) in [
            ("7 (a) S 1", 22),
            ("", 3),
            ("7 (a) S 1", 2),
            ("7 (a) S x", 4),
        ] {
            assert!(
                Stat(text.to_owned()).field::<u64>(number).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn a_process_runs_until_its_last_thread_has_ended() {
        let process = |state, threads| {
            Stat(format!(
                "7 (a) {state} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 {threads} 18 4242 20"
            ))
        };
        for (state, threads, runs) in [
            ("S", 1, true),
            ("S", 2, true),
            ("Z", 2, true),
            ("Z", 1, false),
            ("Z", 0, false),
            ("X", 0, false),
        ] {
            assert_eq!(process(state, threads).runs(), runs, "{state} {threads}");
        }
    }

    #[test]
    fn a_process_is_found_with_any_bytes_in_its_name() {
        use std::io::Read;
        use std::process::{Command, Stdio};
        let script = "printf '\\377' >/proc/$$/comm; echo; read line";
        let mut named = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        named.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        let comm = std::fs::read(format!("/proc/{}/comm", named.id())).unwrap();
        assert_eq!(comm, b"\xff\n");
        let found = ProcessId::of(named.id() as i32);
        drop(named.stdin.take());
        let alive = found.is_some();
        named.wait().unwrap();
        assert!(alive);
    }

    #[test]
    fn a_pid_and_start_time_mean_one_process_only() {
        let own = ProcessId::of(std::process::id() as i32).unwrap();
        assert!(own.is_alive());
        let earlier = ProcessId {
            start_time: own.start_time - 1,
            ..own
        };
        assert!(!earlier.is_alive());
        assert!(ProcessId::of(i32::MAX).is_none());
    }
}
