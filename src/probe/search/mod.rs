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
mod git;
mod handles;
mod index;
mod places;
mod sha1;

use std::collections::HashSet;
use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use crate::plan::never::{Meant, Never};
use crate::plan::{InGit, Inside, Seen, SourceFacts};
use content::Content;
pub(super) use cost::Budget;
use cost::Cost;
pub(super) use git::View;
use git::{Known, Repositories, Spot};
use handles::Handles;
use places::Places;

/// How often a mount in which directories are moved meanwhile is searched.
const TRIES: usize = 3;

/// Room for the names of a directory, as many as the kernel tells at once.
const NAMES: usize = 64 << 10;

/// What is looked for: sockets, and credentials other than those that are meant to be seen.
pub(super) struct Unwanted<'a> {
    never: &'a Never,
    meant: &'a Meant,
    /// Device and inode of the runtime's own program: whoever writes it is root at the next start.
    runtime: Option<(u64, u64)>,
    /// The last components of credentials' names: nearly every file is none of them.
    last: HashSet<&'a [u8]>,
}

impl<'a> Unwanted<'a> {
    pub(super) fn new(never: &'a Never, meant: &'a Meant) -> Self {
        let last = never.credentials().filter_map(Path::file_name);
        Self {
            never,
            meant,
            runtime: rustix::fs::stat("/proc/self/exe")
                .ok()
                .map(|s| (s.st_dev, s.st_ino)),
            last: last.map(OsStrExt::as_bytes).collect(),
        }
    }

    /// Whether this is the runtime's own program.
    pub(super) fn is_runtime(&self, dev: u64, ino: u64) -> bool {
        self.runtime == Some((dev, ino))
    }

    /// Why something in a source with these names is not to be seen. A credential is known by where it really lies: by
    /// the directories above the mount as well.
    fn why(&self, bases: &[PathBuf], relative: &Path, kind: FileType) -> Option<(String, usize)> {
        match kind {
            FileType::Socket => return Some(("it is a socket".to_owned(), 1)),
            // It leads to something inside the container, which is judged as what it is.
            FileType::Symlink => return None,
            _ => {}
        }
        let found = bases.iter().filter_map(|base| {
            let path = base.join(relative);
            let why = self.never.credential(&path, self.meant)?;
            let parts = self.never.credential_parts(&path, self.meant)?;
            Some((why.to_owned(), parts))
        });
        found.max_by_key(|(_, parts)| *parts)
    }

    fn may_be(&self, name: &[u8], kind: FileType) -> bool {
        kind == FileType::Socket || self.last.contains(name)
    }
}

/// Adds the sockets and credentials inside a directory to what was found out about it.
pub(super) fn search(
    root: &OwnedFd,
    unwanted: &Unwanted<'_>,
    budget: Budget,
    view: &View<'_>,
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
    facts.runtime = search.found_runtime.take();
    facts.inside.append(&mut search.inside);
}

struct Search<'a> {
    root: &'a OwnedFd,
    unwanted: &'a Unwanted<'a>,
    bases: Vec<PathBuf>,
    places: Places,
    inside: Vec<Inside>,
    repositories: Repositories<'a>,
    /// The inode of the runtime's own program, and where it was met.
    runtime: Option<u64>,
    found_runtime: Option<PathBuf>,
    cost: Cost,
    handles: Handles,
    /// A directory that was seen, and was elsewhere when it was to be looked at.
    moved: Option<PathBuf>,
    /// Directories that are not looked into.
    passed: &'a [PathBuf],
}

/// A directory that is looked at.
struct Directory<'a> {
    number: u32,
    path: &'a Path,
    fd: &'a OwnedFd,
}

/// What becomes of an entry of a directory.
enum Next {
    /// Nothing more.
    Past,
    /// A directory is looked into, which lies in one that is hidden as a whole, or in none.
    Into(Option<u32>),
}

