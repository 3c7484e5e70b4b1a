//! SHELL. Files that the user's tools run, looked up by name where they were at the start. A search of everything may
//! have to give up, because a workload can make more directories than a search can look at. These places come first, and
//! cost the same whatever the workload made.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::walk;
use crate::plan::protect::{self, ProtectedBase, ProtectedList, ProtectedPlace};
use crate::plan::{FoundProtected, GuardedMount, ProtectedFiles};
use crate::policy::ProtectedName;

/// Most repositories that are looked at.
const MOST: usize = 1000;

/// What is now in the places that counted at the start.
pub(in crate::probe) fn by_name(
    root: &OwnedFd,
    watched: &GuardedMount,
    unprotected: &BTreeSet<ProtectedName>,
) -> ProtectedFiles {
    let top = PathBuf::new();
    let known = watched.tops.iter().map(|top| &top.path);
    let tops: BTreeSet<&Path> = [&top]
        .into_iter()
        .chain(known.take(MOST))
        .map(PathBuf::as_path)
        .collect();
    // Those that began as git directories here are named `.git`.
    let made = tops.iter().map(|top| top.join(".git"));
    let gits: BTreeSet<PathBuf> = made
        .chain(watched.gits.iter().take(MOST).cloned())
        .collect();
    let mut now = ProtectedFiles::default();
    let mut look = |base: &Path, wanted: fn(&ProtectedPlace) -> bool| {
        let Ok(directory) = walk::beneath_by_parts(root.as_fd(), base) else {
            return;
        };
        for place in ProtectedList::builtin().all() {
            if wanted(place)
                && protect::is_protected(unprotected, place.name())
                && let Some(one) = entry(&directory, base, place)
            {
                match place.compared {
                    true => now.settings.push(one),
                    false => now.found.push(one),
                }
            }
        }
    };
    for top in tops {
        look(top, |place| matches!(place.base(), ProtectedBase::Top(_)));
    }
    for git in &gits {
        look(git, |place| matches!(place.base(), ProtectedBase::Git(_)));
    }
    now
}

/// An entry of the list in a directory, or a link in place of one of its directories.
fn entry(directory: &OwnedFd, base: &Path, place: &ProtectedPlace) -> Option<FoundProtected> {
    let below = place.below();
    let all = below.components().count();
    let mut path = PathBuf::new();
    for (part, name) in (1..).zip(below) {
        path.push(name);
        let stat = walk::stat_at(directory.as_fd(), &path).ok()?;
        let kind = FileType::from_raw_mode(stat.stx_mode.into());
        let is_own_directory = place.name() == ".git" && kind == FileType::Directory;
        if part == all && !is_own_directory || part < all && kind == FileType::Symlink {
            return Some(FoundProtected {
                path: base.join(&path),
                name: place.name().to_owned(),
                held: part,
                ino: stat.stx_ino,
            });
        }
        if kind != FileType::Directory {
            return None;
        }
    }
    None
}
