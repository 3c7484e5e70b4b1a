//! PURE. Files that the user's own tools run later, outside all walls: `policies/protected.toml`. Files that exist at
//! the start are read-only in the container, and so are their names: the directories above are mounts, which no process
//! can rename. New files are moved aside when the container has ended.

use std::collections::{BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::file::{FileIdentity, HiddenDirectory, RepositoryTop};
use super::git_config::{self, HarmlessSettings, WholeSettings};
use super::git_remote::{KnownGit, NamedRemotes};
use super::text;
use crate::data::table;
use crate::policy::ProtectedName;

/// The list's name of git's index.
pub const INDEX: &str = ".git/index";

/// The list's name of changes that `git commit` applies.
pub const AUTOSTASH: &str = ".git/MERGE_AUTOSTASH";

/// The list's names of directories of an operation that waits for its user.
pub const WAITING: [&str; 3] = [".git/rebase-merge", ".git/rebase-apply", ".git/sequencer"];

/// The parsed list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtectedList {
    place: Vec<ProtectedPlace>,
    pub(super) harmless: HarmlessSettings,
    /// Entries by the last component of their path, in lower case.
    #[serde(skip)]
    last: HashMap<Vec<u8>, Vec<usize>>,
    /// Entries by each component before the last, in lower case, with the number of components so far.
    #[serde(skip)]
    inner: HashMap<Vec<u8>, Vec<(usize, usize)>>,
}

/// A path that the user's tools run or obey.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtectedPlace {
    /// From the top of a work tree, or below `.git/`.
    pub path: PathBuf,
    /// The reason, as a clause.
    pub why: String,
    /// It is a git settings file, which git replaces: it is read-only under `filesystem.git-config`, and new settings in
    /// it are removed at the end.
    #[serde(default)]
    pub compared: bool,
    /// In a new directory each file counts, and not the directory, which git makes.
    #[serde(default)]
    pub files: bool,
    /// Only a file or a link counts: a directory there is the tool's own.
    #[serde(default, rename = "file-only")]
    pub file_only: bool,
    /// It stands for each symbolic link in a git directory, and is no path.
    #[serde(default)]
    pub links: bool,
    /// Git writes this file: it counts at the end, and only for what git would not have written into it.
    #[serde(default)]
    pub content: bool,
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
    /// Whether all that has its path counts.
    pub fn is_path(&self) -> bool {
        !self.links && !self.content
    }

    /// Where the entry applies, and its path from there.
    pub fn base(&self) -> ProtectedBase<'_> {
        match self.path.strip_prefix(".git") {
            Ok(rest) if rest.components().next().is_some() => ProtectedBase::Git(rest),
            _ => ProtectedBase::Top(&self.path),
        }
    }

    /// Its path from there.
    pub fn below(&self) -> &Path {
        let (ProtectedBase::Top(path) | ProtectedBase::Git(path)) = self.base();
        path
    }

    /// How many components of [`Self::below`] a found path ends with: all, or fewer if a link stands for a directory.
    pub(super) fn parts(&self, path: &Path) -> usize {
        let below: Vec<Component<'_>> = self.below().components().collect();
        let ends_with = |parts: &usize| {
            let ends = path.components().rev().zip(below[..*parts].iter().rev());
            ends.filter(|(a, b)| a.as_os_str().eq_ignore_ascii_case(b.as_os_str()))
                .count()
                == *parts
        };
        let all = below.len();
        (1..=all).rev().find(ends_with).unwrap_or(all)
    }

    /// Its name in policies.
    pub fn name(&self) -> &str {
        self.path.to_str().unwrap_or_default()
    }
}

static BUILTIN: LazyLock<ProtectedList> = LazyLock::new(|| {
    let list = table!("protected").read();
    let mut list: ProtectedList = list.expect("a test parses the built-in list");
    let paths = list.place.iter().enumerate();
    for (index, place) in paths.filter(|(_, place)| !place.links) {
        if let Some(name) = place.path.file_name() {
            let name = name.as_encoded_bytes().to_ascii_lowercase();
            list.last.entry(name).or_default().push(index);
        }
        let below = place.below().components();
        for (before, part) in (1..below.clone().count()).zip(below) {
            let name = part.as_os_str().as_encoded_bytes().to_ascii_lowercase();
            list.inner.entry(name).or_default().push((index, before));
        }
    }
    list
});

