//! SHELL. What the person trusts: the path of a project's file and the SHA-256 of its content, in a directory of the person's own that
//! no command writes.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::Sealed;
use super::places;
use crate::audit::hash;
use crate::plan::text;
use crate::wrap::error::WrapRefused;
use crate::wrap::own_file;
use crate::wrap::person::Person;

/// The person's entries: a file for each project.
pub struct Store {
    dir: PathBuf,
}

/// One entry.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Entry {
    /// The project's file.
    #[serde(with = "text::one")]
    pub path: PathBuf,
    /// The SHA-256 of its text, or of what is [trusted](super::seal) with it, in hexadecimal digits.
    pub sha256: String,
}

/// What an entry says of a content.
#[derive(Debug)]
pub enum Standing {
    /// This very content is trusted, with what it names: these.
    Trusted(Box<Sealed>),
    /// Another content was, or another one of a file that it names.
    Changed,
    /// There is no entry.
    Unknown,
    /// It cannot be told, for this reason.
    NotTold(String),
}

impl Store {
    /// The person's, if they have a home.
    pub fn of(person: &Person) -> Option<Self> {
        let home = places::home(person)?;
        let dir = places::trusted(person, &home);
        Some(Self { dir })
    }

    /// Where the entry of a project's file is. The file's own name may hold any byte.
    fn place(&self, path: &Path) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        self.dir.join(hash(path.as_os_str().as_bytes()))
    }

    /// Whether there is an entry for a project's file.
    pub fn has(&self, path: &Path) -> bool {
        self.place(path).symlink_metadata().is_ok()
    }

    /// Whether the person trusts this content.
    pub fn standing(&self, path: &Path, text: &str, person: &Person) -> Standing {
        let place = self.place(path);
        if !self.has(path) {
            return Standing::Unknown;
        }
        let entry = self.check(person).and_then(|()| read(&place, person));
        let entry = match entry {
            Err(error) => return Standing::NotTold(format!("{error:#}")),
            Ok(entry) if entry.path != path => return Standing::Unknown,
            Ok(entry) => entry,
        };
        match Sealed::of(person, path, text) {
            Ok(sealed) if sealed.seal.hash(text) == entry.sha256 => {
                Standing::Trusted(Box::new(sealed))
            }
            Ok(_) | Err(_) => Standing::Changed,
        }
    }

    /// Trusts what has this hash from now on.
    pub fn add(&self, path: &Path, sealed: &str, person: &Person) -> Result<()> {
        let dir = &self.dir;
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir);
        made.with_context(|| format!("make {dir:?}"))?;
        self.check(person)?;
        let entry = Entry {
            path: path.to_owned(),
            sha256: sealed.to_owned(),
        };
        let place = self.place(path);
        // Whole or not at all: a killed one leaves a file that nobody reads.
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
        file.write_all(&serde_json::to_vec(&entry)?)
            .with_context(step)?;
        fs::rename(&half, &place).with_context(|| format!("write {place:?}"))
    }

    /// Trusts nothing there any more; whether anything was.
    pub fn remove(&self, path: &Path) -> Result<bool> {
        let place = self.place(path);
        match fs::remove_file(&place) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| format!("remove {place:?}")),
        }
    }

    /// All entries by their paths, each with what it says of the file's content now.
    pub fn list(&self, person: &Person) -> Result<Vec<(Entry, Standing)>> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("read {:?}", self.dir)),
        };
        self.check(person)?;
        let mut all = Vec::new();
        for found in entries {
            let found = found.with_context(|| format!("read {:?}", self.dir))?;
            if found.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let entry = read(&found.path(), person)?;
            let standing = match places::read_project(&entry.path) {
                Ok(text) => self.standing(&entry.path, &text, person),
                Err(why) => Standing::NotTold(why),
            };
            all.push((entry, standing));
        }
        all.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
        Ok(all)
    }

    /// Whoever may write the directory says what is trusted.
    fn check(&self, person: &Person) -> Result<()> {
        let dir = &self.dir;
        let found = dir.metadata().with_context(|| format!("look at {dir:?}"))?;
        if !found.is_dir() || !person.owns(&found) || found.mode() & 0o022 != 0 {
            bail!(WrapRefused::File {
                path: dir.clone(),
                why: "says what is trusted: it must be your own directory, and others may not write it (chmod go-w)".to_owned(),
            });
        }
        Ok(())
    }
}

fn read(place: &Path, person: &Person) -> Result<Entry> {
    let text = own_file::read_trusted(place, person)?;
    serde_json::from_str(&text).with_context(|| format!("{place:?} is no entry of what is trusted"))
}
