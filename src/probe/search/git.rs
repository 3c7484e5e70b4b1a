//! What git knows of a file: whether its repository has it, with the same content.
//!
//! The index is a file of the workspace, and an agent may have written it. So a file is visible only if the index has
//! the hash of its content. Only a writer who knows the content can add that hash, and readers of the repository have
//! the content anyway.
//!
//! git names a repository by paths that are valid in the container. So they are looked up in the container's mounts:
//! the searched one or another. Links are not followed.

use std::collections::{BTreeSet, HashMap};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use ring::digest::{SHA256, digest};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::content::{self, Content};
use super::cost::Cost;
use super::index::Index;
use super::places::DirTree;
use super::sha1::sha1;
use crate::plan::never::FileNameFilter;
use crate::plan::{GitState, UntrackedFile, VisibleKind};
use crate::policy::ProtectedName;

/// The largest index that is read, MiB: room for a million files.
const LARGEST: u64 = 128;

/// Why a directory outside of the work tree cannot be judged, and the remedy.
const SPARSE: &str = "git keeps its directory out of the work tree (git sparse-checkout disable)";

/// The largest file that names a repository's place, bytes.
const PLACE: u64 = 4096;

/// Most bytes of memory for a work tree besides its index and the path of its exclude file, and for a known directory.
const TREE: usize = 512;
const KNOWN: usize = 32;

/// What happens to a file with a credential's name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CredentialFate {
    /// git has it, and it is no secret. The file itself.
    Shown(VisibleKind),
    /// It is hidden, with git's view of it.
    Hidden(GitState),
}

/// A file in a directory that the search has met.
#[derive(Clone, Copy)]
pub(super) struct Spot<'a> {
    pub(super) places: &'a DirTree,
    pub(super) directory: u32,
    /// Relative to the root.
    pub(super) path: &'a Path,
}

/// The places of a container's mounts.
#[derive(Default)]
pub struct MountView<'a> {
    /// The container path of the searched mount.
    pub own: PathBuf,
    /// The container paths of the other mounts, and their roots.
    pub others: &'a [(PathBuf, BorrowedFd<'a>)],
    /// Excluded directories of the searched mount; the empty path excludes all of it.
    pub passed: Vec<PathBuf>,
    /// If the container can write the searched mount: the protected names that it may write.
    pub unprotected: Option<&'a BTreeSet<ProtectedName>>,
}

/// A path in one of the container's mounts.
#[derive(Clone)]
struct MountPath<'a> {
    root: BorrowedFd<'a>,
    path: PathBuf,
    /// Whether it is the mount that is searched.
    own: bool,
    /// The path in the container.
    place: PathBuf,
}

/// A work tree.
enum Tree {
    /// Its repository is not in the container, so git does nothing in it.
    Lost,
    /// The repository is in the container.
    Found(Box<Repository>),
}

struct Repository {
    /// Its files, or why they are unknown.
    index: Result<Index, String>,
    /// The exclude file, which tells git what to ignore.
    exclude: Option<PathBuf>,
    /// Whether git keeps files out of the work tree, and still looks at those that exist.
    sparse: bool,
}

/// The work trees inside a mount's source, each looked at once.
pub(super) struct Repositories<'a> {
    root: &'a OwnedFd,
    view: &'a MountView<'a>,
    /// The last components of all names that are looked up.
    last: &'a FileNameFilter,
    /// The work trees, each with its directory.
    trees: Vec<(u32, Tree)>,
    /// The nearest work tree of a directory: itself or above.
    nearest: HashMap<u32, Option<usize>>,
}

impl<'a> Repositories<'a> {
    pub(super) fn new(
        root: &'a OwnedFd,
        view: &'a MountView<'a>,
        last: &'a FileNameFilter,
    ) -> Self {
        Self {
            root,
            view,
            last,
            trees: Vec::new(),
            nearest: HashMap::new(),
        }
    }

    /// Judges a file or a symbolic link. Its content is read only if git has a file of its name.
    pub(super) fn file(
        &mut self,
        cost: &mut Cost,
        spot: Spot<'_>,
        content: &mut Content<'_>,
    ) -> CredentialFate {
        let Some((name, repository)) = self.find(cost, spot) else {
            return CredentialFate::Hidden(GitState::Nothing);
        };
        let index = match &repository.index {
            Ok(index) => index,
            Err(why) => return CredentialFate::Hidden(GitState::Untold(why.clone())),
        };
        let bytes = name.as_os_str().as_bytes();
        let Some(entry) = index.get(bytes) else {
            return CredentialFate::Hidden(match index.is_below_sparse(bytes) {
                true => GitState::Untold(SPARSE.to_owned()),
                false => repository.untracked(name),
            });
        };
        match content.get(cost) {
            Some(found) if entry.hash == blob(&found.bytes, entry.hash.len()) => {
                CredentialFate::Shown(found.what.clone())
            }
            _ if entry.skipped && !repository.sparse => CredentialFate::Hidden(GitState::Nothing),
            _ => CredentialFate::Hidden(GitState::Changed),
        }
    }