impl ProtectedList {
    /// The built-in list.
    pub fn builtin() -> &'static Self {
        &BUILTIN
    }

    /// The entries whose path ends with a file name, given in lower case.
    pub fn ending_with(&self, name: &[u8]) -> impl Iterator<Item = &ProtectedPlace> {
        let found = self.last.get(name).into_iter().flatten();
        found.filter_map(|index| self.place.get(*index))
    }

    /// The entries that a link of a name, given in lower case, can lead to, with the number of components that the link's
    /// path has of theirs.
    pub fn through(&self, name: &[u8]) -> impl Iterator<Item = (&ProtectedPlace, usize)> {
        let found = self.inner.get(name).into_iter().flatten();
        found.filter_map(|(index, parts)| Some((self.place.get(*index)?, *parts)))
    }

    /// All entries.
    pub fn all(&self) -> &[ProtectedPlace] {
        &self.place
    }

    /// Why a path of the list is protected.
    pub fn why(&self, name: &str) -> Option<&str> {
        self.find(name).map(|place| place.why.as_str())
    }

    /// Whether the files of this directory count, and not the directory.
    pub fn counts_files(&self, name: &str) -> bool {
        self.find(name).is_some_and(|place| place.files)
    }

    /// Harmless git settings.
    #[cfg(test)]
    pub(super) fn harmless(&self) -> &HarmlessSettings {
        &self.harmless
    }

    /// The entry for links in git directories.
    pub fn links(&self) -> Option<&ProtectedPlace> {
        self.place.iter().find(|place| place.links)
    }

    /// Adds what git reads settings from: the hashes of all of it and of each setting that is not harmless, and its remotes.
    pub fn remember(&self, whole: WholeSettings<'_>, path: &Path, known: &mut KnownGit) {
        let settings = match whole {
            WholeSettings::Text(text) => git_config::parse(text).unwrap_or_default(),
            WholeSettings::Link(_) => Vec::new(),
        };
        known
            .hashes
            .append(&mut self.harmless.hashes(&settings, path));
        known.hashes.insert(whole.hash(path));
        let all = git_config::remotes(&settings);
        let short = all.iter().filter(|name| name.len() <= LONGEST_REMOTE);
        let names: Vec<String> = short.take(MOST_REMOTES).cloned().collect();
        if !all.is_empty() {
            known.remotes.push(NamedRemotes {
                file: path.to_owned(),
                more: names.len() < all.len(),
                names,
            });
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<&ProtectedPlace> {
        self.place.iter().find(|place| place.name() == name)
    }
}

/// The most remotes of a settings file, and the longest name.
const MOST_REMOTES: usize = 1000;
const LONGEST_REMOTE: usize = 256;

/// A path in a mount's source that must be read-only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FoundProtected {
    /// Relative to the source.
    pub path: PathBuf,
    /// The list's name for it.
    pub name: String,
    /// How many of its last components stay in place with it.
    pub held: usize,
    /// The file.
    pub file: FileIdentity,
}

impl FoundProtected {
    /// The directories in the source that are held in place, so that no other file gets this path.
    pub(super) fn held(&self) -> impl Iterator<Item = &Path> {
        let above = self.path.ancestors().skip(1);
        let above = above.take_while(|a| !a.as_os_str().is_empty());
        above.take(self.held.saturating_sub(1))
    }
}

/// How much of a mount's source was searched before the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartSearch {
    /// All of it.
    #[default]
    Complete,
    /// The search stopped, but the known places were looked up by name.
    ByName,
    /// Not even those: nothing at the end can be called new.
    Stopped,
}

impl StartSearch {
    pub(super) fn is_complete(&self) -> bool {
        *self == Self::Complete
    }
}

