//! SHELL. Hooks where the user's own `core.hooksPath` leads into the workspace (githooks(5)), such as husky's `.husky`. They are
//! files of the project that its build writes, so they stay writable; what a run has changed there is said.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, Dir, FileType, Stat};

use super::settings;
use crate::plan::GuardedMount;
use crate::policy::typed_path;
use crate::probe;

/// Names in a line.
const NAMED: usize = 3;
/// The most entries of a directory that are looked at.
const MOST: usize = 10_000;

/// Looks at hooks in a mount's source.
pub(super) struct HooksLook<'a> {
    pub(super) root: BorrowedFd<'a>,
    pub(super) source: &'a Path,
    /// The mount's state at the start.
    pub(super) watched: &'a GuardedMount,
    /// The container's start, since 1970.
    pub(super) begun: Duration,
}

impl HooksLook<'_> {
    /// A line for each directory of hooks that git runs for this git directory, if files in it changed: a relative path begins at the
    /// top of each work tree.
    pub(super) fn changed(&self, git: &Path, trees: &BTreeSet<&Path>) -> Vec<String> {
        let value = probe::directory_below(self.root, git).ok();
        let Some(value) = value.and_then(|git| hooks_path(&git)) else {
            return Vec::new();
        };
        let own = match git.file_name() == Some(OsStr::new(".git")) {
            true => git.parent().unwrap_or(git),
            false => git,
        };
        let mut tops: Vec<PathBuf> = vec![own.to_owned()];
        if value.is_relative() {
            tops.extend(trees.iter().map(|tree| tree.to_path_buf()));
            // Git enters a submodule by its git directory, which a `.git` chooses.
            tops.push(git.to_owned());
            tops.extend(self.work_trees(git));
        }
        let directories = tops
            .iter()
            .filter_map(|top| within(self.source, top, &value));
        let directories: BTreeSet<PathBuf> = directories
            .filter(|hooks| !self.is_protected(hooks))
            .collect();
        let lines = directories.into_iter().filter_map(|hooks| {
            let mut files = ChangedFiles {
                root: self.root,
                begun: self.begun,
                found: Vec::new(),
            };
            files.look_at(&hooks);
            line(&self.source.join(hooks), files.found)
        });
        lines.collect()
    }

    /// The parts of a git directory that belong to second work trees.
    fn work_trees(&self, git: &Path) -> Vec<PathBuf> {
        let all = git.join("worktrees");
        let opened = probe::directory_below(self.root, &all).ok();
        let entries = opened.and_then(|opened| Dir::read_from(opened).ok());
        let names = entries.into_iter().flatten().filter_map(Result::ok);
        names
            .map(|entry| all.join(OsStr::from_bytes(entry.file_name().to_bytes())))
            .take(MOST)
            .collect()
    }

    /// Whether it lies in the `hooks` of a git directory of the start, which the list protects.
    fn is_protected(&self, hooks: &Path) -> bool {
        let is_hooks = |path: &&Path| {
            let name = path.file_name().unwrap_or_default();
            name.eq_ignore_ascii_case("hooks")
        };
        let mut above = hooks.ancestors().filter(is_hooks);
        above.any(|path| path.parent().is_some_and(|git| self.watched.was_git(git)))
    }
}

fn line(hooks: &Path, mut found: Vec<PathBuf>) -> Option<String> {
    found.sort();
    found.dedup();
    let named: Vec<String> = found
        .iter()
        .take(NAMED)
        .map(|path| typed_path(path))
        .collect();
    let more = match found.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!found.is_empty()).then(|| {
        format!(
            "git runs the files of {} (core.hooksPath), and this run changed {}{more}: look at them before git runs them",
            typed_path(hooks),
            named.join(", ")
        )
    })
}

/// The last `core.hooksPath` of a git directory's settings.
fn hooks_path(git: &OwnedFd) -> Option<PathBuf> {
    // Also where the file is the user's own link.
    let all = settings::parsed_by_link(git, OsStr::new("config")).ok()?;
    let last = all.iter().rfind(|one| one.key == b"core.hookspath")?;
    Some(OsStr::from_bytes(&last.value).into())
}