impl<'a> Search<'a> {
    fn new(
        root: &'a OwnedFd,
        unwanted: &'a Unwanted<'a>,
        view: &'a View<'a>,
        budget: Budget,
    ) -> Self {
        Self {
            root,
            unwanted,
            bases: Vec::new(),
            places: Places::new(),
            inside: Vec::new(),
            repositories: Repositories::new(root, view, &unwanted.last),
            runtime: None,
            found_runtime: None,
            cost: Cost::new(budget),
            handles: Handles::default(),
            moved: None,
            passed: &view.passed,
        }
    }

    /// Looks at everything, again where a directory was moved out of the search's way meanwhile.
    fn until_still(&mut self) -> Result<(), String> {
        for _ in 0..TRIES {
            self.places = Places::new();
            self.inside.clear();
            self.repositories.forget();
            self.cost.again();
            self.moved = None;
            self.all()?;
            if self.moved.is_none() {
                return Ok(());
            }
        }
        let moved = self.moved.as_deref().unwrap_or(Path::new(""));
        Err(format!(
            "somebody moves its directories while they are searched ({moved:?}), another container perhaps; start it when nobody does"
        ))
    }

    /// Looks at everything, or says why not.
    fn all(&mut self) -> Result<(), String> {
        let mut names = Box::new_uninit_slice(NAMES);
        let mut unread = None;
        while let Some(number) = self.places.next() {
            if let Err(why) = self.directory(number, &mut names) {
                unread.get_or_insert(why);
            }
            self.cost.check()?;
        }
        unread.map_or(Ok(()), Err)
    }

