//! Decides about each entry of a directory: ignore it, hide it, or search it.

use std::ffi::{CStr, OsStr};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::content::{self, Content};
use super::git::{CredentialFate, Spot};
use super::places::DirTree;
use super::{Directory, NAMED_BY, Search, SearchAim};
use crate::engines::kubelet::is_secret;
use crate::plan::{FoundCredential, GitState, VisibleFile, keys};

/// Why git's view of such a directory is unknown if git has files in it, and the remedy.
const DEEP: &str =
    "a socket or credential in it lies deeper than a path can say (remove its directories)";

/// What the search does with an entry of a directory.
enum EntryStep {
    /// Ignore it, or it is hidden already.
    Past,
    /// Search the directory. The number is that of the hidden directory around it, if any.
    Into(Option<u32>),
}

impl Search<'_> {
    /// Handles an entry. Returns whether it is a directory to search.
    pub(super) fn entry(&mut self, at: &Directory<'_>, name: &CStr, kind: FileType) -> bool {
        let next = match self.places.within(at.number) {
            Some(whole) => self.in_hidden(at, whole, name, kind),
            None if self.reads == SearchAim::Protected => EntryStep::Into(None),
            None => self.in_open(at, name, kind),
        };
        let directory = kind == FileType::Directory || kind == FileType::Unknown;
        let EntryStep::Into(within) = next else {
            return false;
        };
        let name = name.to_bytes();
        if !directory || self.is_passed(at, name) || self.cost.keep(DirTree::cost(name)).is_err() {
            return false;
        }
        let number = self.places.push(at.number, name, within);
        self.busy.met(at.number, number);
        true
    }

    /// Whether a directory is excluded from the search.
    fn is_passed(&self, at: &Directory<'_>, name: &[u8]) -> bool {
        let name = OsStr::from_bytes(name);
        self.passed.iter().any(|part| {
            part.file_name() == Some(name)
                && part.parent() == Some(self.places.path(at.number).as_path())
        })
    }

    /// Handles an entry of a visible directory. A file with a credential's name is hidden, except for a project's own
    /// settings and files that git has with the same content.
    fn in_open(&mut self, at: &Directory<'_>, name: &CStr, kind: FileType) -> EntryStep {
        let name = name.to_bytes();
        if !self.unwanted.may_be(name, kind) {
            return EntryStep::Into(None);
        }
        if let Some(deep) = self.places.too_deep(at.number, name) {
            return self.bury(at, deep, name, kind);
        }
        let path = self.places.path(at.number).join(OsStr::from_bytes(name));
        let why = self.unwanted.why(&self.bases, &path, kind);
        let Some((why, known_by)) = why.or_else(|| self.key(at, name, kind)) else {
            return EntryStep::Into(None);
        };
        let inside = FoundCredential::hidden(path, why, known_by);
        match kind {
            FileType::Directory => {
                let path = inside.path.as_path();
                let spot = spot(&self.places, at, path);
                match self.repositories.directory(&mut self.cost, spot) {
                    Some(git) => self.hide(at.number, inside, git),
                    // Files that git has stay visible in it.
                    None => {
                        let whole = u32::try_from(self.inside.len()).ok();
                        self.hide(at.number, inside, GitState::Nothing);
                        return EntryStep::Into(whole);
                    }
                }
            }
            FileType::RegularFile => match self.file(at, &inside.path, kind) {
                CredentialFate::Shown(_) => {}
                CredentialFate::Hidden(git) => self.hide(at.number, inside, git),
            },
            // git ignores other kinds of files.
            _ => self.hide(at.number, inside, GitState::Nothing),
        }
        EntryStep::Past
    }

    /// Handles an entry of a hidden directory. Only files that git has with the same content stay visible; git must not
    /// miss any other file.
    fn in_hidden(
        &mut self,
        at: &Directory<'_>,
        whole: u32,
        name: &CStr,
        kind: FileType,
    ) -> EntryStep {
        if self.places.too_deep(at.number, name.to_bytes()).is_some() {
            return EntryStep::Past;
        }
        let path = self.places.path(at.number);
        let path = path.join(OsStr::from_bytes(name.to_bytes()));
        let git = match kind {
            FileType::Directory => {
                let spot = spot(&self.places, at, &path);
                match self.repositories.directory(&mut self.cost, spot) {
                    Some(git) => git,
                    None => return EntryStep::Into(Some(whole)),
                }
            }
            FileType::RegularFile | FileType::Symlink => match self.file(at, &path, kind) {
                CredentialFate::Hidden(git) => git,
                CredentialFate::Shown(what) => {
                    self.cost.mask(&path);
                    if let Some(hidden) = self.inside.get_mut(whole as usize)
                        && let Ok(path) = path.strip_prefix(&hidden.path)
                    {
                        let path = path.to_owned();
                        hidden.seen.retain(|seen| seen.path != path);
                        hidden.seen.push(VisibleFile { path, what });
                    }
                    return EntryStep::Past;
                }
            },
            _ => return EntryStep::Past,
        };
        // git ignores files that it does not have.
        if matches!(git, GitState::Changed | GitState::Untold(_))
            && let Some(hidden) = self.inside.get(whole as usize)
        {
            let why = hidden.why.clone();
            let inside = FoundCredential {
                covered: true,
                ..FoundCredential::hidden(path, why, 0)
            };
            self.hide(at.number, inside, git);
        }
        EntryStep::Past
    }

    /// Why a file with the name of a private key is hidden. Its owner could make an unreadable file readable.
    fn key(&mut self, at: &Directory<'_>, name: &[u8], kind: FileType) -> Option<(String, usize)> {
        let keys = &self.unwanted.never.keys;
        // Policy fields decide about a pod's Secrets.
        let decided = self.bases.iter().any(|base| is_secret(base));
        if kind != FileType::RegularFile || keys.named(name).is_none() || decided {
            return None;
        }
        let name = Path::new(OsStr::from_bytes(name));
        let private = match content::regular(at.fd.as_fd(), name) {
            Ok(None) | Err(Errno::NOENT | Errno::LOOP) => false,
            Ok(Some((file, _))) => {
                let mode = rustix::fs::fstat(&file).map_or(0, |stat| stat.st_mode);
                let most = keys::LOOKED_AT;
                keys.may_be(name, mode, self.unwanted.meant)
                    && self.cost.read(content::OPENED + most).is_ok()
                    && content::beginning(file, most).map_or(true, |b| keys::is_private(&b))
            }
            Err(_) => keys.may_be(name, 0, self.unwanted.meant),
        };
        private.then(|| (keys.why.clone(), 1))
    }

    fn file(&mut self, at: &Directory<'_>, path: &Path, kind: FileType) -> CredentialFate {
        let mut content = Content::new(self.root, path, kind);
        let settings = &self.unwanted.never.settings;
        if kind == FileType::RegularFile
            && settings.is_one(path)
            && let Some(found) = content.get(&mut self.cost)
            && settings.are_harmless(path, &found.bytes)
        {
            return CredentialFate::Shown(found.what.clone());
        }
        let spot = spot(&self.places, at, path);
        self.repositories.file(&mut self.cost, spot, &mut content)
    }

    /// Hides a whole directory above: the entry's own path is too long for a mount over it.
    fn bury(&mut self, at: &Directory<'_>, deep: u32, name: &[u8], kind: FileType) -> EntryStep {
        let tail = self.places.tail(at.number, NAMED_BY);
        let tail = tail.join(OsStr::from_bytes(name));
        let why = self.unwanted.why(&[PathBuf::new()], &tail, kind);
        if why.or_else(|| self.key(at, name, kind)).is_none() {
            return EntryStep::Into(None);
        }
        if self.buried.insert(deep) {
            let why = "hidden entries in it lie deeper than a path can name".to_owned();
            let inside = FoundCredential::hidden(self.places.path(deep), why, 1);
            let above = self.places.above(deep).unwrap_or(deep);
            let spot = Spot {
                places: &self.places,
                directory: above,
                path: &inside.path,
            };
            let git = self.repositories.directory(&mut self.cost, spot);
            // git has files in it, which would be hidden too.
            let git = git.unwrap_or_else(|| GitState::Untold(DEEP.to_owned()));
            self.hide(above, inside, git);
        }
        EntryStep::Past
    }

    fn hide(&mut self, directory: u32, inside: FoundCredential, git: GitState) {
        self.cost.mask(&inside.path);
        // The search did not finish: only that is reported.
        let git = match self.cost.is_spent() {
            true => GitState::Nothing,
            false => git,
        };
        self.inside.push(FoundCredential { git, ..inside });
        self.found_in.push(directory);
    }
}

fn spot<'s>(places: &'s DirTree, at: &Directory<'_>, path: &'s Path) -> Spot<'s> {
    Spot {
        places,
        directory: at.number,
        path,
    }
}
