//! SHELL. What a container left in the user's files for the user's own tools to run (`policies/protected.toml`): it is moved aside
//! when the container is deleted, after a kill by the next verb that looks. No mount could keep a name from being made that is not
//! there, without leaving a file of that name.
//!
//! Everything goes by descriptors, and by way of no link: the directories are those that the workload wrote.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, Mode, OFlags, RenameFlags, ResolveFlags, renameat_with};

use crate::plan::protect::{ProtectedList, WORK_TREE};
use crate::plan::{BindMount, FoundProtected, GuardedMount};
use crate::probe;
use crate::runtime::runs;
use crate::runtime::state::record::Record;

/// How many lines are said of what was moved.
const SAID: usize = 10;

/// The longest `commondir` that is read.
const LONGEST: usize = 4096;

/// Below agentbox's own state.
const ASIDE: &str = "quarantine";

/// Moves aside what was planted in the mounts of a container whose processes are gone, and says so.
pub fn set_aside(record: &Record) {
    let Some(decided) = &record.decided else {
        return;
    };
    let files = &decided.plan.filesystem;
    let mut quarantine = Quarantine::of(record);
    for watched in &files.watched {
        let mount = files.mounts.iter();
        let mut mount = mount.filter(|mount| mount.destination == watched.destination);
        if let Some(bind) = mount.next().and_then(|mount| mount.bind()) {
            let looked = look(watched, bind, record, &mut quarantine);
            if let Err(error) = looked {
                let place = bind.source.display();
                quarantine.say(format!(
                    "{place} was not looked through for files that your tools run, such as git hooks: {error}; look at it before you go on"
                ));
            }
        }
    }
    quarantine.tell();
}

fn look(
    watched: &GuardedMount,
    bind: &BindMount,
    record: &Record,
    quarantine: &mut Quarantine,
) -> io::Result<()> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat2(CWD, &bind.source, flags, Mode::empty(), resolve)?;
    let stat = rustix::fs::fstat(&root)?;
    if (stat.st_dev, stat.st_ino) != (bind.judged.dev, bind.judged.ino) {
        return Err(io::Error::other("another directory has taken its place"));
    }
    let unprotected = match &record.decided {
        Some(decided) => &decided.resolved.filesystem.unprotected,
        None => return Ok(()),
    };
    let now = probe::protected(&root, unprotected);
    for planted in watched.planted(&now) {
        let found = FoundFile {
            root: root.as_fd(),
            source: &bind.source,
            what: planted,
        };
        found.take(quarantine);
    }
    match now.unread {
        Some(why) => Err(io::Error::other(why)),
        None => Ok(()),
    }
}

/// Something of the list in a mount's source.
struct FoundFile<'a> {
    root: BorrowedFd<'a>,
    source: &'a Path,
    what: &'a FoundProtected,
}

impl FoundFile<'_> {
    fn take(&self, quarantine: &mut Quarantine) {
        if let Err(error) = self.try_take(quarantine) {
            let path = self.source.join(&self.what.path);
            let (path, why) = (path.display(), self.why());
            quarantine.say(format!(
                "{path} appeared in the sandbox and cannot be moved aside: {error}; remove it: {why}"
            ));
        }
    }

    fn try_take(&self, quarantine: &mut Quarantine) -> io::Result<()> {
        let above = self.what.path.parent().unwrap_or(Path::new(""));
        let name = self.what.path.file_name().unwrap_or_default();
        let parent = self.directory(self.root, above)?;
        if self.what.name == ".git/hooks" {
            return match self.directory(parent.as_fd(), Path::new(name)) {
                Ok(hooks) => self.take_hooks(&hooks, quarantine),
                // Git follows a link, and runs nothing in a file.
                Err(_) => self.move_one(&parent, name, &self.what.path, quarantine),
            };
        }
        if self.what.name == ".git/commondir" && self.is_usual(&parent, name) {
            return Ok(());
        }
        self.move_one(&parent, name, &self.what.path, quarantine)
    }

    /// Git runs a file by its exact name: the samples of a new repository are none.
    fn take_hooks(&self, hooks: &OwnedFd, quarantine: &mut Quarantine) -> io::Result<()> {
        let mut names = Vec::new();
        for entry in Dir::read_from(hooks)? {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            let is_sample = Path::new(&name).extension() == Some(OsStr::new("sample"));
            if !is_sample && name != "." && name != ".." {
                names.push(name);
            }
        }
        for name in names {
            let path = self.what.path.join(&name);
            self.move_one(hooks, &name, &path, quarantine)?;
        }
        Ok(())
    }

    /// Whether a second work tree belongs to the repository in whose directory it is kept, as `git worktree add` makes it.
    fn is_usual(&self, parent: &OwnedFd, name: &OsStr) -> bool {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut bytes = vec![0; LONGEST];
        let file = rustix::fs::openat(parent, name, flags, Mode::empty());
        let read = file.and_then(|file| rustix::io::read(file, &mut bytes));
        let git = self.what.path.parent().and_then(Path::parent);
        git.and_then(Path::file_name) == Some(OsStr::new("worktrees"))
            && read.is_ok_and(|read| bytes[..read].trim_ascii() == WORK_TREE)
    }

    fn move_one(
        &self,
        parent: &OwnedFd,
        name: &OsStr,
        path: &Path,
        quarantine: &mut Quarantine,
    ) -> io::Result<()> {
        let shown = self.source.join(path);
        let at = quarantine.take(parent, name, &shown)?;
        let (shown, at, why) = (shown.display(), at.display(), self.why());
        let free = &self.what.name;
        quarantine.say(format!(
            "moved {shown} to {at}: it appeared in the sandbox, and {why}; filesystem.unprotected={free} lets it stay"
        ));
        Ok(())
    }

    fn directory(&self, at: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
        let path = match path.as_os_str().is_empty() {
            true => Path::new("."),
            false => path,
        };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat2(
            at,
            path,
            flags,
            Mode::empty(),
            resolve,
        )?)
    }

    fn why(&self) -> &'static str {
        let why = ProtectedList::builtin().why(&self.what.name);
        why.unwrap_or("your tools run it")
    }
}

