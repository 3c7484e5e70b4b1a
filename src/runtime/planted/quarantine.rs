//! SHELL. Where planted things are moved, outside of everything that a sandbox writes, and what is said of it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::look::file_of;
use super::quarantined_file::QuarantinedFile;
use crate::audit::{Event, EventDetail, Verdict, WallName};
use crate::plan::{FileIdentity, FoundProtected, GuardedPart, ProtectedFiles};
use crate::policy::{Field, Tool, typed_path};
use crate::runtime::runs;
use crate::runtime::state::identity;
use crate::runtime::state::record::Record;
use crate::runtime::state::user_dirs::{self, DirUse};

/// How many lines are said of what was moved, and of what was not.
const SAID: usize = 10;
const FAILED: usize = 100;

/// The same of one kind, of one source.
const NAMED: usize = 5;

/// How many lines of each are logged.
const LOGGED: usize = 200;

/// Below agentbox's own state.
const ASIDE: &str = "quarantine";

/// Bytes of settings files that are written again. Others are moved as a whole, which takes no room.
const ROOM: usize = 64 << 20;

/// How long settings files are read. Later ones are moved unread.
const TIME: Duration = Duration::from_secs(10);

/// Characters of an id in a name beside a moved file: as engines show it. The name must fit a directory.
const OF_ID: usize = 12;

/// A file that a quarantine has made in a directory that a sandbox may write. All three must agree: a sandbox beside can
/// give its own file this name, or this file another name.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct BesideFile {
    directory: FileIdentity,
    name: OsString,
    file: FileIdentity,
}

impl BesideFile {
    fn of(directory: &OwnedFd, name: &OsStr) -> io::Result<Self> {
        Ok(Self {
            directory: file_of(&rustix::fs::fstat(directory)?),
            name: name.to_owned(),
            file: file_of(&rustix::fs::statat(
                directory,
                name,
                AtFlags::SYMLINK_NOFOLLOW,
            )?),
        })
    }
}

/// What was moved where, and what was not.
pub(super) struct Quarantine {
    dir: Option<PathBuf>,
    id: String,
    tool: Tool,
    opened: Option<OwnedFd>,
    moved: usize,
    /// Bytes that were written.
    written: usize,
    end: Instant,
    /// Directories that are moved lose their mode: not all in them was looked at.
    shut: bool,
    /// The files that were made beside others.
    beside: BTreeSet<BesideFile>,
    done: Vec<QuarantinedFile>,
    /// What was moved where no user looks: it is logged alone.
    unseen: Vec<QuarantinedFile>,
    part: GuardedPart,
    failed: Vec<String>,
    /// Files that are the user's own again.
    mended: Vec<String>,
    /// The list's names for what was moved.
    names: BTreeSet<String>,
}

impl Quarantine {
    pub(super) fn of(record: &Record) -> Self {
        let base = runs::base().and_then(|runs| Some(runs.parent()?.join(ASIDE)));
        let time = chrono::Utc::now().format("%Y%m%dT%H%M%S");
        let dir = base.map(|base| base.join(format!("{time}-{}", record.id)));
        Self {
            tool: identity::tool(record),
            ..Self::new(dir, &record.id)
        }
    }

    /// Without a directory each thing stays beside itself.
    pub(super) fn new(dir: Option<PathBuf>, id: &str) -> Self {
        Self {
            dir,
            id: id.to_owned(),
            tool: Tool::default(),
            opened: None,
            moved: 0,
            written: 0,
            end: Instant::now() + TIME,
            shut: false,
            beside: BTreeSet::new(),
            done: Vec::new(),
            unseen: Vec::new(),
            part: GuardedPart::All,
            failed: Vec::new(),
            mended: Vec::new(),
            names: BTreeSet::new(),
        }
    }

    /// The next files are of this part.
    pub(super) fn attend(&mut self, part: GuardedPart) {
        self.part = part;
    }

    /// Gives the next files their time.
    pub(super) fn begin(&mut self) {
        self.end = Instant::now() + TIME;
    }

    /// Directories that come from here on keep their mode, unless the search of their source stopped.
    pub(super) fn begin_source(&mut self, looked: &ProtectedFiles) {
        self.shut = looked.unread.is_some();
    }

