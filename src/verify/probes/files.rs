//! Mounts and masks.

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;

use crate::verify::answer::Answers;
use crate::verify::probe::{Attempt, Finding, Outcome, Probe, ProbedWall};
use crate::verify::promise::Promise;

pub const fn probe(
    id: &'static str,
    threats: &'static [&'static str],
    tried: &'static str,
    expected: &'static str,
    means: &'static str,
    attempt: fn(&Promise) -> Finding,
) -> Probe {
    Probe {
        id,
        wall: ProbedWall::Files,
        threats,
        tried,
        expected,
        means,
        remedy: "recreate the container; `agentbox explain ID` lists the planned mounts and masks",
        promised: |p| p.walls.is_some(),
        attempt: Attempt::Finds(attempt),
    }
}

/// The probes.
pub const PROBES: &[Probe] = &[
    probe(
        "kernel-secrets",
        &["F04"],
        "read files of /proc and /sys with the kernel's memory, keys and timers",
        "absent, empty, or denied by more than the file's mode",
        "the container can read data of the node's kernel",
        |_| secrets(),
    ),
    probe(
        "hidden-paths",
        &["F02", "F15", "F22"],
        "read the paths that the plan hides, such as credentials in mounts",
        "absent, empty, or denied by more than the file's mode",
        "the container can read credentials or sockets that the plan hides",
        hidden,
    ),
    probe(
        "kernel-knobs",
        &["F04"],
        "open core_pattern, sysrq-trigger, modprobe and others for writing, without a write",
        "denied or absent, on a read-only mount",
        "the container can change settings of the node's kernel",
        |_| knobs(),
    ),
    probe(
        "read-only-paths",
        &["F04", "F37"],
        "check the paths that the plan makes read-only",
        "absent, or on a read-only mount",
        "the container can write read-only files",
        readonly,
    ),
    probe(
        "cgroup-mounts",
        &["F04"],
        "list the cgroup mounts",
        "all read-only, or none",
        "the container can change its limits, or set a release agent that runs on the node",
        |_| cgroups(),
    ),
    Probe {
        promised: |p| p.has(|w| w.root_read_only),
        ..probe(
            "root",
            &["F01"],
            "create a file without a name in /",
            "EROFS",
            "the container can change its image's files",
            |_| root(),
        )
    },
    probe(
        "propagation",
        &["F01", "F11"],
        "list the mounts with their propagation",
        "none is shared",
        "mounts made in the container appear on the node",
        |_| propagation(),
    ),
    probe(
        "runtime-file",
        &["F09"],
        "open the runtime's file for writing by /proc/self/exe",
        "denied, on a read-only mount",
        "the container can replace the runtime's program on the node",
        |_| own_file(),
    ),
];

/// Paths that engines mask too (Docker's list), and other paths that reveal the node.
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

/// The file of the process's own program.
const OWN_FILE: &str = "/proc/self/exe";

/// The path is absent or refused. /proc/kcore answers EPERM without a capability, and a device
/// without a driver ENXIO.
const SHOWN_NOTHING: Answers = Answers::or_not_tried(&[
    Errno::NOENT,
    Errno::NOTDIR,
    Errno::PERM,
    Errno::LOOP,
    Errno::NXIO,
    Errno::NODEV,
]);
/// The answers of a path that can be looked up. Its mode is no wall (`refused_by`).
const SHUT: Answers = Answers::or_not_tried(&[Errno::PERM, Errno::NXIO, Errno::NODEV]);
/// The answers of a file that was opened but has nothing to read.
const READ_NOTHING: Answers = Answers::or_not_tried(&[
    Errno::ACCESS,
    Errno::PERM,
    Errno::IO,
    Errno::INVAL,
    Errno::NXIO,
    Errno::NODEV,
]);
/// A setting that is absent, or on a read-only mount.
const CLOSED: Answers = Answers::or_not_tried(&[Errno::ROFS, Errno::NOENT, Errno::NOTDIR]);
/// Accepted on a read-only mount besides EROFS; checked first: the mode, another program's use, an absent feature.
const REFUSED: Answers = Answers::or_not_tried(&[
    Errno::ROFS,
    Errno::ACCESS,
    Errno::PERM,
    Errno::TXTBSY,
    Errno::OPNOTSUPP,
    Errno::ISDIR,
]);

