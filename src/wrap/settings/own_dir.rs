//! SHELL. A directory of the user's, in which files appear atomically.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::wrap::error::WrapRefusal;
use crate::wrap::person::Person;

/// A directory that decides what commands may do.
pub struct OwnDir(PathBuf);

impl OwnDir {
    /// At this path, which need not exist.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// This one, made where it is missing, and judged.
    pub fn made(path: &Path, person: &Person) -> Result<Self> {
        let step = || format!("make {path:?}");
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path);
        made.with_context(step)?;
        let own = Self(path.canonicalize().with_context(step)?);
        own.check(person)?;
        Ok(own)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Only the user may write the directory, since its files decide what is trusted.
    pub fn check(&self, person: &Person) -> Result<()> {
        let dir = &self.0;
        let found = dir.metadata().with_context(|| format!("look at {dir:?}"))?;
        if !found.is_dir() || !person.owns(&found) || found.mode() & 0o022 != 0 {
            bail!(WrapRefusal::File {
                path: dir.clone(),
                why: "decides about later runs: it must be your own, and not writable by others (chmod go-w)".to_owned(),
            });
        }
        Ok(())
    }

    /// Writes a file in it, readable by its owner alone.
    pub fn put(&self, person: &Person, place: &Path, content: &[u8]) -> Result<()> {
        let dir = &self.0;
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir);
        made.with_context(|| format!("make {dir:?}"))?;
        self.check(person)?;
        // Written and then renamed: a killed process leaves only a file that nothing reads.
        let half = dir.join(format!(".{}", std::process::id()));
        let step = || format!("write {half:?}");
        if let Err(error) = fs::remove_file(&half)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error).with_context(step);
        }
        let mut options = File::options();
        let file = options.write(true).create_new(true).mode(0o600).open(&half);
        let mut file = file.with_context(step)?;
        file.write_all(content).with_context(step)?;
        fs::rename(&half, place).with_context(|| format!("write {place:?}"))
    }
}
