//! Looking for sockets and credentials inside a mount's source.
//!
//! All of it is looked at: a directory can be moved by whoever writes the mount, so a credential may be anywhere, and a
//! search that stops early is one that an agent can make stop. Where it does stop (a tree of more than a million
//! entries, a disk that is slow, a directory that root may not read), the plan is told why, and decides.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use crate::plan::never::{Meant, Never};
use crate::plan::{Inside, SourceFacts};
use crate::policy::SearchRule;

/// The most that is masked inside one mount's source: each is a mount, of which the kernel gives 100,000.
const MASKS: usize = 10_000;

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
    facts: &mut SourceFacts,
) {
    let mut search = Search {
        root,
        unwanted,
        bases: facts.all_names().map(Path::to_path_buf).collect(),
        queue: VecDeque::from([PathBuf::new()]),
        inside: Vec::new(),
        // The program of another file system has another file's number here.
        runtime: unwanted
            .runtime
            .filter(|(dev, _)| *dev == facts.dev)
            .map(|(_, ino)| ino),
        found_runtime: None,
        entries: 0,
    };
    facts.unsearched = search.all(budget).err();
    facts.runtime = search.found_runtime.take();
    facts.inside.append(&mut search.inside);
}

struct Search<'a> {
    root: &'a OwnedFd,
    unwanted: &'a Unwanted<'a>,
    bases: Vec<PathBuf>,
    /// Directories still to look at, relative to the root. Breadth first: where it stops, the top has been seen.
    queue: VecDeque<PathBuf>,
    inside: Vec<Inside>,
    /// The inode of the runtime's own program, and where it was met.
    runtime: Option<u64>,
    found_runtime: Option<PathBuf>,
    entries: usize,
}

