//! SHELL. Looks into the sources of a container that has ended.

use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use super::search;
use crate::plan::{GuardedMount, ProtectedFiles};
use crate::policy::ProtectedName;

/// Files of a directory that the user's own tools run, searched until a time. No process of the container runs any more.
pub fn protected(
    place: (&OwnedFd, &Path),
    free: &BTreeSet<ProtectedName>,
    end: Instant,
) -> ProtectedFiles {
    search::protected(place, free, end)
}

/// Whether a mount's source is a git directory, or one in which git writes.
pub fn is_in_git(source: &Path) -> bool {
    search::is_in_git(source)
}

/// The same, only where such files were at the start, which takes the same time whatever the container made.
pub fn protected_by_name(
    (root, source): (&OwnedFd, &Path),
    watched: &GuardedMount,
    unprotected: &BTreeSet<ProtectedName>,
) -> ProtectedFiles {
    let start = (&watched.tops[..], &watched.gits[..]);
    let mut now = search::by_name(root, start, unprotected);
    search::links_by_name(root, start, unprotected, &mut now);
    let part = search::of_git_part(root, source, unprotected);
    now.found.extend(part);
    now
}

/// Opens a directory below another, of any depth, by way of no link and no other file system.
pub fn directory_below(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    search::beneath_by_parts(root, path)
}
