//! Devices: nodes in a container, and nodes that it creates.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, FileType, Mode};
use rustix::io::Errno;

use super::files::probe;
use crate::cgroup::devices::is_usual;
use crate::verify::answer::Answers;
use crate::verify::probe::{Finding, Outcome, Probe};
use crate::verify::promise::Promise;

/// The probes.
pub const PROBES: &[Probe] = &[
    probe(
        "new-devices",
        &["F06"],
        "create a block device node in /dev/shm and /tmp",
        "EPERM",
        "the container can create device nodes of the node's disks",
        |_| new_device(),
    ),
    probe(
        "disks",
        &["F06"],
        "search /dev for block devices",
        "none beyond the node's allow.devices",
        "the container can read and write the node's disks",
        disks,
    ),
    probe(
        "character-devices",
        &["F06"],
        "search /dev for character devices",
        "the usual devices, terminals, and the node's allow.devices",
        "the container can reach kernel drivers, memory or the kernel log",
        character_devices,
    ),
];

/// The capability is missing, or the filter denies it.
const REFUSED: Answers = Answers::or_not_tried(&[Errno::PERM]);

fn new_device() -> Finding {
    let attempts = ["/dev/shm", "/tmp"].into_iter().map(|directory| {
        let path = format!("{directory}/.agentbox-verify-{}", std::process::id());
        // The node's first disk, with mode 0.
        let disk = rustix::fs::makedev(8, 0);
        rustix::fs::mknodat(CWD, &path, FileType::BlockDevice, Mode::empty(), disk)?;
        let gone = rustix::fs::unlinkat(CWD, &path, AtFlags::empty());
        let rest = gone
            .err()
            .map(|e| format!("; it could not be removed from {path}: {e}"));
        Ok(rest.unwrap_or_default())
    });
    judge_made(attempts)
}

/// The meaning of attempts to make a device; a made one has a text about what is left of it. They end with the first
/// answer: the others only lack a directory to try it in.
fn judge_made(attempts: impl IntoIterator<Item = Result<String, Errno>>) -> Finding {
    let mut last = Errno::NOENT;
    for made in attempts {
        match made {
            Ok(rest) => return Finding::not_held(format!("it was created{rest}")),
            Err(errno) if REFUSED.outcome(errno) == Outcome::Held => return Finding::held("EPERM"),
            Err(errno) => last = errno,
        }
    }
    Finding::not_tried(format!("no directory for the attempt: {last}"))
}

fn disks(promise: &Promise) -> Finding {
    found_devices(promise, |entry| entry.kind == FileType::BlockDevice)
}

/// Character devices that no container gets, such as /dev/mem, /dev/kmsg and /dev/fuse.
fn character_devices(promise: &Promise) -> Finding {
    found_devices(promise, is_unusual)
}

fn is_unusual(entry: &DevEntry) -> bool {
    let number = (
        rustix::fs::major(entry.number),
        rustix::fs::minor(entry.number),
    );
    entry.kind == FileType::CharacterDevice && !is_usual(number)
}

fn found_devices(promise: &Promise, is_fault: fn(&DevEntry) -> bool) -> Finding {
    let (all, whole) = below_dev();
    judge_devices(promise, is_fault, &all, whole)
}

/// The meaning of the entries of /dev. Without the whole list, only a fault proves something.
fn judge_devices(
    promise: &Promise,
    is_fault: fn(&DevEntry) -> bool,
    all: &[DevEntry],
    whole: SearchEnd,
) -> Finding {
    let may = |path: &PathBuf| promise.has(|walls| walls.devices.contains(path));
    let faults: Vec<String> = all
        .iter()
        .filter(|entry| is_fault(entry) && !may(&entry.path))
        .map(|entry| format!("{} exists", entry.path.display()))
        .collect();
    match (faults.is_empty(), whole) {
        (true, SearchEnd::Early) => Finding::not_tried(format!(
            "/dev has more than {MOST_ENTRIES} entries, or cannot be searched"
        )),
        _ => Finding::of_faults(&faults, "none"),
    }
}

/// The most entries of /dev and its directories to look at.
const MOST_ENTRIES: usize = 4096;

/// Where a search of /dev ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SearchEnd {
    /// After all entries.
    Complete,
    /// At the limit, or at a directory that cannot be listed.
    Early,
}

/// An entry of /dev that is not a directory.
struct DevEntry {
    path: PathBuf,
    kind: FileType,
    /// For a device: its major and minor number.
    number: u64,
}

