//! SHELL. Git directories that a checkout can have made, and change: files of a project, whose settings are nobody's. Git obeys them
//! once a `.git` leads there. It checks out no path with a `.git`.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType};

use super::look::{self, SettingsPlace};
use crate::plan::{GuardedMount, git_link};
use crate::probe;

/// The most work trees of the start that are looked at.
const MOST: usize = 1000;

/// Whether a directory of a source is a git directory that no checkout changes, or the user's own.
pub(super) fn is_safe(
    (root, source): (BorrowedFd<'_>, &Path),
    watched: &GuardedMount,
    below: &Path,
) -> bool {
    let Ok(git) = probe::directory_below(root, below) else {
        return false;
    };
    let head = rustix::fs::statat(&git, "HEAD", AtFlags::SYMLINK_NOFOLLOW);
    let has_head =
        head.is_ok_and(|head| FileType::from_raw_mode(head.st_mode) == FileType::RegularFile);
    if !has_head {
        return false;
    }
    if git_link::is_no_checkouts(below) || probe::is_in_git(source) {
        return true;
    }
    let common = match SettingsPlace::of(&git, &source.join(below)) {
        SettingsPlace::Here => Some(below),
        SettingsPlace::TwoAbove => below.ancestors().nth(2),
        SettingsPlace::Elsewhere => None,
    };
    common.is_some_and(|common| is_users((root, source), watched, common))
}

/// Whether a `.git` of the start leads there, or to a work tree's part of it: the user's own layout.
fn is_users((root, source): (BorrowedFd<'_>, &Path), watched: &GuardedMount, git: &Path) -> bool {
    let led = |top: &Path| {
        let directory = probe::directory_below(root, top).ok()?;
        let name = OsStr::new(".git");
        let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let target = git_link::target(&look::short(&directory, name).ok()?)?;
        let led = git_link::led(&source.join(top), Path::new(&target))?;
        watched.files.contains(&look::file_of(&stat)).then_some(led)
    };
    let git = source.join(git);
    let leads_there = |top: &Path| led(top).is_some_and(|led| led.starts_with(&git));
    let tops = watched.tops.iter().take(MOST);
    leads_there(Path::new("")) || tops.map(|top| top.path.as_path()).any(leads_there)
}