    /// git's view of a directory that is hidden as a whole; `None` if git has files in it, each of which is judged.
    pub(super) fn directory(&mut self, cost: &mut Cost, spot: Spot<'_>) -> Option<GitState> {
        let Some((name, repository)) = self.find(cost, spot) else {
            return Some(GitState::Nothing);
        };
        let bytes = name.as_os_str().as_bytes();
        match &repository.index {
            Ok(index) if index.has_below(bytes) => None,
            // A submodule.
            Ok(index) if index.get(bytes).is_some() => Some(GitState::Changed),
            Ok(index) if index.is_below_sparse(bytes) => Some(GitState::Untold(SPARSE.to_owned())),
            Ok(_) => Some(repository.untracked(name)),
            Err(why) => Some(GitState::Untold(why.clone())),
        }
    }

    /// The repository of the nearest work tree above a file, and the file's path in the tree.
    fn find<'p>(&mut self, cost: &mut Cost, spot: Spot<'p>) -> Option<(&'p Path, &Repository)> {
        let tree = self.nearest(cost, spot)?;
        match self.trees.get(tree)? {
            (_, Tree::Lost) => None,
            (directory, Tree::Found(repository)) => {
                let above = spot.places.path(*directory);
                Some((spot.path.strip_prefix(above).ok()?, repository))
            }
        }
    }

    fn nearest(&mut self, cost: &mut Cost, spot: Spot<'_>) -> Option<usize> {
        let (mut passed, mut found) = (Vec::new(), None);
        let mut at = Some(spot.directory);
        while let Some(directory) = at {
            if let Some(known) = self.nearest.get(&directory) {
                found = *known;
                break;
            }
            passed.push(directory);
            cost.keep(KNOWN).ok()?;
            if let Some(tree) = self.look(cost, &spot.places.path(directory)) {
                found = Some(self.trees.len());
                self.trees.push((directory, tree));
                break;
            }
            at = spot.places.above(directory);
        }
        self.nearest.extend(passed.into_iter().map(|d| (d, found)));
        found
    }

    /// Reads `.git` in a directory: the repository, a link to it, or a file that names its place (a submodule, a second
    /// work tree).
    fn look(&self, cost: &mut Cost, tree: &Path) -> Option<Tree> {
        let place = normal(&self.view.own.join(tree));
        let git = self.at(&place, Path::new(".git"))?;
        let (git, lost) = match git.kind()? {
            FileType::Directory => (Some(git), None),
            // git ignores a `.git` that is not a repository, unless it is a file: that one makes it fail.
            FileType::Symlink => (self.at(&place, &git.link()?), None),
            FileType::RegularFile => (
                git.text("gitdir:").and_then(|to| self.at(&place, &to)),
                Some(Tree::Lost),
            ),
            _ => return None,
        };
        let found = git.and_then(|git| self.repository(cost, &git));
        found.map(|r| Tree::Found(Box::new(r))).or(lost)
    }

    /// The repository in a directory, if it has the files that git looks for.
    fn repository(&self, cost: &mut Cost, git: &MountPath<'a>) -> Option<Repository> {
        let common = match git.join("commondir").text("") {
            Some(to) => self.at(&git.place, &to)?,
            None => git.clone(),
        };
        git.join("HEAD").kind()?;
        common.join("objects").kind()?;
        common.join("refs").kind()?;
        let exclude = common.join("info/exclude");
        let writable = matches!(exclude.kind(), None | Some(FileType::RegularFile));
        cost.keep(TREE + exclude.place.as_os_str().len()).ok()?;
        Some(Repository {
            index: self.index(cost, git),
            exclude: writable.then(|| exclude.named()),
            sparse: git.join("info/sparse-checkout").kind().is_some(),
        })
    }

    fn index(&self, cost: &mut Cost, git: &MountPath<'_>) -> Result<Index, String> {
        let file = |name: &str| {
            let found = content::regular(git.root, &git.join(name).path)?;
            Ok(found.filter(|(_, size)| *size <= LARGEST << 20))
        };
        match file("index") {
            Ok(Some(_)) => {}
            // Nothing was ever added.
            Err(Errno::NOENT) => return Ok(Index::default()),
            _ => {
                return Err(format!(
                    "git's index in {:?} cannot be read, or is larger than {LARGEST} MiB",
                    git.place
                ));
            }
        }
        let wanted = |name: &[u8]| {
            let mut parts = name.split(|byte| *byte == b'/');
            parts.any(|part| self.last.contains(part))
        };
        let open = |name: &str| {
            let (file, size) = file(name).ok().flatten()?;
            Some((Box::new(file) as Box<dyn Read>, size))
        };
        Index::parse(&open, &wanted, cost).map_err(|why| {
            let place = git.place.display();
            format!(
                "{why} (in {place}; git update-index --index-version=2 --no-split-index, or remove the file and git reset)"
            )
        })
    }

    /// Resolves a path that git has written into a directory of the container.
    fn at(&self, directory: &Path, to: &Path) -> Option<MountPath<'a>> {
        let place = normal(&directory.join(to));
        let own = (self.view.own.as_path(), self.root.as_fd());
        let others = self
            .view
            .others
            .iter()
            .map(|(path, root)| (path.as_path(), *root));
        let holds = others
            .chain([own])
            .filter(|(mount, _)| place.starts_with(mount));
        let (mount, root) = holds.max_by_key(|(mount, _)| mount.components().count())?;
        Some(MountPath {
            root,
            path: place.strip_prefix(mount).ok()?.to_owned(),
            own: mount == self.view.own,
            place,
        })
    }
}

