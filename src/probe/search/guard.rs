//! Finds files that the user's own tools run later (`policies/protected.toml`). Looks at the top of the workspace, at
//! the top of each repository in it, and in git directories. Those are recognised by the files that git looks for,
//! under any name.
//!
//! It checks the names that the search lists anyway, and stats only those in the list.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{CStr, OsStr};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::FileType;

use super::Directory;
use super::cost::Cost;
use super::places::DirTree;
use super::walk;
use crate::plan::protect::{self, ProtectedBase, ProtectedList, ProtectedPlace};
use crate::plan::{FoundProtected, ProtectedFiles, RepositoryTop};
use crate::policy::ProtectedName;

/// The longest file name in the list. A longer name cannot match.
const LONGEST: usize = 32;

/// Most bytes of memory for a directory with marks.
const MARKED: usize = 32;

/// Names that mark a directory as a work tree's top, or as a git directory (is_git_directory in git's setup.c).
const MARKS: [&[u8]; 5] = [b".git", b"HEAD", b"objects", b"refs", b"commondir"];
const TOP: u8 = 1;
const GIT: u8 = 2 | 4 | 8;
/// Marks of the git directory of a second work tree.
const OF_TREE: u8 = 2 | 16;

/// Collects the files whose names are in the list.
pub(super) struct Guard<'a> {
    list: &'static ProtectedList,
    unprotected: &'a BTreeSet<ProtectedName>,
    /// The marks of each directory.
    marks: HashMap<u32, u8>,
    met: Vec<MetName>,
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

/// A directory entry with a name of the list. The marks of the directories above decide whether it counts.
struct MetName {
    directory: u32,
    name: Box<[u8]>,
    place: &'static ProtectedPlace,
    ino: u64,
}

impl<'a> Guard<'a> {
    /// Looks for all names except `unprotected`.
    pub(super) fn new(unprotected: &'a BTreeSet<ProtectedName>, time: GuardTime) -> Self {
        Self {
            list: ProtectedList::builtin(),
            unprotected,
            marks: HashMap::new(),
            met: Vec::new(),
            time,
        }
    }

    /// Forgets the entries of a directory that is listed again.
    pub(super) fn forget(&mut self, directory: u32) {
        self.marks.remove(&directory);
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
        let bytes = name.to_bytes();
        if bytes.len() > LONGEST {
            return;
        }
        if let Some(mark) = MARKS.iter().position(|mark| *mark == bytes) {
            if !self.marks.contains_key(&at.number) && cost.keep(MARKED).is_err() {
                return;
            }
            *self.marks.entry(at.number).or_default() |= 1 << mark;
        }
        let small = bytes.to_ascii_lowercase();
        for place in self.list.ending_with(&small) {
            let is_own_directory = place.name() == ".git" && kind == FileType::Directory;
            let shown = protect::is_protected(self.unprotected, place.name());
            if !shown || is_own_directory || above(places, at.number, place).is_none() {
                continue;
            }
            let stat = walk::stat_at(at.fd.as_fd(), Path::new(OsStr::from_bytes(bytes)));
            // A removal changes the directory, which is then listed again.
            let Ok(stat) = stat else { continue };
            if cost.keep(size_of::<MetName>() + bytes.len()).is_ok() {
                self.met.push(MetName {
                    directory: at.number,
                    name: bytes.into(),
                    place,
                    ino: stat.stx_ino,
                });
            }
        }
    }

    /// The entries that count, in directories that still exist.
    pub(super) fn found(&self, cost: &mut Cost, places: &mut DirTree) -> ProtectedFiles {
        let is_top = |number: &u32| self.marks.get(number).is_some_and(|m| m & TOP != 0);
        if self.met.is_empty() && !self.marks.keys().any(&is_top) {
            return ProtectedFiles::default();
        }
        let listed: Vec<u32> = places.listed();
        let tops = listed.iter().filter(|number| is_top(number));
        let tops = tops.filter(|number| places.above(**number).is_some());
        let tops = tops.map(|number| RepositoryTop {
            path: places.path(*number),
            ino: places.ino(*number),
        });
        let tops: Vec<RepositoryTop> = tops.collect();
        tops.iter().for_each(|top| cost.mask(&top.path));
        let listed: HashSet<u32> = listed.into_iter().collect();
        let met = self.met.iter();
        let there = met.filter(|met| listed.contains(&met.directory) && self.counts(places, met));
        // Others are hidden with a whole directory, or have no path that can be mounted.
        let seen = there.filter(|met| {
            places.within(met.directory).is_none()
                && places.too_deep(met.directory, &met.name).is_none()
        });
        let (settings, found): (Vec<&MetName>, Vec<&MetName>) =
            seen.partition(|met| met.place.compared);
        let found = found.into_iter().map(|met| met.found(places));
        let found: Vec<FoundProtected> = found.collect();
        let settings = settings.into_iter().map(|met| met.found(places));
        let settings: Vec<FoundProtected> = settings.collect();
        let all = found.iter().chain(&settings);
        all.for_each(|one| cost.mask(&one.path));
        ProtectedFiles {
            found,
            settings,
            tops,
            ..ProtectedFiles::default()
        }
    }

    fn counts(&self, places: &DirTree, met: &MetName) -> bool {
        let Some(base) = above(places, met.directory, met.place) else {
            return false;
        };
        let marks = self.marks.get(&base).copied().unwrap_or(0);
        let is_root = places.above(base).is_none();
        match met.place.base() {
            ProtectedBase::Top(_) => is_root || marks & TOP != 0,
            // git removes a second work tree with its git directory. So before a start that one counts only as the root
            // of a source, or for compared settings.
            ProtectedBase::Git(_) => {
                let is_looked_at = is_root || met.place.compared || self.time == GuardTime::End;
                marks & GIT == GIT || is_looked_at && marks & OF_TREE == OF_TREE
            }
        }
    }
}

impl MetName {
    fn found(&self, places: &DirTree) -> FoundProtected {
        let path = places.path(self.directory);
        let path = path.join(OsStr::from_bytes(&self.name));
        let own = match self.place.base() {
            ProtectedBase::Top(below) => below.components().count(),
            ProtectedBase::Git(below) => below.components().count() + 1,
        };
        FoundProtected {
            held: protect::held(&path, own),
            path,
            name: self.place.name().to_owned(),
            ino: self.ino,
        }
    }
}

/// The directory to which the path of a list entry is relative, if this directory has its last component.
fn above(places: &DirTree, directory: u32, place: &ProtectedPlace) -> Option<u32> {
    let (ProtectedBase::Top(path) | ProtectedBase::Git(path)) = place.base();
    let mut at = directory;
    for name in path.components().rev().skip(1) {
        let name = name.as_os_str().as_bytes();
        if !places.name(at).eq_ignore_ascii_case(name) {
            return None;
        }
        at = places.above(at)?;
    }
    Some(at)
}