/// The path below the source; `None` if it is elsewhere. A relative one begins at the top of the work tree.
fn within(source: &Path, top: &Path, value: &Path) -> Option<PathBuf> {
    let path = match value.strip_prefix("~") {
        // Some directory above the source is the home.
        Ok(rest) => {
            let mut homes: Vec<&Path> = source.ancestors().skip(1).collect();
            homes.reverse();
            let mut in_homes = homes.into_iter().map(|home| home.join(rest));
            in_homes.find_map(|path| path.strip_prefix(source).ok().map(Path::to_owned))?
        }
        Err(_) if value.is_absolute() => below(source, value)?,
        Err(_) => top.join(value),
    };
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir if !plain.pop() => return None,
            _ => {}
        }
    }
    let is_elsewhere = value.starts_with("%(prefix)");
    let is_top = value.as_os_str().is_empty() || plain.as_os_str().is_empty();
    (!is_elsewhere && !is_top).then_some(plain)
}

/// What of an absolute path lies below the source, which links may lead to. The way from the top decides: within the source
/// the workload makes links.
fn below(source: &Path, path: &Path) -> Option<PathBuf> {
    let is_source =
        |above: &Path| above == source || above.canonicalize().is_ok_and(|real| real == source);
    let mut above: Vec<&Path> = path.ancestors().collect();
    above.reverse();
    let above = above.into_iter().find(|above| is_source(above))?;
    path.strip_prefix(above).ok().map(Path::to_owned)
}

/// What a run has changed of hooks.
struct ChangedFiles<'a> {
    root: BorrowedFd<'a>,
    begun: Duration,
    /// Relative to the source.
    found: Vec<PathBuf>,
}

