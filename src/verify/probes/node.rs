//! Facts that the node reads about the init process, and that no process inside could report: its cgroup, the cgroup's
//! device rules, its mounts of the kernel's file systems.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::files::{Mount, mount};
use crate::cgroup::controllers::Controllers;
use crate::cgroup::devices;
use crate::cgroup::hierarchies::Hierarchies;
use crate::sys::procfs;
use crate::verify::probe::{Attempt, ContainerView, Finding, Probe, ProbedWall};

/// The probes.
pub const PROBES: &[Probe] = &[
    Probe {
        id: "device-rules",
        wall: ProbedWall::Files,
        threats: &["F06"],
        tried: "read the device rules of the container's cgroup from the kernel",
        expected: "the usual devices and the node's allow.devices",
        means: "device nodes in the container lead to devices of the node",
        remedy: "recreate the container",
        promised: |p| p.has(|w| w.device_rules),
        attempt: Attempt::Read(device_rules),
    },
    Probe {
        id: "own-cgroup",
        wall: ProbedWall::Resources,
        threats: &["P01"],
        tried: "read the cgroups of the init process and of the probe process from the node's /proc",
        expected: "the container's own",
        means: "its limits and device rules do not apply to its processes",
        remedy: "stop and recreate the container",
        promised: |p| p.has(|w| w.own_cgroup),
        attempt: Attempt::Read(own_cgroup),
    },
    Probe {
        id: "kernel-file-systems",
        wall: ProbedWall::Files,
        threats: &["F04"],
        tried: "read the init process's mounts of the kernel's file systems from the node's /proc",
        expected: "only /proc is writable, once; the others are read-only or absent",
        means: "the container can change settings of the node's kernel by a mount without masks",
        remedy: "recreate the container; `agentbox explain ID` lists the planned mounts",
        promised: |p| p.walls.is_some(),
        attempt: Attempt::Read(kernel_file_systems),
    },
];

fn device_rules(view: &ContainerView<'_>) -> Finding {
    let given = view.promise.walls.iter().flat_map(|walls| &walls.devices);
    let mut extra = Vec::new();
    for path in given {
        match devices::of_node(path) {
            Ok(device) => extra.push(device),
            Err(error) => return Finding::not_tried(format!("{}: {error}", path.display())),
        }
    }
    match devices::beyond(view.controllers, &extra) {
        Ok(faults) => Finding::of_faults(&faults, "as in the policy"),
        Err(error) => Finding::not_tried(crate::log::chain(&error)),
    }
}

fn own_cgroup(view: &ContainerView<'_>) -> Finding {
    if view.controllers.all().is_empty() {
        return Finding::not_held("the container has no cgroup of its own");
    }
    let hierarchies = match Hierarchies::read() {
        Ok(hierarchies) => hierarchies,
        Err(error) => return Finding::not_tried(crate::log::chain(&error)),
    };
    let mut faults = Vec::new();
    let exec = view.pid.map(|pid| ("an exec process", pid));
    for (who, pid) in [("the init process", view.init)].into_iter().chain(exec) {
        match hierarchies.of(&pid.to_string()) {
            Ok(found) => faults.extend(outside(view.controllers, &found, who)),
            Err(error) => return Finding::not_tried(crate::log::chain(&error)),
        }
    }
    Finding::of_faults(&faults, "the container's own")
}

/// Faults if a process is not in a cgroup that was created, or below it.
fn outside(made: &Controllers, found: &Controllers, who: &str) -> Vec<String> {
    let mut places: Vec<_> = made
        .v1
        .iter()
        .map(|(name, dir)| (dir, found.v1.get(name)))
        .collect();
    places.extend(made.v2.iter().map(|dir| (dir, found.v2.as_ref())));
    let is_out = |(made, found): &(&PathBuf, Option<&PathBuf>)| {
        !found.is_some_and(|found| found.starts_with(made))
    };
    let out = places.into_iter().filter(is_out);
    // Several controllers may share a hierarchy.
    let faults: BTreeSet<String> = out
        .map(|(made, found)| match found {
            Some(found) => format!("{who} is in {}, not in {}", found.display(), made.display()),
            None => format!("{who} is not in {}", made.display()),
        })
        .collect();
    faults.into_iter().collect()
}

/// File systems by which the kernel shows and changes its settings, and device nodes.
const KERNELS: [&str; 14] = [
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "proc",
    "pstore",
    "securityfs",
    "sysfs",
    "tracefs",
];

fn kernel_file_systems(view: &ContainerView<'_>) -> Finding {
    let path = format!("/proc/{}/mountinfo", view.init);
    match procfs::lossy(&path) {
        Ok(text) => {
            let mounts: Vec<Mount> = text.lines().filter_map(mount).collect();
            Finding::of_faults(&written(&mounts), "only /proc is writable")
        }
        Err(error) => Finding::not_tried(format!("{path}: {error}")),
    }
}

fn written(mounts: &[Mount]) -> Vec<String> {
    let of_kernel = mounts.iter().filter(|[_, options, _, kind]| {
        KERNELS.contains(&kind.as_str()) && !options.split(',').any(|o| o == "ro")
    });
    let mut proc_seen = false;
    of_kernel
        .filter(|[place, _, _, kind]| {
            let is_first = kind == "proc" && place == "/proc" && !proc_seen;
            proc_seen |= is_first;
            !is_first
        })
        .map(|[place, _, _, kind]| format!("{kind} is writable at {place}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_writable_mount_is_found() {
        let read = |lines: &str| written(&lines.lines().filter_map(mount).collect::<Vec<_>>());
        let good = "104 103 0:59 / /proc rw,nosuid - proc proc rw\n\
                    90 104 0:59 /bus /proc/bus ro,nosuid - proc proc rw\n\
                    96 103 0:56 / /sys ro,nosuid - sysfs sysfs rw\n\
                    97 103 0:57 / /tmp rw - tmpfs tmpfs rw";
        assert_eq!(read(good), [""; 0]);
        for (line, fault) in [
            (
                "98 103 0:60 / /mnt/p rw - proc proc rw",
                "proc is writable at /mnt/p",
            ),
            (
                "98 104 0:60 / /proc rw - proc proc rw",
                "proc is writable at /proc",
            ),
            (
                "98 104 0:59 /sys /proc/sys rw - proc proc rw",
                "proc is writable at /proc/sys",
            ),
            (
                "98 103 0:56 / /s rw - sysfs sysfs rw",
                "sysfs is writable at /s",
            ),
            (
                "98 103 0:5 / /d rw - devtmpfs udev rw",
                "devtmpfs is writable at /d",
            ),
        ] {
            assert_eq!(read(&format!("{good}\n{line}")), [fault]);
        }
    }

    #[test]
    fn a_process_outside_of_its_cgroup_is_found() {
        let of = |pids: &str, v2: Option<&str>| Controllers {
            v1: [("pids".to_owned(), PathBuf::from(pids))].into(),
            v2: v2.map(PathBuf::from),
        };
        let made = of("/c/pids/a", Some("/c/unified/a"));
        assert!(outside(&made, &made, "it").is_empty());
        assert!(
            outside(
                &made,
                &of("/c/pids/a/below", Some("/c/unified/a/below")),
                "it"
            )
            .is_empty()
        );
        for moved in [
            of("/c/pids", Some("/c/unified/a")),
            of("/c/pids/ab", Some("/c/unified/a")),
        ] {
            assert_eq!(outside(&made, &moved, "it").len(), 1);
        }
        assert_eq!(outside(&made, &Controllers::default(), "it").len(), 2);
    }
}
