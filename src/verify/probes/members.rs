//! The processes in a container, as the node's /proc and the container's cgroups list them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::str::FromStr;

use rustix::fs::{Mode, OFlags};

use super::processes;
use crate::cgroup::controllers::Controllers;
use crate::cgroup::hierarchies::Hierarchies;
use crate::sys::process_id::{self, ProcessId};
use crate::sys::procfs;
use crate::verify::probe::ContainerView;

/// The processes of a container.
#[derive(Default)]
pub struct ContainerMembers {
    /// Its processes.
    pub all: BTreeSet<i32>,
    /// Those that may be its own: the kernel does not show this process their namespaces.
    pub possible: BTreeSet<i32>,
}

/// The processes of the container's cgroups, and all others with a thread in its mount, pid or network namespace.
/// Without sidecars, and without other containers that share the last two: these are verified by themselves.
///
/// A user without root's rights does not see the namespaces of all. A file of root's that cannot be read makes any process
/// that executes it such one. It is known by its parent, or by its number in the container's /proc.
pub fn members(view: &ContainerView<'_>) -> io::Result<ContainerMembers> {
    let mut all = BTreeSet::from([view.init]);
    for dir in view.controllers.all() {
        below(dir, &mut all)?;
    }
    let init = processes::of(&view.init.to_string());
    let shown: Vec<(&str, &String)> = ["mnt", "pid", "net"]
        .iter()
        .filter_map(|kind| Some((*kind, init.get(*kind)?)))
        // A namespace shared with the node identifies no process.
        .filter(|(kind, link)| view.promise.node.get(*kind) != Some(*link))
        .collect();
    if !shown.iter().any(|(kind, _)| *kind == "mnt") {
        return Err(io::Error::other("the init process's mounts are the node's"));
    }
    let (mut sharing, mut hidden) = (Vec::new(), Vec::new());
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if all.contains(&pid) {
            continue;
        }
        match shared(pid, &shown) {
            SharedNamespaces::None => {}
            SharedNamespaces::Mounts => drop(all.insert(pid)),
            SharedNamespaces::Others => sharing.push(pid),
            SharedNamespaces::Hidden => hidden.push(pid),
        }
    }
    if !sharing.is_empty() {
        let others = (view.others)();
        let hierarchies =
            Hierarchies::read().map_err(|error| io::Error::other(error.to_string()))?;
        all.extend(sharing.into_iter().filter(|pid| {
            let found = hierarchies.of(&pid.to_string());
            let is_others =
                |found: &Controllers| others.cgroups.iter().any(|other| is_within(found, other));
            // A process that has ended is no member.
            !others.sidecars.contains(pid) && found.is_ok_and(|found| !is_others(&found))
        }));
    }
    if hidden.is_empty() {
        return Ok(ContainerMembers {
            all,
            ..ContainerMembers::default()
        });
    }
    let container = InitProcess::read(view)?;
    let hidden = hidden.into_iter().filter_map(|pid| {
        let one = HiddenProcess::read(pid)?;
        Some(HiddenMembership {
            pid,
            parent: one.parent,
            membership: container.membership(&one),
        })
    });
    let hidden: Vec<HiddenMembership> = hidden.collect();
    Ok(with_hidden(all, &hidden))
}

/// Which of the container's namespaces a process has in any of its threads.
enum SharedNamespaces {
    Mounts,
    Others,
    None,
    /// None that the kernel shows, and it does not show all.
    Hidden,
}

fn shared(pid: i32, shown: &[(&str, &String)]) -> SharedNamespaces {
    let threads = threads(pid);
    let mut hidden = false;
    for (kind, own) in shown {
        for thread in &threads {
            match fs::read_link(format!("/proc/{pid}/task/{thread}/ns/{kind}")) {
                Ok(link) if link.as_os_str() == own.as_str() && *kind == "mnt" => {
                    return SharedNamespaces::Mounts;
                }
                Ok(link) if link.as_os_str() == own.as_str() => return SharedNamespaces::Others,
                Ok(_) => {}
                // A thread that has ended is no member.
                Err(error) => hidden |= is_hidden(&error),
            }
        }
    }
    match hidden {
        true => SharedNamespaces::Hidden,
        false => SharedNamespaces::None,
    }
}

