//! Searches a mount's source for sockets and credentials.
//!
//! All of it is searched. A process with write access can move directories, so a credential may be anywhere, and an
//! agent could make a search stop early. If the search stops (more than a million entries, a slow disk, a directory
//! that root may not read), the plan gets the reason and decides.
//!
//! A directory of credentials is hidden as a whole, even if git's index lists it: an agent can write any names into an
//! index. Only files whose content the index has stay visible in it.

mod by_name;
mod content;
mod cost;
mod entries;
mod git;
mod guard;
mod index;
mod links;
mod places;
mod settle;
mod sha1;
mod unwanted;
mod walk;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, RawDir};
use rustix::io::Errno;

use crate::log::progress::Progress;
use crate::plan::never::{NeverList, VisibleCredentials};
use crate::plan::{FoundCredential, ProtectedFiles, SourceFacts};
use crate::policy::ProtectedName;
pub(super) use by_name::{by_name, links_by_name, of_git_part};
use cost::Cost;
pub(super) use cost::SearchBudget;
pub(super) use git::MountView;
use git::Repositories;
pub use guard::GITS as MOST_GITS;
use guard::{Guard, GuardTime};
pub use index::{IndexNames, ObjectFormat, names as names_of_index};
pub(super) use links::is_in_git;
use places::{DirTree, Key, Mark};
use settle::BusyDirs;
pub(super) use unwanted::HiddenNames;
use walk::Walk;
pub(super) use walk::beneath_by_parts;

/// Most components of a path that identify a credential.
const NAMED_BY: usize = 8;

/// Buffer for directory entries, bytes: as many as the kernel returns at once.
const NAMES: usize = 64 << 10;

/// Adds the sockets and credentials inside a directory to its facts.
pub(super) fn search(
    root: &OwnedFd,
    unwanted: &HiddenNames<'_>,
    budget: SearchBudget,
    view: &MountView<'_>,
    facts: &mut SourceFacts,
) {
    if view.passed.iter().any(|part| part.as_os_str().is_empty()) {
        return;
    }
    let mut search = Search::new(root, unwanted, view, budget);
    search.bases = facts
        .all_names()
        .chain(facts.inner.iter().map(PathBuf::as_path))
        .map(Path::to_path_buf)
        .collect();
    search.cost.progress = Progress::begin(|| format!("searching {:?}", facts.path));
    // On another file system the runtime's inode number is another file's.
    let runtime = unwanted.runtime.filter(|(dev, _)| *dev == facts.dev);
    search.runtime = runtime.map(|(_, ino)| ino);
    facts.unsearched = search.until_still().err();
    search.finish();
    facts.runtime = search.found_runtime.take();
    facts.inside.append(&mut search.inside);
    if let Some(guard) = search.guard.take() {
        facts.protected = guard.found(&mut search.cost, &mut search.places);
        let linked = guard.linked(&mut search.cost, &mut search.places, &facts.path);
        let start = by_name::StartLook {
            unprotected: guard.unprotected(),
            linked,
        };
        by_name::complete(root, &start, &mut search.cost, facts);
    }
}

/// The aim of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchAim {
    /// Files to hide, and with a guard also files to make read-only.
    Credentials,
    /// Only files that the user's tools run.
    Protected,
}

/// Finds files that the user's tools run, in a directory that no process changes meanwhile.
pub(super) fn protected(
    (root, source): (&OwnedFd, &Path),
    unprotected: &BTreeSet<ProtectedName>,
    until: Instant,
) -> ProtectedFiles {
    let meant = VisibleCredentials::new();
    let unwanted = HiddenNames::new(NeverList::builtin(), &meant);
    let view = MountView::default();
    let budget = SearchBudget {
        time: until.saturating_duration_since(Instant::now()),
        ..SearchBudget::AGAIN
    };
    let mut search = Search::new(root, &unwanted, &view, budget);
    let guard = Guard::new(unprotected, GuardTime::End);
    (search.reads, search.guard) = (SearchAim::Protected, Some(guard));
    search.cost.progress = Progress::begin(|| "searching what the command wrote".to_owned());
    let unread = search.all().err();
    let guard = search.guard.take();
    let found = guard.map(|guard| {
        let mut found = guard.found(&mut search.cost, &mut search.places);
        let linked = guard.linked(&mut search.cost, &mut search.places, source);
        links::find(root, &linked, unprotected, &mut found);
        found
    });
    ProtectedFiles {
        unread: unread
            .or(search.cost.check().err())
            .or(found.as_ref().and_then(|found| found.unread.clone())),
        ..found.unwrap_or_default()
    }
}