fn secrets() -> Finding {
    let shown = SECRETS.iter().map(|path| shows(Path::new(path)));
    Finding::of_all(shown, "no content is shown")
}

fn hidden(promise: &Promise) -> Finding {
    let Some(walls) = &promise.walls else {
        return Finding::not_tried("the plan hides no path");
    };
    Finding::of_all(
        walls.masked.iter().map(|path| shows(path)),
        format!("no content is shown at {} paths", walls.masked.len()),
    )
}

/// Whether a path shows anything that should be masked.
fn shows(path: &Path) -> Finding {
    let name = path.display().to_string();
    let kind = match fs::symlink_metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) => return unseen(&name, &error),
    };
    if kind.is_dir() {
        return match fs::read_dir(path).map(|mut entries| entries.next()) {
            Ok(None) => Finding::held(format!("{name} is empty")),
            Ok(Some(Ok(first))) => {
                let first = first.file_name();
                Finding::not_held(format!("{name} shows {}", first.to_string_lossy()))
            }
            Ok(Some(Err(error))) => SHUT.of_error(&name, &error),
            Err(error) => match Errno::from_io_error(&error) {
                Some(errno) => refused_by(&name, errno),
                None => SHUT.of_error(&name, &error),
            },
        };
    }
    if kind.is_socket() {
        return Finding::not_held(format!("{name} is a socket"));
    }
    // A fifo would wait for a writer. A device is a mask (/dev/null), or does not answer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(errno) => return refused_by(&name, errno),
    };
    match fs::File::from(file).read(&mut [0; 1]) {
        Ok(1) => Finding::not_held(format!("{name} can be read")),
        Ok(_) => Finding::held(format!("{name} is empty")),
        Err(error) => READ_NOTHING.of_error(&name, &error),
    }
}

/// The meaning of an error of a path that was not found. A directory above that is closed to this user is no mask: the
/// container may have closed it.
fn unseen(name: &str, error: &std::io::Error) -> Finding {
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS) => Finding::not_tried(format!(
            "could not look at {name}: a directory above it is closed to this user"
        )),
        _ => SHOWN_NOTHING.of_error(name, error),
    }
}

/// The meaning of an errno of a path that is there. For another user than root, only its mode may have refused it: what
/// is masked has none that does.
fn refused_by(name: &str, errno: Errno) -> Finding {
    match errno {
        Errno::ACCESS => Finding::not_held(format!("only the mode of {name} denies it ({errno})")),
        // It went away between the two looks.
        Errno::NOENT => Finding::held(format!("{name} is gone")),
        _ => SHUT.finding(name, errno),
    }
}

fn knobs() -> Finding {
    Finding::of_all(KNOBS.iter().map(|path| knob(path)), "read-only or absent")
}

fn knob(path: &str) -> Finding {
    let opened = is_writable(Path::new(path));
    judge_knob(path, opened, || leads_to_read_only(Path::new(path)))
}

/// The meaning of an attempt to open a setting for writing.
fn judge_knob(
    path: &str,
    opened: Result<(), Errno>,
    is_read_only: impl FnOnce() -> Result<bool, Errno>,
) -> Finding {
    match opened {
        Ok(()) => Finding::not_held(format!("{path} was opened for writing")),
        Err(errno) if CLOSED.outcome(errno) == Outcome::Held => CLOSED.finding(path, errno),
        // For another user than root, only the file's mode may have refused it.
        Err(errno) => judge_refused(path, errno, is_read_only()),
    }
}

