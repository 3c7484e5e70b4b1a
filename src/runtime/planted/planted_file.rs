//! SHELL. One file or directory of the list in a mount's source, which is cleaned or moved aside.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Stat};
use rustix::io::Errno;

use super::CleanedSource;
use super::look::{self, file_of};
use super::quarantine::Quarantine;
use super::quarantined_file::QuarantinedFile;
use super::settings;
use crate::plan::git_config::{self, GitSetting, WholeSettings};
use crate::plan::git_link;
use crate::plan::protect::ProtectedList;
use crate::plan::{FoundProtected, GuardedMount, GuardedPart};
use crate::policy::typed_path;
use crate::probe;

/// Where a jj repository finds git's, and what jj itself writes there: git's own directory, or the one beside.
const JJ_GIT: &str = ".jj/repo/store/git_target";
const JJ_GITS: [&[u8]; 2] = [b"../../../.git", b"git"];

/// How many names of settings are said, and how many characters of each.
const KEYS: usize = 6;
const OF_KEY: usize = 60;

/// Something of the list in a mount's source.
pub(super) struct FoundFile<'a> {
    pub(super) root: BorrowedFd<'a>,
    pub(super) source: &'a Path,
    pub(super) what: &'a FoundProtected,
    /// The mount's state at the start.
    pub(super) watched: &'a GuardedMount,
    /// All sources that are cleaned.
    pub(super) beside: &'a [CleanedSource<'a>],
}

