//! Limits of the cgroup, and the node's view of the process. Both are read, not tried: filling memory or the process
//! table would disturb the container.

use std::path::Path;

use super::processes;
use crate::sys::procfs;
use crate::verify::probe::{Attempt, ContainerView, Finding, Probe, ProbedWall};
use crate::verify::promise::Promise;

const fn limit(
    id: &'static str,
    threats: &'static [&'static str],
    tried: &'static str,
    promised: fn(&Promise) -> bool,
    read: fn(&ContainerView<'_>) -> Finding,
) -> Probe {
    Probe {
        id,
        wall: ProbedWall::Resources,
        threats,
        tried,
        expected: "at most the policy's limit",
        means: "the container can use more of the node than its policy grants",
        remedy: "set it with `agentbox update`, or recreate the container",
        promised,
        attempt: Attempt::Read(read),
    }
}

/// The probes.
pub const PROBES: &[Probe] = &[
    limit(
        "limit-of-processes",
        &["P01", "P05"],
        "read the limit of processes from the container's cgroup",
        |p| p.has(|w| w.limits.pids.is_some()),
        |view| judge(view, &PIDS, |w| w.pids.map(u64::from)),
    ),
    limit(
        "limit-of-memory",
        &["P01"],
        "read the limit of memory from the container's cgroup",
        |p| p.has(|w| w.limits.memory_bytes.is_some()),
        |view| judge(view, &MEMORY, |w| w.memory_bytes),
    ),
    limit(
        "limit-of-processors",
        &["P01"],
        "read the quota of processors from the container's cgroup",
        |p| p.has(|w| w.limits.cpu_milli.is_some()),
        |view| judge(view, &PROCESSORS, |w| w.cpu_milli.map(u64::from)),
    ),
    Probe {
        id: "as-the-node-sees-it",
        wall: ProbedWall::Processes,
        threats: &["S13", "S15", "F14"],
        tried: "read the probe process's filter, no_new_privs and namespaces from the node's /proc",
        expected: "a filter, no_new_privs, and namespaces other than the node's",
        means: "the probe process reported a false state",
        remedy: "stop and recreate the container",
        promised: |p| p.walls.is_some(),
        attempt: Attempt::Read(from_node),
    },
];

/// The file of a limit: for version 2, and the controller and file of version 1.
struct LimitFile {
    v2: &'static str,
    v1: (&'static str, &'static str),
    /// Parses the number in a file's text; `None` if there is no limit.
    number: fn(&str, Option<&str>) -> Option<u64>,
    /// A second file of version 1.
    beside: Option<&'static str>,
}

const PIDS: LimitFile = LimitFile {
    v2: "pids.max",
    v1: ("pids", "pids.max"),
    number: |text, _| text.trim().parse().ok(),
    beside: None,
};
const MEMORY: LimitFile = LimitFile {
    v2: "memory.max",
    v1: ("memory", "memory.limit_in_bytes"),
    number: |text, _| text.trim().parse().ok(),
    beside: None,
};
const PROCESSORS: LimitFile = LimitFile {
    v2: "cpu.max",
    v1: ("cpu", "cpu.cfs_quota_us"),
    number: thousandths,
    beside: Some("cpu.cfs_period_us"),
};

/// Version 2 has quota and period in one line, version 1 in two files. Without a quota: `max` or -1.
fn thousandths(text: &str, beside: Option<&str>) -> Option<u64> {
    let mut words = text.split_whitespace();
    let quota: u64 = words.next()?.parse().ok()?;
    let period = words.next().or(beside.map(str::trim))?;
    (quota * 1000).checked_div(period.parse().ok()?)
}

fn judge(
    view: &ContainerView<'_>,
    place: &LimitFile,
    promised: fn(&crate::plan::LimitsPlan) -> Option<u64>,
) -> Finding {
    let most = view
        .promise
        .walls
        .as_ref()
        .and_then(|w| promised(&w.limits));
    let (controller, file) = place.v1;
    let found = match (&view.controllers.v2, view.controllers.v1(controller)) {
        (_, Some(dir)) => read(dir, file).map(|text| {
            let beside = place.beside.and_then(|file| read(dir, file).ok());
            (place.number)(&text, beside.as_deref())
        }),
        (Some(dir), None) => read(dir, place.v2).map(|text| (place.number)(&text, None)),
        (None, None) => {
            return Finding::not_held("the container has no cgroup with such a limit");
        }
    };
    match found {
        Err(error) => Finding::not_tried(error.to_string()),
        Ok(found) => compare(found, most),
    }
}

fn read(dir: &Path, file: &str) -> std::io::Result<String> {
    procfs::text(dir.join(file))
}

fn compare(found: Option<u64>, most: Option<u64>) -> Finding {
    match (found, most) {
        (None, _) => Finding::not_held("the kernel has no limit"),
        (Some(found), Some(most)) if found > most => Finding::not_held(format!(
            "the kernel's limit is {found}, the policy's {most}"
        )),
        (Some(found), _) => Finding::held(format!("read, not tried: {found}")),
    }
}