/// Whether the kernel refuses a link below /proc/PID/ns (namespaces(7)), in contrast to those of a thread that has ended.
pub fn is_hidden(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// The threads of a process; none if it has ended.
fn threads(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let names = entries.into_iter().flatten().flatten();
    let numbers = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.collect()
}

/// Whether a process with these cgroups is in all cgroups of a container.
fn is_within(found: &Controllers, container: &Controllers) -> bool {
    let v1 = container
        .v1
        .iter()
        .map(|(name, dir)| (dir, found.v1.get(name)));
    let mut all = v1.chain(container.v2.iter().map(|dir| (dir, found.v2.as_ref())));
    let has_one = !container.v1.is_empty() || container.v2.is_some();
    has_one && all.all(|(dir, found)| found.is_some_and(|found| found.starts_with(dir)))
}

fn below(dir: &Path, all: &mut BTreeSet<i32>) -> io::Result<()> {
    let text = match procfs::text(dir.join("cgroup.procs")) {
        Ok(text) => text,
        // Removed in the meantime, or a threaded cgroup, whose processes are listed above it.
        Err(error) if is_gone(&error) => return Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => String::new(),
        Err(error) => return Err(error),
    };
    // A process of another pid namespace appears as 0.
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

/// Whether a cgroup was removed while it was read (cgroups(7)).
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

/// Whether a process belongs to the container, by what the kernel shows everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Membership {
    Certain,
    Possible,
    /// Unless its parent belongs to it.
    No,
}

/// What the kernel shows everybody of a process.
struct HiddenProcess {
    parent: i32,
    start_time: u64,
    uids: Vec<u32>,
    /// Its pid in each pid namespace, from that of /proc inwards. Empty if the kernel does not show them.
    pids: Vec<i32>,
}

impl HiddenProcess {
    /// None if it has ended.
    fn read(pid: i32) -> Option<Self> {
        let id = ProcessId::of(pid).filter(|id| id.is_alive())?;
        let status = procfs::lossy(format!("/proc/{pid}/status")).ok()?;
        Some(Self {
            parent: process_id::parent(pid).ok()?,
            start_time: id.start_time,
            uids: numbers(&status, "Uid:"),
            pids: numbers(&status, "NSpid:"),
        })
    }
}

/// The numbers in a line of /proc/PID/status (proc_pid_status(5)).
fn numbers<T: FromStr>(status: &str, name: &str) -> Vec<T> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let words = line.into_iter().flat_map(str::split_ascii_whitespace);
    words.filter_map(|word| word.parse().ok()).collect()
}

/// The init process, to compare others with.
struct InitProcess {
    uids: Vec<u32>,
    /// How many pid namespaces it is in, from that of /proc inwards.
    depth: usize,
    has_cgroup: bool,
    /// The /proc of its pid namespace.
    proc: Option<OwnedFd>,
}

impl InitProcess {
    fn read(view: &ContainerView<'_>) -> io::Result<Self> {
        let init = HiddenProcess::read(view.init).ok_or(io::ErrorKind::NotFound)?;
        let mut found = Self {
            uids: init.uids.clone(),
            depth: init.pids.len(),
            has_cgroup: !view.controllers.all().is_empty(),
            proc: open_proc(view.init),
        };
        // Any other /proc than its own tells nothing.
        let is_its = init
            .pids
            .last()
            .is_some_and(|pid| found.start_time(*pid) == Some(init.start_time));
        found.proc = found.proc.filter(|_| is_its);
        Ok(found)
    }

    /// Of the process with this pid in the container.
    fn start_time(&self, pid: i32) -> Option<u64> {
        let dir = self.proc.as_ref()?.as_raw_fd();
        process_id::start_time(format_args!("self/fd/{dir}/{pid}")).ok()
    }

    /// The user ids of the process with this pid in the container.
    fn uids(&self, pid: i32) -> Option<Vec<u32>> {
        let dir = self.proc.as_ref()?.as_raw_fd();
        let status = procfs::lossy(format!("/proc/self/fd/{dir}/{pid}/status")).ok()?;
        Some(numbers(&status, "Uid:"))
    }