impl ChangedFiles<'_> {
    /// Looks at a directory of hooks and the way to it. husky keeps what its hooks run in `_`, or runs what lies beside `_`.
    fn look_at(&mut self, hooks: &Path) {
        let ways = hooks.ancestors().skip(1);
        for way in ways.take_while(|way| !way.as_os_str().is_empty()) {
            // Files that are made in it change both times, and a directory that was moved here only one. A link has no files.
            let moved = |stat: &Stat| {
                let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
                self.is_new(ctime(stat)) && !(is_directory && self.is_new(mtime(stat)))
            };
            if self.stat(way).is_some_and(|stat| moved(&stat)) {
                self.found.push(way.to_owned());
            }
        }
        self.look_in(hooks);
        match hooks.file_name() == Some(OsStr::new("_")) {
            true => self.look_in(hooks.parent().unwrap_or(hooks)),
            false => self.look_in(&hooks.join("_")),
        }
        let any = self.found.iter().any(|found| found.starts_with(hooks));
        // It is another one, or a file of it is gone.
        let is_new = |stat: Stat| self.is_new(ctime(&stat));
        if !any && self.stat(hooks).is_some_and(is_new) {
            self.found.push(hooks.to_owned());
        }
    }

    fn look_in(&mut self, directory: &Path) {
        // Git runs nothing where there is none, and a new link is found by its parent.
        let Ok(opened) = probe::directory_below(self.root, directory) else {
            return;
        };
        let Ok(entries) = Dir::read_from(&opened) else {
            return;
        };
        for (count, entry) in entries.filter_map(Result::ok).enumerate() {
            if count >= MOST {
                self.found.push(directory.to_owned());
                return;
            }
            let name = entry.file_name();
            let stat = rustix::fs::statat(opened.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW);
            let is_new = stat.is_ok_and(|stat| self.is_new(ctime(&stat)));
            let is_other = matches!(name.to_bytes(), b"." | b".." | b"_");
            if is_new && !is_other {
                let name = OsStr::from_bytes(name.to_bytes());
                self.found.push(directory.join(name));
            }
        }
    }

    /// The state of a path, or of a link in its place.
    fn stat(&self, path: &Path) -> Option<Stat> {
        let parent = probe::directory_below(self.root, path.parent()?).ok()?;
        rustix::fs::statat(parent, path.file_name()?, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    fn is_new(&self, time: Duration) -> bool {
        time >= self.begun
    }
}

/// When a file changed last, since 1970.
pub(super) fn ctime(stat: &Stat) -> Duration {
    time(stat.st_ctime, stat.st_ctime_nsec)
}

fn mtime(stat: &Stat) -> Duration {
    time(stat.st_mtime, stat.st_mtime_nsec)
}

fn time(seconds: i64, nanoseconds: u64) -> Duration {
    let nanoseconds = u32::try_from(nanoseconds).unwrap_or(0);
    Duration::new(u64::try_from(seconds).unwrap_or(0), nanoseconds)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::probe::TestDir;

    #[test]
    fn a_path_of_hooks_counts_in_the_source_alone() {
        let of =
            |top: &str, value: &str| within(Path::new("/h/w"), Path::new(top), Path::new(value));
        for (top, value, path) in [
            ("", ".husky", Some(".husky")),
            ("", "./.husky/_", Some(".husky/_")),
            ("sub", "../hooks", Some("hooks")),
            ("", "/h/w/hooks", Some("hooks")),
            ("", "~/w/hooks", Some("hooks")),
            ("", "~/w", None),
            ("", "../hooks", None),
            ("", "/etc/hooks", None),
            ("", "~/hooks", None),
            ("", ".git/own", Some(".git/own")),
            ("", "", None),
            ("", ".", None),
        ] {
            assert_eq!(of(top, value).as_deref(), path.map(Path::new), "{value}");
        }
    }

    #[test]
    fn a_changed_hook_is_said_and_an_old_one_is_not() {
        let scratch = TestDir::new("hooks-path");
        let dir = &scratch.0;
        fs::create_dir_all(dir.join(".git")).unwrap();
        fs::create_dir_all(dir.join(".husky/_")).unwrap();
        fs::write(dir.join(".git/config"), "[core]\n\thooksPath = .husky/_\n").unwrap();
        fs::write(dir.join(".husky/pre-commit"), "true").unwrap();
        let root = fs::File::open(dir).unwrap();
        let watched = GuardedMount::default();
        let at = |begun: Duration, trees: &[&Path]| {
            let trees = trees.iter().copied().collect();
            let look = HooksLook {
                root: root.as_fd(),
                source: dir,
                watched: &watched,
                begun,
            };
            look.changed(Path::new(".git"), &trees)
        };
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        let minute = Duration::from_secs(60);
        assert_eq!(at(now + minute, &[]), [""; 0]);
        let begun = now.checked_sub(minute).unwrap();
        let said = |new: &[&Path]| at(begun, new).join("\n");
        assert!(said(&[]).contains(".husky/pre-commit"), "{}", said(&[]));
        fs::rename(dir.join(".husky"), dir.join("other")).unwrap();
        assert_eq!(said(&[]), "");
        // A new work tree has its own.
        fs::create_dir_all(dir.join("tree/.husky/_")).unwrap();
        fs::write(dir.join("tree/.husky/_/pre-commit"), "true").unwrap();
        let new = said(&[Path::new("tree")]);
        assert!(new.contains("tree/.husky/_/pre-commit"), "{new}");
        // The list protects `hooks`, and no other name beside it.
        for (name, is_named) in [("hooks", false), ("own", true), ("own/hooks", true)] {
            let text = format!("[core]\n\thooksPath = .git/{name}\n");
            fs::write(dir.join(".git/config"), text).unwrap();
            fs::create_dir_all(dir.join(".git").join(name)).unwrap();
            fs::write(dir.join(".git").join(name).join("pre-commit"), "true").unwrap();
            assert_eq!(!said(&[]).is_empty(), is_named, "{name}");
        }
        // By a link to the source, and one of the workload's back to it.
        let way = dir.with_extension("way");
        std::os::unix::fs::symlink(dir, &way).unwrap();
        fs::create_dir_all(dir.join("by")).unwrap();
        fs::write(dir.join("by/pre-commit"), "true").unwrap();
        let text = format!("[core]\n\thooksPath = {}/by\n", way.display());
        fs::write(dir.join(".git/config"), text).unwrap();
        assert!(said(&[]).contains("by/pre-commit"), "{}", said(&[]));
        fs::remove_dir_all(dir.join("by")).unwrap();
        std::os::unix::fs::symlink(".", dir.join("by")).unwrap();
        assert!(said(&[]).contains("this run changed by:"), "{}", said(&[]));
        fs::remove_file(way).unwrap();
        // Where git enters a submodule.
        let text = "[core]\n\thooksPath = .husky/_\n";
        fs::write(dir.join(".git/config"), text).unwrap();
        for git in [".git", ".git/worktrees/w"] {
            let hooks = dir.join(git).join(".husky/_");
            fs::create_dir_all(&hooks).unwrap();
            fs::write(hooks.join("pre-auto-gc"), "true").unwrap();
            assert!(
                said(&[]).contains(&format!("{git}/.husky/_/pre-auto-gc")),
                "{git}"
            );
        }
        // A link in its place.
        for value in [".husky", ".husky/_"] {
            let text = format!("[core]\n\thooksPath = {value}\n");
            fs::write(dir.join(".git/config"), text).unwrap();
            let link = dir.join(".husky");
            let _none = fs::remove_file(&link);
            std::os::unix::fs::symlink("other", link).unwrap();
            let said = said(&[]);
            assert!(said.contains("this run changed .husky:"), "{said}");
        }
    }
}
