//! SHELL. Files with which git would show other commits than it pushes, and which no name of the list finds: symbolic references
//! (git-symbolic-ref(1)), by which a fetch, a merge or a new branch writes another one or a replaced object, and a commit graph
//! (gitformat-commit-graph(5)), which says what tree a commit has. Git makes the graph anew.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Stat};

use super::hooks_path::ctime;
use super::look::{beginning, file_of};
use super::replaced::REVIEW;
use crate::plan::{FoundProtected, git_reference};
use crate::policy::typed_path;
use crate::probe;

/// The list's name for all of them.
pub(super) const NAME: &str = ".git/refs/replace";

/// The most entries of a git directory that are looked at.
const MOST: usize = 20_000;

/// How long the references of a git directory are looked at.
const TIME: Duration = Duration::from_secs(10);

/// How much of a symbolic reference is read. The name in it is a path, and so shorter; what is cut leads nowhere, and counts as odd.
const LONGEST: u64 = 8192;

/// The files of a commit graph, in a directory of objects.
const GRAPHS: [&str; 2] = ["info/commit-graph", "info/commit-graphs"];

/// What is found, relative to the source.
#[derive(Default)]
pub(super) struct FoundReferences {
    pub(super) found: Vec<FoundProtected>,
    /// Commit graphs.
    pub(super) graphs: Vec<FoundProtected>,
    /// A line if not all were looked at.
    pub(super) unread: Option<String>,
    looked_at: usize,
    /// The git directory.
    git: PathBuf,
    /// Which part of one the source is instead.
    part: PathBuf,
    /// The container's start, since 1970.
    begun: Duration,
}

/// How old a reference is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReferenceAge {
    /// Its own time tells.
    Told,
    /// Its directory changed after the start, or one above: it may have come with it.
    Moved,
    /// It changed after the start.
    New,
}

impl ReferenceAge {
    /// That of a file that changed last at this time, in a directory of this age.
    fn of(self, changed: Duration, begun: Duration) -> Self {
        match changed >= begun {
            true => Self::New,
            false => self,
        }
    }
}

impl FoundReferences {
    /// Looks through a git directory. `begun`: the container's start, since 1970.
    pub(super) fn of_git(root: BorrowedFd<'_>, source: &Path, git: &Path, begun: Duration) -> Self {
        let mut all = Self {
            git: git.to_owned(),
            begun,
            ..Self::default()
        };
        all.files(root, git, ReferenceAge::Told);
        let directories = vec![git.join("worktrees"), git.join("refs")];
        all.below(root, source, directories);
        all.graphs(root, &git.join("objects"));
        all
    }

    /// Looks through a source that is a part of a git directory: of a second work tree, references or objects.
    pub(super) fn of_part(root: BorrowedFd<'_>, source: &Path, begun: Duration) -> Self {
        let name = source.file_name().unwrap_or_default();
        let is_tree = source.parent().and_then(Path::file_name) == Some(OsStr::new("worktrees"));
        let mut all = Self {
            part: match is_tree {
                true => Path::new("worktrees").join(name),
                false => name.into(),
            },
            begun,
            ..Self::default()
        };
        // A submodule may have such a name.
        let is_of_git = source.with_file_name("HEAD").exists();
        if is_tree || is_of_git && name == "refs" {
            all.below(root, source, vec![PathBuf::new()]);
        } else if is_of_git && name == "objects" {
            all.graphs(root, Path::new(""));
        }
        all
    }

    /// The directories with all below them, for ten seconds.
    fn below(&mut self, root: BorrowedFd<'_>, source: &Path, directories: Vec<PathBuf>) {
        let end = Instant::now() + TIME;
        let told = |path| (path, ReferenceAge::Told);
        let mut directories: Vec<(PathBuf, ReferenceAge)> =
            directories.into_iter().map(told).collect();
        while let Some((path, age)) = directories.pop() {
            let shown = source.join(&path);
            directories.append(&mut self.files(root, &path, age));
            if self.looked_at > MOST || Instant::now() > end {
                self.unread = Some(format!(
                    "{} has too many references, so not all were looked at: {REVIEW}",
                    typed_path(&shown)
                ));
                return;
            }
        }
    }