    pub(super) fn check_time(&self) -> io::Result<()> {
        match Instant::now() > self.end {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }

    /// Counts bytes that are to be written.
    pub(super) fn check_room(&mut self, bytes: usize) -> io::Result<()> {
        self.written = self.written.saturating_add(bytes);
        match self.written > ROOM {
            true => Err(io::ErrorKind::QuotaExceeded.into()),
            false => Ok(()),
        }
    }

    /// Moves something, and gives its new path. On another file system it stays where it is, under a name that no tool knows.
    /// What cannot be moved at all loses its mode.
    pub(super) fn take(
        &mut self,
        parent: &OwnedFd,
        name: &OsStr,
        shown: &Path,
    ) -> io::Result<PathBuf> {
        let moved = self.try_take(parent, name, shown);
        if let Err(error) = &moved
            && error.raw_os_error() != Some(Errno::NOENT.raw_os_error())
        {
            close(parent, name);
        }
        moved
    }

    fn try_take(&mut self, parent: &OwnedFd, name: &OsStr, shown: &Path) -> io::Result<PathBuf> {
        let (aside, beside) = self.names(name)?;
        let shut = self.shut;
        let moved = self.open().and_then(|dir| {
            renameat_with(parent, name, dir, aside.as_str(), RenameFlags::NOREPLACE)?;
            if shut {
                close_directory(dir, OsStr::new(&aside));
            }
            Ok(())
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
        if shut {
            close_directory(parent, OsStr::new(beside));
        }
        self.remember(parent, beside);
        Ok(shown.with_file_name(beside))
    }

    /// Whether this quarantine has put this file there, under a name that no tool knows. It needs no second move.
    pub(super) fn has_made(&self, directory: &OwnedFd, name: &OsStr) -> bool {
        BesideFile::of(directory, name).is_ok_and(|file| self.beside.contains(&file))
    }

    fn remember(&mut self, directory: &OwnedFd, name: &str) {
        // What cannot be looked at is moved again.
        self.beside
            .extend(BesideFile::of(directory, OsStr::new(name)));
    }

    /// Keeps a text, in the same place.
    pub(super) fn keep(
        &mut self,
        parent: &OwnedFd,
        shown: &Path,
        text: &[u8],
    ) -> io::Result<PathBuf> {
        let (aside, beside) = self.names(shown.file_name().unwrap_or_default())?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let made = self
            .open()
            .and_then(|dir| rustix::fs::openat(dir, aside.as_str(), flags, mode));
        let (file, path) = match made {
            Ok(file) => (file, self.dir.clone().unwrap_or_default().join(aside)),
            Err(_) => {
                let file = rustix::fs::openat(parent, beside.as_str(), flags, mode)?;
                self.remember(parent, &beside);
                (file, shown.with_file_name(beside))
            }
        };
        fs::File::from(file).write_all(text)?;
        Ok(path)
    }

    /// The names that the next thing gets in the quarantine, or beside itself. A long one is cut: no tool knows it.
    fn names(&mut self, name: &OsStr) -> io::Result<(String, String)> {
        self.moved += 1;
        let number = self.moved;
        let short: String = name.to_string_lossy().chars().take(40).collect();
        let id: String = self.id.chars().take(OF_ID).collect();
        let beside = unguessable(OsStr::new(&format!("{short}.agentbox-{id}")))?;
        Ok((format!("{number}-{short}"), beside))
    }

    fn open(&mut self) -> rustix::io::Result<&OwnedFd> {
        let dir = self.dir.as_ref().ok_or(Errno::NOENT)?;
        if self.opened.is_none() {
            // Where others may lead, each thing stays beside itself.
            user_dirs::check_way(dir, DirUse::Logs).map_err(|_| Errno::ACCESS)?;
            let made = fs::DirBuilder::new()
                .mode(0o700)
                .recursive(true)
                .create(dir);
            made.map_err(|_| Errno::NOENT)?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            self.opened = Some(rustix::fs::open(dir, flags, Mode::empty())?);
        }
        self.opened.as_ref().ok_or(Errno::NOENT)
    }

    pub(super) fn say(&mut self, done: QuarantinedFile) {
        match self.part {
            GuardedPart::All => self.done.push(done),
            GuardedPart::Repositories => self.unseen.push(done),
        }
    }

    /// The same of several. A command makes as many git directories as it likes: their lines must not crowd out others.
    pub(super) fn fail_some(&mut self, lines: impl IntoIterator<Item = String>, more: &str) {
        let mut lines = lines.into_iter();
        self.failed.extend(lines.by_ref().take(NAMED));
        let count = lines.count();
        self.failed
            .extend((count > 0).then(|| format!("{count} {more}")));
    }

    /// Says what was mended, behind what was not moved: the workload can make many.
    pub(super) fn mend(&mut self, line: String) {
        self.mended.push(line);
    }

    pub(super) fn said(&self) -> Vec<String> {
        let moved: Vec<String> = self.done.iter().map(QuarantinedFile::line).collect();
        quarantine_lines(&self.failed(), &moved, &self.id)
    }

    fn failed(&self) -> Vec<String> {
        let mut all = self.failed.clone();
        all.extend(self.mended.iter().take(SAID).cloned());
        let more = self.mended.len().saturating_sub(SAID);
        all.extend((more > 0).then(|| format!("and {more} more were hard links")));
        all
    }

    pub(super) fn fail(&mut self, line: String) {
        self.failed.push(line);
    }

    pub(super) fn free(&mut self, what: &FoundProtected) {
        if self.part == GuardedPart::All {
            self.names.insert(what.name.clone());
        }
    }

    /// Says what was not moved, and then what was: the workload can make many files that are.
    pub(super) fn tell(&self) {
        for line in self.said() {
            crate::log::complain(&format!("agentbox: {line}"));
        }
        if !self.names.is_empty() {
            let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
            let free = self.tool.adds(Field::FilesystemUnprotected, &names);
            crate::log::complain(&format!(
                "agentbox: these were made in the sandbox, and your tools would run them; {free} lets them stay"
            ));
        }
    }

    /// The same for the container's log.
    pub(super) fn events(&self) -> Vec<Event> {
        let event = |cause: &str, item: String, reason: String| Event {
            cause: Some(cause.into()),
            reason: Some(reason.into()),
            ..Event::new(
                WallName::Filesystem,
                Verdict::Noted,
                EventDetail::Asked { item: item.into() },
            )
        };
        let failed = self.failed().into_iter().take(LOGGED).map(|line| {
            let item = "files that the user's tools run".to_owned();
            event("not-set-aside", item, line)
        });
        let done = self.done.iter().chain(&self.unseen);
        let done = done.take(LOGGED).map(|done| {
            let item = typed_path(&done.path);
            event("set-aside", item, done.reason())
        });
        failed.chain(done).collect()
    }
}

fn quarantine_lines(failed: &[String], moved: &[String], id: &str) -> Vec<String> {
    let mut lines: Vec<String> = failed.iter().take(FAILED).cloned().collect();
    let more = failed.len().saturating_sub(FAILED);
    if more > 0 {
        lines.push(format!(
            "and {more} more were not moved aside; look through the workspace before you go on (agentbox audit {id})"
        ));
    }
    lines.extend(moved.iter().take(SAID).cloned());
    let more = moved.len().saturating_sub(SAID);
    if more > 0 {
        lines.push(format!("and moved {more} more (agentbox audit {id})"));
    }
    lines
}

/// A name with a random end.
pub(super) fn unguessable(name: &OsStr) -> io::Result<String> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let hex = HEXLOWER.encode(&random);
    Ok(format!("{}-{hex}", name.to_string_lossy()))
}

/// Takes all rights to something: no tool of an ordinary user reads it then.
fn close(parent: &OwnedFd, name: &OsStr) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::openat(parent, name, flags, Mode::empty()) {
        let _tried = rustix::fs::fchmod(&file, Mode::empty());
    }
}

fn close_directory(parent: &OwnedFd, name: &OsStr) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Ok(directory) = rustix::fs::openat(parent, name, flags, Mode::empty()) {
        let _tried = rustix::fs::fchmod(&directory, Mode::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_decoy_hides_what_was_not_moved() {
        let lines = |word: &str, count: usize| -> Vec<String> {
            (0..count)
                .map(|number| format!("{word} {number}"))
                .collect()
        };
        let said = quarantine_lines(&lines("not moved", 12), &lines("moved", 500), "id");
        assert_eq!(said[..12], lines("not moved", 12));
        assert_eq!(said[12..22], lines("moved", 10));
        assert_eq!(said[22..], ["and moved 490 more (agentbox audit id)"]);
        let said = quarantine_lines(&lines("not moved", 103), &[], "id");
        assert!(said.len() == 101 && said[100].starts_with("and 3 more were not moved"));
    }
}