impl FoundFile<'_> {
    /// Moves it aside. What is gone already was moved with a directory.
    pub(super) fn take(&self, quarantine: &mut Quarantine) {
        if let Err(error) = self.try_take(quarantine) {
            self.not_moved(&error, quarantine);
        }
    }

    fn not_moved(&self, error: &io::Error, quarantine: &mut Quarantine) {
        if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) && self.is_gone() {
            return;
        }
        let path = self.source.join(&self.what.path);
        let (path, why) = (typed_path(&path), self.why());
        quarantine.fail(format!(
            "{path} was written in the sandbox and cannot be moved aside: {error}; look at it: {why}"
        ));
    }

    fn is_gone(&self) -> bool {
        let there = self
            .parent()
            .map(|parent| rustix::fs::statat(&parent, self.name(), AtFlags::SYMLINK_NOFOLLOW));
        matches!(there, Ok(Err(Errno::NOENT)))
            || there.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Whether all of a directory would be moved, with what lies in it.
    pub(super) fn is_moved_as_directory(&self) -> bool {
        let stat = self.parent().and_then(|p| {
            Ok(rustix::fs::statat(
                p,
                self.name(),
                AtFlags::SYMLINK_NOFOLLOW,
            )?)
        });
        !self.counts_files()
            && stat.is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Directory)
    }

    /// Takes settings out of a file of git's. If that fails, or git reads it in another way than this program, it is moved
    /// as a whole: a file that cannot be cleaned must not stay.
    pub(super) fn take_settings(&self, quarantine: &mut Quarantine) {
        let taken = self
            .parent()
            .and_then(|parent| match self.try_settings(&parent, quarantine) {
                Ok(()) => Ok(()),
                Err(_) => self.move_one(&parent, self.name(), &self.what.path, quarantine),
            });
        if let Err(error) = taken {
            self.not_moved(&error, quarantine);
        }
    }

    fn try_settings(&self, parent: &OwnedFd, quarantine: &mut Quarantine) -> io::Result<()> {
        let name = self.name();
        quarantine.check_time()?;
        let found = settings::read(parent, name)?;
        // Git may write to its other name.
        if let Some((text, file)) = found.text()
            && file.metadata()?.nlink() > 1
        {
            quarantine.check_room(text.len())?;
            settings::replace(parent, name, text, file)?;
            let path = typed_path(&self.source.join(&self.what.path));
            quarantine.mend(format!(
                "{path} was a hard link, through which git may write: it is a file of its own now"
            ));
        }
        if self.watched.is_as_before(found.whole(), &self.what.path) {
            return Ok(());
        }
        let no_text = || io::Error::from(io::ErrorKind::InvalidData);
        let (text, file) = found.text().ok_or_else(no_text)?;
        let read = git_config::parse(text).map_err(|_| no_text())?;
        let planted = self.watched.planted_settings(&read, &self.what.path);
        if planted.is_empty() {
            return Ok(());
        }
        let cleaned = git_config::without(text, &read, &planted);
        quarantine.check_room(text.len().max(cleaned.len()))?;
        let path = self.source.join(&self.what.path);
        let at = quarantine.keep(parent, &path, &lines(&planted))?;
        settings::replace(parent, name, &cleaned, file)?;
        quarantine.free(self.what);
        quarantine.say(QuarantinedFile {
            path,
            taken: Some(keys(&planted)),
            at,
            why: self.why(),
        });
        Ok(())
    }

    fn try_take(&self, quarantine: &mut Quarantine) -> io::Result<()> {
        let (parent, name) = (self.parent()?, self.name());
        if self.is_users(&rustix::fs::statat(
            &parent,
            name,
            AtFlags::SYMLINK_NOFOLLOW,
        )?) {
            return Ok(());
        }
        if self.counts_files() {
            return match probe::directory_below(parent.as_fd(), Path::new(name)) {
                Ok(directory) if self.is_users(&rustix::fs::fstat(&directory)?) => Ok(()),
                Ok(directory) => self.take_files(&directory, quarantine),
                // Git follows a link, and obeys nothing in a file.
                Err(_) => self.move_one(&parent, name, &self.what.path, quarantine),
            };
        }
        let is_harmless = match self.what.name.as_str() {
            ".git/commondir" => self.is_usual(&parent),
            ".git" => self.leads_beside(&parent),
            JJ_GIT => self.is_jj_own(&parent),
            _ => false,
        };
        if is_harmless || self.is_own_link(&parent) || quarantine.has_made(&parent, name) {
            return Ok(());
        }
        self.move_one(&parent, name, &self.what.path, quarantine)
    }

    /// Whether it was protected at the start: a sandbox beside has put it in the place of what the search found. In this
    /// directory it keeps its name, so this stays true.
    fn is_users(&self, stat: &Stat) -> bool {
        self.watched.files.contains(&file_of(stat))
    }

    fn counts_files(&self) -> bool {
        ProtectedList::builtin().counts_files(&self.what.name)
    }

    /// Git runs a hook by its exact name: the samples of a new repository are none.
    fn take_files(&self, directory: &OwnedFd, quarantine: &mut Quarantine) -> io::Result<()> {
        let is_hooks = self.what.name == ".git/hooks";
        let mut names = Vec::new();
        for entry in Dir::read_from(directory)? {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            let is_sample = is_hooks && Path::new(&name).extension() == Some(OsStr::new("sample"));
            let is_other = is_sample || name == "." || name == "..";
            if !is_other && !quarantine.has_made(directory, &name) {
                names.push(name);
            }
        }
        let mut first = Ok(());
        for name in names {
            let path = self.what.path.join(&name);
            // One that cannot be moved keeps no other.
            let moved = self.move_one(directory, &name, &path, quarantine);
            first = first.and(moved);
        }
        first
    }

    /// Whether it is a link that was there at the start, and led there too, or that of an editor or of git itself
    /// (core.preferSymlinkRefs).
    fn is_own_link(&self, parent: &OwnedFd) -> bool {
        let Ok(target) = rustix::fs::readlinkat(parent, self.name(), Vec::new()) else {
            return false;
        };
        let (name, target) = (self.name().as_bytes(), target.as_bytes());
        let is_below = |names: [&str; 2]| {
            let mut parts = self.what.path.iter();
            parts.any(|part| names.iter().any(|name| part.eq_ignore_ascii_case(name)))
        };
        let is_branch = target.starts_with(b"refs/heads/")
            && !Path::new(OsStr::from_bytes(target))
                .iter()
                .any(|part| part == "..");
        // The one of a branch or a log would be written elsewhere.
        let is_gits = name == b"HEAD" && is_branch && !is_below(["refs", "logs"]);
        // Emacs' lock of a file leads to USER@HOST. Git would take it for a second work tree's directory or a submodule's.
        let is_lock = name.starts_with(b".#")
            && target.contains(&b'@')
            && !target.contains(&b'/')
            && !is_below(["worktrees", "modules"]);
        let whole = WholeSettings::Link(target);
        is_gits || is_lock || self.watched.is_as_before(whole, &self.what.path)
    }

    /// Whether a new work tree's `.git` leads to a git directory of a source that is cleaned, as those of `git submodule` and
    /// `git worktree` do. In a container the source may have another path, which leads nowhere on the node.
    fn leads_beside(&self, parent: &OwnedFd) -> bool {
        let led = self.led(parent);
        let is_cleaned = |path: &Path| self.beside.iter().any(|one| one.has_cleaned(path));
        let inside = |path: &Path| {
            let mut below = self.beside.iter().filter_map(|one| {
                let below = path.strip_prefix(&one.watched.destination).ok()?;
                Some(one.source.join(below))
            });
            let is_absent = path
                .symlink_metadata()
                .is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
            is_absent && below.any(|path| is_cleaned(&path))
        };
        let directory = self.what.path.parent().unwrap_or(Path::new(""));
        // No user looks for a work tree here, and an agent has those of other projects.
        let is_others = |led: &Path| {
            self.watched.part == GuardedPart::Repositories && git_link::is_no_checkouts(led)
        };
        !self.watched.was_top(directory)
            && led.is_some_and(|led| is_cleaned(&led) || inside(&led) || is_others(&led))
    }

    /// Where the `.git` of a work tree leads, on the node.
    fn led(&self, parent: &OwnedFd) -> Option<PathBuf> {
        let directory = self.what.path.parent().unwrap_or(Path::new(""));
        let target = match rustix::fs::readlinkat(parent, self.name(), Vec::new()) {
            Ok(target) => OsStr::from_bytes(target.as_bytes()).to_owned(),
            Err(_) => git_link::target(&self.text(parent)?)?,
        };
        git_link::led(&self.source.join(directory), Path::new(&target))
    }

    /// A line if it is the user's own `.git`, and leads by way of a link that was made meanwhile: that may lead out.
    pub(super) fn leads_by_a_link(&self) -> Option<String> {
        if self.what.name != ".git" || !self.watched.files.contains(&self.what.file) {
            return None;
        }
        let led = self.led(&self.parent().ok()?)?;
        let below = led.strip_prefix(self.source).ok()?;
        let is_other = probe::directory_below(self.root, below).is_err_and(|e| e != Errno::NOENT);
        is_other.then(|| {
            format!(
                "{} leads by way of a link or mount to {}: look at it before you use git there",
                typed_path(&self.source.join(&self.what.path)),
                typed_path(&led)
            )
        })
    }

    fn text(&self, parent: &OwnedFd) -> Option<Vec<u8>> {
        look::short(parent, self.name()).ok()
    }

    fn is_jj_own(&self, parent: &OwnedFd) -> bool {
        let text = self.text(parent);
        text.is_some_and(|text| JJ_GITS.contains(&text.trim_ascii()))
    }

    fn is_usual(&self, parent: &OwnedFd) -> bool {
        let text = self.text(parent);
        text.is_some_and(|text| git_link::is_usual_commondir(&self.what.path, &text))
    }

    fn move_one(
        &self,
        parent: &OwnedFd,
        name: &OsStr,
        path: &Path,
        quarantine: &mut Quarantine,
    ) -> io::Result<()> {
        let path = self.source.join(path);
        let at = quarantine.take(parent, name, &path)?;
        quarantine.free(self.what);
        quarantine.say(QuarantinedFile {
            path,
            taken: None,
            at,
            why: self.why(),
        });
        Ok(())
    }

    fn name(&self) -> &OsStr {
        self.what.path.file_name().unwrap_or_default()
    }

    fn parent(&self) -> io::Result<OwnedFd> {
        let above = self.what.path.parent().unwrap_or(Path::new(""));
        Ok(probe::directory_below(self.root, above)?)
    }

    fn why(&self) -> &'static str {
        let why = ProtectedList::builtin().why(&self.what.name);
        why.unwrap_or("your tools run it")
    }
}