/// The listed files in a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProtectedFiles {
    /// Files and directories.
    pub found: Vec<FoundProtected>,
    /// Git settings files, read-only if `filesystem.git-config` says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<FoundProtected>,
    /// Hashes of their settings that are not harmless, and of links in git directories.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub known: BTreeSet<String>,
    /// Their remotes with an address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remotes: Vec<NamedRemotes>,
    /// Repositories below it.
    pub tops: Vec<RepositoryTop>,
    /// Git directories.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "text::many")]
    pub gits: Vec<PathBuf>,
    /// Hidden directories.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<HiddenDirectory>,
    /// Files that git writes, of which the content counts. Before the start: those of [`WAITING`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<FoundProtected>,
    /// Why the search is incomplete; `None` if it is complete. Before the start: the lookup by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
}

impl ProtectedFiles {
    /// Adds a file to those of its kind.
    pub fn add(&mut self, place: &ProtectedPlace, one: FoundProtected) {
        match place {
            place if place.content => self.state.push(one),
            place if place.compared => self.settings.push(one),
            _ => self.found.push(one),
        }
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
    /// The file, which is compared when the path is made read-only.
    pub file: FileIdentity,
}

/// Whether a policy protects a name.
pub fn is_protected(unprotected: &BTreeSet<ProtectedName>, name: &str) -> bool {
    let is_free = |free: &ProtectedName| free.is_all() || free.as_str() == name;
    !unprotected.iter().any(is_free)
}

/// How many last components of a path stay in place with it: all from the outermost `.git`, else the entry's own.
pub fn held(path: &Path, own: usize) -> usize {
    let names: Vec<Component<'_>> = path.components().collect();
    let is_git = |name: &Component<'_>| name.as_os_str().eq_ignore_ascii_case(".git");
    let git = names.iter().position(is_git);
    git.map_or(own, |at| (names.len() - at).max(own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::GuardedMount;

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
        assert_eq!(list.ending_with(b"hooks").count(), 5);
        assert!(list.why(".git").is_some());
    }

    fn file(ino: u64) -> FileIdentity {
        FileIdentity { dev: 1, ino }
    }

    fn found(path: &str, name: &str, ino: u64) -> FoundProtected {
        FoundProtected {
            path: path.into(),
            name: name.to_owned(),
            held: 1,
            file: file(ino),
        }
    }

    #[test]
    fn new_files_count_in_git_directories_and_at_the_tops_of_the_start() {
        let top = |path: &str, ino| RepositoryTop {
            path: path.into(),
            ino,
        };
        let watched = GuardedMount {
            files: [10, 11].map(file).into(),
            tops: vec![top("sub", 5)],
            ..GuardedMount::default()
        };
        // On another device, such as the directories of overlayfs and each subvolume of btrfs, a number is another file's.
        let other = FoundProtected {
            file: FileIdentity { dev: 2, ino: 10 },
            ..found("new/.git/hooks", ".git/hooks", 10)
        };
        let now = ProtectedFiles {
            found: vec![
                other,
                // Existed at the start, also under another path.
                found(".envrc", ".envrc", 10),
                found("moved/.vscode", ".vscode", 11),
                // New.
                found(".mcp.json", ".mcp.json", 20),
                found("sub/.github/workflows", ".github/workflows", 21),
                found("renamed/.envrc", ".envrc", 22),
                found("new/.git/hooks", ".git/hooks", 23),
                // Links in place of a directory.
                found("sub/.Claude", ".claude/settings.json", 25),
                found("src/.claude", ".claude/settings.json", 26),
                // In a repository that is new.
                found("new/.envrc", ".envrc", 24),
            ],
            tops: vec![top("renamed", 5), top("new", 6)],
            ..ProtectedFiles::default()
        };
        let planted: Vec<u64> = watched
            .planted(&now)
            .iter()
            .map(|one| one.file.ino)
            .collect();
        assert_eq!(planted, [10, 20, 21, 22, 23, 25]);
    }

    #[test]
    fn a_git_directory_stays_in_place_with_all_its_content() {
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
            file: file(1),
        };
        let expect = ["a/.git/modules/x", "a/.git/modules", "a/.git"].map(Path::new);
        assert_eq!(found.held().collect::<Vec<_>>(), expect);
    }
}
