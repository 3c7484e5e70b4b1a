//! The processes of a container without a cgroup, and the table of ps(1) for processes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::sys::process_id::{self, ProcessId};
use crate::sys::program;
use crate::text::escape;

/// A process as /proc shows it.
struct SeenProcess {
    parent: i32,
    /// Whether it is in the pid namespace; one whose namespace the kernel does not show is not.
    inside: bool,
}

/// The processes in the pid namespace of this init process, for a container without a cgroup: those that the kernel shows
/// there, and their descendants.
pub fn of_pid_namespace(init: ProcessId) -> Vec<i32> {
    let link = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let (Some(namespace), true) = (link(init.pid), init.is_alive()) else {
        return Vec::new();
    };
    let entries = std::fs::read_dir(Path::new("/proc")).into_iter();
    let pids = entries
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let seen = pids.filter_map(|pid| {
        let inside = link(pid).is_some_and(|found| found == namespace);
        let parent = process_id::parent(pid).ok()?;
        Some((pid, SeenProcess { parent, inside }))
    });
    with_descendants(&seen.collect())
}

fn with_descendants(seen: &BTreeMap<i32, SeenProcess>) -> Vec<i32> {
    let inside = seen.iter().filter(|(_, one)| one.inside);
    let mut members: BTreeSet<i32> = inside.map(|(pid, _)| *pid).collect();
    loop {
        let before = members.len();
        let more = seen.iter().filter(|(_, one)| members.contains(&one.parent));
        let more: Vec<i32> = more.map(|(pid, _)| *pid).collect();
        members.extend(more);
        if members.len() == before {
            return members.into_iter().collect();
        }
    }
}

/// The lines of ps(1), with these options, of the processes `pids`; below its header.
///
/// # Errors
/// ps(1) is missing, refuses the options, or prints no PID column.
pub fn table(pids: &[i32], options: &[String]) -> Result<String> {
    let default = ["-ef".to_owned()];
    let options = if options.is_empty() {
        &default[..]
    } else {
        options
    };
    let ps = program::find("ps").context("run ps(1)")?;
    let output = program::command(&ps, &["LANG", "LC_ALL", "COLUMNS"])
        .args(options)
        .output()
        .context("run ps(1)")?;
    if !output.status.success() {
        bail!(
            "ps: {}",
            escape(String::from_utf8_lossy(&output.stderr).trim())
        );
    }
    only(&String::from_utf8_lossy(&output.stdout), pids)
        .context("ps with these options prints no PID column")
}

/// The header of this table and the lines of these processes, harmless on a terminal. None without a column of pids.
fn only(text: &str, pids: &[i32]) -> Option<String> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let column = header.split_ascii_whitespace().position(|c| c == "PID")?;
    let mut table = format!("{header}\n");
    for line in lines {
        let pid = line
            .split_ascii_whitespace()
            .nth(column)
            .and_then(|p| p.parse().ok());
        if pid.is_some_and(|p| pids.contains(&p)) {
            table += &escape(line);
            table.push('\n');
        }
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_namespace_is_not_shown_is_found_by_its_parent() {
        let process = |parent, inside| SeenProcess { parent, inside };
        let seen = BTreeMap::from([
            (1, process(0, false)),
            (20, process(1, false)),
            (30, process(20, true)),
            (31, process(30, false)),
            (29, process(31, false)),
            (40, process(20, true)),
            (41, process(20, false)),
        ]);
        assert_eq!(with_descendants(&seen), [29, 30, 31, 40]);
        let own = ProcessId::of(std::process::id().cast_signed()).unwrap();
        assert!(of_pid_namespace(own).contains(&own.pid));
        let gone = ProcessId {
            start_time: own.start_time - 1,
            ..own
        };
        assert!(of_pid_namespace(gone).is_empty());
    }

    #[test]
    fn the_table_has_the_containers_processes_alone() {
        let text = "USER   PID CMD\nroot     1 init\nroot    17 sh 42\nme      42 a\u{1b}[2Jb\n";
        assert_eq!(
            only(text, &[42, 7]).as_deref(),
            Some("USER   PID CMD\nme      42 a\\u{1b}[2Jb\n")
        );
        assert_eq!(only(text, &[]).as_deref(), Some("USER   PID CMD\n"));
        assert_eq!(only("USER CMD\nroot 42\n", &[42]), None);
        assert_eq!(only("", &[42]), None);
    }
}