    /// Looks at the files of a directory. Returns the directories in it. Links are found by name.
    fn files(
        &mut self,
        root: BorrowedFd<'_>,
        path: &Path,
        age: ReferenceAge,
    ) -> Vec<(PathBuf, ReferenceAge)> {
        let mut below = Vec::new();
        let Ok(directory) = probe::directory_below(root, path) else {
            return below;
        };
        let Ok(entries) = Dir::read_from(&directory) else {
            return below;
        };
        // What was moved here with its directory keeps its own time.
        let is_changed = rustix::fs::fstat(&directory).is_ok_and(|stat| ctime(&stat) >= self.begun);
        let age = match is_changed && path != self.git {
            true => ReferenceAge::Moved,
            false => age,
        };
        for entry in entries.filter_map(Result::ok) {
            self.looked_at += 1;
            if self.looked_at > MOST {
                return below;
            }
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let stat = || rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
            let kind = match entry.file_type() {
                // Some file systems do not tell.
                FileType::Unknown => stat().map_or(FileType::Unknown, |stat| {
                    FileType::from_raw_mode(stat.st_mode)
                }),
                kind => kind,
            };
            if kind == FileType::Directory {
                below.push((path.join(name), age));
            } else if kind == FileType::RegularFile
                && let Some(text) = text(&directory, name)
                && let Ok(stat) = stat()
                && self.is_planted(&path.join(name), &text, age.of(ctime(&stat), self.begun))
            {
                self.found.push(found(path.join(name), &stat));
            }
        }
        below
    }

    /// Whether a symbolic reference is one that git does not make. An older one may be the user's own, such as a branch's other name.
    fn is_planted(&self, path: &Path, text: &[u8], age: ReferenceAge) -> bool {
        let path = self.in_git(path);
        let is_new = match age {
            ReferenceAge::Told => false,
            ReferenceAge::Moved => !git_reference::is_alias(&path, text),
            ReferenceAge::New => true,
        };
        !git_reference::is_usual(&path, text) && (is_new || git_reference::is_to_replaced(text))
    }

    /// The path in the git directory of a file.
    fn in_git(&self, path: &Path) -> PathBuf {
        self.part.join(path.strip_prefix(&self.git).unwrap_or(path))
    }

    fn graphs(&mut self, root: BorrowedFd<'_>, objects: &Path) {
        for graph in GRAPHS {
            self.graph(root, &objects.join(graph));
        }
    }

    /// A commit graph that is newer than the start, or has such a file.
    fn graph(&mut self, root: BorrowedFd<'_>, path: &Path) {
        let Ok(above) = probe::directory_below(root, path.parent().unwrap_or(Path::new(""))) else {
            return;
        };
        let name = path.file_name().unwrap_or_default();
        let Ok(stat) = rustix::fs::statat(&above, name, AtFlags::SYMLINK_NOFOLLOW) else {
            return;
        };
        let begun = self.begun;
        let is_new = |stat: &Stat| ctime(stat) >= begun;
        // It may have come with its directory.
        let info = rustix::fs::fstat(above);
        if is_new(&stat)
            || info.is_ok_and(|info| is_new(&info))
            || files_of(root, path).iter().any(is_new)
        {
            self.graphs.push(found(path.to_owned(), &stat));
        }
    }
}

fn found(path: PathBuf, stat: &Stat) -> FoundProtected {
    FoundProtected {
        path,
        name: NAME.to_owned(),
        held: 1,
        file: file_of(stat),
    }
}

/// Removes a commit graph, a file or a directory of files. Git makes it anew: `git gc` wrote it. What git has not made is an error.
pub(super) fn remove(root: BorrowedFd<'_>, graph: &Path) -> io::Result<()> {
    let above = probe::directory_below(root, graph.parent().unwrap_or(Path::new("")))?;
    let name = graph.file_name().unwrap_or_default();
    let Ok(directory) = probe::directory_below(root, graph) else {
        return Ok(rustix::fs::unlinkat(&above, name, AtFlags::empty())?);
    };
    let mut files = Vec::new();
    for entry in Dir::read_from(&directory)?.take(MOST) {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let is_gits = [&b"graph-"[..], b"commit-graph-chain", b"tmp_graph_"]
            .iter()
            .any(|begin| name.starts_with(begin));
        match name {
            b"." | b".." => {}
            _ if is_gits => files.push(entry.file_name().to_owned()),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
    for file in files {
        rustix::fs::unlinkat(&directory, file, AtFlags::empty())?;
    }
    Ok(rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR)?)
}

/// The state of each file in a directory; none if it is no directory.
pub(super) fn files_of(root: BorrowedFd<'_>, path: &Path) -> Vec<Stat> {
    let Ok(directory) = probe::directory_below(root, path) else {
        return Vec::new();
    };
    let entries = Dir::read_from(&directory).into_iter().flatten();
    let names = entries.take(MOST).filter_map(Result::ok);
    let names = names.filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."));
    names
        .filter_map(|entry| {
            rustix::fs::statat(&directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW).ok()
        })
        .collect()
}

/// The text of a symbolic reference.
fn text(directory: &OwnedFd, name: &OsStr) -> Option<Vec<u8>> {
    let text = beginning(directory, name, LONGEST).ok()?;
    text.starts_with(b"ref:").then_some(text)
}
