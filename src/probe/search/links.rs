//! SHELL. Symbolic links in git directories. Git makes none, and writes through those that it finds: `git commit` its message
//! through COMMIT_EDITMSG, and each command a line through logs.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType};

use super::cost::Cost;
use super::{content, walk};
use crate::plan::git_config::WholeSettings;
use crate::plan::protect::{self, ProtectedList};
use crate::plan::{FileIdentity, FoundProtected, KnownGit, ProtectedFiles};
use crate::policy::ProtectedName;

/// The most that are looked at.
const MOST: usize = 100_000;

/// The most bytes of their paths.
const KEPT: usize = 32 << 20;

/// Where git writes in its directory, for a look without a search.
const WRITTEN: [&str; 10] = [
    "",
    "info",
    "logs",
    "logs/refs",
    "logs/refs/heads",
    "modules",
    "objects",
    "refs",
    "refs/heads",
    "worktrees",
];

/// The directories in which git and its extensions write, in a git directory.
const GITS: [&[u8]; 20] = [
    b"annex",
    b"branches",
    b"fsmonitor--daemon",
    b"hooks",
    b"info",
    b"lfs",
    b"logs",
    b"lost-found",
    b"modules",
    b"notes_merge_worktree",
    b"objects",
    b"rebase-apply",
    b"rebase-merge",
    b"refs",
    b"reftable",
    b"remotes",
    b"rr-cache",
    b"sequencer",
    b"svn",
    b"worktrees",
];

/// Whether git writes in a directory of this name in its own. Some file systems fold the case of letters.
pub(super) fn is_gits(name: &[u8]) -> bool {
    GITS.iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// Whether a mount's source is a git directory, or one in which git writes, as the directories around it say: no sandbox of it writes
/// those. A work tree in a git directory is none.
pub(in crate::probe) fn is_in_git(source: &Path) -> bool {
    let is_git = |above: &Path| above.join("HEAD").exists() && above.join("objects").is_dir();
    let mut above = source.ancestors().filter(|above| is_git(above));
    above.any(|git| {
        let below = source.strip_prefix(git).ok();
        let first = below.and_then(|below| below.iter().next());
        first.is_none_or(|first| is_gits(first.as_bytes()))
    })
}

/// The places to look at in those of these git directories that are there, without a search.
pub(super) fn places<'a>(
    root: &OwnedFd,
    gits: impl IntoIterator<Item = &'a PathBuf>,
) -> Vec<PathBuf> {
    let is_there = |git: &&PathBuf| walk::beneath_by_parts(root.as_fd(), git).is_ok();
    let gits = gits.into_iter().filter(is_there);
    gits.flat_map(|git| WRITTEN.iter().map(move |below| git.join(below)))
        .collect()
}

/// Adds the links in these directories to what is known at the start.
pub(super) fn remember(
    root: &OwnedFd,
    directories: &[PathBuf],
    cost: &mut Cost,
    known: &mut KnownGit,
) {
    let (links, all) = links(root, directories);
    for FoundLink { path, .. } in links {
        if cost.read(content::OPENED).is_err() {
            return;
        }
        if let Some(target) = content::target(root.as_fd(), &path) {
            known
                .hashes
                .insert(WholeSettings::Link(&target).hash(&path));
        }
    }
    if all == LinkCount::More {
        cost.too_many();
    }
}

/// Adds the links in these directories to what is found at the end.
pub(super) fn find(
    root: &OwnedFd,
    directories: &[PathBuf],
    unprotected: &BTreeSet<ProtectedName>,
    found: &mut ProtectedFiles,
) {
    let place = ProtectedList::builtin().links();
    let Some(place) = place.filter(|place| protect::is_protected(unprotected, place.name())) else {
        return;
    };
    let free = unprotected
        .iter()
        .filter_map(|name| name.as_str().strip_prefix(".git/"));
    let free: Vec<&Path> = free.map(Path::new).collect();
    let (links, all) = links(root, directories);
    for FoundLink { path, file } in links {
        if free.iter().any(|free| is_free(&path, free)) {
            continue;
        }
        found.found.push(FoundProtected {
            held: protect::held(&path, 1),
            path,
            name: place.name().to_owned(),
            file,
        });
    }
    if all == LinkCount::More {
        let why = "its git directories have more links than are looked at";
        found.unread.get_or_insert_with(|| why.to_owned());
    }
}

/// Whether a link is this place of a git directory, or lies in it. A branch, a submodule or a second work tree may have such a name.
fn is_free(link: &Path, place: &Path) -> bool {
    let own = [Some(link), link.parent()].into_iter().flatten();
    let mut above = own.filter(|part| part.ends_with(place));
    above.any(|part| {
        let git = part
            .ancestors()
            .nth(place.iter().count())
            .unwrap_or(Path::new(""));
        let is = |part: &OsStr, names: [&str; 2]| {
            names.iter().any(|name| part.eq_ignore_ascii_case(name))
        };
        let is_below_refs = git.iter().any(|part| is(part, ["refs", "logs"]));
        !is_below_refs
            && !git
                .file_name()
                .is_some_and(|last| is(last, ["modules", "worktrees"]))
    })
}

/// Whether all links were listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkCount {
    All,
    More,
}

/// A link, by its path in the source.
struct FoundLink {
    path: PathBuf,
    file: FileIdentity,
}

fn links(root: &OwnedFd, directories: &[PathBuf]) -> (Vec<FoundLink>, LinkCount) {
    let (mut found, mut kept) = (Vec::new(), 0);
    for path in directories {
        // It is gone, or a link stands for it: that one is found above.
        let Ok(directory) = walk::beneath_by_parts(root.as_fd(), path) else {
            continue;
        };
        let Ok(entries) = Dir::read_from(&directory) else {
            continue;
        };
        for entry in entries.filter_map(Result::ok) {
            let name = Path::new(OsStr::from_bytes(entry.file_name().to_bytes()));
            // Some file systems do not tell the kind.
            if !matches!(entry.file_type(), FileType::Symlink | FileType::Unknown) {
                continue;
            }
            let Ok(stat) = walk::stat_at(directory.as_fd(), name) else {
                continue;
            };
            if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::Symlink {
                continue;
            }
            let path = path.join(name);
            kept += path.as_os_str().len();
            if found.len() >= MOST || kept > KEPT {
                return (found, LinkCount::More);
            }
            let file = walk::identity(&stat);
            found.push(FoundLink { path, file });
        }
    }
    (found, LinkCount::All)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_protected_has_its_links() {
        let free = |link: &str, place: &str| is_free(Path::new(link), Path::new(place));
        assert!(free(".git/hooks/pre-commit", "hooks"));
        assert!(free("a/x.git/hooks/pre-commit", "hooks"));
        assert!(free(".git/modules/s/hooks", "hooks"));
        assert!(free(".git/info/attributes", "info/attributes"));
        for link in [
            ".git/logs/refs/heads/hooks",
            ".git/worktrees/hooks/COMMIT_EDITMSG",
            ".git/modules/hooks/logs/HEAD",
            ".git/modules/a/hooks/logs/HEAD",
            "hooks/logs/HEAD",
            ".git/logs/HEAD",
        ] {
            assert!(!free(link, "hooks"), "{link}");
        }
    }
}
