//! What a container's last run used of its budgets (`network.budgets-kept`): a file outside of its records, since those go
//! with the run and engines start a container again under the same id.
//!
//! On a file system in memory: a restart of the node begins anew.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::RuntimeError;
use super::record::write_whole;
use super::store::{self, Place};
use crate::egress::Spent;

/// Begins a file, and says for how long after the end of a run it counts.
const HEAD: &str = "kept ";

/// Opens the file of a container, with what still counts in it; the others' that count no more are removed.
///
/// # Errors
/// The files cannot be read or written, or do not hold what a sidecar writes: what was used is not known then.
pub fn open(place: &Place, seconds: u32) -> Result<OwnedFd, RuntimeError> {
    let dir = store::kept();
    store::make_private(&dir)?;
    sweep(&dir);
    let path = dir.join(place.key());
    let spent = match fs::read_to_string(&path) {
        Ok(text) if counts(&path, seconds) => read(&path, &text)?,
        Ok(_) => Spent::default(),
        Err(e) if e.kind() == ErrorKind::NotFound => Spent::default(),
        Err(e) => return Err(RuntimeError::io(format!("read {path:?}"))(e)),
    };
    write_whole(&path, format!("{HEAD}{seconds}\n{spent}").as_bytes())?;
    let mut options = fs::File::options();
    options.read(true).append(true);
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    let file = file.open(&path);
    Ok(file
        .map_err(RuntimeError::io(format!("open {path:?}")))?
        .into())
}

/// A run has ended: from now on its time counts, also where the sidecar could not say so.
pub fn ended(place: &Place) {
    let path = store::kept().join(place.key());
    if let Ok(file) = fs::File::options().append(true).open(&path)
        && let Err(e) = file.set_modified(SystemTime::now())
    {
        log::warn!("the time of {path:?} cannot be set: {e}");
    }
}

/// The lines that a sidecar wrote, after the head.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().skip(1)
}

fn read(path: &Path, text: &str) -> Result<Spent, RuntimeError> {
    Spent::parse(lines(text)).map_err(|line| RuntimeError::Input {
        path: path.to_owned(),
        why: format!(
            "line {} is not what a sidecar writes, so what the container has used of its budgets is not known; remove the file \
             to begin anew",
            line + 1
        ),
    })
}

fn counts(path: &Path, seconds: u32) -> bool {
    let age = fs::metadata(path).and_then(|m| m.modified());
    // A clock that was set back makes it young.
    let age = age.map(|then| then.elapsed().unwrap_or_default());
    age.is_ok_and(|age| age <= Duration::from_secs(seconds.into()))
}

/// Removes the files whose containers are gone and whose time is over.
fn sweep(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let exists = store::index().join(entry.file_name()).exists();
        if !exists && !counts(&path, own_seconds(&path).unwrap_or(0)) {
            // Somebody else may have done it.
            let _ = fs::remove_file(&path);
        }
    }
}

fn own_seconds(path: &Path) -> Option<u32> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next()?.strip_prefix(HEAD)?.parse().ok()
}