fn from_node(view: &ContainerView<'_>) -> Finding {
    let Some(pid) = view.pid else {
        return Finding::not_tried("no probe process could be started");
    };
    let status = match procfs::lossy(format!("/proc/{pid}/status")) {
        Ok(status) => status,
        Err(error) => return Finding::not_tried(format!("/proc/{pid}/status: {error}")),
    };
    let faults = missing(&status);
    let own = processes::of(&pid.to_string());
    if own.is_empty() {
        return Finding::not_tried("its namespaces cannot be read");
    }
    let missing = faults.into_iter().map(Finding::not_held);
    Finding::of_all(
        missing.chain(processes::compared(view.promise, &own)),
        "a filter, no_new_privs, none of the node's namespaces",
    )
}

/// The walls that are missing in /proc/PID/status (proc_pid_status(5)).
fn missing(status: &str) -> Vec<String> {
    let has = |field: &str, value: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        line.is_some_and(|rest| rest.trim() == value)
    };
    let wanted = [
        ("Seccomp:", "2", "no filter"),
        ("NoNewPrivs:", "1", "no_new_privs is not set"),
    ];
    let absent = wanted.iter().filter(|(field, value, _)| !has(field, value));
    absent.map(|(_, _, words)| (*words).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::controllers::Controllers;
    use crate::plan::LimitsPlan;
    use crate::verify::probe::{HelperProcesses, Outcome};

    #[test]
    fn a_missing_or_too_large_limit_is_found() {
        assert_eq!(compare(None, Some(5)).outcome, Outcome::NotHeld);
        assert_eq!(compare(Some(6), Some(5)).outcome, Outcome::NotHeld);
        assert_eq!(compare(Some(5), Some(5)).outcome, Outcome::Held);
        assert_eq!(compare(None, None).outcome, Outcome::NotHeld);
    }

    #[test]
    fn quotas_are_read_in_the_forms_of_both_versions() {
        assert_eq!(thousandths("50000 100000\n", None), Some(500));
        assert_eq!(thousandths("max 100000\n", None), None);
        assert_eq!(thousandths("50000\n", Some("100000\n")), Some(500));
        assert_eq!(thousandths("-1\n", Some("100000\n")), None);
        assert_eq!((PIDS.number)("max\n", None), None);
    }

    /// The outcomes of the three limits, with a controller of version 1 where `v1` names it.
    fn outcomes(v1: &[&str], v2: bool, files: &[(&str, &str)]) -> Vec<Outcome> {
        let base = std::env::temp_dir().join("agentbox-test-XXXXXX");
        let dir = nix::unistd::mkdtemp(&base).unwrap();
        for (name, text) in files {
            std::fs::write(dir.join(name), text).unwrap();
        }
        let controllers = Controllers {
            v1: v1
                .iter()
                .map(|name| ((*name).to_owned(), dir.clone()))
                .collect(),
            v2: v2.then(|| dir.clone()),
        };
        let mut promise = Promise::default();
        promise.walls.insert(Default::default()).limits = LimitsPlan {
            pids: Some(100),
            memory_bytes: Some(1 << 20),
            cpu_milli: Some(500),
        };
        let view = ContainerView {
            pid: None,
            init: 1,
            controllers: &controllers,
            promise: &promise,
            plan: None,
            filter: Path::new(""),
            mounts: Path::new(""),
            others: &HelperProcesses::default,
        };
        let read = PROBES[..3].iter().map(|probe| match probe.attempt {
            Attempt::Read(read) => read(&view).outcome,
            Attempt::Finds(_) | Attempt::Dies(_) => unreachable!("limits are read"),
        });
        let found = read.collect();
        std::fs::remove_dir_all(dir).unwrap();
        found
    }

    #[test]
    fn a_limit_is_read_where_its_controller_is() {
        use Outcome::{Held, NotHeld, NotTried};
        let v2 = [
            ("pids.max", "100"),
            ("memory.max", "1048576"),
            ("cpu.max", "50000 100000"),
        ];
        assert_eq!(outcomes(&[], true, &v2), [Held; 3]);
        let of_v1 = ["pids", "memory", "cpu"];
        let v1 = [
            ("pids.max", "100"),
            ("memory.limit_in_bytes", "1048576"),
            ("cpu.cfs_quota_us", "50000"),
            ("cpu.cfs_period_us", "100000"),
        ];
        assert_eq!(outcomes(&of_v1, false, &v1), [Held; 3]);
        // The unified hierarchy of a hybrid node has no such files.
        assert_eq!(outcomes(&of_v1, true, &v1), [Held; 3]);
        assert_eq!(outcomes(&["pids"], true, &v1), [Held, NotTried, NotTried]);
        let none = [
            ("pids.max", "max"),
            ("memory.max", "max"),
            ("cpu.max", "max 100000"),
        ];
        assert_eq!(outcomes(&[], true, &none), [NotHeld; 3]);
        let more = [
            ("pids.max", "101"),
            ("memory.max", "1048577"),
            ("cpu.max", "50100 100000"),
        ];
        assert_eq!(outcomes(&[], true, &more), [NotHeld; 3]);
        // No cgroup at all, and one whose files cannot be read.
        assert_eq!(outcomes(&[], false, &[]), [NotHeld; 3]);
        assert_eq!(outcomes(&[], true, &[]), [NotTried; 3]);
    }

    #[test]
    fn the_node_finds_a_process_without_a_filter() {
        assert!(missing("NoNewPrivs:\t1\nSeccomp:\t2\n").is_empty());
        assert_eq!(missing("NoNewPrivs:\t1\nSeccomp:\t0\n"), ["no filter"]);
        assert_eq!(missing("NoNewPrivs:\t0\n").len(), 2);
    }
}
