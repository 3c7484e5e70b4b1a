//! SHELL. Files that the user's tools run, looked up by name where they were at the start. A search of everything may
//! have to give up, because a workload can make more directories than a search can look at. These places come first, and
//! cost the same whatever the workload made.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::content;
use super::cost::{Cost, SearchBudget};
use super::links;
use super::places;
use super::walk;
use crate::plan::git_config::WholeSettings;
use crate::plan::protect::{self, ProtectedBase, ProtectedList, ProtectedPlace};
use crate::plan::{
    FileIdentity, FoundProtected, HiddenDirectory, KnownGit, ProtectedFiles, RepositoryTop,
    SourceFacts,
};
use crate::policy::ProtectedName;

/// Most repositories that are looked at.
const MOST: usize = 1000;

/// The largest file of git's settings that is compared as a whole.
const SETTINGS: u64 = 16 << 20;

/// The same of a file that git keeps of its work. A name and a path for each conflict are less.
const STATE: u64 = 64 << 10;

/// What a search before the start leaves for a look by name.
pub(super) struct StartLook<'a> {
    pub unprotected: &'a BTreeSet<ProtectedName>,
    /// The directories with links in git directories.
    pub linked: Vec<PathBuf>,
}

/// Completes the facts of a search before the start. A search that stopped has budget for nothing more. So the same
/// places as at the end are looked up by name, with a budget of their own: nothing that was there counts as new.
pub(super) fn complete(
    root: &OwnedFd,
    start: &StartLook<'_>,
    cost: &mut Cost,
    facts: &mut SourceFacts,
) {
    let unprotected = start.unprotected;
    let of_part = of_git_part(root, &facts.path, unprotected);
    for one in &of_part {
        cost.mask(&one.path);
    }
    merge(&mut facts.protected.found, of_part);
    let mut known = settings(root, &facts.protected.settings, cost);
    links::remember(root, &start.linked, cost, &mut known);
    state(root, &mut facts.protected, cost, &mut known);
    remember(known, &mut facts.protected);
    facts.protected.hidden = hidden(root, facts);
    let over = cost.check().err();
    facts.unsearched = facts.unsearched.take().or(over);
    if facts.unsearched.is_none() {
        return;
    }
    let files = &mut facts.protected;
    let mut cost = Cost::new(SearchBudget::BY_NAME);
    let mut now = by_name(root, (&files.tops, &files.gits), unprotected);
    // A longer path cannot be mounted.
    let longest = usize::try_from(places::LONGEST).unwrap_or(usize::MAX);
    now.found.retain(|one| one.path.as_os_str().len() < longest);
    for one in now.found.iter().chain(&now.settings) {
        cost.mask(&one.path);
    }
    merge(&mut files.found, now.found);
    merge(&mut files.settings, now.settings);
    let mut known = settings(root, &files.settings, &mut cost);
    links::remember(
        root,
        &written(root, &files.tops, &files.gits),
        &mut cost,
        &mut known,
    );
    files.state = now.state;
    state(root, files, &mut cost, &mut known);
    remember(known, files);
    files.unread = cost.check().err();
}

fn merge(all: &mut Vec<FoundProtected>, more: Vec<FoundProtected>) {
    let paths: BTreeSet<PathBuf> = all.iter().map(|one| one.path.clone()).collect();
    all.extend(more.into_iter().filter(|one| !paths.contains(&one.path)));
}

fn remember(known: KnownGit, files: &mut ProtectedFiles) {
    (files.known, files.remotes) = (known.hashes, known.remotes);
}

/// Facts about files of which the content counts. An index is judged by itself. What waits for its user is known by its file, too.
fn state(root: &OwnedFd, files: &mut ProtectedFiles, cost: &mut Cost, known: &mut KnownGit) {
    let state = files.state.iter().filter(|one| one.name != protect::INDEX);
    for one in state.take(MOST) {
        if cost.read(content::OPENED).is_ok()
            && let Some(text) = text(root, &one.path, STATE, cost)
        {
            known
                .hashes
                .insert(WholeSettings::Text(&text).hash(&one.path));
        }
    }
    files
        .state
        .retain(|one| protect::WAITING.contains(&one.name.as_str()));
}

/// Facts about git's settings, for a comparison when the container has ended.
fn settings(root: &OwnedFd, settings: &[FoundProtected], cost: &mut Cost) -> KnownGit {
    let list = ProtectedList::builtin();
    let mut known = KnownGit::default();
    for one in settings {
        if cost.read(content::OPENED).is_err() {
            break;
        }
        if let Some(target) = content::target(root.as_fd(), &one.path) {
            list.remember(WholeSettings::Link(&target), &one.path, &mut known);
        } else if let Some(text) = text(root, &one.path, SETTINGS, cost) {
            list.remember(WholeSettings::Text(&text), &one.path, &mut known);
        }
    }
    known
}

/// The text of a regular file of at most so many bytes.
fn text(root: &OwnedFd, path: &Path, most: u64, cost: &mut Cost) -> Option<Vec<u8>> {
    let (file, size) = content::regular(root.as_fd(), path).ok()??;
    let bytes = usize::try_from(size).ok().filter(|_| size <= most)?;
    cost.read(bytes).ok()?;
    content::all(file, most).ok()?
}

/// The directories that are hidden as a whole: what lies in them was not searched.
fn hidden(root: &OwnedFd, facts: &SourceFacts) -> Vec<HiddenDirectory> {
    let whole = facts.inside.iter().filter(|one| !one.covered);
    let directories = whole.filter_map(|one| {
        let file = directory_at(root, &one.path)?;
        let path = one.path.clone();
        Some(HiddenDirectory { path, file })
    });
    directories.collect()
}

