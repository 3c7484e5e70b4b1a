//! What the node reads of the first process and of all others in the container: their mounts, filters, privileges and namespaces.
//!
//! A process of `exec` shows what `exec` gives. These show what the workload has.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::processes;
use crate::audit::hash;
use crate::plan::{Bind, FileKind};
use crate::policy::Capability;
use crate::sys::process_id::ProcessId;
use crate::sys::procfs;
use crate::verify::probe::{Attempt, Finding, Probe, View, Wall};
use crate::verify::table::{self, MountedLine};

/// The probes.
pub const PROBES: &[Probe] = &[
    Probe {
        id: "mounts-of-the-plan",
        wall: Wall::Files,
        threats: &["F01", "F02", "F04"],
        tried: "the first process's mounts are read from the node's /proc, and the bind mounts are looked at",
        expected: "the plan's mounts with its attributes, and no other",
        means: "the container reads or writes what its policy does not give it",
        remedy: "make the container again; `agentbox explain` shows the mounts that were planned",
        promised: |p| p.walls.is_some(),
        attempt: Attempt::Read(mounts),
    },
    Probe {
        id: "every-process",
        wall: Wall::Processes,
        threats: &["S13", "S15", "F14", "F18"],
        tried: "filter, no_new_privs, capabilities and namespaces of each process in the container are read from the node's /proc",
        expected: "a filter, no_new_privs, the policy's capabilities, and the first process's namespaces",
        means: "a process in the container is not behind its walls",
        remedy: "find out who started it (its parent, and that one's), and make the container again",
        promised: |p| p.walls.is_some(),
        attempt: Attempt::Read(everyone),
    },
    Probe {
        id: "interfaces-of-the-first-process",
        wall: Wall::Network,
        threats: &["N01", "N17"],
        tried: "the interfaces of the first process's network are read from the node's /proc",
        expected: "lo alone",
        means: "the container has a way to the network beside its rules",
        remedy: "stop it, and look at the node's networks and at `agentbox network ID`",
        promised: |p| p.walls.is_some(),
        attempt: Attempt::Read(interfaces),
    },
    Probe {
        id: "kept-filter",
        wall: Wall::Syscalls,
        threats: &["S13"],
        tried: "the filter that each process of exec loads is read from the state directory",
        expected: "the one that was made for the container, by its hash",
        means: "processes of exec are behind another filter than the container's",
        remedy: "make the container again",
        promised: |p| p.has(|walls| walls.filter.is_some()),
        attempt: Attempt::Read(kept_filter),
    },
];

fn mounts(view: &View<'_>) -> Finding {
    let Some(plan) = view.plan else {
        return Finding::not_tried("there is no plan");
    };
    let path = format!("/proc/{}/mountinfo", view.init);
    // The names of sources follow renames, which the container can make.
    let lines = procfs::lossy(&path).map_err(|error| error.to_string());
    let lines = match lines.and_then(|text| MountedLine::parse(&text)) {
        Ok(lines) => lines,
        Err(why) => return Finding::not_tried(format!("{path}: {why}")),
    };
    let own = procfs::lossy("/proc/self/mountinfo").map_err(|error| error.to_string());
    let nodes = match own.and_then(|text| MountedLine::parse(&text)) {
        Ok(nodes) => nodes,
        Err(why) => return Finding::not_tried(format!("/proc/self/mountinfo: {why}")),
    };
    let compared = table::compare(plan, &lines, &nodes);
    let faults = compared.faults.into_iter().map(Finding::not_held);
    let planned = plan.filesystem.mounts.iter();
    let shown = planned.filter(|mount| compared.binds.contains(&mount.destination));
    let judged = shown.filter_map(|mount| {
        let line = lines.iter().rfind(|line| line.place == mount.destination)?;
        Some(is_judged(
            view.init,
            &mount.destination,
            mount.bind()?,
            line,
        ))
    });
    let held = format!("{} mounts, those of the plan", lines.len());
    Finding::of_all(faults.chain(judged), held)
}

