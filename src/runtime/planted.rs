//! SHELL. What a container left in the user's files for the user's own tools to run (`policies/protected.toml`): it is moved aside
//! when the container is deleted, after a kill by the next verb that looks. No mount could keep a name from being made that is not
//! there, without leaving a file of that name.
//!
//! Everything goes by descriptors, and by way of no link: the directories are those that the workload wrote.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, ResolveFlags, renameat_with};

use crate::plan::git_config;
use crate::plan::protect::{ProtectedList, WORK_TREE};
use crate::plan::{BindMount, FoundProtected, GuardedMount};
use crate::policy::ProtectedName;
use crate::probe;
use crate::runtime::runs;
use crate::runtime::state::persons::{self, Use};
use crate::runtime::state::record::Record;

/// How many lines are said of what was moved.
const SAID: usize = 10;

/// The longest `commondir` that is read.
const LONGEST: usize = 4096;

/// The largest file of git's settings that is read.
const LARGEST: u64 = 1 << 20;

/// Below agentbox's own state.
const ASIDE: &str = "quarantine";

/// Moves aside what was planted in the mounts of a container whose processes are gone, and says so.
pub fn set_aside(record: &Record) {
    let Some(decided) = &record.decided else {
        return;
    };
    let free = &decided.resolved.filesystem.unprotected;
    if free.iter().any(ProtectedName::is_all) {
        return;
    }
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
    for settings in &now.settings {
        let found = FoundFile {
            root: root.as_fd(),
            source: &bind.source,
            what: settings,
        };
        if let Err(error) = found.take_settings(watched, quarantine) {
            found.not_moved(&error, quarantine);
        }
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
            self.not_moved(&error, quarantine);
        }
    }

    fn not_moved(&self, error: &io::Error, quarantine: &mut Quarantine) {
        let path = self.source.join(&self.what.path);
        let (path, why) = (path.display(), self.why());
        quarantine.say(format!(
            "{path} was written in the sandbox and cannot be moved aside: {error}; look at it: {why}"
        ));
    }

    /// Takes settings out of a file of git's. One that git reads in another way than this program is moved as a whole.
    fn take_settings(&self, watched: &GuardedMount, quarantine: &mut Quarantine) -> io::Result<()> {
        let above = self.what.path.parent().unwrap_or(Path::new(""));
        let name = self.what.path.file_name().unwrap_or_default();
        let parent = self.directory(self.root, above)?;
        let read = read_settings(&parent, name)?;
        let settings = read.as_ref().map(|(text, _)| git_config::parse(text));
        let (Some((text, file)), Some(Ok(settings))) = (&read, &settings) else {
            return self.move_one(&parent, name, &self.what.path, quarantine);
        };
        let planted = watched.planted_settings(settings, &self.what.path);
        if planted.is_empty() {
            return Ok(());
        }
        let keys = planted.iter().map(|one| String::from_utf8_lossy(&one.key));
        let keys = keys.collect::<Vec<_>>().join(", ");
        let path = self.source.join(&self.what.path);
        let at = quarantine.keep(&parent, &path, text)?;
        replace(&parent, name, &git_config::without(text, &planted), file)?;
        let (path, at, why) = (path.display(), at.display(), self.why());
        quarantine.free(self.what);
        quarantine.say(format!(
            "took {keys} out of {path}: {why}; the file as it was: {at}"
        ));
        Ok(())
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
        let mut first = Ok(());
        for name in names {
            let path = self.what.path.join(&name);
            // One that cannot be moved keeps no other.
            let moved = self.move_one(hooks, &name, &path, quarantine);
            first = first.and(moved);
        }
        first
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
        quarantine.free(self.what);
        quarantine.say(format!("moved {shown} to {at}: {why}"));
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

/// A regular file of settings and its text, unless it is larger than git's ever are.
fn read_settings(parent: &OwnedFd, name: &OsStr) -> io::Result<Option<(Vec<u8>, fs::File)>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Ok(file) => fs::File::from(file),
        Err(rustix::io::Errno::LOOP | rustix::io::Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut text = Vec::new();
    (&file).take(LARGEST + 1).read_to_end(&mut text)?;
    Ok((text.len() as u64 <= LARGEST).then_some((text, file)))
}

/// Puts a file with another text in the place of one, as git does, with its owner and mode.
fn replace(parent: &OwnedFd, name: &OsStr, text: &[u8], old: &fs::File) -> io::Result<()> {
    let meta = old.metadata()?;
    let mut new = OsString::from(name);
    new.push(".agentbox");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // One of an earlier try.
    let _none = rustix::fs::unlinkat(parent, &new, AtFlags::empty());
    let file = rustix::fs::openat(parent, &new, flags, Mode::from_raw_mode(0o600))?;
    let mut file = fs::File::from(file);
    let written = file.write_all(text).and_then(|()| {
        std::os::unix::fs::fchown(&file, Some(meta.uid()), Some(meta.gid()))?;
        file.set_permissions(fs::Permissions::from_mode(meta.mode() & 0o777))?;
        Ok(rustix::fs::renameat(parent, &new, parent, name)?)
    });
    if written.is_err() {
        let _gone = rustix::fs::unlinkat(parent, &new, AtFlags::empty());
    }
    written
}

/// Where things are moved, outside of everything that a sandbox writes.
struct Quarantine {
    dir: Option<PathBuf>,
    id: String,
    opened: Option<OwnedFd>,
    moved: usize,
    lines: Vec<String>,
    /// The list's names for what was moved.
    names: BTreeSet<String>,
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
            names: BTreeSet::new(),
        }
    }

    /// Moves something, and gives its new path. On another file system it stays where it is, under a name that no tool knows.
    fn take(&mut self, parent: &OwnedFd, name: &OsStr, shown: &Path) -> io::Result<PathBuf> {
        let (aside, beside) = self.names(name);
        let moved = self.open().and_then(|dir| {
            renameat_with(parent, name, dir, aside.as_str(), RenameFlags::NOREPLACE)
        });
        if moved.is_ok() {
            return Ok(self.dir.clone().unwrap_or_default().join(aside));
        }
        let beside = beside.as_str();
        let move_beside = || renameat_with(parent, name, parent, beside, RenameFlags::NOREPLACE);
        if move_beside().is_err() {
            // The workload may have taken the right to write its directory.
            let file = fs::File::from(parent.try_clone()?);
            let mode = file.metadata()?.mode() & 0o7777 | 0o700;
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            move_beside()?;
        }
        Ok(shown.with_file_name(beside))
    }

    /// Keeps a copy of a file, in the same place.
    fn keep(&mut self, parent: &OwnedFd, shown: &Path, text: &[u8]) -> io::Result<PathBuf> {
        let (aside, beside) = self.names(shown.file_name().unwrap_or_default());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let made = self
            .open()
            .and_then(|dir| rustix::fs::openat(dir, aside.as_str(), flags, mode));
        let (file, path) = match made {
            Ok(file) => (file, self.dir.clone().unwrap_or_default().join(aside)),
            Err(_) => {
                let file = rustix::fs::openat(parent, beside.as_str(), flags, mode)?;
                (file, shown.with_file_name(beside))
            }
        };
        fs::File::from(file).write_all(text)?;
        Ok(path)
    }

    /// The names that the next thing gets in the quarantine, or beside itself. A long one is cut: no tool knows it.
    fn names(&mut self, name: &OsStr) -> (String, String) {
        self.moved += 1;
        let (number, id) = (self.moved, &self.id);
        let name: String = name.to_string_lossy().chars().take(40).collect();
        (
            format!("{number}-{name}"),
            format!("{name}.agentbox-{id}-{number}"),
        )
    }

    fn open(&mut self) -> rustix::io::Result<&OwnedFd> {
        let dir = self.dir.as_ref().ok_or(rustix::io::Errno::NOENT)?;
        if self.opened.is_none() {
            // Where others may lead, each thing stays beside itself.
            persons::check_way(dir, Use::Logs).map_err(|_| rustix::io::Errno::ACCESS)?;
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

    fn free(&mut self, what: &FoundProtected) {
        self.names.insert(what.name.clone());
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
        if !self.names.is_empty() {
            let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
            let names = names.join(",");
            crate::log::complain(&format!(
                "agentbox: these were made in the sandbox, and your tools would run them; filesystem.unprotected={names} lets them stay"
            ));
        }
    }
}
