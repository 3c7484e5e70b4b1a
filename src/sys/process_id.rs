//! Identifies a process: pids are used again, but no two processes share a pid and a start time (proc_pid_stat(5)).

use std::io;

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
        let start_time = Stat::read(pid)?.start_time;
        Ok(Self { pid, start_time })
    }

    /// Whether it still runs (a zombie has ended).
    pub fn is_alive(self) -> bool {
        Stat::read(self.pid).is_ok_and(|stat| {
            stat.start_time == self.start_time && stat.state != 'Z' && stat.state != 'X'
        })
    }
}

/// Whether this child of the caller has executed a program, also if it has ended since and was not reaped. An error if
/// it is not known.
pub fn has_executed(child: i32) -> io::Result<bool> {
    /// `PF_FORKNOEXEC` (include/linux/sched.h): set by fork, and taken away by execve.
    const FORKED: u64 = 0x40;
    Ok(Stat::read(child)?.flags & FORKED == 0)
}

/// Three fields of /proc/<pid>/stat.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// Field 3.
    state: char,
    /// Field 9.
    flags: u64,
    /// Field 22.
    start_time: u64,
}

impl Stat {
    fn read(pid: i32) -> io::Result<Self> {
        // Its name may be any bytes; that must not hide a process.
        let text = procfs::lossy(format!("/proc/{pid}/stat"))?;
        Self::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Field 2, the name, is in parentheses and may hold anything, so fields count from the last closing one.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let flags = fields.nth(5)?.parse().ok()?;
        let start_time = fields.nth(12)?.parse().ok()?;
        Some(Self {
            state,
            flags,
            start_time,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_start_time_behind_any_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        let found = Stat::parse(&format!("7 (a) b) (c) {rest}"));
        let expected = Stat {
            state: 'S',
            flags: 6,
            start_time: 4242,
        };
        assert_eq!(found, Some(expected));
        assert!(has_executed(i32::try_from(std::process::id()).unwrap()).unwrap());
        assert_eq!(Stat::parse("7 (a) S 1"), None);
        assert_eq!(Stat::parse(""), None);
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
