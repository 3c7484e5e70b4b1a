//! SHELL. A file that decides about a run: a policy, or variables. It is read once, and judged by its place or its
//! content.
//!
//! A command of an earlier run may have written any of the user's files, except where no sandbox writes. Such a file
//! counts only with the content that the user has reviewed (`agentbox trust FILE`).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::places;
use super::trust::Store;
use crate::audit::hash;
use crate::plan::never::NeverList;
use crate::sys::path::resolve_owned;
use crate::sys::user_namespace;
use crate::wrap::error::WrapRefusal;
use crate::wrap::person::Person;
use crate::wrap::{own_file, planted};

/// A file that an option or a settings file names.
#[derive(Debug)]
pub struct SealedFile {
    /// As it was named.
    pub named: PathBuf,
    /// Without links.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// Why it counts, or why not.
    pub standing: FileStanding,
}

/// What is known about a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileStanding {
    /// No sandbox can write there.
    Closed,
    /// The user trusts this content, by itself or with a project's settings.
    Trusted,
    /// The user trusts another content.
    Changed,
    /// The user has not reviewed it.
    Unknown,
}

/// What a file contains. Whether its owner matters depends on that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealedFileKind {
    /// What the command may do: other users must not be able to write it.
    Policy,
    /// Variables for the command.
    Variables,
}

impl SealedFile {
    /// Reads a file, following no link that a sandbox may have made. Call it with the user's rights over files.
    pub fn read(person: &Person, named: &Path, kind: SealedFileKind) -> Result<Self> {
        let (path, text) = content(person, named, kind)?;
        let standing = match is_closed(person, &path) {
            true => FileStanding::Closed,
            false => Store::of(person).map_or(FileStanding::Unknown, |store| {
                store.standing_of_file(&path, &text, person)
            }),
        };
        Ok(Self {
            named: named.to_owned(),
            path,
            text,
            standing,
        })
    }

    /// Reads a file whose content is trusted through the settings that name it.
    pub fn read_with_settings(person: &Person, named: &Path, kind: SealedFileKind) -> Result<Self> {
        let (path, text) = content(person, named, kind)?;
        Ok(Self {
            named: named.to_owned(),
            path,
            text,
            standing: FileStanding::Trusted,
        })
    }

    /// Whether no command can have chosen the content without the user's review.
    pub fn counts(&self) -> bool {
        matches!(self.standing, FileStanding::Closed | FileStanding::Trusted)
    }

    /// Refuses a policy that a command could have written.
    pub fn require(&self) -> Result<()> {
        let why = match self.standing {
            FileStanding::Closed | FileStanding::Trusted => return Ok(()),
            FileStanding::Changed => "has changed since you trusted it",
            FileStanding::Unknown => "lies where a command may write",
        };
        bail!(WrapRefusal::NotTrusted {
            path: self.path.clone(),
            why,
        })
    }
}

fn content(person: &Person, named: &Path, kind: SealedFileKind) -> Result<(PathBuf, String)> {
    let path = planted::named(named, person).map_err(|why| WrapRefusal::File {
        path: named.to_owned(),
        why: format!("cannot be read: {why}"),
    })?;
    let text = match kind {
        SealedFileKind::Policy => own_file::read_trusted_resolved(&path, person)?,
        SealedFileKind::Variables => own_file::read_resolved(&path)?,
    };
    Ok((path, text))
}

/// Whether no sandbox writes a file. Its directory is the user's own settings ([`places::refuse_written`]) or one where
/// the never-list forbids writing, and other users cannot change it.
pub fn is_closed(person: &Person, path: &Path) -> bool {
    let own = places::closed_settings(person);
    if own.is_some_and(|own| path.starts_with(own)) {
        return path
            .metadata()
            .is_ok_and(|found| person.owns(&found) || user_namespace::owner(found.uid()) == 0);
    }
    let directory = path.parent().unwrap_or(path);
    NeverList::builtin().is_closed(directory) && resolve_owned(path, person.uid).is_ok()
}

/// The hash that is trusted for a file alone.
pub fn hash_of(text: &str) -> String {
    hash(text.as_bytes())
}
