//! SHELL. The contents that the user trusts: the path of a project's file and the SHA-256 of its content, in a
//! directory of the user's that no command writes.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::own_dir::OwnDir;
use super::places::PROJECT_FILE;
use super::sealed_file::{FileStanding, hash_of};
use super::{SealedSettings, places};
use crate::audit::hash;
use crate::plan::text;
use crate::wrap::own_file;
use crate::wrap::person::Person;

/// The user's entries: one file for each project, policy and variables file.
pub struct Store {
    dir: OwnDir,
}

/// One entry.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TrustedFile {
    /// The trusted file.
    #[serde(with = "text::one")]
    pub path: PathBuf,
    /// The SHA-256 of its text, or of all that is [trusted](super::seal) with it, in hexadecimal.
    pub sha256: String,
}

impl TrustedFile {
    /// What the entry says about the content with this hash at this path. None: the content cannot be sealed.
    fn standing(&self, path: &Path, hash: Option<&str>) -> FileStanding {
        match hash {
            _ if self.path != path => FileStanding::Unknown,
            Some(hash) if self.sha256 == hash => FileStanding::Trusted,
            _ => FileStanding::Changed,
        }
    }
}

/// Whether a file's content is trusted.
#[derive(Debug)]
pub enum TrustStanding {
    /// This content is trusted, with these settings and the files that they name.
    Trusted(Box<SealedSettings>),
    /// Another content is trusted, of this file or of one that it names.
    Changed,
    /// There is no entry.
    Unknown,
    /// Unknown, for this reason.
    NotTold(String),
}

/// The status of an entry in the list of trusted files.
#[derive(Debug)]
pub enum TrustStatus {
    /// The file has the content that is trusted.
    Same,
    /// It has another content, or a file that it names has.
    Changed,
    /// There is no entry.
    NotTrusted,
    /// Unknown, for this reason.
    NotTold(String),
}

impl From<TrustStanding> for TrustStatus {
    fn from(standing: TrustStanding) -> Self {
        match standing {
            TrustStanding::Trusted(_) => Self::Same,
            TrustStanding::Changed => Self::Changed,
            TrustStanding::Unknown => Self::NotTrusted,
            TrustStanding::NotTold(why) => Self::NotTold(why),
        }
    }
}

impl From<FileStanding> for TrustStatus {
    fn from(standing: FileStanding) -> Self {
        match standing {
            FileStanding::Trusted | FileStanding::Closed => Self::Same,
            FileStanding::Changed => Self::Changed,
            FileStanding::Unknown => Self::NotTrusted,
        }
    }
}

impl Store {
    /// The user's entries, if they have a home.
    pub fn of(person: &Person) -> Option<Self> {
        let home = places::home(person)?;
        let dir = OwnDir::at(places::trusted(person, &home));
        Some(Self { dir })
    }

