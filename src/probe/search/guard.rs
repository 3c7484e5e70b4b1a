//! Finds files that the user's own tools run later (`policies/protected.toml`). Looks at the top of the workspace, at
//! the top of each repository in it, and in git directories. Those are recognised by the files that git looks for,
//! under any name.
//!
//! It checks the names that the search lists anyway, and stats only those in the list.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{CStr, OsStr};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::Directory;
use super::cost::Cost;
use super::links;
use super::places::DirTree;
use super::walk;
use crate::plan::protect::{self, ProtectedBase, ProtectedList, ProtectedPlace};
use crate::plan::{FileIdentity, FoundProtected, ProtectedFiles, RepositoryTop};
use crate::policy::ProtectedName;

/// The longest file name in the list. A longer name cannot match.
const LONGEST: usize = 32;

/// Most bytes of memory for a directory with marks.
const MARKED: usize = 32;

/// Most bytes of paths that are kept at the end.
const KEPT: usize = 32 << 20;

/// The same of files that git keeps of its work, which hide no others.
const STATE: usize = 8 << 20;

/// Most git directories that a plan names.
pub const GITS: usize = 1000;

/// Names that mark a directory as a work tree's top, or as a git directory, in lower case: some file systems fold them.
const MARKS: [&[u8]; 6] = [
    b".git",
    b"head",
    b"objects",
    b"refs",
    b"commondir",
    b"worktrees",
];
const TOP: u8 = 1;
const HEAD: u8 = 2;
const TREES: u8 = 32;
/// Marks of a git directory, or of one that others name as their common directory, which needs no HEAD
/// (is_git_directory in git's setup.c).
const GIT: u8 = 4 | 8;
/// Marks of the git directory of a second work tree.
const OF_TREE: u8 = 2 | 16;

/// Collects the files whose names are in the list.
pub(super) struct Guard<'a> {
    list: &'static ProtectedList,
    unprotected: &'a BTreeSet<ProtectedName>,
    /// The marks of each directory.
    marks: HashMap<u32, u8>,
    met: Vec<MetName>,
    /// Directories with symbolic links.
    linked: BTreeSet<u32>,
    time: GuardTime,
}

/// When the search runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GuardTime {
    /// Before the container starts.
    Start,
    /// After its end.
    End,
}

/// An entry of a directory, and what it may be of the list.
struct MetEntry<'a> {
    name: &'a CStr,
    place: &'static ProtectedPlace,
    parts: usize,
}

/// A directory entry with a name of the list. The marks of the directories above decide whether it counts.
struct MetName {
    directory: u32,
    name: Box<[u8]>,
    place: &'static ProtectedPlace,
    /// How many components of the entry's path it has: a link may stand for one of its directories.
    parts: usize,
    file: FileIdentity,
}

impl<'a> Guard<'a> {
    /// Looks for all names except `unprotected`.
    pub(super) fn new(unprotected: &'a BTreeSet<ProtectedName>, time: GuardTime) -> Self {
        Self {
            list: ProtectedList::builtin(),
            unprotected,
            marks: HashMap::new(),
            met: Vec::new(),
            linked: BTreeSet::new(),
            time,
        }
    }