#[cfg(test)]
type Hook<'a> = Box<dyn FnMut(&Path) + 'a>;

struct Search<'a> {
    root: &'a OwnedFd,
    unwanted: &'a HiddenNames<'a>,
    bases: Vec<PathBuf>,
    places: DirTree,
    walk: Walk<'a>,
    key: Key,
    busy: BusyDirs,
    /// How long a listed directory could still change without a new time.
    rest: Duration,
    inside: Vec<FoundCredential>,
    /// The directory of each entry of `inside`.
    found_in: Vec<u32>,
    /// Directories that are hidden because of entries deeper than a path can name.
    buried: HashSet<u32>,
    repositories: Repositories<'a>,
    /// The inode of the runtime's own program, and the path where it was found.
    runtime: Option<u64>,
    found_runtime: Option<PathBuf>,
    /// Looks for protected files, if the container may write.
    guard: Option<Guard<'a>>,
    reads: SearchAim,
    cost: Cost,
    names: Option<Box<[MaybeUninit<u8>]>>,
    /// Directories that are not searched.
    passed: &'a [PathBuf],
    /// Called after each listing.
    #[cfg(test)]
    hook: Option<Hook<'a>>,
}

/// A directory that is being searched.
struct Directory<'a> {
    number: u32,
    fd: &'a OwnedFd,
}

/// The listing of a directory.
#[derive(Default)]
struct Listing {
    /// Calls of getdents64(2). The last one returned nothing.
    calls: usize,
    /// Directories in it that are new to the search.
    new: usize,
}

impl<'a> Search<'a> {
    fn new(
        root: &'a OwnedFd,
        unwanted: &'a HiddenNames<'a>,
        view: &'a MountView<'a>,
        budget: SearchBudget,
    ) -> Self {
        Self {
            root,
            unwanted,
            bases: Vec::new(),
            places: DirTree::new(),
            walk: Walk::new(root),
            key: Key::new(),
            busy: BusyDirs::default(),
            rest: Duration::ZERO,
            inside: Vec::new(),
            found_in: Vec::new(),
            buried: HashSet::new(),
            repositories: Repositories::new(root, view, &unwanted.last),
            runtime: None,
            found_runtime: None,
            guard: view
                .unprotected
                .map(|names| Guard::new(names, GuardTime::Start)),
            reads: SearchAim::Credentials,
            cost: Cost::new(budget),
            names: Some(Box::new_uninit_slice(NAMES)),
            passed: &view.passed,
            #[cfg(test)]
            hook: None,
        }
    }

    /// Searches every directory that is still waiting, or says why not.
    fn all(&mut self) -> Result<(), String> {
        let mut unread = None;
        while let Some(number) = self.places.next() {
            self.cost.directory();
            if let Err(why) = self.directory(number) {
                unread.get_or_insert(why);
            }
            self.cost.check()?;
        }
        unread.map_or(Ok(()), Err)
    }

    /// Lists a directory, perhaps again.
    fn directory(&mut self, number: u32) -> Result<Listing, String> {
        let found = self.walk.open(&self.places, number);
        let listing = match found.and_then(|fd| Ok((walk::stat(fd.as_fd())?, fd))) {
            Ok((stat, fd)) => {
                let mark = Mark::of(&stat, &self.key);
                let mut names = self.names.take().unwrap_or_default();
                let listing = self.list(&Directory { number, fd: &fd }, &mut names);
                self.names = Some(names);
                self.rest = self.rest.max(mark.fresh);
                self.places.list(number, mark);
                listing
            }
            // The directory was removed or moved: both change its parent.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Listing::default()),
            // A mount of the node covers it, which the container does not have.
            Err(Errno::XDEV) => {
                self.places.remove(number);
                return Ok(Listing::default());
            }
            Err(e) => Err(self.unread(number, e)),
        };
        #[cfg(test)]
        if let Some(hook) = &mut self.hook {
            hook(&self.places.path(number));
        }
        listing
    }