/// A path was refused with this errno: held only if its mount is read-only.
fn judge_refused(name: &str, errno: Errno, is_read_only: Result<bool, Errno>) -> Finding {
    match is_read_only {
        Ok(true) => REFUSED.finding(&format!("{name}, on a read-only mount"), errno),
        Ok(false) => Finding::not_held(format!("{name} is on a writable mount ({errno})")),
        Err(error) => SHOWN_NOTHING.finding(name, error),
    }
}

/// Opens it for writing, but writes nothing.
fn is_writable(path: &Path) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    rustix::fs::open(path, flags, Mode::empty()).map(drop)
}

/// Whether the mount is read-only to which a path leads: /proc/self/exe is a link to the program's.
fn leads_to_read_only(path: &Path) -> Result<bool, Errno> {
    let mount = rustix::fs::statvfs(path)?;
    Ok(mount.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Whether the mount at a path is read-only. A link can have one of its own.
fn is_read_only(path: &Path) -> Result<bool, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mount = rustix::fs::fstatvfs(rustix::fs::open(path, flags, Mode::empty())?)?;
    Ok(mount.f_flag.contains(StatVfsMountFlags::RDONLY))
}

fn readonly(promise: &Promise) -> Finding {
    let Some(walls) = &promise.walls else {
        return Finding::not_tried("the plan makes no path read-only");
    };
    let found = walls.readonly.iter().map(|path| {
        let name = path.display();
        match is_read_only(path) {
            Ok(true) => Finding::held(name.to_string()),
            Ok(false) => Finding::not_held(format!("{name} is on a writable mount")),
            Err(errno) => SHOWN_NOTHING.finding(&name.to_string(), errno),
        }
    });
    Finding::of_all(found, format!("{} paths", walls.readonly.len()))
}

/// From a line of mountinfo (proc_pid_mountinfo(5)): place, options, optional fields, type.
pub type Mount = [String; 4];

/// The mounts of this process's namespace.
fn mounts() -> std::io::Result<Vec<Mount>> {
    let text = crate::sys::procfs::lossy("/proc/self/mountinfo")?;
    Ok(text.lines().filter_map(mount).collect())
}

/// Parses one line.
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
        Ok(mounts) => Finding::of_faults(&written_cgroups(&mounts), "none is writable"),
        Err(error) => Finding::not_tried(format!("/proc/self/mountinfo: {error}")),
    }
}