    pub(super) fn unprotected(&self) -> &'a BTreeSet<ProtectedName> {
        self.unprotected
    }

    /// Forgets the entries of a directory that is listed again.
    pub(super) fn forget(&mut self, directory: u32) {
        self.marks.remove(&directory);
        self.linked.remove(&directory);
        self.met.retain(|met| met.directory != directory);
    }

    /// Checks an entry of a directory.
    pub(super) fn meet(
        &mut self,
        cost: &mut Cost,
        places: &DirTree,
        at: &Directory<'_>,
        (name, kind): (&CStr, FileType),
    ) {
        let is_link = kind == FileType::Symlink;
        if is_link && !self.linked.contains(&at.number) && cost.keep(MARKED).is_ok() {
            self.linked.insert(at.number);
        }
        let bytes = name.to_bytes();
        if bytes.len() > LONGEST {
            return;
        }
        let small = bytes.to_ascii_lowercase();
        if let Some(mark) = MARKS.iter().position(|mark| **mark == small) {
            if !self.marks.contains_key(&at.number) && cost.keep(MARKED).is_err() {
                return;
            }
            *self.marks.entry(at.number).or_default() |= 1 << mark;
        }
        let list = self.list;
        for place in list.ending_with(&small) {
            let is_own_directory = place.file_only && kind == FileType::Directory;
            if !is_own_directory {
                let parts = place.below().components().count();
                self.keep(cost, places, at, MetEntry { name, place, parts });
            }
        }
        if is_link {
            let through = list.through(&small);
            let mut through = through.filter(|(place, _)| self.is_protected(place));
            if let Some((place, parts)) = through.next() {
                drop(through);
                self.keep(cost, places, at, MetEntry { name, place, parts });
            }
        }
    }

    fn is_protected(&self, place: &ProtectedPlace) -> bool {
        protect::is_protected(self.unprotected, place.name())
    }

    fn keep(&mut self, cost: &mut Cost, places: &DirTree, at: &Directory<'_>, met: MetEntry<'_>) {
        let MetEntry { name, place, parts } = met;
        if !self.is_protected(place) || above(places, at.number, place, parts).is_none() {
            return;
        }
        let bytes = name.to_bytes();
        let stat = walk::stat_at(at.fd.as_fd(), Path::new(OsStr::from_bytes(bytes)));
        // A removal changes the directory, which is then listed again.
        let Ok(stat) = stat else { return };
        // Git opens it by this name alone. Others may be any number, where case counts.
        if place.content && bytes != place.below().as_os_str().as_bytes() {
            let exact = walk::stat_at(at.fd.as_fd(), place.below());
            if !exact.is_ok_and(|exact| walk::identity(&exact) == walk::identity(&stat)) {
                return;
            }
        }
        if cost.keep(size_of::<MetName>() + bytes.len()).is_ok() {
            self.met.push(MetName {
                directory: at.number,
                name: bytes.into(),
                place,
                parts,
                file: walk::identity(&stat),
            });
        }
    }

    /// The entries that count, in directories that still exist.
    pub(super) fn found(&self, cost: &mut Cost, places: &mut DirTree) -> ProtectedFiles {
        let mut files = ProtectedFiles::default();
        if self.met.is_empty() && self.marks.is_empty() {
            return files;
        }
        let listed: Vec<u32> = places.listed();
        let is_top = |number: &u32| self.marks.get(number).is_some_and(|m| m & TOP != 0);
        let (mut kept, mut state) = (0, 0);
        for number in &listed {
            if is_top(number) && places.above(*number).is_some() {
                let (path, ino) = (places.path(*number), places.ino(*number));
                if !self.is_kept(cost, &path, &mut kept) {
                    break;
                }
                files.tops.push(RepositoryTop { path, ino });
            }
            if files.gits.len() < GITS && self.is_git(places, *number) {
                files.gits.push(places.path(*number));
            }
        }
        let listed: HashSet<u32> = listed.into_iter().collect();
        for met in &self.met {
            // Before the start others are hidden with a whole directory, or have no path that can be mounted.
            let seen = self.time == GuardTime::End
                || places.within(met.directory).is_none()
                    && places.too_deep(met.directory, &met.name).is_none();
            if !seen || !listed.contains(&met.directory) || !self.counts(places, met) {
                continue;
            }
            if met.place.content {
                state += size_of::<FoundProtected>() + met.name.len();
                state +=
                    usize::try_from(places.length_of(met.directory, &met.name)).unwrap_or(STATE);
                if state > STATE {
                    // Before the start they are only remembered.
                    if self.time == GuardTime::End {
                        cost.too_many();
                    }
                    continue;
                }
            }
            let one = met.found(places);
            if !met.place.content && !self.is_kept(cost, &one.path, &mut kept) {
                break;
            }
            files.add(met.place, one);
        }
        files
    }

    /// The directories with symbolic links in git directories. A source may be a part of one.
    pub(super) fn linked(
        &self,
        cost: &mut Cost,
        places: &mut DirTree,
        source: &Path,
    ) -> Vec<PathBuf> {
        let protected = self.list.links().filter(|place| self.is_protected(place));
        if protected.is_none() || self.linked.is_empty() {
            return Vec::new();
        }
        let is_part = links::is_in_git(source);
        let listed: HashSet<u32> = places.listed().into_iter().collect();
        let numbers = self.linked.iter().filter(|number| listed.contains(number));
        let numbers = numbers.filter(|number| is_part || self.is_in_git(places, **number));
        let (mut paths, mut kept) = (Vec::new(), 0);
        for number in numbers {
            let path = places.path(*number);
            kept += path.as_os_str().len();
            if kept > KEPT {
                cost.too_many();
                break;
            }
            paths.push(path);
        }
        paths
    }

    /// Whether a directory is one of git's, or in one. A work tree may lie in one too, beside what git writes, and a directory that has
    /// only the names of one may be none.
    fn is_in_git(&self, places: &DirTree, number: u32) -> bool {
        let (mut at, mut below, mut in_tree) = (Some(number), None, false);
        while let Some(here) = at {
            let marks = self.marks.get(&here).copied().unwrap_or(0);
            let is_named = places.name(here).eq_ignore_ascii_case(b".git");
            let is_written = match below {
                Some(below) => links::is_gits(places.name(below)) || is_named && !in_tree,
                None => is_named || marks & (HEAD | TREES) != 0,
            };
            if self.is_git(places, here) && is_written {
                return true;
            }
            in_tree |= marks & TOP != 0;
            (below, at) = (Some(here), places.above(here));
        }
        false
    }

    /// Counts a path: before the start those that will be mounts, at the end only their bytes.
    fn is_kept(&self, cost: &mut Cost, path: &Path, kept: &mut usize) -> bool {
        *kept += path.as_os_str().len();
        match self.time {
            GuardTime::Start => cost.mask(path),
            GuardTime::End if *kept > KEPT => cost.too_many(),
            GuardTime::End => return true,
        }
        self.time == GuardTime::Start
    }

    /// Whether a directory is one of git's. Whatever has that name is one for the next `git init`.
    fn is_git(&self, places: &DirTree, number: u32) -> bool {
        let marks = self.marks.get(&number).copied().unwrap_or(0);
        places.name(number).eq_ignore_ascii_case(b".git") || marks & GIT == GIT
    }

    fn counts(&self, places: &DirTree, met: &MetName) -> bool {
        let Some(base) = above(places, met.directory, met.place, met.parts) else {
            return false;
        };
        let marks = self.marks.get(&base).copied().unwrap_or(0);
        let is_root = places.above(base).is_none();
        match met.place.base() {
            ProtectedBase::Top(_) => is_root || marks & TOP != 0,
            // git removes a second work tree with its git directory. So before a start that one counts only as the root
            // of a source, or for what stays writable.
            ProtectedBase::Git(_) => {
                let is_writable = met.place.compared || met.place.content;
                let is_looked_at = is_root || is_writable || self.time == GuardTime::End;
                self.is_git(places, base) || is_looked_at && marks & OF_TREE == OF_TREE
            }
        }
    }
}

impl MetName {
    fn found(&self, places: &DirTree) -> FoundProtected {
        let path = places.path(self.directory);
        let path = path.join(OsStr::from_bytes(&self.name));
        let own = match self.place.base() {
            ProtectedBase::Top(_) => self.parts,
            ProtectedBase::Git(_) => self.parts + 1,
        };
        FoundProtected {
            held: protect::held(&path, own),
            path,
            name: self.place.name().to_owned(),
            file: self.file,
        }
    }
}

/// The directory to which the path of a list entry is relative, if an entry of this directory can be its component with
/// this number.
fn above(places: &DirTree, directory: u32, place: &ProtectedPlace, parts: usize) -> Option<u32> {
    let names: Vec<&OsStr> = place.below().iter().take(parts.saturating_sub(1)).collect();
    let mut at = directory;
    for name in names.into_iter().rev() {
        if !places.name(at).eq_ignore_ascii_case(name.as_bytes()) {
            return None;
        }
        at = places.above(at)?;
    }
    Some(at)
}
