//! Whether an index has names that lie outside of the work tree or in git's own directory. Git checks a name when it adds it, and
//! not when it reads it (verify_path in read-cache.c): `git status` obeys the settings of a submodule `../../x`, and
//! `git restore .` writes `.git/hooks/pre-commit`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use data_encoding::HEXLOWER;

use super::super::cost::{Cost, SearchBudget};
use super::Part;

/// Which names an index has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexNames {
    /// Paths in the work tree.
    Inside,
    /// Also others.
    Outside,
    /// It is not as git writes it, or takes too long to read.
    NotUnderstood,
}

/// A repository's hash function (extensions.objectFormat).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectFormat {
    /// git's default.
    Sha1,
    /// Since git 2.29.
    Sha256,
}

impl ObjectFormat {
    /// Bytes of a hash.
    fn width(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }
}

/// The names of an index and of its shared part, which an agent may have written. `open` opens a file beside it.
pub fn names(open: &dyn Fn(&str) -> Option<File>, format: ObjectFormat) -> IndexNames {
    let mut cost = Cost::new(SearchBudget::INDEX_AT_END);
    let width = format.width();
    let mut read = |name: &str| {
        let file = open(name)?;
        let size = file.metadata().ok()?.len();
        let hidden = end_offsets(&file, size, width);
        let part = Part::parse((Box::new(file), size), width, &is_outside, &mut cost)?;
        // Git finds it by its distance from the end, whatever it stands in.
        hidden
            .iter()
            .all(|at| part.end_offset == Some(*at))
            .then_some(part)
    };
    let Some(own) = read("index") else {
        return IndexNames::NotUnderstood;
    };
    let name = match own.link.as_deref().map(|link| link.get(..width)) {
        None => None,
        Some(None) => return IndexNames::NotUnderstood,
        Some(Some(name)) => Some(name).filter(|name| name.iter().any(|byte| *byte != 0)),
    };
    let shared = name.map(|name| read(&format!("sharedindex.{}", HEXLOWER.encode(name))));
    match shared {
        Some(None) => IndexNames::NotUnderstood,
        Some(Some(shared)) if shared.link.is_some() || has_outside(&shared) => IndexNames::Outside,
        _ if has_outside(&own) => IndexNames::Outside,
        _ => IndexNames::Inside,
    }
}

/// Where git may find the extension that says where the others begin (EOIE): its size counts a hash of 20 bytes, with SHA-256 too.
fn end_offsets(file: &File, size: u64, width: usize) -> Vec<u64> {
    let has = |record: &u32| {
        let at = size.checked_sub(width as u64 + 8 + u64::from(*record))?;
        let mut head = [0; 8];
        file.read_exact_at(&mut head, at).ok()?;
        (head == *[&b"EOIE"[..], &record.to_be_bytes()].concat()).then_some(at)
    };
    [24, 36].iter().filter_map(has).collect()
}

/// Only the own part of a split index has entries without names.
fn has_outside(part: &Part) -> bool {
    let link = part.link.iter().flatten().take(20);
    let is_split = link.into_iter().any(|byte| *byte != 0);
    let mut names = part.entries.values().map(|(name, _)| &name[..]);
    names.any(|name| !(name.is_empty() && is_split) && is_outside(name))
}

