//! Facts that the node reads about all processes in the container: their filters, privileges and namespaces.
//!
//! An exec process only shows the walls of `exec`. These probes show the workload's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use super::members::{self, members};
use super::processes;
use crate::audit::hash;
use crate::network::is_fallback;
use crate::policy::Capability;
use crate::sys::process_id::ProcessId;
use crate::sys::procfs;
use crate::verify::probe::{Attempt, ContainerView, Finding, Outcome, Probe, ProbedWall};

/// The probes.
pub const PROBES: &[Probe] = &[
    Probe {
        id: "every-process",
        wall: ProbedWall::Processes,
        threats: &["S13", "S15", "F14", "F18"],
        tried: "read each thread's filter, no_new_privs, capabilities and namespaces from the node's /proc",
        expected: "a filter, no_new_privs, the policy's capabilities, and the init process's namespaces",
        means: "a process in the container is outside its walls",
        remedy: "find its parents (`ps -o pid,ppid`), then recreate the container",
        promised: |p| p.walls.is_some(),
        attempt: Attempt::Read(everyone),
    },
    Probe {
        id: "interfaces-of-the-first-process",
        wall: ProbedWall::Network,
        threats: &["N01", "N17"],
        tried: "read the interfaces of the init process's network from the node's /proc",
        expected: "lo alone",
        means: "the container can reach the network outside its rules",
        remedy: "stop it, and check the node's networks and `agentbox network ID`",
        promised: |p| p.walls.is_some(),
        attempt: Attempt::Read(interfaces),
    },
    Probe {
        id: "kept-filter",
        wall: ProbedWall::Syscalls,
        threats: &["S13"],
        tried: "read the filter for exec processes from the state directory",
        expected: "the container's own filter, by its hash",
        means: "exec processes have another filter than the container's",
        remedy: "recreate the container",
        promised: |p| p.has(|walls| walls.filter.is_some()),
        attempt: Attempt::Read(kept_filter),
    },
];

fn interfaces(view: &ContainerView<'_>) -> Finding {
    let path = format!("/proc/{}/net/dev", view.init);
    let text = match procfs::lossy(&path) {
        Ok(text) => text,
        Err(error) => return Finding::not_tried(format!("{path}: {error}")),
    };
    let (idle, others): (Vec<String>, Vec<String>) = foreign(&text)
        .into_iter()
        .partition(|name| is_fallback(name));
    // Otherwise an exec process checks them from inside: that each is idle, and of the kind that its name says.
    let faults = match view.pid {
        Some(_) => others,
        None => [others, idle].concat(),
    };
    let faults: Vec<String> = faults
        .iter()
        .map(|name| format!("the interface {name}"))
        .collect();
    Finding::of_faults(&faults, "lo alone")
}

/// Two heading lines, then `NAME: numbers` (proc_pid_net(5)).
fn foreign(text: &str) -> Vec<String> {
    let names = text
        .lines()
        .skip(2)
        .filter_map(|line| line.rsplit_once(':'));
    let names = names
        .map(|(name, _)| name.trim())
        .filter(|name| *name != "lo");
    names.map(str::to_owned).collect()
}