    fn unread(&self, number: u32, error: Errno) -> String {
        let why = std::io::Error::from(error);
        let path = self.places.path_for_message(number);
        format!(
            "{path} cannot be read: {why} (if it is yours, chmod u+rwx or remove it; else mount a directory without it)"
        )
    }

    fn list(
        &mut self,
        at: &Directory<'_>,
        names: &mut [MaybeUninit<u8>],
    ) -> Result<Listing, String> {
        let mut known = self.known(at.number);
        let again = self.busy.has(at.number);
        let found = match again {
            true => self.found_in(at.number),
            false => HashSet::new(),
        };
        if let (true, Some(guard)) = (again, &mut self.guard) {
            guard.forget(at.number);
        }
        let mut listing = Listing::default();
        let mut entries = RawDir::new(at.fd, names);
        loop {
            listing.calls += usize::from(entries.is_buffer_empty());
            let Some(entry) = entries.next() else {
                break;
            };
            let entry = match entry {
                Ok(entry) => entry,
                // The directory was removed since it was opened (getdents64 of a dead directory): it is empty, and its
                // parent has changed.
                Err(Errno::NOENT) => break,
                Err(e) => return Err(self.unread(at.number, e)),
            };
            let file = entry.file_name();
            if matches!(file.to_bytes(), b"." | b"..") {
                continue;
            }
            match again {
                true => self.cost.step(),
                false => self.cost.entry(),
            }
            if self.runtime == Some(entry.ino()) {
                let directory = self.places.path(at.number);
                self.found_runtime = Some(directory.join(OsStr::from_bytes(file.to_bytes())));
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                // This file system does not tell the type.
                let stat = rustix::fs::statat(at.fd, file, AtFlags::SYMLINK_NOFOLLOW);
                kind = stat.map_or(kind, |s| FileType::from_raw_mode(s.st_mode));
            }
            if let Some(guard) = &mut self.guard {
                guard.meet(&mut self.cost, &self.places, at, (file, kind));
            }
            let was = known.get(file.to_bytes()).copied();
            if was.is_some_and(|child| self.is_same(at, file, child)) {
                known.remove(file.to_bytes());
            } else if !found.contains(file.to_bytes()) {
                listing.new += usize::from(self.entry(at, file, kind));
            }
            // One directory may have more entries than the whole budget.
            self.cost.check()?;
        }
        for child in known.into_values() {
            self.places.remove(child);
        }
        Ok(listing)
    }

    /// The known child directories of a busy directory.
    fn known(&self, number: u32) -> HashMap<Vec<u8>, u32> {
        let below = self.busy.below(number).iter();
        let here = below.filter(|child| !self.places.is_gone(**child));
        here.map(|child| (self.places.name(*child).to_vec(), *child))
            .collect()
    }

    /// Whether an entry is still the directory that had its name before.
    fn is_same(&self, at: &Directory<'_>, name: &CStr, child: u32) -> bool {
        let name = Path::new(OsStr::from_bytes(name.to_bytes()));
        let stat = walk::stat_at(at.fd.as_fd(), name);
        stat.is_ok_and(|stat| {
            let is_directory = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory;
            is_directory && [0, stat.stx_ino].contains(&self.places.ino(child))
        })
    }

    /// The names of hidden entries that are already known in a busy directory.
    fn found_in(&self, number: u32) -> HashSet<Vec<u8>> {
        let found = self.found_in.iter().zip(&self.inside);
        let here = found.filter(|(directory, _)| **directory == number);
        let names = here.filter_map(|(_, inside)| inside.path.file_name());
        names.map(|name| name.as_bytes().to_vec()).collect()
    }
}

#[cfg(test)]
mod tests;
