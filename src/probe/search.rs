//! Looking for sockets and credentials inside a mount's source.
//!
//! All of it is looked at: a directory can be moved by whoever writes the mount, so a credential may be anywhere, and a
//! search that stops early is one that an agent can make stop. Where it does stop (a tree of more than a million
//! entries, a disk that is slow, a directory that root may not read), the plan is told why, and decides.

mod git;
mod index;
mod sha1;

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use crate::plan::never::{Meant, Never};
use crate::plan::{InGit, Inside, SourceFacts};
use crate::policy::SearchRule;
use crate::sys::handle::{self, Handle};
pub(super) use git::View;
use git::{Known, Repositories};

/// The most that is masked inside one mount's source: each is a mount, of which the kernel gives 100,000.
const MASKS: usize = 10_000;

/// How often a mount in which directories are moved meanwhile is searched.
const TRIES: usize = 3;

/// Room for the names of a directory, as many as the kernel tells at once.
const NAMES: usize = 64 << 10;

/// How much is looked at.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    entries: usize,
    time: Duration,
}

impl Budget {
    /// In the directories of the node that `wrap` shows under `permissive`, of which a search never sees the end. What is in
    /// the person's own home is masked by its name.
    pub(super) const SYSTEM: Self = Self {
        entries: 16_384,
        time: Duration::from_millis(500),
    };

    /// Where all must be seen: more than any project has, and as long as a person waits. Where the rest may go unseen:
    /// what hardly delays a start.
    pub(super) fn of(rule: SearchRule) -> Self {
        match rule {
            SearchRule::Complete => Self {
                entries: 1_000_000,
                time: Duration::from_secs(60),
            },
            SearchRule::Partial => Self {
                entries: 100_000,
                time: Duration::from_secs(1),
            },
        }
    }
}

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
    let mut search = Search {
        root,
        unwanted,
        bases: facts
            .all_names()
            .chain(facts.inner.iter().map(PathBuf::as_path))
            .map(Path::to_path_buf)
            .collect(),
        queue: VecDeque::new(),
        inside: Vec::new(),
        repositories: Repositories::new(root, view, &unwanted.last),
        // The program of another file system has another file's number here.
        runtime: unwanted
            .runtime
            .filter(|(dev, _)| *dev == facts.dev)
            .map(|(_, ino)| ino),
        found_runtime: None,
        entries: 0,
        moved: None,
    };
    facts.unsearched = search.until_still(budget).err();
    facts.runtime = search.found_runtime.take();
    facts.inside.append(&mut search.inside);
}

struct Search<'a> {
    root: &'a OwnedFd,
    unwanted: &'a Unwanted<'a>,
    bases: Vec<PathBuf>,
    /// Directories still to look at, relative to the root. Breadth first: where it stops, the top has been seen.
    queue: VecDeque<Waiting>,
    inside: Vec<Inside>,
    repositories: Repositories<'a>,
    /// The inode of the runtime's own program, and where it was met.
    runtime: Option<u64>,
    found_runtime: Option<PathBuf>,
    entries: usize,
    /// A directory that was seen, and was elsewhere when it was to be looked at.
    moved: Option<PathBuf>,
}

/// What becomes of something unwanted.
enum Judged {
    Hidden(Inside),
    /// Not as a whole: of what is in it.
    ByFile((String, usize)),
}

/// A directory that is still to be looked at.
struct Waiting {
    /// Relative to the root.
    path: PathBuf,
    /// What it is, wherever it is moved; not where the file system does not tell.
    handle: Option<Handle>,
    /// Why it must not be seen, and by how many components that is known, where git has some of its files: each is
    /// judged by itself.
    unwanted: Option<(String, usize)>,
}

impl Waiting {
    fn root() -> Self {
        Self {
            path: PathBuf::new(),
            handle: None,
            unwanted: None,
        }
    }

