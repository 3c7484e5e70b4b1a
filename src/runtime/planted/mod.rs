//! SHELL. What a container left in the user's files for the user's own tools to run (`policies/protected.toml`): it is moved aside
//! when the container is deleted, after a kill by the next verb that looks. No mount could keep a name from being made that is not
//! there, without leaving a file of that name.
//!
//! Everything goes by descriptors, and by way of no link: the directories are those that the workload wrote. What cannot be
//! cleaned is moved as a whole, and what cannot be moved loses its mode; nothing of that is silent.

mod checkout;
mod git_state;
mod hooks_path;
mod look;
mod lost_remotes;
mod planted_file;
mod quarantine;
mod quarantined_file;
mod references;
mod replaced;
mod settings;
mod what_stays;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags};

use self::look::file_of;
use self::planted_file::FoundFile;
use self::quarantine::Quarantine;
use self::references::FoundReferences;
use self::replaced::REVIEW;
use crate::audit::Event;
use crate::plan::protect;
use crate::plan::wrap_plan::layer_of;
use crate::plan::{
    BindAccess, BindMount, FileIdentity, FoundProtected, GuardedMount, GuardedPart, ProtectedFiles,
    SourceIdentity, StartSearch,
};
use crate::policy::{ProtectedName, typed_path};
use crate::probe;
use crate::runtime::state::record::{ProcessId, Record};

/// How long all searches of a deletion may take together: an engine waits.
const SEARCHED: Duration = Duration::from_secs(20);

/// Moves aside what was planted in the mounts of a container whose processes are gone, and says so. Returns the same for its
/// log: engines do not show what a deletion prints.
pub fn set_aside(record: &Record) -> Vec<Event> {
    let Some(decided) = &record.decided else {
        return Vec::new();
    };
    let free = &decided.resolved.filesystem.unprotected;
    let is_free = free.iter().any(ProtectedName::is_all);
    let files = &decided.plan.filesystem;
    let mut quarantine = Quarantine::of(record);
    let begun = record.init.and_then(ProcessId::begun);
    // The end of a run that has the layers over caches by now looks at them. Held to the end of this one.
    let locked = files.kept.as_deref().and_then(lock);
    let mut sources = Vec::new();
    for watched in &files.watched {
        let is_all = watched.part == GuardedPart::All;
        let mount = files.mounts.iter();
        let mut mount = mount.filter(|mount| mount.destination == watched.destination);
        let bind = mount.next().and_then(|mount| mount.bind());
        let Some(bind) = bind.filter(|_| !(is_all && is_free)) else {
            continue;
        };
        let layer = files
            .kept
            .as_ref()
            .filter(|_| bind.access == BindAccess::Private);
        let layer = layer.map(|kept| kept.join(layer_of(&watched.destination)).join("upper"));
        if layer.is_some() && locked.is_none() {
            continue;
        }
        let opened = match &layer {
            Some(layer) => open(layer),
            None => open_as_judged(bind),
        };
        let source = layer.unwrap_or_else(|| bind.source.clone());
        match opened {
            Ok((root, file)) => sources.push(CleanedSource {
                root,
                source,
                file,
                watched,
                free: if is_all { free } else { &NOTHING_FREE },
                begun,
                is_read: Cell::new(false),
            }),
            Err(error) => not_searched(&source, &error.to_string(), &mut quarantine),
        }
    }
    // The user's own first. What is shown twice is searched once, from above.
    sources.sort_by_key(|source| (!source.is_all(), source.source.components().count()));
    clean(&sources, &mut quarantine);
    quarantine.tell();
    quarantine.events()
}

/// The lock of the layers over caches; `None` while another process has it. This process keeps its own until the file is closed
/// (fcntl_locking(2)).
fn lock(kept: &Path) -> Option<File> {
    let file = File::options().write(true).open(kept.join("lock")).ok()?;
    let locked = rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
    locked.is_ok().then_some(file)
}

/// Where all is the workload's, no policy lets anything stay.
static NOTHING_FREE: BTreeSet<ProtectedName> = BTreeSet::new();

fn not_searched(source: &Path, why: &str, quarantine: &mut Quarantine) {
    let place = typed_path(source);
    quarantine.fail(format!(
        "{place} was not looked through for files that your tools run, such as git hooks: {why}; look at it before you go on"
    ));
}

