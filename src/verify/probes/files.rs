//! Mounts, masks and devices.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;

use crate::cgroup::devices::is_usual;
use crate::verify::probe::{Attempt, Finding, Probe, Wall};
use crate::verify::promise::Promise;

const fn probe(
    id: &'static str,
    threats: &'static [&'static str],
    tried: &'static str,
    expected: &'static str,
    means: &'static str,
    attempt: fn(&Promise) -> Finding,
) -> Probe {
    Probe {
        id,
        wall: Wall::Files,
        threats,
        tried,
        expected,
        means,
        remedy: "make the container again; `agentbox explain` shows the mounts and masks that were planned",
        promised: |p| p.walls.is_some(),
        attempt: Attempt::Finds(attempt),
    }
}

/// The probes.
pub const PROBES: &[Probe] = &[
    probe(
        "kernel-secrets",
        &["F04"],
        "files of /proc and /sys that show the kernel's memory, keys and timers are read",
        "absent, empty or refused",
        "the container reads what belongs to the node's kernel",
        |_| secrets(),
    ),
    probe(
        "hidden-paths",
        &["F02", "F15", "F22"],
        "the paths that the plan hides, credentials in mounts among them, are read",
        "absent, empty or refused",
        "the container reads credentials or sockets that were to be hidden",
        hidden,
    ),
    probe(
        "kernel-knobs",
        &["F04"],
        "core_pattern, sysrq-trigger, modprobe and the like are opened for writing; nothing is written",
        "refused or absent, on a read-only mount",
        "the container changes settings of the node's kernel",
        |_| knobs(),
    ),
    probe(
        "read-only-paths",
        &["F04"],
        "the paths that the plan makes read-only are looked at",
        "absent, or on a read-only mount",
        "the container writes what was to be read only",
        readonly,
    ),
    probe(
        "cgroup-mounts",
        &["F04"],
        "the mounts of cgroups are listed",
        "each is read-only, or there is none",
        "the container changes its own limits, or sets a release agent that runs on the node",
        |_| cgroups(),
    ),
    probe(
        "new-devices",
        &["F06"],
        "a block device node is made in /dev/shm and /tmp",
        "EPERM",
        "the container makes device nodes of the node's disks",
        |_| new_device(),
    ),
    probe(
        "disks",
        &["F06"],
        "/dev and its directories are searched for block devices",
        "none beyond the node's allow.devices",
        "the container reads and writes the node's disks",
        disks,
    ),
    probe(
        "character-devices",
        &["F06"],
        "/dev and its directories are searched for character devices",
        "the usual ones, terminals, and the node's allow.devices",
        "the container reaches drivers of the node's kernel, its memory or its log",
        character_devices,
    ),
    Probe {
        promised: |p| p.has(|w| w.root_read_only),
        ..probe(
            "root",
            &["F01"],
            "a file without a name is made in /",
            "EROFS",
            "the container changes the files of its image",
            |_| root(),
        )
    },
    probe(
        "propagation",
        &["F01", "F11"],
        "the mounts are listed with their propagation",
        "none is shared",
        "mounts that are made in the container appear on the node",
        |_| propagation(),
    ),
    probe(
        "runtime-file",
        &["F09"],
        "the runtime's own file is opened for writing by /proc/self/exe",
        "refused, on a read-only mount",
        "the container can replace the runtime's program on the node",
        |_| own_file(),
    ),
];

/// What engines mask too (Docker's list), and what else shows the node.
const SECRETS: [&str; 10] = [
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/acpi",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

const KNOBS: [&str; 8] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hostname",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sysrq-trigger",
    "/proc/irq/default_smp_affinity",
    "/sys/kernel/uevent_helper",
    "/sys/kernel/mm/transparent_hugepage/enabled",
];

fn secrets() -> Finding {
    let shown = SECRETS.iter().filter_map(|path| shows(Path::new(path)));
    Finding::of_faults(&shown.collect::<Vec<_>>(), "nothing is shown")
}

fn hidden(promise: &Promise) -> Finding {
    let Some(walls) = &promise.walls else {
        return Finding::not_tried("no path was to be hidden");
    };
    let shown: Vec<String> = walls.masked.iter().filter_map(|path| shows(path)).collect();
    Finding::of_faults(
        &shown,
        format!("nothing is shown at {} paths", walls.masked.len()),
    )
}

