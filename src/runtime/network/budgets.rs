//! What a container's last run used of its budgets (`network.budgets-kept`): a file outside of its records, since those go
//! with the run and engines start a container again under the same id.
//!
//! On a file system in memory: a restart of the node begins anew.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::egress::{self, LONGEST_HEAD};
use crate::runtime::RuntimeError;
use crate::runtime::state::record::write_whole;
use crate::runtime::state::store::{self, ContainerPaths};

/// Files of containers that are gone: so many at most, the youngest.
const MOST_LEFT: usize = 1024;
/// What is not read as a file of ours may be one that somebody is about to make.
const UNKNOWN_SECONDS: u32 = 60;

/// A container's file.
#[derive(Debug)]
pub struct OpenBudget {
    /// Opened to read it and to append to it.
    pub file: OwnedFd,
    /// How long it may become.
    pub room: u64,
}

/// Opens the file of a container that may look up so many names and has so many secrets with a limit, with what still counts in it; the others' that count no more
/// are removed.
///
/// # Errors
/// The files cannot be read or written, or do not hold what a sidecar writes: what was used is not known then.
pub fn open(
    place: &ContainerPaths,
    seconds: u32,
    (hosts, secrets): (u32, usize),
) -> Result<OpenBudget, RuntimeError> {
    let dir = store::kept();
    store::make_private(&dir)?;
    sweep(&dir);
    let path = dir.join(place.key());
    let (mut kept, since) = match fs::read_to_string(&path) {
        // A run that does not begin is none: it is the last one's time that goes on.
        Ok(text) if counts(&path, seconds) => (read(&path, &text)?, modified(&path)),
        Ok(_) => (fresh()?, None),
        Err(e) if e.kind() == ErrorKind::NotFound => (fresh()?, None),
        Err(e) => return Err(RuntimeError::io(format!("read {path:?}"))(e)),
    };
    kept.seconds = seconds;
    write_whole(&path, kept.to_string().as_bytes())?;
    let mut options = fs::File::options();
    options.read(true).append(true);
    let failed = || RuntimeError::io(format!("open {path:?}"));
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    let file = file.open(&path).map_err(failed())?;
    if let Some(since) = since {
        file.set_modified(since).map_err(failed())?;
    }
    Ok(OpenBudget {
        file: file.into(),
        room: egress::room(hosts, secrets, &kept.spent),
    })
}

/// Nothing used, and a key that nobody knows.
fn fresh() -> Result<egress::UsageFile, RuntimeError> {
    let mut key = [0; 16];
    getrandom::fill(&mut key).map_err(RuntimeError::Random)?;
    Ok(egress::UsageFile {
        key: u128::from_ne_bytes(key),
        ..egress::UsageFile::default()
    })
}

/// A run has ended: from now on its time counts, also where the sidecar could not say so.
pub fn ended(place: &ContainerPaths) {
    let path = store::kept().join(place.key());
    if let Ok(file) = fs::File::options().append(true).open(&path)
        && let Err(e) = file.set_modified(SystemTime::now())
    {
        log::warn!("the time of {path:?} cannot be set: {e}");
    }
}

fn read(path: &Path, text: &str) -> Result<egress::UsageFile, RuntimeError> {
    egress::UsageFile::parse(text).map_err(|line| RuntimeError::Input {
        path: path.to_owned(),
        why: format!(
            "line {line} is not what a sidecar writes, so what the container has used of its budgets is not known; remove the \
             file to begin anew"
        ),
    })
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|m| m.modified()).ok()
}

fn counts(path: &Path, seconds: u32) -> bool {
    // A clock that was set back makes it young.
    let age = modified(path).map(|then| then.elapsed().unwrap_or_default());
    age.is_some_and(|age| age <= Duration::from_secs(seconds.into()))
}

/// Removes the files whose containers are gone and whose time is over, and the oldest where too many are left.
fn sweep(dir: &Path) {
    let mut left = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if store::index().join(entry.file_name()).exists() {
            continue;
        }
        match counts(&path, own_seconds(&path).unwrap_or(UNKNOWN_SECONDS)) {
            true => left.push((modified(&path), path)),
            false => remove(&path),
        }
    }
    for path in surplus(left) {
        remove(&path);
    }
}

/// The oldest, as far as there are too many.
fn surplus(mut left: Vec<(Option<SystemTime>, PathBuf)>) -> impl Iterator<Item = PathBuf> {
    left.sort();
    let many = left.len().saturating_sub(MOST_LEFT);
    left.into_iter().take(many).map(|(_, path)| path)
}

fn remove(path: &Path) {
    if let Err(e) = fs::remove_file(path)
        && e.kind() != ErrorKind::NotFound
    {
        log::warn!("{path:?} cannot be removed: {e}");
    }
}

/// Only the head is read: a file may be long.
fn own_seconds(path: &Path) -> Option<u32> {
    let mut head = String::new();
    let mut file = BufReader::with_capacity(64, fs::File::open(path).ok()?.take(LONGEST_HEAD));
    file.read_line(&mut head).ok()?;
    egress::seconds_of(head.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_where_too_many_are_left() {
        let at = |second| SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        let file = |second: u64| (Some(at(second)), PathBuf::from(second.to_string()));
        let all: Vec<_> = (0..MOST_LEFT as u64 + 3).rev().map(file).collect();
        let gone: Vec<PathBuf> = surplus(all).collect();
        assert_eq!(gone, ["0", "1", "2"].map(PathBuf::from));
        assert_eq!(surplus(vec![file(1)]).count(), 0);
    }
}
