//! SHELL. What a container left in the user's files for the user's own tools to run (`policies/protected.toml`): it is moved aside
//! when the container is deleted, after a kill by the next verb that looks. No mount could keep a name from being made that is not
//! there, without leaving a file of that name.
//!
//! Everything goes by descriptors, and by way of no link: the directories are those that the workload wrote. What cannot be
//! cleaned is moved as a whole, and what cannot be moved loses its mode; nothing of that is silent.

mod planted_file;
mod quarantine;
mod replaced;
mod settings;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};

use self::planted_file::FoundFile;
use self::quarantine::Quarantine;
use crate::audit::Event;
use crate::plan::{
    BindMount, FileIdentity, FoundProtected, GuardedMount, ProtectedFiles, SourceIdentity,
    StartSearch,
};
use crate::policy::ProtectedName;
use crate::probe;
use crate::runtime::state::record::Record;

/// How long all searches of a deletion may take together: an engine waits.
const SEARCHED: Duration = Duration::from_secs(20);
/// The most lines about git directories that may have replaced objects, of one source.
const MOST_GITS_NAMED: usize = 5;

/// Moves aside what was planted in the mounts of a container whose processes are gone, and says so. Returns the same for its
/// log: engines do not show what a deletion prints.
pub fn set_aside(record: &Record) -> Vec<Event> {
    let Some(decided) = &record.decided else {
        return Vec::new();
    };
    let free = &decided.resolved.filesystem.unprotected;
    if free.iter().any(ProtectedName::is_all) {
        return Vec::new();
    }
    let files = &decided.plan.filesystem;
    let mut quarantine = Quarantine::of(record);
    let mut sources = Vec::new();
    for watched in &files.watched {
        let mount = files.mounts.iter();
        let mut mount = mount.filter(|mount| mount.destination == watched.destination);
        if let Some(bind) = mount.next().and_then(|mount| mount.bind()) {
            match open(bind) {
                Ok(root) => sources.push(CleanedSource {
                    root,
                    bind,
                    watched,
                }),
                Err(error) => not_searched(bind, &error.to_string(), &mut quarantine),
            }
        }
    }
    // What is shown twice is searched once, from above.
    sources.sort_by_key(|source| source.bind.source.components().count());
    clean(&sources, free, &mut quarantine);
    quarantine.tell();
    quarantine.events()
}

fn not_searched(bind: &BindMount, why: &str, quarantine: &mut Quarantine) {
    let place = bind.source.display();
    quarantine.fail(format!(
        "{place} was not looked through for files that your tools run, such as git hooks: {why}; look at it before you go on"
    ));
}

/// First what counted at the start, by name, and then all that searches find, which have one time limit together.
/// Directories are moved last: what they contain is cleaned before.
fn clean(
    sources: &[CleanedSource<'_>],
    free: &BTreeSet<ProtectedName>,
    quarantine: &mut Quarantine,
) {
    quarantine.begin();
    let firsts: Vec<ProtectedFiles> = sources
        .iter()
        .map(|source| source.clean_by_name(free, quarantine))
        .collect();
    let until = Instant::now() + SEARCHED;
    let mut nows: Vec<ProtectedFiles> = Vec::new();
    for source in sources {
        let mut others = sources.iter().zip(&nows);
        let is_done = others.any(|(other, now)| now.unread.is_none() && other.shows(source));
        nows.push(match is_done {
            true => ProtectedFiles::default(),
            false => source.search(free, until),
        });
    }
    quarantine.begin();
    for (source, looks) in sources.iter().zip(firsts.iter().zip(&nows)) {
        source.clean_found(looks, quarantine);
    }
}

/// The mount's source, if it is still what was mounted.
fn open(bind: &BindMount) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat2(CWD, &bind.source, flags, Mode::empty(), resolve)?;
    let stat = rustix::fs::fstat(&root)?;
    if (stat.st_dev, stat.st_ino) != (bind.judged.dev, bind.judged.ino) {
        return Err(io::Error::other("another directory has taken its place"));
    }
    Ok(root)
}

/// A mount's source, and its state at the start.
struct CleanedSource<'a> {
    root: OwnedFd,
    bind: &'a BindMount,
    watched: &'a GuardedMount,
}

