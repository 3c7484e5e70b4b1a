//! SHELL. What a killed `wrap` leaves behind: a bundle, an ended container, its cgroup. A living `wrap` holds a lock in
//! its bundle's directory, so a free lock means that it is dead. A process id would not tell: two pid namespaces may
//! share /run.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use data_encoding::HEXLOWER;
use rustix::fs::FlockOperation;

use super::error::WrapRefusal;
use crate::runtime::RuntimeError;
use crate::runtime::delete::{self, DeleteScope};
use crate::runtime::state::find;
use crate::runtime::state::record;
use crate::runtime::state::store::{self, ContainerId, ContainerPaths};

/// Below /run/agentbox.
const DIR: &str = "wrap";
/// Held while a bundle is begun, and during a search for leftovers.
const TURN: &str = ".turn";
/// In a bundle, locked by its `wrap`. It contains the runtime's root directory, where the container is.
const ALIVE: &str = "alive";

/// The directory of a living `wrap`.
pub struct Claim {
    /// The directory.
    pub dir: PathBuf,
    /// The container's id, unique among this user's containers.
    pub id: String,
    /// A POSIX lock (fcntl_locking(2)): children do not inherit it, and it ends with the process.
    _alive: File,
}

/// The container's name, or its beginning.
#[derive(Debug, Clone, Copy)]
pub enum NameMatch<'a> {
    /// This word, then random digits.
    Beginning(&'a str),
    /// This name, which the caller chose.
    Whole(&'a str),
}

impl NameMatch<'_> {
    /// The id, which no other container of this user has.
    fn id(self) -> Result<String> {
        let name = match self {
            Self::Beginning(prefix) => {
                let mut random = [0; 6];
                getrandom::fill(&mut random).context("the kernel gives no random bytes")?;
                let hex = HEXLOWER.encode(&random);
                return Ok(format!("{prefix}-{hex}"));
            }
            Self::Whole(name) => name,
        };
        if !may_be_a_name(name) {
            bail!(WrapRefusal::Name(name.to_owned()));
        }
        if find::is_short_id(name) {
            bail!(WrapRefusal::NameLikeId(name.to_owned()));
        }
        if !store::with_id(name)?.is_empty() {
            bail!(WrapRefusal::NameTaken(name.to_owned()));
        }
        // Verbs on this name must not act on the sandbox instead of the container that has it.
        match find::container(name) {
            Err(RuntimeError::Unknown(_)) => Ok(name.to_owned()),
            Ok(record) => bail!(WrapRefusal::NameOfOther(name.to_owned(), record.id)),
            Err(RuntimeError::Ambiguous(_, ids)) => {
                bail!(WrapRefusal::NameOfOther(name.to_owned(), ids))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a container can have this name. A leading dot is not a bundle here, and a leading hyphen would be an option
/// elsewhere.
fn may_be_a_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && ContainerId::parse(name).is_ok()
}

/// Makes a directory that is protected from `sweep`.
pub fn claim(root: &Path, named: NameMatch<'_>) -> Result<Claim> {
    let base = store::private_dir(DIR)?;
    let turn = open(&base.join(TURN))?;
    rustix::fs::fcntl_lock(turn.as_fd(), FlockOperation::LockExclusive)
        .with_context(|| format!("lock {base:?}"))?;
    let id = named.id()?;
    let dir = base.join(&id);
    match fs::DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!(WrapRefusal::NameTaken(id));
        }
        made => made.with_context(|| format!("make {dir:?}"))?,
    }
    let mut alive = open(&dir.join(ALIVE))?;
    rustix::fs::fcntl_lock(alive.as_fd(), FlockOperation::NonBlockingLockExclusive)
        .with_context(|| format!("lock {dir:?}"))?;
    let root = std::path::absolute(root).with_context(|| format!("resolve --root {root:?}"))?;
    // Use this descriptor: the process loses its lock when it closes any other descriptor of the file.
    let written = alive.write_all(root.as_os_str().as_bytes());
    written.with_context(|| format!("write in {dir:?}"))?;
    Ok(Claim {
        dir,
        id,
        _alive: alive,
    })
}

/// Ends and removes what dead runs left. Errors are logged, and the next run tries again.
pub fn sweep() {
    if let Err(error) = sweep_all() {
        log::debug!("remove what killed commands left: {error:#}");
    }
}

fn sweep_all() -> Result<()> {
    let base = store::run_dir().join(DIR);
    if !base.exists() {
        return Ok(());
    }
    for dead in dead(&base)? {
        if let Err(error) = dead.remove() {
            log::warn!(
                "remove what a killed `wrap` left in {:?}: {error:#}",
                dead.dir
            );
        }
    }
    Ok(())
}

/// The directory of a `wrap` that has ended, claimed by its lock.
struct DeadRun {
    dir: PathBuf,
    id: String,
    alive: File,
}

fn dead(base: &Path) -> Result<Vec<DeadRun>> {
    let turn = open(&base.join(TURN))?;
    // Another run searches or begins. The next search finds the leftovers too.
    if rustix::fs::fcntl_lock(turn.as_fd(), FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(Vec::new());
    }
    let mut dead = Vec::new();
    for entry in fs::read_dir(base)?.flatten() {
        let (dir, id) = (entry.path(), entry.file_name().into_string());
        let lock = File::options().read(true).write(true).open(dir.join(ALIVE));
        // A bundle of an earlier version has no lock, and its `wrap` may live.
        let (Ok(id), Ok(alive)) = (id, lock) else {
            continue;
        };
        let free = rustix::fs::fcntl_lock(alive.as_fd(), FlockOperation::NonBlockingLockExclusive);
        if free.is_ok() {
            dead.push(DeadRun { dir, id, alive });
        }
    }
    Ok(dead)
}

impl DeadRun {
    fn remove(&self) -> Result<()> {
        let mut root = Vec::new();
        (&self.alive).read_to_end(&mut root)?;
        // Killed before it wrote the root directory: there is no container yet.
        if !root.is_empty() {
            let root = PathBuf::from(std::ffi::OsString::from_vec(root));
            let place = ContainerPaths::new(&root, &self.id)?;
            match is_containers(&place) {
                true => delete::delete(&place, DeleteScope::Any)?,
                false => log::warn!(
                    "{:?} stays: it has no state.json, so it is no container's",
                    place.libcontainer_dir()
                ),
            }
        }
        fs::remove_dir_all(&self.dir).with_context(|| format!("remove {:?}", self.dir))
    }
}

/// Whether the directory that a deletion would remove is a container's. The run directory may be an earlier user's with
/// the same uid, who could name any directory of this user.
fn is_containers(place: &ContainerPaths) -> bool {
    let dir = place.libcontainer_dir();
    if fs::symlink_metadata(&dir).is_err() {
        return true;
    }
    let is_file = |path: PathBuf| fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    // `create` was killed before it wrote it.
    let own = store::run_dir().join("containers");
    let is_own = fs::symlink_metadata(&own).is_ok_and(|found| found.is_dir());
    is_file(dir.join("state.json"))
        || is_own && place.root == own && is_file(place.dir().join(record::FILE))
}

fn open(path: &Path) -> Result<File> {
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true);
    let opened = options.mode(0o600).open(path);
    opened.with_context(|| format!("open {path:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_an_id_that_begins_with_a_letter_or_a_digit() {
        for name in ["agent", "7", "a.b-c_d", "A"] {
            assert!(may_be_a_name(name), "{name}");
        }
        for name in [
            "", ".hidden", "..", "-rf", "_a", "a/b", "a b", "\u{e9}", "a\n",
        ] {
            assert!(!may_be_a_name(name), "{name:?}");
        }
    }
}