    fn directory(&mut self, number: u32, names: &mut [MaybeUninit<u8>]) -> Result<(), String> {
        let relative = self.places.path(number);
        let name = match relative.as_os_str().is_empty() {
            true => Path::new("."),
            false => relative.as_path(),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let failed = |e: Errno| {
            let why = std::io::Error::from(e);
            format!("{relative:?} cannot be read: {why}")
        };
        let fd = match rustix::fs::openat2(self.root, name, flags, Mode::empty(), resolve) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                let handle = self.places.handle(number);
                if !handle.is_some_and(|h| handles::is_removed(self.root, &h)) {
                    self.moved = Some(relative);
                }
                return Ok(());
            }
            // Something is mounted there, which is not mounted in the container.
            Err(Errno::XDEV) => return Ok(()),
            Err(e) => return Err(failed(e)),
        };
        let at = Directory {
            number,
            path: &relative,
            fd: &fd,
        };
        let mut entries = RawDir::new(&fd, names);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(failed)?;
            let file = entry.file_name();
            if matches!(file.to_bytes(), b"." | b"..") {
                continue;
            }
            self.cost.entry();
            if self.runtime == Some(entry.ino()) {
                self.found_runtime = Some(at.path.join(OsStr::from_bytes(file.to_bytes())));
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                // A file system that does not tell.
                let stat = rustix::fs::statat(&fd, file, AtFlags::SYMLINK_NOFOLLOW);
                kind = stat.map_or(kind, |s| FileType::from_raw_mode(s.st_mode));
            }
            self.entry(&at, file, kind);
            // One directory may have more than a search looks at.
            self.cost.check()?;
        }
        Ok(())
    }

    fn entry(&mut self, at: &Directory<'_>, name: &CStr, kind: FileType) {
        let next = match self.places.within(at.number) {
            Some(whole) => self.in_hidden(at, whole, name, kind),
            None => self.in_open(at, name, kind),
        };
        let directory = kind == FileType::Directory || kind == FileType::Unknown;
        if let Next::Into(within) = next
            && directory
        {
            if self.is_passed(at, name) {
                return;
            }
            let handle = self.handles.of(at.fd.as_fd(), name);
            let name = name.to_bytes();
            let cost = Places::cost(name, handle.as_ref());
            if self.cost.keep(cost).is_ok() {
                self.places.push(at.number, name, handle.as_ref(), within);
            }
        }
    }

    /// Whether a directory is one that is not looked into.
    fn is_passed(&self, at: &Directory<'_>, name: &CStr) -> bool {
        let name = OsStr::from_bytes(name.to_bytes());
        self.passed
            .iter()
            .any(|part| part.file_name() == Some(name) && part.parent() == Some(at.path))
    }

    /// An entry of a directory that is seen. What is called like a credential is hidden, but for a project's own settings and
    /// what git has with this very content.
    fn in_open(&mut self, at: &Directory<'_>, name: &CStr, kind: FileType) -> Next {
        let name = name.to_bytes();
        if !self.unwanted.may_be(name, kind) {
            return Next::Into(None);
        }
        let path = at.path.join(OsStr::from_bytes(name));
        let Some((why, known_by)) = self.unwanted.why(&self.bases, &path, kind) else {
            return Next::Into(None);
        };
        let inside = Inside::hidden(path, why, known_by);
        match kind {
            FileType::Directory => {
                let path = inside.path.as_path();
                let spot = spot(&self.places, at, path);
                match self.repositories.directory(&mut self.cost, spot) {
                    Some(git) => self.hide(inside, git),
                    // What git has in it is seen.
                    None => {
                        let whole = u32::try_from(self.inside.len()).ok();
                        self.hide(inside, InGit::Nothing);
                        return Next::Into(whole);
                    }
                }
            }
            FileType::RegularFile => match self.file(at, &inside.path, kind) {
                Known::Shown(_) => {}
                Known::Hidden(git) => self.hide(inside, git),
            },
            // Git passes over them.
            _ => self.hide(inside, InGit::Nothing),
        }
        Next::Past
    }

    /// An entry of a directory that is hidden as a whole: only what git has with this very content is seen, and git must miss
    /// nothing else.
    fn in_hidden(&mut self, at: &Directory<'_>, whole: u32, name: &CStr, kind: FileType) -> Next {
        let path = at.path.join(OsStr::from_bytes(name.to_bytes()));
        let git = match kind {
            FileType::Directory => {
                let spot = spot(&self.places, at, &path);
                match self.repositories.directory(&mut self.cost, spot) {
                    Some(git) => git,
                    None => return Next::Into(Some(whole)),
                }
            }
            FileType::RegularFile | FileType::Symlink => match self.file(at, &path, kind) {
                Known::Hidden(git) => git,
                Known::Shown(what) => {
                    self.cost.mask(&path);
                    if let Some(hidden) = self.inside.get_mut(whole as usize)
                        && let Ok(path) = path.strip_prefix(&hidden.path)
                    {
                        let path = path.to_owned();
                        hidden.seen.push(Seen { path, what });
                    }
                    return Next::Past;
                }
            },
            _ => return Next::Past,
        };
        // Of what git does not have, it sees nothing.
        if matches!(git, InGit::Changed | InGit::Untold(_))
            && let Some(hidden) = self.inside.get(whole as usize)
        {
            let why = hidden.why.clone();
            let inside = Inside {
                covered: true,
                ..Inside::hidden(path, why, 0)
            };
            self.hide(inside, git);
        }
        Next::Past
    }

    fn file(&mut self, at: &Directory<'_>, path: &Path, kind: FileType) -> Known {
        let mut content = Content::new(self.root, path, kind);
        let settings = &self.unwanted.never.settings;
        if kind == FileType::RegularFile
            && settings.is_one(path)
            && let Some(found) = content.get(&mut self.cost)
            && settings.are_harmless(path, &found.bytes)
        {
            return Known::Shown(found.what.clone());
        }
        let spot = spot(&self.places, at, path);
        self.repositories.file(&mut self.cost, spot, &mut content)
    }

    fn hide(&mut self, inside: Inside, git: InGit) {
        self.cost.mask(&inside.path);
        // Nobody has looked to the end: that is told, and no more.
        let git = match self.cost.is_spent() {
            true => InGit::Nothing,
            false => git,
        };
        self.inside.push(Inside { git, ..inside });
    }
}

fn spot<'s>(places: &'s Places, at: &Directory<'_>, path: &'s Path) -> Spot<'s> {
    Spot {
        places,
        directory: at.number,
        path,
    }
}

#[cfg(test)]
mod tests;