/// Whether what is seen at a place is what was judged for it.
fn is_judged(init: i32, place: &Path, bind: &Bind, line: &MountedLine) -> Finding {
    let name = place.display().to_string();
    let (major, minor) = (
        rustix::fs::major(bind.judged.dev),
        rustix::fs::minor(bind.judged.dev),
    );
    // Whose server may not answer, or numbers its files anew.
    let is_remote = ["nfs", "fuse", "9p", "cifs", "smb", "virtiofs", "ceph"];
    if is_remote.iter().any(|kind| line.kind.starts_with(kind)) {
        return match line.device == format!("{major}:{minor}") {
            true => Finding::held(name),
            false => Finding::not_held(format!("{name} shows another file system than was judged")),
        };
    }
    // An overlay gives a file another number when it is first written.
    if line.kind == "overlay" && bind.judged.kind != FileKind::Directory {
        return Finding::held(name);
    }
    let found = open_inside(init, place).and_then(rustix::fs::fstat);
    match found {
        Ok(found) if (found.st_dev, found.st_ino) == (bind.judged.dev, bind.judged.ino) => {
            Finding::held(name)
        }
        Ok(_) => Finding::not_held(format!("{name} shows another file than was judged")),
        Err(errno) => Finding::not_tried(format!("{name}: {errno}")),
    }
}

/// Opens a path of the container without reading it, through no link.
fn open_inside(init: i32, place: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::open(format!("/proc/{init}/root"), flags, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(
        root,
        place,
        flags | OFlags::NOFOLLOW,
        Mode::empty(),
        resolve,
    )
}

fn interfaces(view: &View<'_>) -> Finding {
    let path = format!("/proc/{}/net/dev", view.init);
    match procfs::text(&path) {
        Ok(text) => Finding::of_faults(&foreign(&text), "lo alone"),
        Err(error) => Finding::not_tried(format!("{path}: {error}")),
    }
}

/// Two lines of a heading, then `NAME: numbers` (proc_pid_net(5)).
fn foreign(text: &str) -> Vec<String> {
    let names = text
        .lines()
        .skip(2)
        .filter_map(|line| line.rsplit_once(':'));
    let names = names
        .map(|(name, _)| name.trim())
        .filter(|name| *name != "lo");
    names.map(|name| format!("the interface {name}")).collect()
}

fn kept_filter(view: &View<'_>) -> Finding {
    let promised = view
        .promise
        .walls
        .as_ref()
        .and_then(|w| w.filter.as_deref());
    match fs::read(view.filter) {
        Ok(program) if Some(hash(&program).as_str()) == promised => Finding::held("the same"),
        Ok(_) => Finding::not_held("it is another one"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Finding::not_held("it is not there")
        }
        Err(error) => Finding::not_tried(format!("{}: {error}", view.filter.display())),
    }
}

/// How long a process of `exec` that is being started is waited for.
const STARTED_WITHIN: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

fn everyone(view: &View<'_>) -> Finding {
    let all = match members(view) {
        Ok(all) => all,
        Err(error) => {
            return Finding::not_tried(format!("the processes cannot be listed: {error}"));
        }
    };
    let until = Instant::now() + STARTED_WITHIN;
    let count = all.len();
    let found = all.into_iter().map(|pid| one(view, pid, until));
    Finding::of_all(found, format!("{count} processes"))
}

/// The processes of the container's cgroups, and all others that see its files.
fn members(view: &View<'_>) -> std::io::Result<BTreeSet<i32>> {
    let mut all = BTreeSet::from([view.init]);
    for dir in view.controllers.all() {
        below(dir, &mut all)?;
    }
    let own = fs::read_link(format!("/proc/{}/ns/mnt", view.init))?;
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // One that has gone is no member.
        if fs::read_link(format!("/proc/{pid}/ns/mnt")).is_ok_and(|link| link == own) {
            all.insert(pid);
        }
    }
    Ok(all)
}

fn below(dir: &Path, all: &mut BTreeSet<i32>) -> std::io::Result<()> {
    let text = match procfs::text(dir.join("cgroup.procs")) {
        Ok(text) => text,
        // Removed meanwhile, or a cgroup of threads, whose processes are listed above it.
        Err(error) if is_gone(&error) => return Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => String::new(),
        Err(error) => return Err(error),
    };
    // A process of another pid namespace is shown as 0.
    let pids = text.lines().filter_map(|line| line.trim().parse().ok());
    all.extend(pids.filter(|pid: &i32| *pid > 0));
    let entries = match fs::read_dir(dir) {
        Err(error) if is_gone(&error) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = match entry {
            Err(error) if is_gone(&error) => return Ok(()),
            entry => entry?,
        };
        if entry.file_type()?.is_dir() {
            below(&entry.path(), all)?;
        }
    }
    Ok(())
}

/// A cgroup that was removed while it was read (cgroups(7)).
fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

