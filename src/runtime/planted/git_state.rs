//! SHELL. What git keeps of its work in a git directory and obeys later: names in an index, conflicts by which `git commit` writes any
//! file (git-rerere(1)), changes that it applies after a commit, an open rebase. Git writes the same, so the content counts.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};

use super::hooks_path::ctime;
use super::look::{self, SettingsPlace};
use super::quarantine::Quarantine;
use super::references::files_of;
use super::replaced::REVIEW;
use super::{CleanedSource, settings};
use crate::plan::git_config::{GitSetting, WholeSettings};
use crate::plan::protect::{AUTOSTASH, INDEX};
use crate::plan::{FoundProtected, GuardedMount};
use crate::policy::typed_path;
use crate::probe::{self, IndexNames, ObjectFormat};

/// The list's name. Those that are not named here are directories of an operation that waits for its user.
const CONFLICTS: &str = ".git/MERGE_RR";
const BISECT: &str = ".git/BISECT_START";

/// The most bytes of such a file that are read. One with more is none of the start.
const LARGEST: u64 = 64 << 10;

/// Moves aside what makes git's next command write or run other things than the user's: first in the git directories of the
/// start, and in the outermost. Not in an agent's home: without settings and hooks, which were taken out, git obeys nothing there, and
/// the same agent beside may be at work.
pub(super) fn clean(
    of: &CleanedSource<'_>,
    mut state: Vec<&FoundProtected>,
    quarantine: &mut Quarantine,
) {
    if !of.is_all() {
        return;
    }
    quarantine.begin();
    let source = of.source.as_path();
    let look = GitStateLook {
        root: of.root.as_fd(),
        source,
        watched: of.watched,
        begun: of.begun,
    };
    let depth = |one: &FoundProtected| one.path.components().count();
    let known = of.watched.all_gits();
    let is_new = |one: &FoundProtected| !one.path.parent().is_some_and(|git| known.contains(git));
    state.sort_by_cached_key(|one| (is_new(one), depth(one)));
    let mut waiting = Vec::new();
    for one in state {
        if quarantine.check_time().is_err() {
            let path = typed_path(source);
            quarantine.fail(format!(
                "not all of git's work in {path} (indexes, merges, rebases) was looked at: {REVIEW}, before git status"
            ));
            break;
        }
        match look.at(one) {
            GitStateFinding::Usual => {}
            GitStateFinding::Planted => of.file(one).take(quarantine),
            GitStateFinding::Waits(path) => waiting.push(format!(
                "{path} waits to be continued, and this run wrote it: --continue, --skip, --abort and --quit obey it; rm -r forgets it and its autostash"
            )),
        }
    }
    let more = format!("more of {source:?} wait to be continued");
    quarantine.fail_some(waiting, &more);
}

/// What is to be done about a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GitStateFinding {
    Usual,
    /// It is moved aside.
    Planted,
    /// It stays, with this line.
    Waits(String),
}

/// Looks at files of git's work in a mount's source.
pub(super) struct GitStateLook<'a> {
    pub(super) root: BorrowedFd<'a>,
    pub(super) source: &'a Path,
    /// The mount's state at the start.
    pub(super) watched: &'a GuardedMount,
    /// The container's start, since 1970.
    pub(super) begun: Option<Duration>,
}