/// What is seen at a path that should show nothing.
fn shows(path: &Path) -> Option<String> {
    let kind = fs::symlink_metadata(path).ok()?.file_type();
    let name = path.display();
    if kind.is_dir() {
        let first = fs::read_dir(path).ok()?.flatten().next()?;
        return Some(format!(
            "{name} shows {}",
            first.file_name().to_string_lossy()
        ));
    }
    if kind.is_socket() {
        return Some(format!("{name} is a socket"));
    }
    // A fifo would wait for a writer, and a device is a mask (/dev/null) or does not answer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let mut byte = [0; 1];
    match fs::File::from(file).read(&mut byte) {
        Ok(1) => Some(format!("{name} can be read")),
        Ok(_) | Err(_) => None,
    }
}

fn knobs() -> Finding {
    let mut faults = Vec::new();
    for path in KNOBS {
        match is_writable(Path::new(path)) {
            Ok(()) => faults.push(format!("{path} was opened for writing")),
            Err(Errno::ROFS | Errno::NOENT) => {}
            // Its mode may be all that stands in the way of a user that is not root.
            Err(errno) if is_read_only(Path::new(path)) == Some(false) => {
                faults.push(format!("{path} is on a mount that is written ({errno})"));
            }
            Err(_) => {}
        }
    }
    Finding::of_faults(&faults, "read-only or absent")
}

/// Opens it for writing, and writes nothing.
fn is_writable(path: &Path) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    rustix::fs::open(path, flags, Mode::empty()).map(drop)
}

/// Whether the mount at a path is read-only; `None` where there is nothing.
fn is_read_only(path: &Path) -> Option<bool> {
    let mount = rustix::fs::statvfs(path).ok()?;
    Some(mount.f_flag.contains(StatVfsMountFlags::RDONLY))
}

fn readonly(promise: &Promise) -> Finding {
    let Some(walls) = &promise.walls else {
        return Finding::not_tried("no path was to be read-only");
    };
    let written = |path: &&PathBuf| is_read_only(path) == Some(false);
    let faults: Vec<String> = walls
        .readonly
        .iter()
        .filter(written)
        .map(|path| format!("{} is on a mount that is written", path.display()))
        .collect();
    Finding::of_faults(&faults, format!("{} paths", walls.readonly.len()))
}

/// Of a line of mountinfo (proc_pid_mountinfo(5)): place, options, optional fields, type.
pub type Mount = [String; 4];

/// The mounts that this process sees.
fn mounts() -> std::io::Result<Vec<Mount>> {
    let text = crate::sys::procfs::text("/proc/self/mountinfo")?;
    Ok(text.lines().filter_map(mount).collect())
}

/// Reads one.
pub fn mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let fields: Vec<&str> = before.split(' ').collect();
    Some([
        (*fields.get(4)?).to_owned(),
        (*fields.get(5)?).to_owned(),
        fields.get(6..)?.join(" "),
        after.split(' ').next()?.to_owned(),
    ])
}

fn cgroups() -> Finding {
    match mounts() {
        Ok(mounts) => Finding::of_faults(&written_cgroups(&mounts), "none is written"),
        Err(error) => Finding::not_tried(format!("/proc/self/mountinfo: {error}")),
    }
}

fn written_cgroups(mounts: &[Mount]) -> Vec<String> {
    mounts
        .iter()
        .filter(|[_, options, _, kind]| {
            (kind == "cgroup" || kind == "cgroup2") && !options.split(',').any(|o| o == "ro")
        })
        .map(|[place, ..]| format!("{place} is written"))
        .collect()
}

fn propagation() -> Finding {
    match mounts() {
        Ok(mounts) => Finding::of_faults(&shared(&mounts), "none is shared"),
        Err(error) => Finding::not_tried(format!("/proc/self/mountinfo: {error}")),
    }
}

fn shared(mounts: &[Mount]) -> Vec<String> {
    let is_shared = |[_, _, optional, _]: &&Mount| optional.contains("shared:");
    let shared = mounts.iter().filter(is_shared);
    shared
        .map(|[place, ..]| format!("{place} is shared"))
        .collect()
}

fn new_device() -> Finding {
    let mut last = Errno::NOENT;
    for directory in ["/dev/shm", "/tmp"] {
        let path = format!("{directory}/.agentbox-verify-{}", std::process::id());
        // The node's first disk, unreadable.
        let disk = rustix::fs::makedev(8, 0);
        let made = rustix::fs::mknodat(CWD, &path, FileType::BlockDevice, Mode::empty(), disk);
        match made {
            Ok(()) => {
                let gone = rustix::fs::unlinkat(CWD, &path, AtFlags::empty());
                let rest = gone.err().map(|e| format!("; it stays at {path}: {e}"));
                return Finding::not_held(format!("it was made{}", rest.unwrap_or_default()));
            }
            Err(Errno::PERM) => return Finding::held("EPERM"),
            Err(errno) => last = errno,
        }
    }
    Finding::not_tried(format!("no directory to try it in: {last}"))
}

