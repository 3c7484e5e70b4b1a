//! PURE. Files that the user's own tools run later, outside of all walls: `policies/protected.toml`. Those that are there at the
//! start are read-only in the container, and so are their names: the directories on the way are mounts, which no process renames.

use std::collections::{BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::sort::SortedMounts;
use super::{EphemeralMount, text};
use crate::policy::ProtectedName;

/// The parsed list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtectedList {
    place: Vec<ProtectedPlace>,
    /// Entries by the last component of their path, in small letters.
    #[serde(skip)]
    last: HashMap<Vec<u8>, Vec<usize>>,
}

/// A path that something of the user's runs or obeys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtectedPlace {
    /// From the top of a work tree, or below `.git/`.
    pub path: PathBuf,
    /// The reason, as a clause.
    pub why: String,
}

/// Where the path of an entry begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectedBase<'a> {
    /// At the top of the workspace or of a repository.
    Top(&'a Path),
    /// In a git directory.
    Git(&'a Path),
}

impl ProtectedPlace {
    /// Where it counts, and its path from there.
    pub fn base(&self) -> ProtectedBase<'_> {
        match self.path.strip_prefix(".git") {
            Ok(rest) if rest.components().next().is_some() => ProtectedBase::Git(rest),
            _ => ProtectedBase::Top(&self.path),
        }
    }

    /// Its name in policies.
    pub fn name(&self) -> &str {
        self.path.to_str().unwrap_or_default()
    }
}

static BUILTIN: LazyLock<ProtectedList> = LazyLock::new(|| {
    let text = include_str!("../../policies/protected.toml");
    let mut list: ProtectedList = toml::from_str(text).expect("a test parses the built-in list");
    for (index, place) in list.place.iter().enumerate() {
        if let Some(name) = place.path.file_name() {
            let name = name.as_encoded_bytes().to_ascii_lowercase();
            list.last.entry(name).or_default().push(index);
        }
    }
    list
});

impl ProtectedList {
    /// The list of this program.
    pub fn builtin() -> &'static Self {
        &BUILTIN
    }

    /// The entries whose path ends with a file name, which is in small letters.
    pub fn ending_with(&self, name: &[u8]) -> impl Iterator<Item = &ProtectedPlace> {
        let found = self.last.get(name).into_iter().flatten();
        found.filter_map(|index| self.place.get(*index))
    }

    /// Why a path of the list is protected.
    pub fn why(&self, name: &str) -> Option<&str> {
        let place = self.place.iter().find(|place| place.name() == name)?;
        Some(&place.why)
    }
}

/// Something in a mount's source that is to be read-only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FoundProtected {
    /// Relative to the source.
    pub path: PathBuf,
    /// The list's name for it.
    pub name: String,
    /// How many of its last components stay in place with it.
    pub held: usize,
    /// Its inode.
    pub ino: u64,
}

impl FoundProtected {
    /// The directories in the source that are held, so that no other file gets this path.
    fn held(&self) -> impl Iterator<Item = &Path> {
        let above = self.path.ancestors().skip(1);
        let above = above.take_while(|a| !a.as_os_str().is_empty());
        above.take(self.held.saturating_sub(1))
    }
}

/// A path of the container that is read-only in a writable mount.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProtectedPath {
    /// The path.
    #[serde(with = "text::one")]
    pub path: PathBuf,
    /// The list's name for it.
    pub name: String,
    /// Its inode, which is compared when it is made read-only.
    pub ino: u64,
}

/// Whether a name is protected under a policy.
pub fn is_protected(unprotected: &BTreeSet<ProtectedName>, name: &str) -> bool {
    !unprotected.iter().any(|free| free.as_str() == name)
}

/// How many of the last components of a path stay in place with it: from the outermost `.git` on, and else those of the entry.
pub fn held(path: &Path, own: usize) -> usize {
    let names: Vec<Component<'_>> = path.components().collect();
    let git = names.iter().position(|name| name.as_os_str() == ".git");
    git.map_or(own, |at| (names.len() - at).max(own))
}

impl SortedMounts {
    /// What was found in a mount that the container writes.
    pub(super) fn protect(&mut self, destination: &Path, found: &[FoundProtected]) {
        for one in found {
            let held = one.held().map(|directory| destination.join(directory));
            self.protected_parents.extend(held);
            self.protected.push((
                destination.to_owned(),
                ProtectedPath {
                    path: destination.join(&one.path),
                    name: one.name.clone(),
                    ino: one.ino,
                },
            ));
        }
    }

    /// The protected paths that the container sees in the mounts in which they were found: nothing else lies over them, and they
    /// are not hidden. Their parents are held in place.
    pub(super) fn protected(&mut self, overlays: &[EphemeralMount]) -> Vec<ProtectedPath> {
        let shown = |destination: &Path, path: &Path| {
            let above = self
                .kept
                .iter()
                .filter(|m| path.starts_with(&m.destination));
            let nearest = above.max_by_key(|m| m.destination.components().count());
            let own = nearest.is_some_and(|m| m.destination == destination && !m.is_private());
            let mut over = overlays.iter().filter(|o| path.starts_with(&o.path));
            let covered = over.any(|o| o.path.starts_with(destination));
            let mut masked = path.ancestors();
            own && !covered && !masked.any(|above| self.masked.contains(above))
        };
        let mut all: Vec<ProtectedPath> = self
            .protected
            .iter()
            .filter(|(destination, one)| shown(destination, &one.path))
            .map(|(_, one)| one.clone())
            .collect();
        all.sort();
        all.dedup_by(|a, b| a.path == b.path);
        let parents = self.protected_parents.iter().filter(|parent| {
            let mut below = all.iter().map(|one| &one.path);
            below.any(|path| path.starts_with(parent))
        });
        self.pinned.extend(parents.cloned());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_has_a_plain_path_and_a_reason() {
        let list = ProtectedList::builtin();
        let mut names = BTreeSet::new();
        for place in &list.place {
            let mut parts = place.path.components();
            assert!(
                parts.all(|c| matches!(c, Component::Normal(_))),
                "{place:?}"
            );
            assert!(!place.why.is_empty() && !place.name().is_empty());
            assert!(names.insert(place.name()), "twice: {place:?}");
            assert!(place.name().parse::<ProtectedName>().is_ok(), "{place:?}");
        }
        let git = list.place.iter().find(|p| p.name() == ".git/hooks");
        let git = git.map(ProtectedPlace::base);
        assert_eq!(git, Some(ProtectedBase::Git(Path::new("hooks"))));
        assert_eq!(list.ending_with(b"hooks").count(), 2);
        assert!(list.why(".git").is_some());
    }

    #[test]
    fn a_git_directory_stays_in_place_with_all_that_is_in_it() {
        let held = |path: &str, own| held(Path::new(path), own);
        assert_eq!(held(".git/hooks", 2), 2);
        assert_eq!(held("a/b/.git/modules/x/hooks", 2), 4);
        assert_eq!(held("a/b.git/hooks", 2), 2);
        assert_eq!(held("a/.github/workflows", 2), 2);
        assert_eq!(held("a/.envrc", 1), 1);
        let found = FoundProtected {
            path: "a/.git/modules/x/hooks".into(),
            name: ".git/hooks".into(),
            held: 4,
            ino: 1,
        };
        let expect = ["a/.git/modules/x", "a/.git/modules", "a/.git"].map(Path::new);
        assert_eq!(found.held().collect::<Vec<_>>(), expect);
    }
}