impl GitStateLook<'_> {
    pub(super) fn at(&self, one: &FoundProtected) -> GitStateFinding {
        let above = one.path.parent().unwrap_or(Path::new(""));
        let name = one.path.file_name().unwrap_or_default();
        let Ok(directory) = probe::directory_below(self.root, above) else {
            return GitStateFinding::Usual;
        };
        let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
        let kind = |stat: &Stat| FileType::from_raw_mode(stat.st_mode);
        // Links are found as such.
        let Some(stat) = stat.ok().filter(|stat| kind(stat) != FileType::Symlink) else {
            return GitStateFinding::Usual;
        };
        let is_planted = match one.name.as_str() {
            INDEX => self.is_planted_index(&directory, above, &stat),
            // Git would wait at a pipe.
            CONFLICTS | AUTOSTASH | BISECT if kind(&stat) != FileType::RegularFile => true,
            CONFLICTS | AUTOSTASH => stat.st_size > 0 && !self.is_users(&directory, one),
            BISECT => look::beginning(&directory, name, 1).is_ok_and(|text| text == b"-"),
            _ => return self.waiting(one, &stat),
        };
        match is_planted {
            true => GitStateFinding::Planted,
            false => GitStateFinding::Usual,
        }
    }

    fn is_planted_index(&self, directory: &OwnedFd, above: &Path, stat: &Stat) -> bool {
        let open = |name: &str| look::open(directory, OsStr::new(name)).ok();
        let formats = match self.object_format(above) {
            Some(format) => vec![format],
            None => vec![ObjectFormat::Sha1, ObjectFormat::Sha256],
        };
        let names = formats
            .into_iter()
            .map(|format| probe::names_of_index(&open, format));
        let names: Vec<IndexNames> = names.collect();
        if names.iter().all(|names| *names == IndexNames::Inside) {
            return false;
        }
        // Another may be of a newer git, and may have come with its directory.
        let directory = rustix::fs::fstat(directory);
        names.contains(&IndexNames::Outside)
            || self.is_new(stat)
            || directory.is_ok_and(|stat| self.is_new(&stat))
    }

    /// Whether it is as it was at the start, and names only files of the work tree: one may be a link now.
    fn is_users(&self, directory: &OwnedFd, one: &FoundProtected) -> bool {
        let name = one.path.file_name().unwrap_or_default();
        let text = look::beginning(directory, name, LARGEST + 1).unwrap_or_default();
        let whole = WholeSettings::Text(&text);
        let is_as_before = self.watched.is_as_before(whole, &one.path);
        is_as_before && (one.name != CONFLICTS || self.names_files(&one.path, &text))
    }

    /// Whether each conflict (`HASH<TAB>PATH<NUL>`) is of a file in the work tree of a `.git`. Others' work trees may be anywhere.
    fn names_files(&self, path: &Path, text: &[u8]) -> bool {
        let git = path.parent().unwrap_or(Path::new(""));
        let tree = git
            .parent()
            .filter(|_| git.file_name() == Some(OsStr::new(".git")));
        let is_file = |tree: &Path, record: &[u8]| {
            let tab = record.iter().position(|byte| *byte == b'\t')?;
            let file = tree.join(OsStr::from_bytes(record.get(tab + 1..)?));
            let above = probe::directory_below(self.root, file.parent()?).ok()?;
            let stat =
                rustix::fs::statat(above, file.file_name()?, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(())
        };
        let mut records = text
            .split(|byte| *byte == 0)
            .filter(|record| !record.is_empty());
        tree.is_some_and(|tree| records.all(|record| is_file(tree, record).is_some()))
    }

    /// A rebase, or the like, that this run has begun or changed, or moved here from where it was none.
    fn waiting(&self, one: &FoundProtected, stat: &Stat) -> GitStateFinding {
        let path = &one.path;
        let was_one = self.watched.waiting.contains(&look::file_of(stat));
        let is_new = |stat: &Stat| self.is_new(stat);
        match !was_one || files_of(self.root, path).iter().any(is_new) {
            true => GitStateFinding::Waits(typed_path(&self.source.join(path))),
            false => GitStateFinding::Usual,
        }
    }

    fn is_new(&self, stat: &Stat) -> bool {
        self.begun.is_some_and(|begun| ctime(stat) >= begun)
    }

    /// The hash function of a repository, by the settings that git reads. `None` if they do not tell.
    fn object_format(&self, git: &Path) -> Option<ObjectFormat> {
        let own = probe::directory_below(self.root, git).ok()?;
        let (directory, common) = match SettingsPlace::of(&own, &self.source.join(git)) {
            SettingsPlace::Here => (own, Some(git)),
            SettingsPlace::TwoAbove => (self.two_above(git)?, git.ancestors().nth(2)),
            // It does not stay, and git has other settings then.
            SettingsPlace::Elsewhere => return None,
        };
        let settings = self.settings_of(&directory, common)?;
        let last = |key: &[u8]| {
            let last = settings.iter().rfind(|one| one.key == key);
            last.map(|one| &one.value[..])
        };
        // Without a version git looks at no other setting.
        let format = last(b"extensions.objectformat");
        match (last(b"core.repositoryformatversion"), format) {
            (None | Some(b"0"), _) | (_, None | Some(b"sha1")) => Some(ObjectFormat::Sha1),
            (Some(b"1"), Some(b"sha256")) => Some(ObjectFormat::Sha256),
            _ => None,
        }
    }

    /// The settings of a git directory; `None` for its path if it is not in the source, where the workload writes. A link is
    /// followed only if it is the user's own: root opens no device, no pipe and no other machine's file that a workload names.
    fn settings_of(&self, directory: &OwnedFd, git: Option<&Path>) -> Option<Vec<GitSetting>> {
        let name = OsStr::new("config");
        if let (Some(git), Ok(target)) = (git, rustix::fs::readlinkat(directory, name, Vec::new()))
        {
            let whole = WholeSettings::Link(target.as_bytes());
            if !self.watched.is_as_before(whole, &git.join(name)) {
                return None;
            }
        }
        settings::parsed_by_link(directory, name).ok()
    }

    /// The directory two above, also that of a source which is a part of a git directory.
    fn two_above(&self, path: &Path) -> Option<OwnedFd> {
        if let Some(above) = path.parent().and_then(Path::parent) {
            return probe::directory_below(self.root, above).ok();
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let above = self.source.join(path);
        let above = above.parent().and_then(Path::parent)?;
        rustix::fs::openat(CWD, above, flags, Mode::empty()).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::time::SystemTime;

    use super::*;
    use crate::plan::FileIdentity;
    use crate::probe::TestDir;

    /// An index of version 2 with one file.
    fn index(name: &str) -> Vec<u8> {
        let mut bytes = [&b"DIRC\0\0\0\x02\0\0\0\x01"[..], &[0; 60]].concat();
        bytes.extend([0, u8::try_from(name.len()).unwrap()]);
        bytes.extend(name.as_bytes());
        bytes.resize(bytes.len() + 8 - (bytes.len() - 12) % 8, 0);
        bytes.extend([0; 20]);
        bytes
    }

    #[test]
    fn what_git_obeys_of_its_work_is_found() {
        let scratch = TestDir::new("git-state");
        let dir = &scratch.0;
        let tree = dir.join(".git/worktrees/x");
        fs::create_dir_all(&tree).unwrap();
        fs::create_dir_all(dir.join(".git/rebase-merge")).unwrap();
        fs::create_dir_all(dir.join("n/.git")).unwrap();
        let own = b"0123.-1\tf\0";
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap();
        let minute = Duration::from_secs(60);
        let before = now.checked_sub(minute).unwrap();
        let mut watched = GuardedMount {
            destination: "/w".into(),
            ..GuardedMount::default()
        };
        let path = Path::new(".git/MERGE_RR");
        watched.known.insert(WholeSettings::Text(own).hash(path));
        let rebase = rustix::fs::stat(dir.join(".git/rebase-merge")).unwrap();
        watched.waiting.insert(look::file_of(&rebase));
        let root = fs::File::open(dir).unwrap();
        let at = |path: &str, text: Option<&[u8]>, begun: Duration| {
            if let Some(text) = text {
                fs::write(dir.join(path), text).unwrap();
            }
            let one = match path.strip_suffix("/git-rebase-todo") {
                Some(directory) => directory,
                None => path,
            };
            let name = Path::new(one).file_name().unwrap().to_str().unwrap();
            let look = GitStateLook {
                root: root.as_fd(),
                source: dir,
                watched: &watched,
                begun: Some(begun),
            };
            look.at(&FoundProtected {
                path: one.into(),
                name: format!(".git/{name}"),
                held: 1,
                file: FileIdentity { dev: 0, ino: 0 },
            })
        };
        let planted =
            |path: &str, text: &[u8]| at(path, Some(text), before) == GitStateFinding::Planted;
        assert!(!planted(".git/index", &index("src/main.rs")));
        assert!(planted(".git/index", &index("../evil")));
        assert!(planted(
            ".git/worktrees/x/index",
            &index(".git/hooks/pre-commit")
        ));
        // Git reads no more of it than its settings say.
        assert!(planted(".git/index", b"DIRC"));
        assert_eq!(
            at(".git/index", Some(b"DIRC"), now + minute),
            GitStateFinding::Usual
        );
        fs::write(dir.join("f"), "").unwrap();
        // An empty one is git's, and that of the start the user's.
        assert!(!planted(".git/MERGE_RR", b""));
        assert!(!planted(".git/MERGE_RR", own));
        assert!(planted(".git/MERGE_RR", b"0123.-1\t/evil\0"));
        assert!(planted(".git/worktrees/x/MERGE_RR", own));
        // The file of the conflict is a link now.
        fs::remove_file(dir.join("f")).unwrap();
        std::os::unix::fs::symlink("/evil", dir.join("f")).unwrap();
        assert!(planted(".git/MERGE_RR", own));
        assert!(planted(".git/MERGE_AUTOSTASH", b"0123"));
        let todo = ".git/rebase-merge/git-rebase-todo";
        assert!(matches!(
            at(todo, Some(b"exec evil"), before),
            GitStateFinding::Waits(_)
        ));
        assert_eq!(
            at(todo, Some(b"pick x"), now + minute),
            GitStateFinding::Usual
        );
        // Another one than that of the start has been moved there.
        fs::rename(dir.join(".git/rebase-merge"), dir.join("own")).unwrap();
        fs::create_dir(dir.join(".git/rebase-merge")).unwrap();
        let moved = at(todo, Some(b"pick x"), now + minute);
        assert!(matches!(moved, GitStateFinding::Waits(_)));
        assert!(!planted(".git/BISECT_START", b"main\n"));
        assert!(planted(".git/BISECT_START", b"-f\n"));
        nix::unistd::mkfifo(&dir.join("n/.git/MERGE_RR"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        let pipe = at("n/.git/MERGE_RR", None, before);
        assert_eq!(pipe, GitStateFinding::Planted);
    }

    #[test]
    fn the_hash_function_is_the_one_that_git_takes() {
        let scratch = TestDir::new("git-format");
        let dir = &scratch.0;
        fs::create_dir_all(dir.join(".git/worktrees/x")).unwrap();
        let root = fs::File::open(dir).unwrap();
        let watched = GuardedMount::default();
        let look = GitStateLook {
            root: root.as_fd(),
            source: dir,
            watched: &watched,
            begun: None,
        };
        let of = |git: &str| look.object_format(Path::new(git));
        assert_eq!(of(".git"), Some(ObjectFormat::Sha1));
        for (text, format) in [
            (
                "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n",
                Some(ObjectFormat::Sha256),
            ),
            (
                "[core]\n\trepositoryformatversion = 0\n",
                Some(ObjectFormat::Sha1),
            ),
            (
                "[extensions]\n\tobjectformat = sha256\n",
                Some(ObjectFormat::Sha1),
            ),
            (
                "[core]\n\trepositoryformatversion = -1\n[extensions]\n\tobjectformat = sha256\n",
                None,
            ),
            ("[core", None),
        ] {
            fs::write(dir.join(".git/config"), text).unwrap();
            assert_eq!(of(".git"), format, "{text}");
            // Settings beside the second work tree's are none of git's.
            fs::write(dir.join(".git/worktrees/x/config"), "").unwrap();
            fs::write(dir.join(".git/worktrees/x/commondir"), "../..\n").unwrap();
            assert_eq!(of(".git/worktrees/x"), format, "{text}");
        }
        // One that is moved aside: git cuts any number of line ends, and this program does not.
        let long = format!("../..{}", "\n".repeat(5000));
        fs::write(dir.join(".git/worktrees/x/commondir"), long).unwrap();
        assert_eq!(of(".git/worktrees/x"), None);
    }
}
