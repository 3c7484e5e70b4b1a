//! The state of containers: one directory for each, for all engines' `--root`, and one lock for each id.
//!
//! ```text
//! /run/agentbox/
//!   index/<root>-<id>/          record.json, config.json (the shadow bundle), filter, mounts, report, hosts, ...
//!   locks/<root>-<id>           a POSIX record lock; verbs on one id take turns
//!   namespaces/                 which container is in which namespace (census.rs)
//! ```
//! A caller without root's rights has the same below a directory of their own ([`super::user_dirs`]).
//! `<root>` is a short hash of the engine's `--root`, so that two engines may use one id.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use nix::fcntl::FcntlArg;
use rustix::fs::FlockOperation;

use crate::cli::GlobalOptions;
use crate::runtime::RuntimeError;
use crate::runtime::state::record::Record;
use crate::runtime::state::user_dirs::{self, DirUse};
use crate::runtime::unprivileged;
use crate::sys::deadline::Deadline;

/// Root's run directory: a tmpfs on every system that runs containers, so that nothing survives a boot.
const RUN: &str = "/run/agentbox";

/// A user's own, once [`settle`] has found it.
static OWN: OnceLock<PathBuf> = OnceLock::new();

/// The caller's run directory.
pub fn run_dir() -> &'static Path {
    OWN.get().map_or(Path::new(RUN), PathBuf::as_path)
}

/// Chooses the run directory of a caller without root's rights, and their `--root` unless they name another. Call this
/// before anything else of this module.
pub fn settle(global: &mut GlobalOptions) -> Result<(), RuntimeError> {
    // Root's own directory is root's in every namespace in which this process is root.
    let Some(person) = unprivileged::person().filter(|person| person.uid != 0) else {
        // Verbs trust records: no other user may have made them.
        user_dirs::check(Path::new(RUN), DirUse::Containers)?;
        return Ok(());
    };
    let dir = OWN.get_or_init(|| user_dirs::choose(person.uid));
    user_dirs::check(dir, DirUse::Containers)?;
    if !global.root_given {
        global.root = dir.join("containers");
    }
    Ok(())
}

/// How long a verb waits for another one on the same container. Each holder of the lock has deadlines of its own,
/// `start` thirty seconds; only the node's own hooks may take longer.
const LOCK_WITHIN: Duration = Duration::from_secs(60);

/// A container id that can be a file name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerId(String);

