//! SHELL. What a container left in the user's files for the user's own tools to run (`policies/protected.toml`): it is moved aside
//! when the container is deleted, after a kill by the next verb that looks. No mount could keep a name from being made that is not
//! there, without leaving a file of that name.
//!
//! Everything goes by descriptors, and by way of no link: the directories are those that the workload wrote. What cannot be
//! cleaned is moved as a whole, and what cannot be moved loses its mode; nothing of that is silent.

mod found;
mod quarantine;
mod settings;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use self::found::FoundFile;
use self::quarantine::Quarantine;
use crate::audit::Event;
use crate::plan::{BindMount, FoundProtected, GuardedMount, ProtectedFiles};
use crate::policy::ProtectedName;
use crate::probe;
use crate::runtime::state::record::Record;

/// Moves aside what was planted in the mounts of a container whose processes are gone, and says so. Returns the same for its
/// log: engines show nobody what a deletion prints.
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
    for watched in &files.watched {
        let mount = files.mounts.iter();
        let mut mount = mount.filter(|mount| mount.destination == watched.destination);
        if let Some(bind) = mount.next().and_then(|mount| mount.bind()) {
            let cleaned = open(bind).and_then(|root| {
                let source = CleanedSource {
                    root,
                    bind,
                    watched,
                };
                source.clean(free, &mut quarantine)
            });
            if let Err(error) = cleaned {
                let place = bind.source.display();
                quarantine.fail(format!(
                    "{place} was not looked through for files that your tools run, such as git hooks: {error}; look at it before you go on"
                ));
            }
        }
    }
    quarantine.tell();
    quarantine.events()
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
    /// First what counted at the start, by name, and then all that a search finds. Directories are moved last: what they
    /// contain is cleaned before.
    fn clean(&self, free: &BTreeSet<ProtectedName>, quarantine: &mut Quarantine) -> io::Result<()> {
        let first = probe::protected_by_name(&self.root, self.watched, free);
        quarantine.begin();
        let done: BTreeSet<&PathBuf> = first.settings.iter().map(|one| &one.path).collect();
        for one in &first.settings {
            self.file(one).take_settings(self.watched, quarantine);
        }
        for one in self.watched.planted(&first) {
            let found = self.file(one);
            if !found.is_moved_as_directory() {
                found.take(quarantine);
            }
        }
        let now = probe::protected(&self.root, free);
        quarantine.begin();
        for one in now.settings.iter().filter(|one| !done.contains(&one.path)) {
            self.file(one).take_settings(self.watched, quarantine);
        }
        if now.unread.is_some() {
            quarantine.shut_directories();
        }
        for one in deepest_first(self.watched, [&first, &now]) {
            self.file(one).take(quarantine);
        }
        now.unread.map_or(Ok(()), |why| Err(io::Error::other(why)))
    }

    fn file<'a>(&'a self, what: &'a FoundProtected) -> FoundFile<'a> {
        FoundFile {
            root: self.root.as_fd(),
            source: &self.bind.source,
            what,
        }
    }
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
