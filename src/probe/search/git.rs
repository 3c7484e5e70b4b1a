//! What git knows of a file: whether its repository has it, with this very content.
//!
//! The index is a file of the workspace, which an agent may have written. So nothing is believed that needs no knowledge: a
//! file is shown where the index has the hash of its content, which only somebody who has the content can have put there.
//! Whoever reads the repository has it anyway.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

use super::sha1::sha1;

/// The largest index that is read: some hundred thousand files.
const LARGEST: u64 = 64 << 20;

/// The largest file whose content is compared.
const CONTENT: u64 = 1 << 20;

/// Bytes of an entry of the index before its name (gitformat-index(5)).
const FIXED: usize = 62;

/// What git knows of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing.
    Untracked,
    /// It has another content of it.
    Changed,
    /// It has this content.
    Unchanged,
}

/// The indexes of the work trees inside a mount's source, each read once.
#[derive(Default)]
pub(super) struct Repositories {
    trees: HashMap<PathBuf, Option<Index>>,
}

impl Repositories {
    /// What the nearest work tree above a file knows of it.
    pub(super) fn know(&mut self, root: &OwnedFd, path: &Path, content: &[u8]) -> Known {
        let Some((relative, index)) = self.index(root, path) else {
            return Known::Untracked;
        };
        match index.hash(relative.as_os_str().as_bytes()) {
            None => Known::Untracked,
            Some(hash) if *hash == blob(content) => Known::Unchanged,
            Some(_) => Known::Changed,
        }
    }

    /// Whether the nearest work tree above a directory has a file in it.
    pub(super) fn know_below(&mut self, root: &OwnedFd, directory: &Path) -> bool {
        let found = self.index(root, directory);
        found.is_some_and(|(relative, index)| index.has_below(relative.as_os_str().as_bytes()))
    }

    fn index<'a, 'p>(
        &'a mut self,
        root: &OwnedFd,
        path: &'p Path,
    ) -> Option<(&'p Path, &'a Index)> {
        let above = path.ancestors().skip(1);
        let tree = above.map(Path::to_path_buf).find(|tree| {
            let known = self.trees.contains_key(tree);
            if !known && let Some(git) = git_directory(root, tree) {
                let index = read(root, &git.join("index"), LARGEST);
                let index = index.and_then(|bytes| Index::parse(&bytes));
                self.trees.insert(tree.clone(), index);
            }
            self.trees.contains_key(tree)
        })?;
        let index = self.trees.get(&tree)?.as_ref()?;
        Some((path.strip_prefix(&tree).ok()?, index))
    }
}

/// Where a work tree's repository is: `.git`, or where the file of that name says (a submodule, a second work tree).
fn git_directory(root: &OwnedFd, tree: &Path) -> Option<PathBuf> {
    let git = tree.join(".git");
    let opened = open(root, &git, OFlags::PATH)?;
    match FileType::from_raw_mode(rustix::fs::fstat(&opened).ok()?.st_mode) {
        FileType::Directory => Some(git),
        FileType::RegularFile => {
            let text = String::from_utf8(read(root, &git, 4096)?).ok()?;
            let place = text.strip_prefix("gitdir:")?.trim();
            Some(tree.join(place)).filter(|p| p.is_relative())
        }
        _ => None,
    }
}

/// Opens what lies beneath the root, by way of no link and no other file system.
fn open(root: &OwnedFd, path: &Path, flags: OFlags) -> Option<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::openat2(root, path, flags, Mode::empty(), resolve).ok()
}

/// A regular file's content, if it is no larger.
fn read(root: &OwnedFd, path: &Path, most: u64) -> Option<Vec<u8>> {
    // Not a pipe that nobody writes to.
    let file = open(
        root,
        path,
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY,
    )?;
    let stat = rustix::fs::fstat(&file).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut bytes = Vec::new();
    File::from(file)
        .take(most + 1)
        .read_to_end(&mut bytes)
        .ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}

/// The content of a file that may be a credential; nothing where it is too large, or no file.
pub(super) fn content(root: &OwnedFd, path: &Path) -> Option<Vec<u8>> {
    read(root, path, CONTENT)
}

/// The name that git gives a file's content.
fn blob(content: &[u8]) -> [u8; 20] {
    let head = format!("blob {}\0", content.len());
    sha1(&[head.as_bytes(), content].concat())
}

/// The files of an index, sorted by name as git sorts them.
#[derive(Debug, PartialEq, Eq)]
struct Index {
    entries: Vec<(Vec<u8>, [u8; 20])>,
}