impl Repository {
    fn untracked(&self, name: &Path) -> GitState {
        match &self.exclude {
            Some(exclude) => GitState::Untracked(UntrackedFile {
                exclude: exclude.clone(),
                name: name.to_owned(),
            }),
            None => GitState::Nothing,
        }
    }
}

impl MountPath<'_> {
    fn join(&self, name: &str) -> Self {
        Self {
            path: self.path.join(name),
            place: self.place.join(name),
            ..self.clone()
        }
    }

    /// The path as the plan names it.
    fn named(&self) -> PathBuf {
        match self.own {
            true => self.path.clone(),
            false => self.place.clone(),
        }
    }

    fn kind(&self) -> Option<FileType> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let opened = content::open(self.root, &self.path, flags).ok()?;
        let stat = rustix::fs::fstat(&opened).ok()?;
        Some(FileType::from_raw_mode(stat.st_mode))
    }

    fn link(&self) -> Option<PathBuf> {
        let target = content::target(self.root, &self.path)?;
        Some(std::ffi::OsString::from_vec(target).into())
    }

    /// The path after `word` in a file of git's.
    fn text(&self, word: &str) -> Option<PathBuf> {
        let (file, _) = content::regular(self.root, &self.path).ok()??;
        let text = content::all(file, PLACE).ok()??;
        let path = text.strip_prefix(word.as_bytes())?.trim_ascii();
        Some(std::ffi::OsString::from_vec(path.to_vec()).into())
    }
}

/// A path without `.` and `..`, as git joins them.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

/// git's hash of a file's content, `width` bytes long.
pub(super) fn blob(content: &[u8], width: usize) -> Vec<u8> {
    let head = format!("blob {}\0", content.len());
    let whole = [head.as_bytes(), content].concat();
    match width {
        20 => sha1(&whole).to_vec(),
        _ => digest(&SHA256, &whole).as_ref().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contents_hash_is_the_one_of_git() {
        // `git hash-object` of an empty file and of "hello\n".
        let name = |bytes: &[u8], width| {
            let hex = blob(bytes, width)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<Vec<_>>();
            hex.concat()
        };
        assert_eq!(name(b"", 20), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(
            name(b"hello\n", 20),
            "ce013625030ba8dba906f756967f9e9ca394464a"
        );
        assert_eq!(
            name(b"hello\n", 32),
            "2cf8d83d9ee29543b34a87727421fdecb7e3f3a183d337639025de576db9ebb4"
        );
    }

    #[test]
    fn a_path_is_joined_as_git_joins_it() {
        for (path, expect) in [
            ("/a/sub/../.git/modules/sub", "/a/.git/modules/sub"),
            ("/a/./b/", "/a/b"),
            ("/../a", "/a"),
        ] {
            assert_eq!(normal(Path::new(path)), Path::new(expect));
        }
    }
}
