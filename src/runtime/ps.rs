//! The processes of a container without a cgroup, and the table of ps(1) for processes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use anyhow::{Context, Result, bail};

use crate::runtime::RuntimeError;
use crate::runtime::input::bundle;
use crate::runtime::state::store::ContainerPaths;
use crate::sys::process_id::{self, ProcessId};
use crate::sys::program;
use crate::text::escape;

/// A process as /proc shows it.
struct SeenProcess {
    parent: i32,
    /// Whether it is in the pid namespace; one whose namespace the kernel does not show is not.
    inside: bool,
}

/// The processes of a container without a cgroup: those that the kernel shows in the pid namespace of its init process,
/// and their descendants.
///
/// # Errors
/// The container was not given a pid namespace, or the caller is in it: then the namespace has other processes too.
pub fn of_pid_namespace(
    place: &ContainerPaths,
    init: ProcessId,
    verb: &'static str,
) -> Result<Vec<i32>, RuntimeError> {
    let found = match bundle::has_pid_namespace(&place.dir()) {
        true => sharing(init).map_err(RuntimeError::io("look at the container's pid namespace"))?,
        false => None,
    };
    found.ok_or_else(|| RuntimeError::State {
        verb,
        id: place.id.as_str().to_owned(),
        why: "it has no cgroup and no pid namespace of its own, so its processes cannot be told from others; end them by their pids"
            .to_owned(),
    })
}

/// The processes in the pid namespace of this one, and their descendants. `None` if the caller is in it.
fn sharing(init: ProcessId) -> io::Result<Option<Vec<i32>>> {
    let link = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid"));
    let shown = link(&init.pid.to_string());
    if !init.is_alive() {
        return Ok(Some(Vec::new()));
    }
    let namespace = shown?;
    if namespace == link("self")? {
        return Ok(None);
    }
    let entries = std::fs::read_dir("/proc")?;
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let seen = pids.filter_map(|pid| {
        let inside = link(&pid.to_string()).is_ok_and(|found| found == namespace);
        let parent = process_id::parent(pid).ok()?;
        Some((pid, SeenProcess { parent, inside }))
    });
    Ok(Some(with_descendants(&seen.collect())))
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
    }

    #[test]
    fn processes_are_not_listed_by_a_pid_namespace_that_is_not_the_containers_own() {
        let own = ProcessId::of(std::process::id().cast_signed()).unwrap();
        assert_eq!(sharing(own).unwrap(), None);
        let gone = ProcessId {
            start_time: own.start_time - 1,
            ..own
        };
        assert_eq!(sharing(gone).unwrap(), Some(Vec::new()));
        let place = ContainerPaths::new(std::path::Path::new("/nonexistent"), "none").unwrap();
        let refused = of_pid_namespace(&place, own, "signal").unwrap_err();
        assert!(matches!(refused, RuntimeError::State { .. }), "{refused}");
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