    fn membership(&self, one: &HiddenProcess) -> Membership {
        // Start times are clock ticks of 10 ms: another user's sandbox may have the same pid with the same one.
        let is_its = |pid: &i32| self.uids(*pid).as_ref() == Some(&one.uids);
        let start_time = |pid| {
            Some(pid)
                .filter(is_its)
                .and_then(|pid| self.start_time(pid))
        };
        let inside = self.proc.as_ref().map(|_| start_time);
        judge(self, one, inside)
    }
}

/// `inside` finds the start time of a process by its pid in the container; without it nothing is certain.
fn judge(
    init: &InitProcess,
    one: &HiddenProcess,
    inside: Option<impl Fn(i32) -> Option<u64>>,
) -> Membership {
    let is_users = one.uids.iter().any(|uid| init.uids.contains(uid));
    if init.depth > 1 && !one.pids.is_empty() {
        return match (one.pids.get(init.depth - 1), inside) {
            (None, _) => Membership::No,
            (Some(pid), Some(inside)) if inside(*pid) == Some(one.start_time) => {
                Membership::Certain
            }
            (Some(_), Some(_)) => Membership::No,
            (Some(_), None) => Membership::Possible,
        };
    }
    // Its pid namespace tells nothing. A cgroup lists all.
    match is_users && !init.has_cgroup {
        true => Membership::Possible,
        false => Membership::No,
    }
}

/// The /proc in the root of a process, if it is one.
fn open_proc(pid: i32) -> Option<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(format!("/proc/{pid}/root/proc"), flags, Mode::empty()).ok()?;
    let kind = rustix::fs::fstatfs(&dir).ok()?.f_type;
    (kind == rustix::fs::PROC_SUPER_MAGIC).then_some(dir)
}

/// A process whose namespaces the kernel does not show.
struct HiddenMembership {
    pid: i32,
    parent: i32,
    membership: Membership,
}