impl CleanedSource<'_> {
    fn clean_by_name(
        &self,
        free: &BTreeSet<ProtectedName>,
        quarantine: &mut Quarantine,
    ) -> ProtectedFiles {
        if self.watched.searched == StartSearch::Stopped {
            return ProtectedFiles::default();
        }
        let place = (&self.root, self.bind.source.as_path());
        let first = self.visible(probe::protected_by_name(place, self.watched, free));
        for one in &first.settings {
            self.file(one).take_settings(quarantine);
        }
        for one in self.watched.planted(&first) {
            let found = self.file(one);
            if !found.is_moved_as_directory() {
                found.take(quarantine);
            }
        }
        first
    }

    /// Searches all of it. If the search before the start stopped, a file that this one finds may be the user's own.
    fn search(&self, free: &BTreeSet<ProtectedName>, until: Instant) -> ProtectedFiles {
        let why = match self.watched.searched {
            StartSearch::Complete => {
                return self.visible(probe::protected(&self.root, free, until));
            }
            StartSearch::ByName => {
                "it was too large to search before the start, so only its top and the repositories found then were compared"
            }
            StartSearch::Stopped => "it was too large to search before the start",
        };
        ProtectedFiles {
            unread: Some(why.to_owned()),
            ..ProtectedFiles::default()
        }
    }

    fn clean_found(
        &self,
        (first, now): (&ProtectedFiles, &ProtectedFiles),
        quarantine: &mut Quarantine,
    ) {
        let done: BTreeSet<&PathBuf> = first.settings.iter().map(|one| &one.path).collect();
        for one in now.settings.iter().filter(|one| !done.contains(&one.path)) {
            self.file(one).take_settings(quarantine);
        }
        quarantine.begin_source(now);
        for one in deepest_first(self.watched, [first, now]) {
            self.file(one).take(quarantine);
        }
        let gits: BTreeSet<&PathBuf> = self.watched.gits.iter().chain(&now.gits).collect();
        if let Some(why) = &now.unread {
            not_searched(self.bind, why, quarantine);
        }
        let among =
            |git: &PathBuf| replaced::among_branches(self.root.as_fd(), &self.bind.source, git);
        let mut said = gits.into_iter().flat_map(among);
        said.by_ref()
            .take(MOST_GITS_NAMED)
            .for_each(|line| quarantine.fail(line));
        // A command makes as many directories with that name as it likes: their lines must not crowd out others.
        let more = said.count();
        if more > 0 {
            quarantine.fail(format!(
                "{more} more of {:?} may have replaced objects: review with git --no-replace-objects",
                self.bind.source
            ));
        }
    }

    /// Without what lies in hidden directories: the workload could not enter them. One that it put in their place is
    /// another directory.
    fn visible(&self, mut files: ProtectedFiles) -> ProtectedFiles {
        let hidden = self.watched.hidden.iter();
        let hidden = hidden.filter(|one| self.identity(&one.path) == Some(one.file));
        let hidden: BTreeSet<&Path> = hidden.map(|one| one.path.as_path()).collect();
        let is_visible = |one: &FoundProtected| {
            let mut above = one.path.ancestors();
            !above.any(|above| hidden.contains(above))
        };
        files.found.retain(is_visible);
        files.settings.retain(is_visible);
        files
    }

    /// Whether a search here has met all of another source.
    fn shows(&self, other: &CleanedSource<'_>) -> bool {
        let Ok(below) = other.bind.source.strip_prefix(&self.bind.source) else {
            return false;
        };
        let mut hidden = self.watched.hidden.iter();
        let is_hidden = hidden.any(|one| below.starts_with(&one.path));
        // Another mount of the node may cover it there.
        let there = match below.components().next() {
            None => Some(identity(self.bind)),
            Some(_) => self.identity(below),
        };
        self.watched.searched == StartSearch::Complete
            && !is_hidden
            && self.bind.judged.dev == other.bind.judged.dev
            && there == Some(identity(other.bind))
    }

    fn identity(&self, below: &Path) -> Option<FileIdentity> {
        let above = probe::directory_below(self.root.as_fd(), below.parent()?).ok()?;
        let stat = rustix::fs::statat(above, below.file_name()?, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileIdentity {
            dev: stat.st_dev,
            ino: stat.st_ino,
        })
    }

    fn file<'a>(&'a self, what: &'a FoundProtected) -> FoundFile<'a> {
        FoundFile {
            root: self.root.as_fd(),
            source: &self.bind.source,
            what,
            watched: self.watched,
        }
    }
}

fn identity(bind: &BindMount) -> FileIdentity {
    let SourceIdentity { dev, ino, .. } = bind.judged;
    FileIdentity { dev, ino }
}

/// What was planted, each path once.
fn deepest_first<'a>(
    watched: &GuardedMount,
    looks: [&'a ProtectedFiles; 2],
) -> Vec<&'a FoundProtected> {
    let mut all: Vec<&FoundProtected> = Vec::new();
    all.extend(looks.into_iter().flat_map(|look| watched.planted(look)));
    let depth = |path: &Path| std::cmp::Reverse(path.components().count());
    all.sort_by(|a, b| (depth(&a.path), &a.path).cmp(&(depth(&b.path), &b.path)));
    all.dedup_by(|a, b| a.path == b.path);
    all
}

#[cfg(test)]
mod tests;
