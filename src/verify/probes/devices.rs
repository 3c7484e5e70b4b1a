//! Devices: nodes in a container, and nodes that it creates.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
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
];

/// The capability is missing, or the filter denies it.
const REFUSED: Answers = Answers::or_not_tried(&[Errno::PERM]);

fn new_device() -> Finding {
    let mut last = Errno::NOENT;
    for directory in ["/dev/shm", "/tmp"] {
        let path = format!("{directory}/.agentbox-verify-{}", std::process::id());
        // The node's first disk, with mode 0.
        let disk = rustix::fs::makedev(8, 0);
        let made = rustix::fs::mknodat(CWD, &path, FileType::BlockDevice, Mode::empty(), disk);
        match made {
            Ok(()) => {
                let gone = rustix::fs::unlinkat(CWD, &path, AtFlags::empty());
                let rest = gone.err().map(|e| format!("; it stays at {path}: {e}"));
                return Finding::not_held(format!("it was made{}", rest.unwrap_or_default()));
            }
            Err(errno) if REFUSED.outcome(errno) == Outcome::Held => return Finding::held("EPERM"),
            Err(errno) => last = errno,
        }
    }
    Finding::not_tried(format!("no directory to try it in: {last}"))
}

fn disks(promise: &Promise) -> Finding {
    found_devices(promise, |kind, _| kind.is_block_device())
}

/// Character devices that no container gets, such as /dev/mem, /dev/kmsg and /dev/fuse.
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
        .filter(|entry| is_fault(entry.kind, entry.number) && !may(&entry.path))
        .map(|entry| format!("{} is there", entry.path.display()))
        .collect();
    match (faults.is_empty(), whole) {
        (true, false) => Finding::not_tried(format!(
            "/dev has more than {MOST_ENTRIES} entries, or cannot be searched"
        )),
        _ => Finding::of_faults(&faults, "none"),
    }
}

/// The most entries of /dev and its directories to look at.
const MOST_ENTRIES: usize = 4096;

/// An entry of /dev that is not a directory.
struct DevEntry {
    path: PathBuf,
    kind: fs::FileType,
    /// For a device: its major and minor number.
    number: u64,
}

/// The entries of /dev and its directories, and whether the list is complete.
fn below_dev() -> (Vec<DevEntry>, bool) {
    let mut directories = vec![PathBuf::from("/dev")];
    let (mut all, mut seen, mut whole) = (Vec::new(), 0, true);
    while let Some(directory) = directories.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            // A directory that cannot be listed may still contain a node with a known name.
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
            // Metadata of the entry itself: symlinks are not followed.
            let Ok((path, found)) = entry.and_then(|e| Ok((e.path(), e.metadata()?))) else {
                whole = false;
                continue;
            };
            match found.is_dir() {
                true => directories.push(path),
                false => all.push(DevEntry {
                    path,
                    kind: found.file_type(),
                    number: found.rdev(),
                }),
            }
        }
    }
    (all, whole)
}