/// Which directory it is, by way of no link.
fn directory_at(root: &OwnedFd, path: &Path) -> Option<FileIdentity> {
    let above = walk::beneath_by_parts(root.as_fd(), path.parent()?).ok()?;
    let stat = walk::stat_at(above.as_fd(), Path::new(path.file_name()?)).ok()?;
    let kind = FileType::from_raw_mode(stat.stx_mode.into());
    (kind == FileType::Directory).then_some(walk::identity(&stat))
}

/// What is now in these places: the source's top, and the repositories and git directories that were found at the start.
pub(in crate::probe) fn by_name(
    root: &OwnedFd,
    (tops, gits): (&[RepositoryTop], &[PathBuf]),
    unprotected: &BTreeSet<ProtectedName>,
) -> ProtectedFiles {
    let tops = top_directories(tops);
    let gits = git_directories(&tops, gits);
    let mut now = ProtectedFiles::default();
    let mut look = |base: &Path, wanted: fn(&ProtectedPlace) -> bool| {
        let Ok(directory) = walk::beneath_by_parts(root.as_fd(), base) else {
            return;
        };
        let mut absent = HashSet::new();
        for place in ProtectedList::builtin().all() {
            if wanted(place)
                && !place.links
                && protect::is_protected(unprotected, place.name())
                && let Some(one) = entry(&directory, base, place, &mut absent)
            {
                now.add(place, one);
            }
        }
    };
    for top in tops {
        look(top, |place| matches!(place.base(), ProtectedBase::Top(_)));
    }
    for git in &gits {
        look(git, |place| matches!(place.base(), ProtectedBase::Git(_)));
    }
    now
}

fn top_directories(tops: &[RepositoryTop]) -> BTreeSet<&Path> {
    let known = tops.iter().take(MOST).map(|top| top.path.as_path());
    known.chain([Path::new("")]).collect()
}

/// Those that began as git directories at these tops are named `.git`.
fn git_directories(tops: &BTreeSet<&Path>, gits: &[PathBuf]) -> BTreeSet<PathBuf> {
    let made = tops.iter().map(|top| top.join(".git"));
    made.chain(gits.iter().take(MOST).cloned()).collect()
}

/// Where git writes in the directories that are looked at by name.
fn written(root: &OwnedFd, tops: &[RepositoryTop], gits: &[PathBuf]) -> Vec<PathBuf> {
    links::places(root, &git_directories(&top_directories(tops), gits))
}

/// Adds the links in the git directories of the start to what is found now.
pub(in crate::probe) fn links_by_name(
    root: &OwnedFd,
    (tops, gits): (&[RepositoryTop], &[PathBuf]),
    unprotected: &BTreeSet<ProtectedName>,
    now: &mut ProtectedFiles,
) {
    links::find(root, &written(root, tops, gits), unprotected, now);
}

/// The entries of the list at the root of a source that is a part of a git directory: a second work tree writes `refs` of
/// the first one's, which is a mount of its own.
pub(in crate::probe) fn of_git_part(
    root: &OwnedFd,
    source: &Path,
    unprotected: &BTreeSet<ProtectedName>,
) -> Vec<FoundProtected> {
    let (Some(part), Some(git)) = (source.file_name(), source.parent()) else {
        return Vec::new();
    };
    if !git.join("HEAD").exists() || !git.join("objects").is_dir() {
        return Vec::new();
    }
    let all = ProtectedList::builtin().all().iter();
    let all =
        all.filter(|place| place.is_path() && protect::is_protected(unprotected, place.name()));
    let found = all.filter_map(|place| {
        let ProtectedBase::Git(below) = place.base() else {
            return None;
        };
        let path = below.strip_prefix(part).ok()?;
        let stat = walk::stat_at(root.as_fd(), path).ok()?;
        (path.components().count() == 1).then(|| FoundProtected {
            held: protect::held(path, 1),
            path: path.to_owned(),
            name: place.name().to_owned(),
            file: walk::identity(&stat),
        })
    });
    found.collect()
}

/// An entry of the list in a directory, or a link in place of one of its directories. `absent` are names that the directory
/// does not have: many entries begin with the same one.
fn entry<'a>(
    directory: &OwnedFd,
    base: &Path,
    place: &'a ProtectedPlace,
    absent: &mut HashSet<&'a OsStr>,
) -> Option<FoundProtected> {
    let below = place.below();
    let all = below.components().count();
    let mut path = PathBuf::new();
    for (part, name) in (1..).zip(below) {
        if part == 1 && absent.contains(name) {
            return None;
        }
        path.push(name);
        let stat = walk::stat_at(directory.as_fd(), &path);
        if part == 1 && matches!(stat, Err(Errno::NOENT)) {
            absent.insert(name);
        }
        let stat = stat.ok()?;
        let kind = FileType::from_raw_mode(stat.stx_mode.into());
        let is_own_directory = place.file_only && kind == FileType::Directory;
        if part == all && !is_own_directory || part < all && kind == FileType::Symlink {
            let path = base.join(&path);
            let own = match place.base() {
                ProtectedBase::Top(_) => part,
                ProtectedBase::Git(_) => part + 1,
            };
            return Some(FoundProtected {
                held: protect::held(&path, own),
                path,
                name: place.name().to_owned(),
                file: walk::identity(&stat),
            });
        }
        if kind != FileType::Directory {
            return None;
        }
    }
    None
}