    /// The path of a file's entry, named by a hash: the file's own path may hold any byte.
    fn place(&self, path: &Path) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        self.dir.path().join(hash(path.as_os_str().as_bytes()))
    }

    /// The directory of all entries, if this user may not enter one above it: `HOME` is another user's.
    pub fn closed(&self) -> Option<PathBuf> {
        let dir = self.dir.path();
        let found = dir.symlink_metadata();
        let is_closed = found.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
        is_closed.then(|| dir.to_owned())
    }

    /// Whether there is, or may be, an entry for a project's file.
    pub fn has(&self, path: &Path) -> bool {
        let there = self.place(path).symlink_metadata();
        !there.is_err_and(|error| is_absent(&error))
    }

    /// Whether the user trusts this content.
    pub fn standing(&self, path: &Path, text: &str, person: &Person) -> TrustStanding {
        let place = self.place(path);
        match place.symlink_metadata() {
            Err(error) if is_absent(&error) => return TrustStanding::Unknown,
            Ok(_) | Err(_) => {}
        }
        let entry = self.dir.check(person).and_then(|()| read(&place, person));
        let entry = match entry {
            Err(error) => return TrustStanding::NotTold(format!("{error:#}")),
            Ok(entry) => entry,
        };
        let sealed = SealedSettings::of(person, path, text).ok();
        let hash = sealed.as_ref().map(|sealed| sealed.seal.hash(text));
        match (entry.standing(path, hash.as_deref()), sealed) {
            (FileStanding::Trusted, Some(sealed)) => TrustStanding::Trusted(Box::new(sealed)),
            (FileStanding::Unknown, _) => TrustStanding::Unknown,
            (FileStanding::Trusted | FileStanding::Closed | FileStanding::Changed, _) => {
                TrustStanding::Changed
            }
        }
    }

    /// What is known about the content of a policy or variables file. An unreadable entry counts as none.
    pub fn standing_of_file(&self, path: &Path, text: &str, person: &Person) -> FileStanding {
        if !self.has(path) {
            return FileStanding::Unknown;
        }
        let entry = self.dir.check(person);
        match entry.and_then(|()| read(&self.place(path), person)) {
            Ok(entry) => entry.standing(path, Some(&hash_of(text))),
            Err(_) => FileStanding::Unknown,
        }
    }

    /// Records that the content with this hash is trusted.
    pub fn add(&self, path: &Path, sealed: &str, person: &Person) -> Result<()> {
        let entry = TrustedFile {
            path: path.to_owned(),
            sha256: sealed.to_owned(),
        };
        let text = serde_json::to_vec(&entry)?;
        self.dir.put(person, &self.place(path), &text)
    }

    /// Removes the entry. Returns whether there was one.
    pub fn remove(&self, path: &Path) -> Result<bool> {
        let place = self.place(path);
        match fs::remove_file(&place) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| format!("remove {place:?}")),
        }
    }

    /// All entries sorted by path, each compared with the file's content now.
    pub fn list(&self, person: &Person) -> Result<Vec<(TrustedFile, TrustStatus)>> {
        let entries = match fs::read_dir(self.dir.path()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("read {:?}", self.dir.path())),
        };
        self.dir.check(person)?;
        let mut all = Vec::new();
        for found in entries {
            let found = found.with_context(|| format!("read {:?}", self.dir.path()))?;
            if found.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let entry = read(&found.path(), person)?;
            let path = &entry.path;
            let listed = match places::read_project(path) {
                Ok(text) if is_project(path) => self.standing(path, &text, person).into(),
                Ok(text) => self.standing_of_file(path, &text, person).into(),
                Err(why) => TrustStatus::NotTold(why),
            };
            all.push((entry, listed));
        }
        all.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
        Ok(all)
    }
}

/// Whether nothing can be there: also below a home that is no directory.
fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Whether the file is a project's settings, which are trusted with all that they name.
pub fn is_project(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == PROJECT_FILE)
}

fn read(place: &Path, person: &Person) -> Result<TrustedFile> {
    let text = own_file::read_trusted(place, person)?;
    serde_json::from_str(&text)
        .with_context(|| format!("{place:?} is no entry of the list of trusted files"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_trusts_one_content_at_one_path() {
        let entry = TrustedFile {
            path: "/p/.agentbox.toml".into(),
            sha256: "ab".to_owned(),
        };
        for (path, hash, standing) in [
            ("/p/.agentbox.toml", Some("ab"), FileStanding::Trusted),
            ("/p/.agentbox.toml", Some("cd"), FileStanding::Changed),
            ("/p/.agentbox.toml", None, FileStanding::Changed),
            ("/q/.agentbox.toml", Some("ab"), FileStanding::Unknown),
        ] {
            assert_eq!(
                entry.standing(Path::new(path), hash),
                standing,
                "{path} {hash:?}"
            );
        }
        assert!(is_project(Path::new("/p/.agentbox.toml")));
        assert!(!is_project(Path::new("/p/agentbox.toml")));
    }
}