    /// Whether it is known to be gone, and has not merely another name: a build removes directories at any time.
    fn is_removed(&self, root: &OwnedFd) -> bool {
        let Some(handle) = &self.handle else {
            return false;
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(on) = rustix::fs::openat(root, ".", flags, Mode::empty()) else {
            return false;
        };
        match handle::open(on.as_fd(), handle) {
            // Removed, and somebody still has it open.
            Ok(fd) => rustix::fs::fstat(&fd).is_ok_and(|s| s.st_nlink == 0),
            Err(e) => e.raw_os_error() == Some(libc::ESTALE),
        }
    }
}

impl Search<'_> {
    /// Looks at everything, again where a directory was moved out of the search's way meanwhile.
    fn until_still(&mut self, budget: Budget) -> Result<(), String> {
        for _ in 0..TRIES {
            self.queue = VecDeque::from([Waiting::root()]);
            self.inside.clear();
            (self.entries, self.moved) = (0, None);
            self.all(budget)?;
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
    fn all(&mut self, budget: Budget) -> Result<(), String> {
        let start = Instant::now();
        let mut names = Box::new_uninit_slice(NAMES);
        let mut unread = None;
        while let Some(directory) = self.queue.pop_front() {
            if let Err(why) = self.directory(&directory, &mut names) {
                unread.get_or_insert(why);
            }
            if self.entries > budget.entries {
                return Err(format!("it has more than {} entries", budget.entries));
            }
            if self.inside.len() > MASKS {
                return Err(format!("it has more than {MASKS} sockets and credentials"));
            }
            if start.elapsed() > budget.time {
                let (seen, seconds) = (self.entries, budget.time.as_secs());
                return Err(format!("after {seconds} s only {seen} entries were seen"));
            }
        }
        unread.map_or(Ok(()), Err)
    }

    /// What becomes of something that is called like a credential, or lies below one. A project's own settings are seen, and
    /// what git has with this very content; a directory of which git has files is judged file by file.
    fn judge(
        &mut self,
        path: &Path,
        kind: FileType,
        (why, known_by): (String, usize),
    ) -> Option<Judged> {
        let known = match kind {
            FileType::Directory => match self.repositories.directory(path) {
                Known::Shown => return Some(Judged::ByFile((why, known_by))),
                hidden => hidden,
            },
            FileType::RegularFile => {
                let content = git::content(self.root, path);
                let settings = &self.unwanted.never.settings;
                let harmless = |content: &Vec<u8>| settings.are_harmless(content);
                match settings.is_one(path) && content.as_ref().is_some_and(harmless) {
                    true => Known::Shown,
                    false => self.repositories.file(path, content.as_deref()),
                }
            }
            // Git passes over them.
            _ => Known::Hidden(InGit::Nothing),
        };
        match known {
            Known::Shown => None,
            Known::Hidden(git) => Some(Judged::Hidden(Inside {
                path: path.to_owned(),
                why,
                known_by,
                git,
            })),
        }
    }

    fn directory(
        &mut self,
        waiting: &Waiting,
        names: &mut [MaybeUninit<u8>],
    ) -> Result<(), String> {
        let relative = waiting.path.as_path();
        let name = match relative.as_os_str().is_empty() {
            true => Path::new("."),
            false => relative,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let failed = |e: Errno| {
            let why = std::io::Error::from(e);
            format!("{:?} cannot be read: {why}", relative)
        };
        let fd = match rustix::fs::openat2(self.root, name, flags, Mode::empty(), resolve) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                if !waiting.is_removed(self.root) {
                    self.moved = Some(relative.to_owned());
                }
                return Ok(());
            }
            // Something is mounted there, which is not mounted in the container.
            Err(Errno::XDEV) => return Ok(()),
            Err(e) => return Err(failed(e)),
        };
        let mut entries = RawDir::new(&fd, names);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(failed)?;
            let file = entry.file_name().to_bytes();
            if file == b"." || file == b".." {
                continue;
            }
            self.entries += 1;
            if self.runtime == Some(entry.ino()) {
                self.found_runtime = Some(relative.join(OsStr::from_bytes(file)));
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                // A file system that does not tell.
                let stat = rustix::fs::statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
                kind = stat.map_or(kind, |s| FileType::from_raw_mode(s.st_mode));
            }
            let directory = kind == FileType::Directory || kind == FileType::Unknown;
            let within = waiting.unwanted.as_ref();
            if !directory && within.is_none() && !self.unwanted.may_be(file, kind) {
                continue;
            }
            let path = relative.join(OsStr::from_bytes(file));
            let why = match self.unwanted.may_be(file, kind) {
                true => self.unwanted.why(&self.bases, &path, kind),
                false => None,
            };
            let why = why.or_else(|| {
                let (why, parts) = within.filter(|_| kind != FileType::Symlink)?;
                Some((why.clone(), parts + 1))
            });
            let why = why.and_then(|why| self.judge(&path, kind, why));
            let unwanted = match why {
                Some(Judged::Hidden(inside)) => {
                    self.inside.push(inside);
                    continue;
                }
                Some(Judged::ByFile(why)) => Some(why),
                None => None,
            };
            if directory {
                self.queue.push_back(Waiting {
                    path,
                    handle: handle::of(fd.as_fd(), entry.file_name()).ok(),
                    unwanted,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