fn kept_filter(view: &ContainerView<'_>) -> Finding {
    let promised = view
        .promise
        .walls
        .as_ref()
        .and_then(|w| w.filter.as_deref());
    match fs::read(view.filter) {
        Ok(program) if Some(hash(&program).as_str()) == promised => Finding::held("the same"),
        Ok(_) => Finding::not_held("it differs"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Finding::not_held("it is missing"),
        Err(error) => Finding::not_tried(format!("{}: {error}", view.filter.display())),
    }
}

/// How long to wait for an exec process that is starting. It takes some tens of milliseconds.
const STARTED_WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

fn everyone(view: &ContainerView<'_>) -> Finding {
    let all = match members(view) {
        Ok(all) => all,
        Err(error) => {
            return Finding::not_tried(format!("the processes cannot be listed: {error}"));
        }
    };
    let until = Instant::now() + STARTED_WITHIN;
    let count = all.all.len();
    let found = all.all.into_iter().map(|pid| one(view, pid, until));
    let possible = all.possible.into_iter().map(|pid| {
        Finding::not_tried(format!(
            "process {pid} may be the container's: the kernel does not show its namespaces to this user"
        ))
    });
    Finding::of_all(found.chain(possible), format!("{count} processes"))
}

/// The faults of one process. If it still runs this program, an exec process is starting: wait for it.
fn one(view: &ContainerView<'_>, pid: i32, until: Instant) -> Finding {
    let Some(id) = ProcessId::of(pid).filter(|id| id.is_alive()) else {
        return Finding::held("it has ended");
    };
    // It may execute its program, or end, while it is read. So a fault counts only if it is seen twice.
    let mut seen: Option<Finding> = None;
    loop {
        // It may execute its program while its faults are read, which are then those of its start. One that began to exit
        // before has those of its end; later, what was read counts.
        let (before, found, after) = (Program::of(pid), faults(view, pid), Program::of(pid));
        let is_passing =
            Some(pid) != view.pid && (before != Program::Another || after == Program::This);
        // A process that ends while it is read has no namespaces.
        let ended = !id.is_alive();
        let faults = match found {
            _ if ended => return ended_after(seen),
            Err(error) => return Finding::not_tried(format!("process {pid}: {error}")),
            Ok(found) => found,
        };
        let finding = faults.finding(pid);
        if finding.outcome == Outcome::Held {
            return finding;
        }
        match (is_passing, Instant::now() >= until) {
            // Another process may have its pid by now.
            (false, _)
                if seen.is_some() && members(view).is_ok_and(|now| !now.all.contains(&pid)) =>
            {
                return ended_after(seen);
            }
            (false, _) if seen.is_some() => return finding,
            (false, _) => {
                seen = Some(finding);
                std::thread::sleep(PAUSE);
            }
            // A process that stays so neither starts nor ends.
            (true, true) => return finding,
            (true, false) => {
                seen = None;
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// A process that ended: with a fault that was seen once, it was not judged. Each process of a chain that forks and exits
/// would end so.
fn ended_after(seen: Option<Finding>) -> Finding {
    match seen {
        None => Finding::held("it has ended"),
        Some(fault) => Finding::not_tried(format!("it ended before a second look: {}", fault.saw)),
    }
}

/// The program of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    This,
    Another,
    /// None any more: an exiting process loses its memory before its state says so (do_exit of kernel/exit.c).
    Gone,
}

impl Program {
    fn of(pid: i32) -> Self {
        let inode = |process: &str| {
            let found = fs::metadata(format!("/proc/{process}/exe"))?;
            io::Result::Ok((found.dev(), found.ino()))
        };
        match (inode("self"), inode(&pid.to_string())) {
            (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => Self::Gone,
            (Ok(own), Ok(its)) if own == its => Self::This,
            _ => Self::Another,
        }
    }
}

/// The faults of a process or a thread.
#[derive(Default)]
struct ProcessFaults {
    faults: BTreeSet<String>,
    /// What the kernel does not show this process.
    unread: BTreeSet<String>,
}

impl ProcessFaults {
    /// What is not shown is no fault, and no proof either.
    fn finding(&self, pid: i32) -> Finding {
        let words = |all: &BTreeSet<String>| {
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            format!("process {pid}: {}", all.join(", "))
        };
        match (self.faults.is_empty(), self.unread.is_empty()) {
            (true, true) => Finding::held("as planned"),
            (true, false) => Finding::not_tried(words(&self.unread)),
            (false, _) => Finding::not_held(words(&self.faults)),
        }
    }
}

fn faults(view: &ContainerView<'_>, pid: i32) -> io::Result<ProcessFaults> {
    let walls = view.promise.walls.as_ref();
    let most = mask(
        walls
            .iter()
            .flat_map(|walls| walls.capabilities.iter().copied()),
    );
    let init = processes::of(&view.init.to_string());
    let mut all = ProcessFaults::default();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = thread?.file_name();
        let thread = format!("{pid}/task/{}", name.to_string_lossy());
        // A thread that ends while it is read has no namespaces.
        let found = of_thread(&thread, most, &init);
        let is_clean = found.faults.is_empty() && found.unread.is_empty();
        if !is_clean && !is_over(&thread) {
            all.faults.extend(found.faults);
            all.unread.extend(found.unread);
        }
    }
    Ok(all)
}

/// The faults of one thread: each has its own filter, privileges and namespaces.
fn of_thread(thread: &str, most: u64, init: &BTreeMap<String, String>) -> ProcessFaults {
    let mut found = ProcessFaults::default();
    // A thread's name may have any bytes (PR_SET_NAME).
    match procfs::lossy(format!("/proc/{thread}/status")) {
        Ok(status) => found.faults.extend(lacks(&status, most)),
        Err(error) => drop(
            found
                .faults
                .insert(format!("its status cannot be read: {error}")),
        ),
    }
    for (kind, link) in init {
        match fs::read_link(format!("/proc/{thread}/ns/{kind}")) {
            Ok(own) if own.as_os_str() == link.as_str() => {}
            Err(error) if members::is_hidden(&error) => drop(
                found
                    .unread
                    .insert("the kernel does not show its namespaces to this user".to_owned()),
            ),
            _ => drop(
                found
                    .faults
                    .insert(format!("another {kind} namespace than the init process's")),
            ),
        }
    }
    found
}

/// Whether a thread has ended, or is gone.
fn is_over(thread: &str) -> bool {
    match procfs::lossy(format!("/proc/{thread}/status")) {
        Ok(status) => is_ended(&status),
        Err(_) => true,
    }
}

fn is_ended(status: &str) -> bool {
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| state.trim_start().starts_with(['Z', 'X']))
}

fn mask(all: impl Iterator<Item = Capability>) -> u64 {
    all.fold(0, |mask, one| mask | 1 << one.number())
}

/// The faults in /proc/PID/status (proc_pid_status(5)); `most` are the allowed capabilities.
fn lacks(status: &str, most: u64) -> Vec<String> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim)
    };
    let mut faults = Vec::new();
    // The number of filters is shown since Linux 5.9; before, only the mode.
    if field("Seccomp:") != Some("2") || field("Seccomp_filters:") == Some("0") {
        faults.push("no filter".to_owned());
    }
    if field("NoNewPrivs:") != Some("1") {
        faults.push("no_new_privs is not set".to_owned());
    }
    for name in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        let set = field(name).and_then(|digits| u64::from_str_radix(digits, 16).ok());
        match set {
            Some(set) if set & !most == 0 => {}
            Some(set) => faults.push(format!("{name} {:#x} beyond the policy's", set & !most)),
            None => faults.push(format!("{name} is not shown")),
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::cgroup::controllers::Controllers;
    use crate::verify::probe::HelperProcesses;
    use crate::verify::promise::{Promise, PromisedWalls};

    const GOOD: &str = "CapInh:\t0\nCapPrm:\t5\nCapEff:\t5\nCapBnd:\t5\nCapAmb:\t0\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";

    #[test]
    fn each_wall_that_a_process_lacks_is_named() {
        assert_eq!(lacks(GOOD, 5), [""; 0]);
        for (from, to) in [
            ("Seccomp:\t2", "Seccomp:\t0"),
            ("Seccomp_filters:\t1", "Seccomp_filters:\t0"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
            ("CapEff:\t5", "CapEff:\t1fffffffff"),
            ("CapBnd:\t5", "CapBnd:\t7"),
            ("CapAmb:\t0", "CapAmb:\t2"),
            ("CapPrm:\t5\n", ""),
        ] {
            assert_eq!(lacks(&GOOD.replace(from, to), 5).len(), 1, "{to}");
        }
    }

    fn directory() -> std::path::PathBuf {
        nix::unistd::mkdtemp(&std::env::temp_dir().join("agentbox-test-XXXXXX")).unwrap()
    }

    #[test]
    fn another_filter_than_the_containers_is_a_fault_and_so_is_none() {
        let dir = directory();
        let (file, none) = (dir.join("filter"), Controllers::default());
        fs::write(&file, "a program").unwrap();
        let outcome = |promised: Option<String>, filter: &Path| {
            let mut promise = Promise::default();
            promise.walls.insert(PromisedWalls::default()).filter = promised;
            let view = ContainerView {
                pid: None,
                init: 1,
                controllers: &none,
                promise: &promise,
                plan: None,
                filter,
                mounts: Path::new(""),
                others: &HelperProcesses::default,
            };
            kept_filter(&view).outcome
        };
        let kept = Some(hash(b"a program"));
        assert_eq!(outcome(kept.clone(), &file), Outcome::Held);
        assert_eq!(outcome(Some(hash(b"another")), &file), Outcome::NotHeld);
        assert_eq!(outcome(None, &file), Outcome::NotHeld);
        assert_eq!(outcome(kept.clone(), &dir.join("gone")), Outcome::NotHeld);
        // It is there and cannot be read: unknown.
        assert_eq!(outcome(kept, &dir), Outcome::NotTried);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn namespaces_that_are_not_shown_are_neither_held_nor_a_fault() {
        let outcome = |faults: &[&str], unread: &[&str]| {
            let set = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
            let all = ProcessFaults {
                faults: set(faults),
                unread: set(unread),
            };
            all.finding(7).outcome
        };
        assert_eq!(outcome(&[], &[]), Outcome::Held);
        assert_eq!(outcome(&[], &["hidden"]), Outcome::NotTried);
        assert_eq!(outcome(&["no filter"], &["hidden"]), Outcome::NotHeld);
    }

    /// Processes that fork and exit every few milliseconds were all held.
    #[test]
    fn a_process_that_ended_with_a_fault_was_not_judged() {
        assert_eq!(ended_after(None).outcome, Outcome::Held);
        let found = ended_after(Some(Finding::not_held("process 7: no filter")));
        assert_eq!(found.outcome, Outcome::NotTried);
        assert!(found.saw.contains("process 7: no filter"), "{}", found.saw);
    }

    #[test]
    fn an_ended_thread_is_known_by_its_state() {
        for (state, ended) in [
            ("S (sleeping)", false),
            ("Z (zombie)", true),
            ("X (dead)", true),
        ] {
            assert_eq!(is_ended(&format!("Name:\tx\nState:\t{state}\n")), ended);
        }
        assert!(!is_ended("Name:\tZ\n"));
    }

    #[test]
    fn other_interfaces_than_lo_are_named() {
        let text = "Inter-|   Receive\n face |bytes\n    lo:       0    0\n   ev1:       0    0\n";
        assert_eq!(foreign(text), ["ev1"]);
        assert_eq!(
            foreign(&text.replace("   ev1:       0    0\n", "")),
            [""; 0]
        );
    }
}