/// First what counted at the start, by name, and then all that searches find, which have one time limit together.
/// Directories are moved last: what they contain is cleaned before.
fn clean(sources: &[CleanedSource<'_>], quarantine: &mut Quarantine) {
    quarantine.begin();
    let firsts = sources.iter().map(|source| {
        quarantine.attend(source.watched.part);
        source.clean_by_name(quarantine)
    });
    let firsts: Vec<ProtectedFiles> = firsts.collect();
    let until = Instant::now() + SEARCHED;
    let mut nows: Vec<ProtectedFiles> = Vec::new();
    for source in sources {
        let mut others = sources.iter().zip(&nows);
        let is_done = others.any(|(other, now)| now.unread.is_none() && other.shows(source));
        let now = match is_done {
            true => ProtectedFiles::default(),
            false => source.search(until),
        };
        source.is_read.set(now.unread.is_none());
        nows.push(now);
    }
    for (source, looks) in sources.iter().zip(firsts.iter().zip(&nows)) {
        quarantine.attend(source.watched.part);
        source.clean_found(looks, sources, quarantine);
    }
}

fn open(source: &Path) -> io::Result<(OwnedFd, FileIdentity)> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat2(CWD, source, flags, Mode::empty(), resolve)?;
    let file = file_of(&rustix::fs::fstat(&root)?);
    Ok((root, file))
}

/// The mount's source, if it is still what was mounted.
fn open_as_judged(bind: &BindMount) -> io::Result<(OwnedFd, FileIdentity)> {
    let (root, file) = open(&bind.source)?;
    let SourceIdentity { dev, ino, .. } = bind.judged;
    if file != (FileIdentity { dev, ino }) {
        return Err(io::Error::other("another directory has taken its place"));
    }
    Ok((root, file))
}

/// A mount's source, and its state at the start.
struct CleanedSource<'a> {
    root: OwnedFd,
    /// Its path.
    source: PathBuf,
    file: FileIdentity,
    watched: &'a GuardedMount,
    /// What the policy does not protect.
    free: &'a BTreeSet<ProtectedName>,
    /// The container's start, since 1970.
    begun: Option<Duration>,
    /// Whether the last search met all of it.
    is_read: Cell<bool>,
}

