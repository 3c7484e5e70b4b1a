//! P04 of the threat list, the ordinary half: hundreds of containers come and go and leave nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{Docker, Policy};
use crate::command::run;

/// The traces of containers that are visible in the rig.
#[derive(Debug, PartialEq, Eq, Clone)]
struct Traces {
    /// Programs and their number of processes, without pids, which change.
    processes: Vec<String>,
    mounts: Vec<String>,
    cgroups: BTreeSet<String>,
    /// Everything under /run except the network namespaces' names, which the engine removes once a minute.
    files: BTreeSet<String>,
    /// Namespaces of all kinds that some process is in.
    namespaces: usize,
}

impl Traces {
    fn look() -> Self {
        let mut processes: Vec<String> = numbered("/proc")
            .iter()
            .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok())
            .map(|comm| comm.trim().to_owned())
            // The kernel's threads and the test's come and go.
            .filter(|comm| comm != "docker")
            .collect();
        processes.sort();
        let mut mounts: Vec<String> = fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .lines()
            .filter_map(|line| line.split(' ').nth(4).map(str::to_owned))
            .collect();
        mounts.sort();
        let namespaces: BTreeSet<_> = numbered("/proc")
            .iter()
            .flat_map(|pid| {
                let names = fs::read_dir(format!("/proc/{pid}/ns"))
                    .into_iter()
                    .flatten()
                    .flatten();
                names
                    .filter_map(|name| fs::read_link(name.path()).ok())
                    .collect::<Vec<_>>()
            })
            .collect();
        Self {
            processes,
            mounts,
            cgroups: tree(Path::new("/sys/fs/cgroup"), &|path| path.is_dir()),
            files: tree(Path::new("/run"), &|path| {
                !path.starts_with("/run/docker/netns")
            }),
            namespaces: namespaces.len(),
        }
    }
}

fn numbered(directory: &str) -> Vec<u32> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The paths below `root` that `wanted` keeps, without following symlinks.
fn tree(root: &Path, wanted: &dyn Fn(&Path) -> bool) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut rest = vec![root.to_owned()];
    while let Some(directory) = rest.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if wanted(&path) {
                found.insert(path.display().to_string());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                rest.push(path);
            }
        }
    }
    found
}

/// One container's life: created, started, entered, killed, deleted.
fn live(docker: &Docker, number: usize) {
    let name = format!("leftover-{number}");
    let mut options = Policy::ALL[number % 3].options();
    options.extend(["--name", &name, "test-probe", "sleep", "300"]);
    docker.call(&[&["create"], &options[..]].concat()).ok();
    docker.call(&["start", &name]).ok();
    if number.is_multiple_of(4) {
        docker.call(&["exec", &name, "true"]).ok();
    }
    docker.call(&["kill", &name]).ok();
    docker.call(&["rm", "-f", &name]).ok();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_hundred_containers_eight_at_a_time_leave_nothing_behind() {
    let docker = Docker::alone();
    // Files that the first container leaves for good (the runtime's directories) are no leftovers.
    live(&docker, 0);
    settle();
    let before = Traces::look();

    let next = AtomicUsize::new(1);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number > 100 {
                        break;
                    }
                    live(&docker, number);
                }
            });
        }
    });

    settle();
    let after = Traces::look();
    let new = |before: &BTreeSet<String>, after: &BTreeSet<String>| -> Vec<String> {
        after.difference(before).cloned().collect()
    };
    assert_eq!(
        new(&before.cgroups, &after.cgroups),
        Vec::<String>::new(),
        "cgroups"
    );
    assert_eq!(
        new(&before.files, &after.files),
        Vec::<String>::new(),
        "files below /run"
    );
    assert_eq!(after.mounts, before.mounts, "mounts");
    assert_eq!(after.processes, before.processes, "processes");
    assert!(
        after.namespaces <= before.namespaces,
        "namespaces: {} were {}",
        after.namespaces,
        before.namespaces
    );
}

/// Waits until no shim is left (they end a moment after their container), for at most a minute.
fn settle() {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        if run("pgrep", &["-f", "containerd-shim"]).code != 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_millis(300));
}
