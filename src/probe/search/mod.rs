//! Looking for sockets and credentials inside a mount's source.
//!
//! All of it is searched. A process with write access can move directories, so a credential may be anywhere, and an
//! agent could cause a search to stop early. If the search stops (more than a million entries, a slow disk, a
//! directory that root may not read), the plan gets the reason, and decides.
//!
//! A directory of credentials is hidden as a whole, even if git's index lists it: an agent can write any names into
//! an index. Only those files are seen in it of which the index has the very content.

mod content;
mod cost;
mod entries;
mod git;
mod guard;
mod index;
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
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, RawDir};
use rustix::io::Errno;

use crate::plan::never::{NeverList, VisibleCredentials};
use crate::plan::protect::ProtectedList;
use crate::plan::{FoundCredential, FoundProtected, ProtectedFiles, SourceFacts};
use crate::policy::ProtectedName;
use cost::Cost;
pub(super) use cost::SearchBudget;
pub(super) use git::MountView;
use git::Repositories;
use guard::{Guard, GuardTime};
use places::{DirTree, Key, Mark};
use settle::BusyDirs;
pub(super) use unwanted::HiddenNames;
use walk::Walk;

/// By how many components of its path a credential is known, at most.
const NAMED_BY: usize = 8;

/// Room for the names of a directory, as many as the kernel tells at once.
const NAMES: usize = 64 << 10;

/// Adds the sockets and credentials inside a directory to what was found out about it.
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
    // The program of another file system has another file's number here.
    let runtime = unwanted.runtime.filter(|(dev, _)| *dev == facts.dev);
    search.runtime = runtime.map(|(_, ino)| ino);
    facts.unsearched = search.until_still().err();
    search.finish();
    facts.runtime = search.found_runtime.take();
    facts.inside.append(&mut search.inside);
    if let Some(guard) = search.guard.take() {
        facts.protected = guard.found(&mut search.cost, &mut search.places);
        facts.protected.known = known(root, &facts.protected.settings, &mut search.cost);
        let over = search.cost.check().err();
        facts.unsearched = facts.unsearched.take().or(over);
    }
}

/// What is to be known of git's settings when the container has ended.
fn known(root: &OwnedFd, settings: &[FoundProtected], cost: &mut Cost) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for one in settings {
        if cost.read(content::OPENED).is_ok()
            && let Ok(Some((file, size))) = content::regular(root.as_fd(), &one.path)
            && size <= content::MOST
            && cost
                .read(usize::try_from(size).unwrap_or(usize::MAX))
                .is_ok()
            && let Ok(Some(text)) = content::all(file, content::MOST)
        {
            known.append(&mut ProtectedList::builtin().known(&text, &one.path));
        }
    }
    known
}

/// What is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchAim {
    /// What is to be hidden, and perhaps what is to be read-only.
    Credentials,
    /// What the user's tools run, and nothing else.
    Protected,
}

/// What the user's tools run in a directory that nobody changes meanwhile.
pub(super) fn protected(root: &OwnedFd, unprotected: &BTreeSet<ProtectedName>) -> ProtectedFiles {
    let meant = VisibleCredentials::new();
    let unwanted = HiddenNames::new(NeverList::builtin(), &meant);
    let view = MountView::default();
    let mut search = Search::new(root, &unwanted, &view, SearchBudget::AGAIN);
    let guard = Guard::new(unprotected, GuardTime::End);
    (search.reads, search.guard) = (SearchAim::Protected, Some(guard));
    let unread = search.all().err();
    let guard = search.guard.take();
    let found = guard.map(|guard| guard.found(&mut search.cost, &mut search.places));
    ProtectedFiles {
        unread: unread.or(search.cost.check().err()),
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
    /// How long a listed directory could still change without a trace.
    rest: Duration,
    inside: Vec<FoundCredential>,
    /// The directory of each of those.
    found_in: Vec<u32>,
    /// Directories that are hidden for what lies deeper than a path can name.
    buried: HashSet<u32>,
    repositories: Repositories<'a>,
    /// The inode of the runtime's own program, and where it was met.
    runtime: Option<u64>,
    found_runtime: Option<PathBuf>,
    /// What else is looked for, where the container may write.
    guard: Option<Guard<'a>>,
    reads: SearchAim,
    cost: Cost,
    names: Option<Box<[MaybeUninit<u8>]>>,
    /// Directories that are not looked into.
    passed: &'a [PathBuf],
    /// Called after each listing.
    #[cfg(test)]
    hook: Option<Hook<'a>>,
}

/// A directory that is looked at.
struct Directory<'a> {
    number: u32,
    fd: &'a OwnedFd,
}

/// How a directory was listed.
#[derive(Default)]
struct Listing {
    /// Calls of the kernel's, the last of which gave nothing.
    calls: usize,
    /// Directories in it that were met for the first time.
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

    /// Looks at everything that was not looked at, or says why not.
    fn all(&mut self) -> Result<(), String> {
        let mut unread = None;
        while let Some(number) = self.places.next() {
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
            // It was removed or moved: both change its parent.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Listing::default()),
            // Something is mounted there, which is not mounted in the container.
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
        let path = self.places.told(number);
        format!("{path} cannot be read: {why} (chmod u+rwx it, or remove it)")
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
                // It was removed since it was opened (getdents64 of a dead directory): it is empty, and its parent has changed.
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
                // A file system that does not tell.
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
            // One directory may have more than a search looks at.
            self.cost.check()?;
        }
        for child in known.into_values() {
            self.places.remove(child);
        }
        Ok(listing)
    }

    /// The directories that were met in a busy one.
    fn known(&self, number: u32) -> HashMap<Vec<u8>, u32> {
        let below = self.busy.below(number).iter();
        let here = below.filter(|child| !self.places.is_gone(**child));
        here.map(|child| (self.places.name(*child).to_vec(), *child))
            .collect()
    }

    /// Whether an entry is the directory that had its name before.
    fn is_same(&self, at: &Directory<'_>, name: &CStr, child: u32) -> bool {
        let name = Path::new(OsStr::from_bytes(name.to_bytes()));
        let stat = walk::stat_at(at.fd.as_fd(), name);
        stat.is_ok_and(|stat| {
            let is_directory = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory;
            is_directory && [0, stat.stx_ino].contains(&self.places.ino(child))
        })
    }

    /// The names of what is hidden in a busy directory already.
    fn found_in(&self, number: u32) -> HashSet<Vec<u8>> {
        let found = self.found_in.iter().zip(&self.inside);
        let here = found.filter(|(directory, _)| **directory == number);
        let names = here.filter_map(|(_, inside)| inside.path.file_name());
        names.map(|name| name.as_bytes().to_vec()).collect()
    }
}

#[cfg(test)]
mod tests;