/// Adds hidden processes that belong to the container, and the hidden children of its processes.
fn with_hidden(all: BTreeSet<i32>, hidden: &[HiddenMembership]) -> ContainerMembers {
    let mut found = ContainerMembers {
        all,
        ..ContainerMembers::default()
    };
    loop {
        let before = found.all.len();
        for one in hidden {
            if one.membership == Membership::Certain || found.all.contains(&one.parent) {
                found.all.insert(one.pid);
            }
        }
        if found.all.len() == before {
            break;
        }
    }
    let possible = hidden
        .iter()
        .filter(|one| one.membership == Membership::Possible);
    found.possible = possible
        .map(|one| one.pid)
        .filter(|pid| !found.all.contains(pid))
        .collect();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_belongs_to_a_container_if_it_is_in_all_its_cgroups() {
        let of = |pids: &str, v2: Option<&str>| Controllers {
            v1: [("pids".to_owned(), pids.into())].into(),
            v2: v2.map(Into::into),
        };
        let other = of("/c/pids/a", Some("/c/unified/a"));
        assert!(is_within(&of("/c/pids/a/x", Some("/c/unified/a")), &other));
        for outside in [
            of("/c/pids/ab", Some("/c/unified/a")),
            of("/c/pids/a", Some("/c/unified")),
            of("/c/pids/a", None),
            Controllers::default(),
        ] {
            assert!(!is_within(&outside, &other), "{outside:?}");
        }
        // A container without cgroups has no processes.
        assert!(!is_within(&other, &Controllers::default()));
    }

    #[test]
    fn processes_of_cgroups_below_belong_to_the_container() {
        let dir = nix::unistd::mkdtemp(&std::env::temp_dir().join("agentbox-test-XXXXXX")).unwrap();
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::write(dir.join("cgroup.procs"), "10\n0\n11\n").unwrap();
        fs::write(dir.join("a/b/cgroup.procs"), "12\n").unwrap();
        let mut all = BTreeSet::new();
        below(&dir, &mut all).unwrap();
        // One of another pid namespace is shown as 0. `a` is gone: it has no list.
        assert_eq!(all, [10, 11].into());
        fs::write(dir.join("a/cgroup.procs"), "").unwrap();
        below(&dir, &mut all).unwrap();
        assert_eq!(all, [10, 11, 12].into());
        fs::remove_dir_all(&dir).unwrap();
        assert!(below(&dir, &mut all).is_ok());
    }

    fn process(pids: &[i32], uid: u32) -> HiddenProcess {
        HiddenProcess {
            parent: 1,
            start_time: 42,
            uids: vec![uid; 4],
            pids: pids.to_vec(),
        }
    }

    #[test]
    fn a_hidden_process_is_known_by_its_number_in_the_container() {
        let init = |depth, has_cgroup| InitProcess {
            uids: vec![7],
            depth,
            has_cgroup,
            proc: None,
        };
        let inside = |pid: i32| (pid == 5).then_some(42);
        let another = |_: i32| Some(43);
        let known = |one: &HiddenProcess| judge(&init(2, false), one, Some(inside));
        assert_eq!(known(&process(&[30, 5], 7)), Membership::Certain);
        assert_eq!(known(&process(&[30, 5, 1], 7)), Membership::Certain);
        // Of the node, and of another sandbox.
        assert_eq!(known(&process(&[30], 7)), Membership::No);
        assert_eq!(known(&process(&[30, 6], 7)), Membership::No);
        let reused = judge(&init(2, false), &process(&[30, 5], 7), Some(another));
        assert_eq!(reused, Membership::No);
        // Without the container's /proc.
        let unknown = |one: &HiddenProcess, depth, has_cgroup| {
            judge(
                &init(depth, has_cgroup),
                one,
                None::<fn(i32) -> Option<u64>>,
            )
        };
        assert_eq!(
            unknown(&process(&[30, 5], 7), 2, true),
            Membership::Possible
        );
        assert_eq!(unknown(&process(&[30], 7), 2, false), Membership::No);
        // Without a pid namespace, or a kernel that shows it.
        assert_eq!(unknown(&process(&[30], 7), 1, false), Membership::Possible);
        assert_eq!(unknown(&process(&[], 7), 2, false), Membership::Possible);
        assert_eq!(unknown(&process(&[30], 8), 1, false), Membership::No);
        assert_eq!(unknown(&process(&[30], 7), 1, true), Membership::No);
    }

    #[test]
    fn a_hidden_child_of_the_containers_processes_belongs_to_it() {
        let hidden = [
            (12, 11, Membership::No),
            (11, 10, Membership::Possible),
            (20, 1, Membership::Possible),
            (21, 20, Membership::No),
            (30, 1, Membership::Certain),
        ];
        let hidden = hidden.map(|(pid, parent, membership)| HiddenMembership {
            pid,
            parent,
            membership,
        });
        let found = with_hidden([10].into(), &hidden);
        assert_eq!(found.all, [10, 11, 12, 30].into());
        assert_eq!(found.possible, [20].into());
    }

    #[test]
    fn the_numbers_of_a_status_line_are_read() {
        let status = "Name:\tNSpid: 3\nUid:\t0\t0\t1\t0\nNSpid:\t30\t5\n";
        assert_eq!(numbers::<i32>(status, "NSpid:"), [30, 5]);
        assert_eq!(numbers::<u32>(status, "Uid:"), [0, 0, 1, 0]);
        assert_eq!(numbers::<i32>("", "NSpid:"), [0; 0]);
        let own = HiddenProcess::read(std::process::id().cast_signed()).unwrap();
        assert!(!own.uids.is_empty());
    }

    #[test]
    fn a_proc_of_the_root_is_opened_and_is_this_processes_own() {
        let own = ProcessId::of(std::process::id().cast_signed()).unwrap();
        let init = InitProcess {
            uids: Vec::new(),
            depth: 1,
            has_cgroup: false,
            proc: open_proc(own.pid),
        };
        assert_eq!(init.start_time(own.pid), Some(own.start_time));
        assert_eq!(init.start_time(i32::MAX), None);
        // The same number and start time, and another user.
        let mut one = HiddenProcess::read(own.pid).unwrap();
        let init = InitProcess {
            depth: one.pids.len() + 1,
            ..init
        };
        one.pids.push(own.pid);
        assert_eq!(init.membership(&one), Membership::Certain);
        one.uids[0] += 1;
        assert_eq!(init.membership(&one), Membership::No);
    }
}