/// Where things are moved, outside of everything that a sandbox writes.
struct Quarantine {
    dir: Option<PathBuf>,
    id: String,
    opened: Option<OwnedFd>,
    moved: usize,
    lines: Vec<String>,
}

impl Quarantine {
    fn of(record: &Record) -> Self {
        let base = runs::base().and_then(|runs| Some(runs.parent()?.join(ASIDE)));
        let time = chrono::Utc::now().format("%Y%m%dT%H%M%S");
        Self {
            dir: base.map(|base| base.join(format!("{time}-{}", record.id))),
            id: record.id.clone(),
            opened: None,
            moved: 0,
            lines: Vec::new(),
        }
    }

    /// Moves something, and gives its new path. On another file system it stays where it is, under a name that no tool knows.
    fn take(&mut self, parent: &OwnedFd, name: &OsStr, shown: &Path) -> io::Result<PathBuf> {
        self.moved += 1;
        let aside = format!("{}-{}", self.moved, name.to_string_lossy());
        let moved = self.open().and_then(|dir| {
            renameat_with(parent, name, dir, aside.as_str(), RenameFlags::NOREPLACE)
        });
        if moved.is_ok() {
            return Ok(self.dir.clone().unwrap_or_default().join(aside));
        }
        let mut beside = OsString::from(name);
        beside.push(format!(".agentbox-{}-{}", self.id, self.moved));
        // The workload may have taken the right to write its directory.
        let writable = fs::Permissions::from_mode(0o700);
        let file = fs::File::from(parent.try_clone()?);
        let move_beside = || renameat_with(parent, name, parent, &beside, RenameFlags::NOREPLACE);
        if move_beside().is_err() {
            file.set_permissions(writable)?;
            move_beside()?;
        }
        Ok(shown.with_file_name(beside))
    }

    fn open(&mut self) -> rustix::io::Result<&OwnedFd> {
        let dir = self.dir.as_ref().ok_or(rustix::io::Errno::NOENT)?;
        if self.opened.is_none() {
            let made = fs::DirBuilder::new()
                .mode(0o700)
                .recursive(true)
                .create(dir);
            made.map_err(|_| rustix::io::Errno::NOENT)?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            self.opened = Some(rustix::fs::open(dir, flags, Mode::empty())?);
        }
        self.opened.as_ref().ok_or(rustix::io::Errno::NOENT)
    }

    fn say(&mut self, line: String) {
        self.lines.push(line);
    }

    fn tell(&self) {
        for line in self.lines.iter().take(SAID) {
            crate::log::complain(&format!("agentbox: {line}"));
        }
        let more = self.lines.len().saturating_sub(SAID);
        if let (1.., Some(dir)) = (more, &self.dir) {
            let dir = dir.display();
            crate::log::complain(&format!("agentbox: and {more} more: look into {dir}"));
        }
    }
}