/// What is wrong with one process. One that is this very program is on its way to the container's, and is waited for.
fn one(view: &View<'_>, pid: i32, until: Instant) -> Finding {
    let Some(id) = ProcessId::of(pid).filter(|id| id.is_alive()) else {
        return Finding::held("it has ended");
    };
    // It may execute its program, or end, while it is read: what counts is seen twice.
    let mut seen = false;
    loop {
        let found = faults(view, pid);
        let is_ours = Some(pid) != view.pid && is_this_program(pid);
        // What is read of one that ends meanwhile has no namespaces.
        let ended = !id.is_alive() || is_zombie(pid);
        let faults = match found {
            _ if ended => return Finding::held("it has ended"),
            Err(error) => return Finding::not_tried(format!("process {pid}: {error}")),
            Ok(faults) if faults.is_empty() => return Finding::held("as planned"),
            Ok(faults) => faults.join(", "),
        };
        let words = format!("process {pid}: {faults}");
        match (is_ours, Instant::now() >= until) {
            // Another process may have its number since they were listed.
            (false, _) if seen && members(view).is_ok_and(|all| !all.contains(&pid)) => {
                return Finding::held("it has ended");
            }
            (false, _) if seen => return Finding::not_held(words),
            (false, _) => {
                seen = true;
                std::thread::sleep(PAUSE);
            }
            (true, true) => {
                return Finding::not_tried(format!(
                    "{words}; it is a process of exec that is being started"
                ));
            }
            (true, false) => {
                seen = false;
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Whether nothing of a process runs any more and its parent has not asked yet. Threads of one whose first thread has ended run on.
fn is_zombie(pid: i32) -> bool {
    procfs::lossy(format!("/proc/{pid}/status")).is_ok_and(|status| has_ended(&status))
}

fn has_ended(status: &str) -> bool {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let state = field("State:").map(str::trim_start);
    let threads = field("Threads:").and_then(|count| count.trim().parse::<u32>().ok());
    state.is_some_and(|state| state.starts_with(['Z', 'X']))
        && threads.is_some_and(|count| count <= 1)
}

fn is_this_program(pid: i32) -> bool {
    let inode = |process: &str| {
        let found = fs::metadata(format!("/proc/{process}/exe")).ok()?;
        Some((found.dev(), found.ino()))
    };
    inode("self").is_some_and(|own| inode(&pid.to_string()) == Some(own))
}

fn faults(view: &View<'_>, pid: i32) -> std::io::Result<Vec<String>> {
    // Its name may be any bytes (PR_SET_NAME).
    let status = procfs::lossy(format!("/proc/{pid}/status"))?;
    let walls = view.promise.walls.as_ref();
    let most = walls.map(|walls| mask(walls.capabilities.iter().copied()));
    let mut faults = lacks(&status, most.unwrap_or_default());
    let (own, init) = (
        processes::of(&pid.to_string()),
        processes::of(&view.init.to_string()),
    );
    let others = init
        .iter()
        .filter(|(kind, link)| own.get(*kind) != Some(*link));
    faults.extend(
        others.map(|(kind, _)| format!("another {kind} namespace than the first process's")),
    );
    Ok(faults)
}

fn mask(all: impl Iterator<Item = Capability>) -> u64 {
    all.fold(0, |mask, one| mask | 1 << one.number())
}

/// What /proc/PID/status shows that it should not (proc_pid_status(5)); `most` are the capabilities that it may show.
fn lacks(status: &str, most: u64) -> Vec<String> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim)
    };
    let mut faults = Vec::new();
    // Since Linux 5.9; without it the mode alone tells.
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
    use super::*;

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

    #[test]
    fn a_process_has_ended_when_none_of_its_threads_runs() {
        for (state, threads, ended) in [
            ("Z (zombie)", 0, true),
            ("Z (zombie)", 1, true),
            ("X (dead)", 0, true),
            ("Z (zombie)", 2, false),
            ("S (sleeping)", 1, false),
        ] {
            let status = format!("Name:\tsh\nState:\t{state}\nThreads:\t{threads}\n");
            assert_eq!(has_ended(&status), ended, "{status}");
        }
    }

    #[test]
    fn an_interface_beside_lo_is_named() {
        let text = "Inter-|   Receive\n face |bytes\n    lo:       0    0\n   ev1:       0    0\n";
        assert_eq!(foreign(text), ["the interface ev1"]);
        assert_eq!(
            foreign(&text.replace("   ev1:       0    0\n", "")),
            [""; 0]
        );
    }
}