/// The settings' names, which the workload chose.
fn keys(planted: &[&GitSetting]) -> String {
    let short = planted.iter().take(KEYS).map(|one| {
        let key: String = String::from_utf8_lossy(&one.key)
            .chars()
            .take(OF_KEY)
            .collect();
        format!("{key:?}")
    });
    let short = short.collect::<Vec<_>>().join(", ");
    match planted.len().saturating_sub(KEYS) {
        0 => short,
        more => format!("{short} and {more} more"),
    }
}

/// The settings as they stood in the file, each after its name.
fn lines(planted: &[&GitSetting]) -> Vec<u8> {
    let line = |one: &&GitSetting| [&one.key[..], b": ", &one.raw, b"\n"].concat();
    planted.iter().flat_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_workload_chose_are_quoted_and_few() {
        let text = format!(
            "[a \"x y: fine; run: curl evil\"]\nb=1\n[{}]\nb=1\n{}",
            "k".repeat(500),
            "[c]\nd=1\n".repeat(9)
        );
        let all = git_config::parse(text.as_bytes()).unwrap();
        let said = keys(&all.iter().collect::<Vec<_>>());
        assert!(
            said.starts_with("\"a.x y: fine; run: curl evil.b\", \"kkk"),
            "{said}"
        );
        assert!(
            said.ends_with("\"c.d\" and 5 more") && said.len() < 200,
            "{said}"
        );
    }
}