fn written_cgroups(mounts: &[Mount]) -> Vec<String> {
    mounts
        .iter()
        .filter(|[_, options, _, kind]| {
            (kind == "cgroup" || kind == "cgroup2") && !options.split(',').any(|o| o == "ro")
        })
        .map(|[place, ..]| format!("{place} is writable"))
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

fn root() -> Finding {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::open("/", flags, Mode::RUSR) {
        Ok(_) => Finding::not_held("a file was created"),
        Err(Errno::ROFS) => Finding::held("EROFS"),
        // Only the directory's mode may have refused it.
        Err(errno) => judge_refused("/", errno, leads_to_read_only(Path::new("/"))),
    }
}

fn own_file() -> Finding {
    let exe = Path::new(OWN_FILE);
    judge_own_file(is_writable(exe), || leads_to_read_only(exe))
}

/// The meaning of an attempt to open the runtime's own file for writing.
fn judge_own_file(
    opened: Result<(), Errno>,
    is_read_only: impl FnOnce() -> Result<bool, Errno>,
) -> Finding {
    match opened {
        Ok(()) => Finding::not_held("it was opened for writing"),
        // On a writable mount it is refused only while the program runs.
        Err(errno) => match is_read_only() {
            Err(error) => Finding::not_tried(format!("{OWN_FILE}: {error}")),
            found => judge_refused(OWN_FILE, errno, found),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> Vec<Mount> {
        lines.lines().filter_map(mount).collect()
    }

    #[test]
    fn writable_and_shared_mounts_are_found() {
        let good = "30 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n\
                    31 23 0:27 / / ro master:1 - overlay overlay rw";
        assert!(written_cgroups(&read(good)).is_empty() && shared(&read(good)).is_empty());
        let bad = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup ro";
        assert_eq!(written_cgroups(&read(bad)), ["/sys/fs/cgroup is writable"]);
        assert_eq!(shared(&read(bad)), ["/sys/fs/cgroup is shared"]);
    }

    #[test]
    fn a_visible_path_differs_from_a_masked_one() {
        for (path, outcome) in [
            ("/nonexistent/agentbox", Outcome::Held),
            ("/dev/null", Outcome::Held),
            ("/proc/self/status", Outcome::NotHeld),
            ("/proc", Outcome::NotHeld),
        ] {
            assert_eq!(shows(Path::new(path)).outcome, outcome, "{path}");
        }
    }

    /// The mode of a directory above proves no mask.
    #[test]
    fn a_path_that_cannot_be_looked_up_was_not_tried() {
        for (errno, outcome) in [
            (Errno::ACCESS, Outcome::NotTried),
            (Errno::NOENT, Outcome::Held),
            (Errno::MFILE, Outcome::NotTried),
        ] {
            let found = unseen("/root/.aws", &errno.into());
            assert_eq!(found.outcome, outcome, "{errno:?}");
        }
    }

    #[test]
    fn what_only_its_mode_closes_is_not_masked() {
        for (errno, outcome) in [
            (Errno::ACCESS, Outcome::NotHeld),
            (Errno::PERM, Outcome::Held),
            (Errno::NOENT, Outcome::Held),
            (Errno::MFILE, Outcome::NotTried),
        ] {
            assert_eq!(refused_by("/proc/x", errno).outcome, outcome, "{errno:?}");
        }
    }

    #[test]
    fn a_setting_that_only_its_mode_closed_holds_on_a_read_only_mount_alone() {
        let knob = |opened, read_only| judge_knob("/proc/x", opened, || read_only).outcome;
        let (ro, rw, unknown) = (Ok(true), Ok(false), Err(Errno::MFILE));
        for (opened, read_only, expected) in [
            (Ok(()), ro, Outcome::NotHeld),
            (Err(Errno::ROFS), rw, Outcome::Held),
            (Err(Errno::NOENT), rw, Outcome::Held),
            (Err(Errno::ACCESS), ro, Outcome::Held),
            (Err(Errno::ACCESS), rw, Outcome::NotHeld),
            (Err(Errno::PERM), rw, Outcome::NotHeld),
            (Err(Errno::ACCESS), unknown, Outcome::NotTried),
            (Err(Errno::MFILE), ro, Outcome::NotTried),
            // The path went away between the two looks.
            (Err(Errno::ACCESS), Err(Errno::NOENT), Outcome::Held),
        ] {
            assert_eq!(
                knob(opened, read_only),
                expected,
                "{opened:?} {read_only:?}"
            );
        }
    }

    #[test]
    fn the_runtimes_file_holds_on_a_read_only_mount_alone() {
        let file = |opened, read_only| judge_own_file(opened, || read_only).outcome;
        assert_eq!(file(Ok(()), Ok(true)), Outcome::NotHeld);
        // It is refused while the program runs, and can be written when it ends.
        assert_eq!(file(Err(Errno::TXTBSY), Ok(false)), Outcome::NotHeld);
        assert_eq!(file(Err(Errno::TXTBSY), Ok(true)), Outcome::Held);
        assert_eq!(file(Err(Errno::ROFS), Ok(true)), Outcome::Held);
        // A hidden /proc proves nothing about the file.
        assert_eq!(
            file(Err(Errno::NOENT), Err(Errno::NOENT)),
            Outcome::NotTried
        );
    }

    #[test]
    fn an_unsealed_file_is_found() {
        // This test's own program is on a writable mount.
        assert_eq!(own_file().outcome, Outcome::NotHeld);
    }
}
