//! SHELL. The command's writes to package caches, kept for the next run in the same workspace (`--keep-caches`): one
//! overlay upper directory per cache. The user's own caches do not change, and no program outside reads these.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::FlockOperation;

use super::person::Person;
use super::settings::own_dir::OwnDir;
use super::settings::places;
use crate::audit::hash;
use crate::plan::wrap_plan::layer_of;
use crate::runtime::unprivileged;

/// The files kept for a workspace, locked by this run.
pub struct WorkspaceStore {
    /// The directory, without links.
    pub dir: PathBuf,
    /// A lock that ends with the process (fcntl_locking(2)). The kernel guarantees nothing if two overlays write to one
    /// directory.
    _alone: File,
}

/// The directory of a workspace's kept files.
pub fn place(person: &Person, workspace: &Path) -> Result<PathBuf> {
    let home = places::home(person).context("--keep-caches: there is no home: set HOME")?;
    // Root's overlays and those of a user namespace mark removed files differently (overlayfs.rst, userxattr).
    let by = match unprivileged::inside() {
        Some(_) => "user",
        None => "root",
    };
    let workspace = hash(workspace.as_os_str().as_bytes());
    Ok(places::caches_dir(person, &home).join(workspace).join(by))
}

impl WorkspaceStore {
    /// Opens the store and makes missing directories. Call it with the user's rights. `None` while another run holds
    /// it.
    pub fn open(person: &Person, place: &Path, caches: &BTreeSet<PathBuf>) -> Result<Option<Self>> {
        let dir = OwnDir::made(place, person)?.path().to_owned();
        let path = dir.join("lock");
        let mut options = File::options();
        options.create(true).truncate(false).read(true).write(true);
        let alone = options.mode(0o600).open(&path);
        let alone = alone.with_context(|| format!("open {path:?}"))?;
        if rustix::fs::fcntl_lock(&alone, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(None);
        }
        for cache in caches {
            make(&dir.join(layer_of(cache)).join("upper"))?;
        }
        Ok(Some(Self { dir, _alone: alone }))
    }
}

fn make(dir: &Path) -> Result<()> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir);
    match made {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("make {dir:?}, in which caches are kept"))
        }
        _ => Ok(()),
    }
}
