//! PURE. A writable mount as it was at the start, and what of it counts as new at the end.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::file::{FileIdentity, HiddenDirectory, RepositoryTop};
use super::git_config::{GitSetting, WholeSettings};
use super::git_remote::NamedRemotes;
use super::protect::{FoundProtected, ProtectedBase, ProtectedFiles, ProtectedList, StartSearch};
use super::text;

/// What of a mount is cleaned at the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuardedPart {
    /// The user's files: new files of the list.
    #[default]
    All,
    /// An agent's own home, or what is kept of caches: its repositories. The user's git reaches them by a path that a commit or
    /// an index of the workspace names, and by `..`. All in them is the workload's.
    Repositories,
}

impl GuardedPart {
    fn is_all(&self) -> bool {
        *self == Self::All
    }
}

/// A writable mount of the user's files, as it was at the start: new files in it are moved aside at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GuardedMount {
    /// Its mount point.
    pub destination: PathBuf,
    /// The protected files.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub files: BTreeSet<FileIdentity>,
    /// Rebases and the like that wait for the user: another set, since their content is the workload's to write.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub waiting: BTreeSet<FileIdentity>,
    /// Hashes of git settings and links that may stay.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub known: BTreeSet<String>,
    /// The remotes that have an address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remotes: Vec<NamedRemotes>,
    /// Its repositories.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tops: Vec<RepositoryTop>,
    /// Its git directories.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "text::many")]
    pub gits: Vec<PathBuf>,
    /// Its hidden directories, which the workload could not enter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<HiddenDirectory>,
    /// How much of it was searched before the start. A file that a search finds only at the end may be the user's.
    #[serde(default, skip_serializing_if = "StartSearch::is_complete")]
    pub searched: StartSearch,
    /// What of it is cleaned.
    #[serde(default, skip_serializing_if = "GuardedPart::is_all")]
    pub part: GuardedPart,
}

impl GuardedMount {
    /// A mount of which the repositories alone are cleaned, and in which nothing is the user's.
    pub fn of_repositories(destination: PathBuf) -> Self {
        Self {
            destination,
            part: GuardedPart::Repositories,
            ..Self::default()
        }
    }

    /// The new files: in any git directory, else at the repository tops of the start, known by path or by inode.
    pub fn planted<'a>(&self, now: &'a ProtectedFiles) -> Vec<&'a FoundProtected> {
        let appeared = |one: &&FoundProtected| {
            !self.files.contains(&one.file) && self.concerns(one, &now.tops)
        };
        now.found.iter().filter(appeared).collect()
    }

    /// The new settings in a git settings file that may name programs or files.
    pub fn planted_settings<'a>(
        &self,
        settings: &'a [GitSetting],
        path: &Path,
    ) -> Vec<&'a GitSetting> {
        let harmless = &ProtectedList::builtin().harmless;
        let mut refused = harmless.refused(settings, (path, &self.known));
        // Agents clone their plugins without all contents, from which no user's git fetches.
        if self.part == GuardedPart::Repositories {
            refused.retain(|one| !is_of_partial_clone(&one.key));
        }
        refused
    }

    /// Whether a directory was the top of a repository at the start.
    pub fn was_top(&self, directory: &Path) -> bool {
        directory.as_os_str().is_empty() || self.tops.iter().any(|top| top.path == directory)
    }

    /// Whether a directory was a git directory at the start.
    pub fn was_git(&self, directory: &Path) -> bool {
        let is_named = directory.file_name().is_some_and(|name| name == ".git");
        is_named && self.was_top(directory.parent().unwrap_or(directory))
            || self.gits.iter().any(|git| git == directory)
    }

    /// The same for many: all git directories of the start.
    pub fn all_gits(&self) -> HashSet<PathBuf> {
        let tops = self.tops.iter().map(|top| top.path.as_path());
        let of_tops = tops.chain([Path::new("")]).map(|top| top.join(".git"));
        of_tops.chain(self.gits.iter().cloned()).collect()
    }

    /// Whether a git settings file, or a link, is as it was.
    pub fn is_as_before(&self, whole: WholeSettings<'_>, path: &Path) -> bool {
        self.known.contains(&whole.hash(path))
    }

    fn concerns(&self, one: &FoundProtected, now: &[RepositoryTop]) -> bool {
        let Some(place) = ProtectedList::builtin().find(&one.name) else {
            return false;
        };
        let ProtectedBase::Top(_) = place.base() else {
            return true;
        };
        let top = one.path.ancestors().nth(place.parts(&one.path));
        let top = top.unwrap_or(Path::new(""));
        // `git status` further up enters it.
        if place.name() == ".git" {
            return true;
        }
        if self.part == GuardedPart::Repositories {
            return false;
        }
        let mut moved = now.iter().filter(|repository| repository.path == top);
        let mut known = self.tops.iter();
        top.as_os_str().is_empty()
            || self.tops.iter().any(|known| known.path == top)
            || moved.any(|moved| known.any(|known| known.ino == moved.ino))
    }
}

fn is_of_partial_clone(key: &[u8]) -> bool {
    let of_remote = key.starts_with(b"remote.")
        && (key.ends_with(b".promisor") || key.ends_with(b".partialclonefilter"));
    of_remote || key == b"extensions.partialclone"
}