/// The entries of /dev and its directories.
fn below_dev() -> (Vec<DevEntry>, SearchEnd) {
    let mut directories = vec![PathBuf::from("/dev")];
    let (mut all, mut seen, mut whole) = (Vec::new(), 0, SearchEnd::Complete);
    while let Some(directory) = directories.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            // A directory that cannot be listed may still contain a node with a known name.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(_) => {
                whole = SearchEnd::Early;
                continue;
            }
        };
        for entry in entries {
            seen += 1;
            if seen > MOST_ENTRIES {
                return (all, SearchEnd::Early);
            }
            // Metadata of the entry itself: symlinks are not followed.
            let Ok((path, found)) = entry.and_then(|e| Ok((e.path(), e.metadata()?))) else {
                whole = SearchEnd::Early;
                continue;
            };
            match found.is_dir() {
                true => directories.push(path),
                false => all.push(DevEntry {
                    path,
                    kind: FileType::from_raw_mode(found.mode()),
                    number: found.rdev(),
                }),
            }
        }
    }
    (all, whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_holds_only_by_the_walls_errno() {
        let judge = |attempts: &[Result<&str, Errno>]| {
            let owned = attempts.iter().map(|one| one.map(str::to_owned));
            judge_made(owned)
        };
        for (attempts, expected) in [
            (&[Err(Errno::PERM)][..], Outcome::Held),
            (&[Err(Errno::NOENT), Err(Errno::PERM)], Outcome::Held),
            (&[Err(Errno::NOENT), Ok("")], Outcome::NotHeld),
            (&[Ok(""), Err(Errno::PERM)], Outcome::NotHeld),
            // A full or read-only file system refuses everybody.
            (&[Err(Errno::NOSPC), Err(Errno::ROFS)], Outcome::NotTried),
            (&[], Outcome::NotTried),
        ] {
            assert_eq!(judge(attempts).outcome, expected, "{attempts:?}");
        }
        let left = judge(&[Ok("; it could not be removed from /tmp/x: EBUSY")]);
        assert!(
            left.saw.ends_with("removed from /tmp/x: EBUSY"),
            "{}",
            left.saw
        );
    }

    #[test]
    fn a_device_that_no_policy_gives_is_a_fault() {
        let entry = |path: &str, kind, major, minor| DevEntry {
            path: path.into(),
            kind,
            number: rustix::fs::makedev(major, minor),
        };
        let good = [
            entry("/dev/null", FileType::CharacterDevice, 1, 3),
            entry("/dev/pts/0", FileType::CharacterDevice, 136, 0),
            entry("/dev/log", FileType::Socket, 0, 0),
        ];
        let is_block: fn(&DevEntry) -> bool = |entry| entry.kind == FileType::BlockDevice;
        let mut promise = Promise::default();
        let walls = promise.walls.insert(Default::default());
        walls.devices.insert("/dev/fuse".into());
        for (found, is_fault, expected) in [
            (
                entry("/dev/fuse", FileType::CharacterDevice, 10, 229),
                is_unusual as fn(&_) -> _,
                Outcome::Held,
            ),
            // The same device by a name that the node's file does not have.
            (
                entry("/dev/f", FileType::CharacterDevice, 10, 229),
                is_unusual,
                Outcome::NotHeld,
            ),
            (
                entry("/dev/mem", FileType::CharacterDevice, 1, 1),
                is_unusual,
                Outcome::NotHeld,
            ),
            (
                entry("/dev/sda", FileType::BlockDevice, 8, 0),
                is_unusual,
                Outcome::Held,
            ),
            (
                entry("/dev/sda", FileType::BlockDevice, 8, 0),
                is_block,
                Outcome::NotHeld,
            ),
            (
                entry("/dev/mem", FileType::CharacterDevice, 1, 1),
                is_block,
                Outcome::Held,
            ),
        ] {
            let path = found.path.clone();
            let all: Vec<DevEntry> = good
                .iter()
                .map(|one| DevEntry {
                    path: one.path.clone(),
                    ..*one
                })
                .chain([found])
                .collect();
            for (end, expected) in [
                (SearchEnd::Complete, expected),
                // A part of /dev proves no more than its faults.
                (
                    SearchEnd::Early,
                    match expected {
                        Outcome::NotHeld => Outcome::NotHeld,
                        _ => Outcome::NotTried,
                    },
                ),
            ] {
                let found = judge_devices(&promise, is_fault, &all, end);
                assert_eq!(found.outcome, expected, "{}: {}", path.display(), found.saw);
            }
        }
    }
}