fn disks(promise: &Promise) -> Finding {
    found_devices(promise, |kind, _| kind.is_block_device())
}

/// Character devices that no container is given, such as /dev/mem, /dev/kmsg and /dev/fuse.
fn character_devices(promise: &Promise) -> Finding {
    found_devices(promise, |kind, number| {
        let number = (rustix::fs::major(number), rustix::fs::minor(number));
        kind.is_char_device() && !is_usual(number)
    })
}

fn found_devices(promise: &Promise, is_fault: fn(fs::FileType, u64) -> bool) -> Finding {
    let may = |path: &PathBuf| promise.has(|walls| walls.devices.contains(path));
    let (all, whole) = below_dev();
    let faults: Vec<String> = all
        .into_iter()
        .filter(|(path, kind, number)| is_fault(*kind, *number) && !may(path))
        .map(|(path, ..)| format!("{} is there", path.display()))
        .collect();
    match (faults.is_empty(), whole) {
        (true, false) => Finding::not_tried(format!(
            "/dev has more than {MOST_ENTRIES} entries, or cannot be searched"
        )),
        _ => Finding::of_faults(&faults, "none"),
    }
}

/// Entries of /dev that are looked at, with those of its directories.
const MOST_ENTRIES: usize = 4096;

/// What lies in /dev and its directories that is no directory: path, type and device number; and whether that is all.
fn below_dev() -> (Vec<(PathBuf, fs::FileType, u64)>, bool) {
    let mut directories = vec![PathBuf::from("/dev")];
    let (mut all, mut seen, mut whole) = (Vec::new(), 0, true);
    while let Some(directory) = directories.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            // What cannot be listed for its mode can still hold a node of a known name.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(_) => {
                whole = false;
                continue;
            }
        };
        for entry in entries {
            seen += 1;
            if seen > MOST_ENTRIES {
                return (all, false);
            }
            // Of the entry itself: no link is followed.
            let Ok((path, found)) = entry.and_then(|e| Ok((e.path(), e.metadata()?))) else {
                whole = false;
                continue;
            };
            match found.is_dir() {
                true => directories.push(path),
                false => all.push((path, found.file_type(), found.rdev())),
            }
        }
    }
    (all, whole)
}

fn root() -> Finding {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::open("/", flags, Mode::RUSR) {
        Ok(_) => Finding::not_held("a file was made"),
        Err(Errno::ROFS) => Finding::held("EROFS"),
        // The mode of the directory may be all that stands in the way.
        Err(errno) => match is_read_only(Path::new("/")) {
            Some(true) => Finding::held(format!("{errno}, and the mount is read-only")),
            _ => Finding::not_held(format!("{errno}, and the mount is written")),
        },
    }
}

fn own_file() -> Finding {
    let exe = Path::new("/proc/self/exe");
    match (is_writable(exe), is_read_only(exe)) {
        (Ok(()), _) => Finding::not_held("it was opened for writing"),
        (Err(errno), Some(true)) => Finding::held(format!("{errno}, and the mount is read-only")),
        (Err(errno), Some(false)) => {
            Finding::not_held(format!("its mount is written ({errno} only while it runs)"))
        }
        (Err(errno), None) => Finding::not_tried(format!("/proc/self/exe: {errno}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> Vec<Mount> {
        lines.lines().filter_map(mount).collect()
    }

    #[test]
    fn mounts_that_are_written_or_shared_are_noticed() {
        let good = "30 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n\
                    31 23 0:27 / / ro master:1 - overlay overlay rw";
        assert!(written_cgroups(&read(good)).is_empty() && shared(&read(good)).is_empty());
        let bad = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup ro";
        assert_eq!(written_cgroups(&read(bad)), ["/sys/fs/cgroup is written"]);
        assert_eq!(shared(&read(bad)), ["/sys/fs/cgroup is shared"]);
    }

    #[test]
    fn what_shows_something_is_told_from_what_shows_nothing() {
        assert!(shows(Path::new("/nonexistent/agentbox")).is_none());
        assert!(shows(Path::new("/dev/null")).is_none());
        assert!(shows(Path::new("/proc/self/status")).is_some());
        assert!(shows(Path::new("/proc")).is_some());
    }

    #[test]
    fn a_file_that_is_not_sealed_is_noticed() {
        // This test's own program lies on a mount that is written.
        assert_eq!(own_file().outcome, crate::verify::probe::Outcome::NotHeld);
    }
}
