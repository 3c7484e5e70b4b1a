//! Other programs of the same job that read the terminal: `wrap ... | less`. A key reaches the first reader, so an
//! answer might be meant for another program.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;

/// A process, from /proc/PID/stat.
struct Process {
    parent: i32,
    group: i32,
    /// The device number of the terminal of its session.
    terminal: u64,
    is_dead: bool,
}

/// The device number of /dev/tty, which differs for each process.
const OWN: u64 = 0x500;

/// Whether another process of this job may read its terminal. Ancestors and descendants do not count. A process that
/// cannot be inspected may.
pub fn are_there() -> bool {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let all = processes();
    let terminal = all.get(&own).map_or(OWN, |process| process.terminal);
    let others = others(&all, own);
    others.into_iter().any(|pid| may_read(pid, terminal))
}

/// The processes of the job, without this one's ancestors and descendants.
fn others(all: &BTreeMap<i32, Process>, own: i32) -> Vec<i32> {
    let Some(group) = all.get(&own).map(|process| process.group) else {
        return Vec::new();
    };
    let above = |pid: i32| {
        let up = |pid: &i32| all.get(pid).map(|process| process.parent);
        // Bounded by the number of processes: a table that was read piece by piece may contain a circle.
        std::iter::successors(Some(pid), up).take(all.len())
    };
    let job = all
        .iter()
        .filter(|(_, process)| process.group == group && !process.is_dead);
    let others = job.map(|(pid, _)| *pid).filter(|pid| {
        let waits = above(own).any(|one| one == *pid);
        !waits && !above(*pid).any(|one| one == own)
    });
    others.collect()
}

fn processes() -> BTreeMap<i32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let found = pids.filter_map(|pid| {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, Process::parse(&String::from_utf8_lossy(&stat))?))
    });
    found.collect()
}

/// Standard output and error are not read; a terminal on any other descriptor may be.
fn may_read(pid: i32, terminal: u64) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return true;
    };
    let mut open = open.flatten().filter(|fd| {
        let name = fd.file_name();
        name != "1" && name != "2"
    });
    open.any(|fd| {
        match fs::metadata(fd.path()) {
            Ok(meta) => meta.rdev() == terminal || meta.rdev() == OWN,
            // It was closed meanwhile, or may not be inspected.
            Err(error) => error.kind() != ErrorKind::NotFound,
        }
    })
}

impl Process {
    /// Parses a stat line. The name may have any bytes, parentheses too.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let is_dead = matches!(fields.next()?, "Z" | "X");
        Some(Self {
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            // After the session.
            terminal: fields.nth(1)?.parse().ok()?,
            is_dead,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipeline_has_others_and_a_script_has_none() {
        let table = [
            "1 (init) S 0 1 1 34816",
            "10 (bash) S 1 10 10 34816",
            "20 (sh) S 10 20 10 34816",
            "21 (agentbox) S 20 20 10 34816",
            "22 (agentbox-warden) S 21 20 10 34816",
            "23 (program) S 22 23 23 34816",
            "30 (le) S 9 (ss) S 10 20 10 34816",
            "31 (cat) Z 10 20 10 34816",
            "40 (vim) T 10 40 10 34816",
        ];
        let all = table.iter().map(|line| {
            let (pid, _) = line.split_once(' ').unwrap();
            (pid.parse().unwrap(), Process::parse(line).unwrap())
        });
        let all: BTreeMap<i32, Process> = all.collect();
        assert_eq!(others(&all, 21), [30]);
        assert!(others(&all, 40).is_empty() && others(&all, 99).is_empty());
    }
}