impl Search<'_> {
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

    fn directory(&mut self, relative: &Path, names: &mut [MaybeUninit<u8>]) -> Result<(), String> {
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
            // Gone or replaced meanwhile; or something is mounted there, which is not mounted in the container.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(()),
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
            if !directory && !self.unwanted.may_be(file, kind) {
                continue;
            }
            let path = relative.join(OsStr::from_bytes(file));
            let why = match self.unwanted.may_be(file, kind) {
                true => self.unwanted.why(&self.bases, &path, kind),
                false => None,
            };
            match why {
                Some((why, known_by)) => self.inside.push(Inside {
                    path,
                    why,
                    known_by,
                }),
                None if directory => self.queue.push_back(path),
                None => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::plan::FileKind;
    use crate::probe::TestDir;

    fn searched(dir: &Path) -> SourceFacts {
        let mut facts = SourceFacts::plain(dir.to_owned(), 0, 0, FileKind::Directory);
        let root = rustix::fs::open(dir, OFlags::PATH, Mode::empty()).unwrap();
        let (never, meant) = (Never::builtin(), Meant::new());
        let budget = Budget::of(SearchRule::Complete);
        search(&root, &Unwanted::new(never, &meant), budget, &mut facts);
        facts.inside.sort_by(|a, b| a.path.cmp(&b.path));
        facts
    }

    fn found(facts: &SourceFacts) -> Vec<&str> {
        let paths = facts.inside.iter().filter_map(|i| i.path.to_str());
        paths.collect()
    }

    #[test]
    fn sockets_and_credentials_are_found_at_any_depth_and_links_are_not_followed() {
        let scratch = TestDir::new("search-depth");
        let dir = &scratch.0;
        fs::create_dir_all(dir.join("a/b/c/d")).unwrap();
        fs::create_dir_all(dir.join("user/.ssh")).unwrap();
        let sockets = ["s", "a/s", "a/b/s", "a/b/c/s", "a/b/c/d/s"];
        let _held = sockets.map(|name| UnixListener::bind(dir.join(name)).unwrap());
        fs::create_dir(dir.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("a", dir.join("elsewhere/link")).unwrap();
        let facts = searched(dir);
        assert_eq!(
            found(&facts),
            ["a/b/c/d/s", "a/b/c/s", "a/b/s", "a/s", "s", "user/.ssh"]
        );
        assert!(facts.unsearched.is_none());
    }

    #[test]
    fn a_credential_is_known_by_the_directories_above_the_mount() {
        let scratch = TestDir::new("search-above");
        let home = scratch.0.canonicalize().unwrap();
        for file in [
            ".config/gh/hosts.yml",
            ".config/git/credentials",
            ".config/plain",
            ".cargo/credentials.toml",
            ".codex/auth.json",
            ".codex/config.toml",
            ".local/share/keyrings/login",
            "project/auth.json",
        ] {
            let path = home.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        for (mount, expect) in [
            (".config", &["gh", "git/credentials"][..]),
            (".config/git", &["credentials"]),
            (".cargo", &["credentials.toml"]),
            (".codex", &["auth.json"]),
            (".local", &["share/keyrings"]),
            (".local/share", &["keyrings"]),
            ("project", &[]),
        ] {
            assert_eq!(found(&searched(&home.join(mount))), expect, "{mount}");
        }
        // By another name of the source as well; and those that are meant are not hidden.
        let dir = home.join(".codex");
        let root = rustix::fs::open(&dir, OFlags::PATH, Mode::empty()).unwrap();
        let never = Never::builtin();
        let look = |meant: &Meant| {
            let mut facts =
                SourceFacts::plain("/volumes/v/_data".into(), 0, 0, FileKind::Directory);
            facts.names.insert(dir.clone());
            let budget = Budget::of(SearchRule::Complete);
            search(&root, &Unwanted::new(never, meant), budget, &mut facts);
            facts.inside.len()
        };
        assert_eq!(look(&Meant::new()), 1);
        assert_eq!(look(&Meant::from([".codex/auth.json".into()])), 0);
    }

    #[test]
    fn a_meant_credential_is_searched_for_sockets() {
        let scratch = TestDir::new("search-meant");
        fs::create_dir(scratch.0.join(".ssh")).unwrap();
        let _held = UnixListener::bind(scratch.0.join(".ssh/agent")).unwrap();
        let root = rustix::fs::open(&scratch.0, OFlags::PATH, Mode::empty()).unwrap();
        let (never, meant) = (Never::builtin(), Meant::from([".ssh".into()]));
        let mut facts = SourceFacts::plain(scratch.0.clone(), 0, 0, FileKind::Directory);
        let budget = Budget::of(SearchRule::Complete);
        search(&root, &Unwanted::new(never, &meant), budget, &mut facts);
        assert_eq!(found(&facts), [".ssh/agent"]);
    }

    #[test]
    fn links_and_names_of_any_bytes_are_no_obstacle() {
        let scratch = TestDir::new("search-odd");
        let odd = scratch.0.join(OsStr::from_bytes(b"\xff\n\\"));
        fs::create_dir_all(odd.join(".aws")).unwrap();
        for name in [".ssh", ".npmrc", "dangling"] {
            std::os::unix::fs::symlink("/nowhere", scratch.0.join(name)).unwrap();
        }
        let facts = searched(&scratch.0);
        let paths: Vec<_> = facts.inside.iter().map(|i| i.path.as_os_str()).collect();
        assert_eq!(paths, [OsStr::from_bytes(b"\xff\n\\/.aws")]);
        assert_eq!(facts.unsearched, None);
    }

    #[test]
    fn what_ends_the_search_is_told() {
        let scratch = TestDir::new("search-many");
        for number in 0..50 {
            fs::create_dir_all(scratch.0.join(format!("{number}/below"))).unwrap();
        }
        let root = rustix::fs::open(&scratch.0, OFlags::PATH, Mode::empty()).unwrap();
        let (never, meant) = (Never::builtin(), Meant::new());
        let look = |entries: usize, time: Duration| {
            let mut search = Search {
                root: &root,
                unwanted: &Unwanted::new(never, &meant),
                bases: vec![scratch.0.clone()],
                queue: VecDeque::from([PathBuf::new()]),
                inside: Vec::new(),
                runtime: None,
                found_runtime: None,
                entries: 0,
            };
            search.all(Budget { entries, time })
        };
        let minute = Duration::from_secs(60);
        assert_eq!(look(100, minute), Ok(()));
        assert!(look(99, minute).unwrap_err().contains("more than 99"));
        assert!(look(100, Duration::ZERO).unwrap_err().contains("after 0 s"));
    }

    #[test]
    fn a_directory_deeper_than_a_path_can_say_is_not_passed_over() {
        let scratch = TestDir::new("search-deep");
        let name = "d".repeat(250);
        let mut at = rustix::fs::open(&scratch.0, OFlags::PATH, Mode::empty()).unwrap();
        for _ in 0..20 {
            rustix::fs::mkdirat(&at, name.as_str(), Mode::from_raw_mode(0o755)).unwrap();
            at = rustix::fs::openat(&at, name.as_str(), OFlags::PATH, Mode::empty()).unwrap();
        }
        let why = searched(&scratch.0).unsearched.unwrap();
        assert!(why.contains("cannot be read"), "{why}");
    }
}