impl ContainerId {
    /// Parses an id: runc's characters, at most 200 of them.
    pub fn parse(text: &str) -> Result<Self, RuntimeError> {
        let plain = text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_+-.".contains(&b));
        if plain && (1..=200).contains(&text.len()) && text != "." && text != ".." {
            Ok(Self(text.to_owned()))
        } else {
            let shown: String = text.chars().take(80).collect();
            Err(RuntimeError::Id(shown))
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The paths of one container's state.
#[derive(Debug, Clone)]
pub struct ContainerPaths {
    /// Its id.
    pub id: ContainerId,
    /// The engine's `--root`.
    pub root: PathBuf,
    key: String,
}

impl ContainerPaths {
    /// The paths of a container of this root.
    pub fn new(root: &Path, id: &str) -> Result<Self, RuntimeError> {
        let id = ContainerId::parse(id)?;
        let root = std::path::absolute(root)
            .map_err(RuntimeError::io(format!("resolve --root {root:?}")))?;
        let key = format!(
            "{:016x}-{}",
            hash(root.as_os_str().as_encoded_bytes()),
            id.as_str()
        );
        Ok(Self { id, root, key })
    }

    /// A name that no container of another root has.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Our directory for the container.
    pub fn dir(&self) -> PathBuf {
        index().join(&self.key)
    }

    /// libcontainer's directory for the container.
    pub fn libcontainer_dir(&self) -> PathBuf {
        self.root.join(self.id.as_str())
    }

    /// The pipe on which the container's process reports errors.
    pub fn report(&self) -> PathBuf {
        self.dir().join("report")
    }

    /// The program of the syscall wall.
    pub fn filter(&self) -> PathBuf {
        self.dir().join("filter")
    }

    /// The init process's mounts when it executed its program (proc_pid_mountinfo(5)): later differences came from
    /// outside.
    pub fn mounts(&self) -> PathBuf {
        self.dir().join("mounts")
    }

    /// Makes our directory; an error if it exists. The lock is held.
    pub fn make_dir(&self) -> Result<(), RuntimeError> {
        make_private(&index())?;
        let dir = self.dir();
        // A deletion that was killed at its very end leaves an empty one. No other is removed by this.
        let _is_there = fs::remove_dir(&dir);
        match fs::DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(RuntimeError::Exists(self.id.0.clone()))
            }
            Err(e) => Err(RuntimeError::io(format!("make {dir:?}"))(e)),
        }
    }

    /// The lock of an existing container; makes nothing otherwise.
    pub fn lock_existing(&self) -> Result<Lock, RuntimeError> {
        let lock = self.lock_existing_within(LOCK_WITHIN)?;
        lock.ok_or_else(|| self.busy())
    }

    /// The same, but `None` after this time.
    pub fn lock_existing_within(&self, within: Duration) -> Result<Option<Lock>, RuntimeError> {
        let unknown = || RuntimeError::Unknown(self.id.0.clone());
        if !self.dir().exists() {
            return Err(unknown());
        }
        let lock = self.lock_within(within)?;
        if !self.dir().exists() {
            // Deleted meanwhile: the lock is on a new file.
            lock.map_or(Ok(()), Lock::remove)?;
            return Err(unknown());
        }
        Ok(lock)
    }

    fn busy(&self) -> RuntimeError {
        RuntimeError::Busy {
            id: self.id.0.clone(),
            seconds: LOCK_WITHIN.as_secs(),
        }
    }

    /// Whether another process has the container's lock, because a verb is running. Does not wait.
    pub fn is_busy(&self) -> bool {
        let path = run_dir().join("locks").join(&self.key);
        let Ok(file) = File::options().write(true).open(&path) else {
            return false;
        };
        let mut lock = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        let asked = nix::fcntl::fcntl(file.as_raw_fd(), FcntlArg::F_GETLK(&mut lock));
        asked.is_ok() && lock.l_type != libc::F_UNLCK as libc::c_short
    }

    /// Waits for the container's lock and takes it until the value is dropped or the process ends.
    ///
    /// A POSIX lock (fcntl_locking(2)), because it belongs to the process. The init process inherits every descriptor
    /// and would keep an flock(2).
    pub fn lock(&self) -> Result<Lock, RuntimeError> {
        let taken = self.lock_within(LOCK_WITHIN)?;
        taken.ok_or_else(|| self.busy())
    }

    /// As [`Self::lock`], but `None` after this time.
    fn lock_within(&self, within: Duration) -> Result<Option<Lock>, RuntimeError> {
        let dir = run_dir().join("locks");
        make_private(&dir)?;
        let path = dir.join(&self.key);
        let step = || format!("lock {path:?}");
        loop {
            let mut options = File::options();
            options.create(true).truncate(false).write(true).mode(0o600);
            let file = options.open(&path).map_err(RuntimeError::io(step()))?;
            if !take(&file, within).map_err(RuntimeError::io(step()))? {
                return Ok(None);
            }
            // A deletion removed the file while we waited: the lock is on another file now.
            let same = fs::metadata(&path)
                .ok()
                .zip(file.metadata().ok())
                .is_some_and(|(a, b)| a.ino() == b.ino());
            if same {
                return Ok(Some(Lock { file, path }));
            }
        }
    }
}

/// Takes a lock; `false` if another process has it for longer than this.
fn take(file: &File, within: Duration) -> std::io::Result<bool> {
    use rustix::io::Errno;
    match rustix::fs::fcntl_lock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => return Ok(true),
        Err(Errno::ACCESS | Errno::AGAIN) => {}
        Err(e) => return Err(e.into()),
    }
    let deadline = Deadline::begin(within, None)?;
    loop {
        match rustix::fs::fcntl_lock(file.as_fd(), FlockOperation::LockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) if deadline.has_passed() => return Ok(false),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// A held lock.
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Removes the lock's file: the container is gone. Waiting verbs notice and take a new one.
    pub fn remove(self) -> Result<(), RuntimeError> {
        fs::remove_file(&self.path).map_err(RuntimeError::io(format!("remove {:?}", self.path)))?;
        drop(self.file);
        Ok(())
    }
}

/// Whether the records are an ordinary user's, whose sandboxes are all made by `wrap`.
pub fn is_of_ordinary_user() -> bool {
    OWN.get().is_some()
}

/// The directory that has our directories of all containers.
pub fn index() -> PathBuf {
    run_dir().join("index")
}

/// The container's id in its key ([`ContainerPaths::key`]).
pub fn id_of_key(key: &str) -> Option<&str> {
    key.split_once('-').map(|(_, id)| id)
}

/// Every container on this node, whatever its engine.
pub fn all() -> Result<Vec<Record>, RuntimeError> {
    read_where(|_| true)
}

/// Every container of this `--root`.
pub fn of_root(root: &Path) -> Result<Vec<Record>, RuntimeError> {
    let prefix = format!("{:016x}-", hash(root.as_os_str().as_encoded_bytes()));
    let mut records = read_where(|key| key.starts_with(&prefix))?;
    records.retain(|record| record.root == root);
    Ok(records)
}

/// Our directories of the containers with this id: one for each `--root` that has it.
pub fn with_id(id: &str) -> Result<Vec<PathBuf>, RuntimeError> {
    let dirs = dirs_where(|key| id_of_key(key) == Some(id))?;
    Ok(dirs.collect())
}

/// The records whose key is `wanted`. An unreadable one is left out.
fn read_where(wanted: impl Fn(&str) -> bool) -> Result<Vec<Record>, RuntimeError> {
    let mut records: Vec<Record> = dirs_where(wanted)?
        .filter_map(|dir| Record::read(&dir).ok())
        .collect();
    records.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(records)
}

fn dirs_where(
    wanted: impl Fn(&str) -> bool,
) -> Result<impl Iterator<Item = PathBuf>, RuntimeError> {
    let index = run_dir().join("index");
    let entries = match fs::read_dir(&index) {
        Ok(entries) => Some(entries),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(RuntimeError::io(format!("read {index:?}"))(e)),
    };
    let names = entries.into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names
        .filter(move |name| wanted(name))
        .map(move |name| index.join(name)))
}

/// A directory of the runtime's own below its run directory.
pub fn private_dir(name: &str) -> Result<PathBuf, RuntimeError> {
    let dir = run_dir().join(name);
    make_private(&dir)?;
    Ok(dir)
}

pub(in crate::runtime) fn make_private(dir: &Path) -> Result<(), RuntimeError> {
    if let Some(own) = OWN.get() {
        user_dirs::make(own, DirUse::Containers)?;
    }
    let made = fs::DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(dir);
    made.map_err(RuntimeError::io(format!("make {dir:?}")))
}

/// FNV-1a, 64 bit: a short name for a path, not a protection.
pub(in crate::runtime) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_file_name_and_nothing_else() {
        for good in ["a", "A_b+c-d.e", "..a", &"x".repeat(200)] {
            assert!(ContainerId::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "../x",
            "a b",
            "a\0",
            "é",
            &"x".repeat(201),
        ] {
            assert!(ContainerId::parse(bad).is_err(), "{bad}");
        }
    }
}
