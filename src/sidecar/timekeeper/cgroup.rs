//! The processes of a container, for its timekeeper: by the kernel's own kill of cgroup v2, or one by one on v1.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// How the processes of a container's cgroup are killed.
#[derive(Debug)]
pub enum CgroupMembers {
    /// Write to its `cgroup.kill`. The kernel kills frozen processes too, and those that are being forked.
    Kill(OwnedFd),
    /// Its directory in a v1 hierarchy, and its `freezer.state`: frozen processes do not die there.
    Listed {
        /// The directory.
        directory: OwnedFd,
        /// The freezer's state, if the node has a freezer.
        freezer: Option<OwnedFd>,
    },
    /// It has no cgroup: all its processes are in the init process's pid namespace.
    InitAlone,
}

/// The cgroup of one `exec`, for its timekeeper: it ends everything in it, and then removes it.
#[derive(Debug)]
pub struct ExecCgroup {
    /// The directory above it, which is the timekeeper's user's.
    pub parent: OwnedFd,
    /// Its name there.
    pub name: String,
    /// On cgroup v1: `cgroup.procs` of a freezer that is never frozen. Killed processes are moved there, because a frozen
    /// container's do not die.
    pub thawed: Option<OwnedFd>,
}

impl ExecCgroup {
    /// In place of the counts of activity, which an `exec` does not have: `filler` where there is none.
    pub(super) fn descriptors<'a>(&'a self, filler: BorrowedFd<'a>) -> [BorrowedFd<'a>; 4] {
        let thawed = self.thawed.as_ref().map_or(filler, AsFd::as_fd);
        [self.parent.as_fd(), thawed, filler, filler]
    }
}

/// Removes the cgroup of this name, unless a process is in it: so the kernel tells atomically whether one is. True if it is gone.
pub fn remove(parent: impl AsFd, name: impl rustix::path::Arg) -> bool {
    let removed = rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
    matches!(removed, Ok(()) | Err(Errno::NOENT | Errno::NODEV))
}

/// The same, without descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::sidecar) enum MembersKind {
    Kill,
    Listed { freezes: bool },
    InitAlone,
}

/// Rounds of killing on cgroup v1, and the pause after each. Processes may fork meanwhile.
const ROUNDS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);
/// The longest list that is read in a round; the next round has the rest.
const LONGEST: usize = 64 << 10;
/// Processes that are killed in a round: fewer than the timekeeper may open files.
const AT_ONCE: usize = 512;

impl CgroupMembers {
    /// Kills all processes of the cgroup, for a runtime in a timekeeper's place.
    pub fn kill(&self, thawed: Option<BorrowedFd<'_>>) {
        let filler = rustix::stdio::stdin();
        self.kind().kill(self.descriptors(filler), thawed);
    }

    pub(super) fn kind(&self) -> MembersKind {
        match self {
            Self::Kill(_) => MembersKind::Kill,
            Self::Listed { freezer, .. } => MembersKind::Listed {
                freezes: freezer.is_some(),
            },
            Self::InitAlone => MembersKind::InitAlone,
        }
    }

    /// Always two descriptors: `filler` where there is none.
    pub(super) fn descriptors<'a>(&'a self, filler: BorrowedFd<'a>) -> [BorrowedFd<'a>; 2] {
        match self {
            Self::Kill(file) => [file.as_fd(), filler],
            Self::Listed { directory, freezer } => [
                directory.as_fd(),
                freezer.as_ref().map_or(filler, AsFd::as_fd),
            ],
            Self::InitAlone => [filler, filler],
        }
    }
}

impl MembersKind {
    /// Kills all processes of the cgroup. Tried again by the caller until the init process has ended. On cgroup v1 killed ones are moved
    /// to `thawed`, if it is given.
    pub fn kill(self, [one, other]: [BorrowedFd<'_>; 2], thawed: Option<BorrowedFd<'_>>) {
        match self {
            Self::InitAlone => {}
            Self::Kill => {
                // ENODEV: the cgroup is gone with its processes.
                let _gone = rustix::io::write(one, b"1");
            }
            Self::Listed { freezes } => {
                let set = |state: &[u8]| {
                    if freezes {
                        let _gone = rustix::io::write(other, state);
                    }
                };
                for _ in 0..ROUNDS {
                    // So that none forks meanwhile. They die when they are thawed.
                    set(b"FROZEN");
                    let listed = kill_listed(one, thawed);
                    set(b"THAWED");
                    if listed == Ok(0) {
                        return;
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }
}

/// Sends SIGKILL to processes that a v1 cgroup lists, [`AT_ONCE`] at most. Returns how many it listed.
fn kill_listed(
    directory: BorrowedFd<'_>,
    thawed: Option<BorrowedFd<'_>>,
) -> rustix::io::Result<usize> {
    let before = listed(directory)?;
    let opened: Vec<(i32, OwnedFd)> = before
        .iter()
        .take(AT_ONCE)
        .filter_map(|number| {
            let pid = Pid::from_raw(*number)?;
            Some((*number, pidfd_open(pid, PidfdFlags::empty()).ok()?))
        })
        .collect();
    // Listed again, now that its descriptor is open: so the descriptor is not another process's that got its number.
    let after = listed(directory)?;
    for (number, process) in opened {
        if !after.contains(&number) {
            continue;
        }
        let killed = pidfd_send_signal(&process, Signal::KILL);
        if let (Ok(()), Some(thawed)) = (killed, thawed) {
            // It never returns to its program, and a freezer that is not its own holds it no more (freezer_attach).
            let _gone = rustix::io::write(thawed, number.to_string().as_bytes());
        }
    }
    Ok(before.len())
}

/// Reads the list; a cgroup that is gone has none. Opened each time: the kernel keeps the list of an open file for a while
/// (cgroup_pidlist_start).
fn listed(directory: BorrowedFd<'_>) -> rustix::io::Result<Vec<i32>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = match rustix::fs::openat(directory, "cgroup.procs", flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NODEV) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let (mut text, mut part) = (Vec::new(), [0; 4096]);
    while text.len() <= LONGEST {
        match rustix::io::read(&file, &mut part)? {
            0 => break,
            length => text.extend_from_slice(&part[..length]),
        }
    }
    Ok(numbers(&text))
}

/// The numbers of a list; the last line may be cut.
fn numbers(text: &[u8]) -> Vec<i32> {
    let whole = text.split_inclusive(|byte| *byte == b'\n');
    let lines = whole.filter_map(|line| std::str::from_utf8(line.strip_suffix(b"\n")?).ok());
    // 0: a process of another pid namespace.
    let numbers = lines.filter_map(|line| line.parse().ok());
    numbers.filter(|number| *number > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_gone_if_it_is_removed_or_was() {
        let base = std::env::temp_dir().join(format!("agentbox-gone-{}", std::process::id()));
        std::fs::create_dir_all(base.join("one/process")).unwrap();
        let parent = std::fs::File::open(&base).unwrap();
        assert!(!remove(&parent, "one"), "something is in it");
        std::fs::remove_dir(base.join("one/process")).unwrap();
        assert!(remove(&parent, "one"));
        assert!(!base.join("one").exists());
        assert!(remove(&parent, "one"), "by the other one");
        std::fs::remove_dir(base).unwrap();
    }

    #[test]
    fn a_list_has_whole_lines_and_processes_of_this_namespace() {
        assert_eq!(numbers(b"12\n0\n345\n67"), [12, 345]);
        assert!(numbers(b"").is_empty());
        assert_eq!(numbers(b"-1\nx\n\n7\n"), [7]);
    }
}