impl Index {
    /// Versions 2 to 4; nothing of one that breaks off or is none.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let version = number(bytes, 4)?;
        if bytes.get(..4)? != b"DIRC" || !(2..=4).contains(&version) {
            return None;
        }
        let count = usize::try_from(number(bytes, 8)?).ok()?;
        let mut entries: Vec<(Vec<u8>, [u8; 20])> = Vec::new();
        let mut at = 12;
        for _ in 0..count {
            let hash = <[u8; 20]>::try_from(bytes.get(at + 40..at + 60)?).ok()?;
            let flags = *bytes.get(at + 60)?;
            // Two bytes more where the extended bit is set.
            let mut name = at + FIXED + if flags & 0x40 == 0 { 0 } else { 2 };
            let mut path = Vec::new();
            if version == 4 {
                let (cut, next) = varint(bytes, name)?;
                let before = entries.last().map_or(&[][..], |(path, _)| path);
                path.extend_from_slice(before.get(..before.len().checked_sub(cut)?)?);
                name = next;
            }
            let rest = bytes.get(name..)?;
            let length = rest.iter().position(|byte| *byte == 0)?;
            path.extend_from_slice(&rest[..length]);
            entries.push((path, hash));
            at = match version {
                4 => name + length + 1,
                // Padded with one to eight zeros.
                _ => at + (name + length - at + 8) / 8 * 8,
            };
        }
        // As an honest one is; what is looked up in another is not found, or is.
        Some(Self { entries })
    }

    fn hash(&self, path: &[u8]) -> Option<&[u8; 20]> {
        let found = self
            .entries
            .binary_search_by(|(own, _)| own.as_slice().cmp(path));
        Some(&self.entries.get(found.ok()?)?.1)
    }

    fn has_below(&self, directory: &[u8]) -> bool {
        let prefix = [directory, b"/"].concat();
        let first = self
            .entries
            .partition_point(|(own, _)| own.as_slice() < prefix.as_slice());
        let first = self.entries.get(first);
        first.is_some_and(|(own, _)| own.starts_with(&prefix))
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(four.try_into().ok()?))
}

/// How much of the name before is cut off (gitformat-pack(5), the offset encoding), and where it ends.
fn varint(bytes: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut byte = *bytes.get(at)?;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        at += 1;
        byte = *bytes.get(at)?;
        value = value.checked_add(1)?.checked_mul(128)? + usize::from(byte & 0x7f);
    }
    Some((value, at + 1))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An index of these files, whose content is their name.
    pub fn index(version: u32, paths: &[&str]) -> Vec<u8> {
        let count = u32::try_from(paths.len()).unwrap();
        let mut bytes = [
            b"DIRC",
            &version.to_be_bytes()[..],
            &count.to_be_bytes()[..],
        ]
        .concat();
        let mut before = "";
        for path in paths {
            let start = bytes.len();
            bytes.extend([0; 40]);
            bytes.extend(blob(path.as_bytes()));
            bytes.extend([0, u8::try_from(path.len()).unwrap()]);
            match version {
                4 => {
                    let common = before.bytes().zip(path.bytes());
                    let common = common.take_while(|(a, b)| a == b).count();
                    bytes.push(u8::try_from(before.len() - common).unwrap());
                    bytes.extend(&path.as_bytes()[common..]);
                    bytes.push(0);
                }
                _ => {
                    bytes.extend(path.as_bytes());
                    let padded = start + (bytes.len() - start + 8) / 8 * 8;
                    bytes.resize(padded, 0);
                }
            }
            before = path;
        }
        bytes
    }

    #[test]
    fn an_index_of_every_version_is_read() {
        let paths = [".aws/config", ".npmrc", "a/.npmrc", "a/b/.npmrc"];
        for version in 2..=4 {
            let index = Index::parse(&index(version, &paths)).unwrap();
            for path in paths {
                assert_eq!(index.hash(path.as_bytes()), Some(&blob(path.as_bytes())));
            }
            assert_eq!(index.hash(b".npmrc/x"), None);
            assert!(index.has_below(b".aws") && index.has_below(b"a/b"));
            assert!(!index.has_below(b".aw") && !index.has_below(b"a/c"));
        }
    }

    #[test]
    fn what_breaks_off_or_is_none_has_no_files() {
        for version in 2..=4 {
            let whole = index(version, &[".npmrc", "a/.npmrc"]);
            let least = whole.len() - 10;
            for end in 0..least {
                assert_eq!(Index::parse(&whole[..end]), None, "{version} {end}");
            }
        }
        assert_eq!(Index::parse(&index(5, &["a"])), None);
        let mut many = index(2, &["a"]);
        many[8] = 0xff;
        assert_eq!(Index::parse(&many), None);
        // A name that cuts off more than there is.
        let mut cut = index(4, &["a"]);
        cut[12 + FIXED] = 9;
        assert_eq!(Index::parse(&cut), None);
    }

    #[test]
    fn a_content_has_gits_name() {
        // `git hash-object` of an empty file and of "hello\n".
        let name = |bytes: &[u8]| {
            let hex = blob(bytes).map(|byte| format!("{byte:02x}"));
            hex.concat()
        };
        assert_eq!(name(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(name(b"hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
    }
}
