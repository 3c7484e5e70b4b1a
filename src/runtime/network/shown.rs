//! The directory in which a container reads its refusals, and its one file, which the sidecar writes.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::audit::{Recent, Shows};
use crate::plan::Plan;
use crate::plan::report::DENIED;
use crate::runtime::RuntimeError;
use crate::runtime::state::record::{Record, write_whole};
use crate::runtime::state::store::Place;

/// The directory below the container's own. It alone is mounted in the container, read-only.
pub fn directory(dir: &Path) -> PathBuf {
    dir.join("inside")
}

/// Makes both, with the file's first line.
pub fn make(dir: &Path, shows: Shows) -> Result<(), RuntimeError> {
    let shown = directory(dir);
    let file = shown.join(DENIED);
    fs::create_dir_all(&shown).map_err(RuntimeError::io(format!("make {shown:?}")))?;
    write_whole(&file, Recent::of(shows).file().as_bytes())?;
    // Readable for every user of the container, and for nobody else: what they lie in is root's alone.
    for (path, mode) in [(&shown, 0o755), (&file, 0o644)] {
        rustix::fs::chmod(path, Mode::from_raw_mode(mode))
            .map_err(RuntimeError::io(format!("chmod {path:?}")))?;
    }
    Ok(())
}

/// Which refusals a container's file has; `None`: it has no file.
pub fn of(plan: &Plan) -> Option<Shows> {
    let shows = match plan.network.shared {
        None => Shows::All,
        Some(_) => Shows::Calls,
    };
    plan.report.denied.then_some(shows)
}

/// Opens the file of a container to write over it, if it has one.
pub fn open(record: &Record, place: &Place) -> Result<Option<(Shows, OwnedFd)>, RuntimeError> {
    let Some(shows) = record.plan().and_then(of) else {
        return Ok(None);
    };
    let file = directory(&place.dir()).join(DENIED);
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&file, flags, Mode::empty())
        .map_err(RuntimeError::io(format!("open {file:?}")))?;
    Ok(Some((shows, opened)))
}