/// Whether git would refuse to add this name. A directory that stands for its files ends with a slash (sparse index).
fn is_outside(name: &[u8]) -> bool {
    let name = name.strip_suffix(b"/").unwrap_or(name);
    name.split(|byte| *byte == b'/').any(|part| {
        // Some file systems take a name with points and blanks behind it for the same.
        let end = part.iter().rposition(|byte| !matches!(byte, b'.' | b' '));
        let short = end.and_then(|end| part.get(..=end)).unwrap_or(b"");
        matches!(part, b"" | b"." | b"..")
            || [&b".git"[..], b"git~1"]
                .iter()
                .any(|git| short.eq_ignore_ascii_case(git))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::TestIndex;
    use super::*;
    use crate::probe::TestDir;

    /// With a shared part.
    fn read_both(own: &[u8], shared: Option<&[u8]>) -> IndexNames {
        // Tests run beside one another.
        let thread = std::thread::current().id();
        let scratch = TestDir::new(&format!("index-{thread:?}"));
        let open = |name: &str| {
            let path = scratch.0.join(name);
            let text = if name == "index" { Some(own) } else { shared };
            fs::write(&path, text?).unwrap();
            File::open(path).ok()
        };
        names(&open, ObjectFormat::Sha1)
    }

    fn read(bytes: &[u8]) -> IndexNames {
        read_both(bytes, None)
    }

    #[test]
    fn a_name_is_one_that_git_adds() {
        for name in [
            "a",
            "a/b",
            ".gitignore",
            ".github/x",
            "a.git/config",
            "...a",
            ".../a",
            " /. .",
            "a/..b",
            "dir/",
        ] {
            assert!(!is_outside(name.as_bytes()), "{name}");
        }
        for name in [
            "",
            "/a",
            "a//b",
            "..",
            "../a",
            "a/../b",
            "./a",
            "a/.",
            ".git/hooks/x",
            "a/.GIT",
            ".git./x",
            ".git /x",
            "GIT~1/config",
            "a//",
        ] {
            assert!(is_outside(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn an_index_has_names_inside_alone() {
        for version in [2, 4] {
            let index = |paths: &[&str]| read(&TestIndex::sha1(version, paths).bytes(&[]));
            assert_eq!(index(&["a", "b/c", "b/d"]), IndexNames::Inside);
            assert_eq!(index(&["../a", "b"]), IndexNames::Outside);
            assert_eq!(
                index(&["a", "b/", "b/.git/hooks/pre-commit"]),
                IndexNames::Outside
            );
            // No part of a split index.
            assert_ne!(index(&["", "b"]), IndexNames::Inside);
            let split = |paths: &[&str], shared: &[&str]| {
                let own = TestIndex::sha1(version, paths).bytes(&[(b"link", &[7; 20])]);
                read_both(&own, Some(&TestIndex::sha1(version, shared).bytes(&[])))
            };
            assert_eq!(split(&["", "b"], &["a"]), IndexNames::Inside);
            assert_eq!(split(&["", "../b"], &["a"]), IndexNames::Outside);
            assert_eq!(split(&["", "b"], &["/a"]), IndexNames::Outside);
            assert_eq!(split(&["", "b"], &["", "a"]), IndexNames::Outside);
            let alone = TestIndex::sha1(version, &["b"]).bytes(&[(b"link", &[7; 20])]);
            assert_eq!(read(&alone), IndexNames::NotUnderstood);
        }
    }

    /// Before version 4 git goes by the length, and by the zero behind the name.
    #[test]
    fn a_length_that_is_not_the_names_is_not_understood() {
        let mut index = TestIndex::sha1(2, &["abc"]).bytes(&[]);
        let at = index.windows(4).position(|w| w == b"\x03abc").unwrap();
        assert_eq!(read(&index), IndexNames::Inside);
        index[at] = 9;
        assert_eq!(read(&index), IndexNames::NotUnderstood);
    }

    /// Git reads a large index in threads, from offsets in an extension.
    #[test]
    fn offsets_are_those_of_the_entries() {
        let paths = ["a", "b", "c"];
        let plain = TestIndex::sha1(2, &paths).bytes(&[]);
        let entry = (plain.len() - 12 - 20) / 3;
        let starts: Vec<u32> = (0..3)
            .map(|at| u32::try_from(12 + at * entry).unwrap())
            .collect();
        let end = u32::try_from(plain.len() - 20).unwrap();
        let table = |blocks: &[(u32, u32)]| {
            let mut bytes = 1_u32.to_be_bytes().to_vec();
            for (offset, count) in blocks {
                bytes.extend(offset.to_be_bytes());
                bytes.extend(count.to_be_bytes());
            }
            bytes
        };
        let ends = |offset: u32| [&offset.to_be_bytes()[..], &[0; 20]].concat();
        let index = |table: &[u8], ends: &[u8]| {
            read(&TestIndex::sha1(2, &paths).bytes(&[(b"IEOT", table), (b"EOIE", ends)]))
        };
        let good = table(&[(starts[0], 2), (starts[2], 1)]);
        assert_eq!(index(&good, &ends(end)), IndexNames::Inside);
        for bad in [
            table(&[(starts[0], 2), (starts[1], 1)]),
            table(&[(starts[0], 2)]),
            table(&[(starts[0], 2), (starts[2], 2)]),
            table(&[(0, 3)]),
            vec![0, 0, 0, 2],
        ] {
            assert_eq!(index(&bad, &ends(end)), IndexNames::NotUnderstood);
        }
        assert_eq!(index(&good, &ends(end + 8)), IndexNames::NotUnderstood);
        // In an extension, and in the last entry: in its hash, its flags and its name.
        let hidden = [&b"xxxxEOIE\0\0\0\x18"[..], &ends(end)].concat();
        let bytes = TestIndex::sha1(2, &paths).bytes(&[(b"TREE", &hidden)]);
        assert_eq!(read(&bytes), IndexNames::NotUnderstood);
        let before = TestIndex::sha1(2, &paths).bytes(&[(b"TREE", &hidden), (b"REUC", b"")]);
        assert_eq!(read(&before), IndexNames::Inside);
        let mut last = TestIndex::sha1(2, &["a", "bbbbbbbbb"]).bytes(&[]);
        assert_eq!(read(&last), IndexNames::Inside);
        let at = last.len() - 20 - 32;
        last[at..at + 8].copy_from_slice(b"EOIE\0\0\0\x18");
        assert_eq!(read(&last), IndexNames::NotUnderstood);
    }
}