impl CleanedSource<'_> {
    fn clean_by_name(&self, quarantine: &mut Quarantine) -> ProtectedFiles {
        if self.watched.searched == StartSearch::Stopped {
            return ProtectedFiles::default();
        }
        let place = (&self.root, self.source.as_path());
        let first = self.visible(probe::protected_by_name(place, self.watched, self.free));
        for one in &first.settings {
            self.file(one).take_settings(quarantine);
        }
        git_state::clean(self, first.state.iter().collect(), quarantine);
        for one in self.watched.planted(&first) {
            let found = self.file(one);
            if !found.is_moved_as_directory() {
                found.take(quarantine);
            }
        }
        first
    }

    fn is_all(&self) -> bool {
        self.watched.part == GuardedPart::All
    }

    /// Searches all of it. If the search before the start stopped, a file that this one finds may be the user's own.
    fn search(&self, until: Instant) -> ProtectedFiles {
        let why = match self.watched.searched {
            StartSearch::Complete => {
                let place = (&self.root, self.source.as_path());
                return self.visible(probe::protected(place, self.free, until));
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
        sources: &[CleanedSource<'_>],
        quarantine: &mut Quarantine,
    ) {
        quarantine.begin();
        let done: BTreeSet<&PathBuf> = first.settings.iter().map(|one| &one.path).collect();
        for one in now.settings.iter().filter(|one| !done.contains(&one.path)) {
            self.file(one).take_settings(quarantine);
        }
        let done: BTreeSet<&PathBuf> = first.state.iter().map(|one| &one.path).collect();
        let others = now.state.iter().filter(|one| !done.contains(&one.path));
        git_state::clean(self, others.collect(), quarantine);
        quarantine.begin_source(now);
        for one in deepest_first(self.watched, [first, now]) {
            let file = FoundFile {
                beside: sources,
                ..self.file(one)
            };
            file.take(quarantine);
        }
        let hidden = self.still_hidden();
        let gits = self.watched.gits.iter().chain(&now.gits);
        let gits: BTreeSet<&PathBuf> = gits.filter(|git| is_visible(git, &hidden)).collect();
        if let Some(why) = &now.unread {
            not_searched(&self.source, why, quarantine);
        }
        if !self.is_all() {
            return;
        }
        if gits.len() >= probe::MOST_GITS || now.gits.len() >= probe::MOST_GITS {
            let place = typed_path(&self.source);
            quarantine.fail(format!(
                "{place} has more git directories than are looked through: {REVIEW}"
            ));
        }
        self.clean_references(&gits, quarantine);
        self.say_what_stays(now, &gits, quarantine);
    }

    /// Moves aside what leads to replaced objects in these git directories. Nothing was planted before the start.
    fn clean_references(&self, gits: &BTreeSet<&PathBuf>, quarantine: &mut Quarantine) {
        let Some(begun) = self.begun else { return };
        if !protect::is_protected(self.free, references::NAME) {
            return;
        }
        quarantine.begin();
        let (root, source) = (self.root.as_fd(), self.source.as_path());
        let part = probe::is_in_git(source).then(|| FoundReferences::of_part(root, source, begun));
        let of_git = |git: &&PathBuf| FoundReferences::of_git(root, source, git, begun);
        let mut unread = Vec::new();
        for all in part.into_iter().chain(gits.iter().map(of_git)) {
            // Also a graph that cannot be removed.
            let graphs = all
                .graphs
                .iter()
                .filter(|graph| references::remove(root, &graph.path).is_err());
            for one in all.found.iter().chain(graphs) {
                self.file(one).take(quarantine);
            }
            unread.extend(all.unread);
            if quarantine.check_time().is_err() {
                let source = typed_path(source);
                unread.push(format!(
                    "not all references of {source} were looked at: {REVIEW}"
                ));
                break;
            }
        }
        let of = format!("more of {source:?} have too many references: {REVIEW}");
        quarantine.fail_some(unread, &of);
    }

    /// Without what lies in hidden directories: the workload could not enter them. One that it put in their place is
    /// another directory.
    fn visible(&self, mut files: ProtectedFiles) -> ProtectedFiles {
        let hidden = self.still_hidden();
        files.found.retain(|one| is_visible(&one.path, &hidden));
        files.settings.retain(|one| is_visible(&one.path, &hidden));
        files.state.retain(|one| is_visible(&one.path, &hidden));
        files
    }

    /// The hidden directories that are in their places.
    fn still_hidden(&self) -> BTreeSet<&Path> {
        let hidden = self.watched.hidden.iter();
        let hidden = hidden.filter(|one| self.identity(&one.path) == Some(one.file));
        hidden.map(|one| one.path.as_path()).collect()
    }

    /// Whether a search here has met all of another source.
    fn shows(&self, other: &CleanedSource<'_>) -> bool {
        let Ok(below) = other.source.strip_prefix(&self.source) else {
            return false;
        };
        let mut hidden = self.watched.hidden.iter();
        let is_hidden = hidden.any(|one| below.starts_with(&one.path));
        // Another mount of the node may cover it there.
        let there = match below.components().next() {
            None => Some(self.file),
            Some(_) => self.identity(below),
        };
        self.watched.searched == StartSearch::Complete
            && !is_hidden
            && self.file.dev == other.file.dev
            && there == Some(other.file)
    }

    fn identity(&self, below: &Path) -> Option<FileIdentity> {
        let above = probe::directory_below(self.root.as_fd(), below.parent()?).ok()?;
        let stat = rustix::fs::statat(above, below.file_name()?, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(file_of(&stat))
    }

    fn file<'a>(&'a self, what: &'a FoundProtected) -> FoundFile<'a> {
        FoundFile {
            root: self.root.as_fd(),
            source: &self.source,
            what,
            watched: self.watched,
            beside: &[],
        }
    }

    /// Whether this path of the node is a git directory in this source, which is searched, and to which git lets a work tree lead:
    /// not that of another work tree, in which git would look for hooks.
    fn has_cleaned(&self, path: &Path) -> bool {
        let Ok(below) = path.strip_prefix(&self.source) else {
            return false;
        };
        let of_top = below.file_name() == Some(OsStr::new(".git")) && self.watched.was_git(below);
        self.is_all()
            && self.is_read.get()
            && !of_top
            && checkout::is_safe((self.root.as_fd(), &self.source), self.watched, below)
    }
}

fn is_visible(path: &Path, hidden: &BTreeSet<&Path>) -> bool {
    !path.ancestors().any(|above| hidden.contains(above))
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
