//! Indexes as git writes them, and invalid ones.

use super::*;
use crate::policy::SearchRule;
use crate::probe::search::cost::SearchBudget;
use crate::probe::search::git::blob;

/// A git index for a test.
#[derive(Clone, Copy)]
pub struct TestIndex<'a> {
    pub version: u32,
    pub width: usize,
    /// Names of files. The content of each is its name.
    pub paths: &'a [&'a str],
}

impl TestIndex<'_> {
    pub fn sha1<'a>(version: u32, paths: &'a [&'a str]) -> TestIndex<'a> {
        TestIndex {
            version,
            width: 20,
            paths,
        }
    }

    /// Its bytes, with extensions.
    pub fn bytes(self, extensions: &[(&[u8; 4], &[u8])]) -> Vec<u8> {
        let mut bytes = b"DIRC".to_vec();
        bytes.extend(self.version.to_be_bytes());
        bytes.extend(u32::try_from(self.paths.len()).unwrap().to_be_bytes());
        let mut before = "";
        for path in self.paths {
            let start = bytes.len();
            let mode: u32 = if path.ends_with('/') {
                0o040_000
            } else {
                0o100_644
            };
            bytes.extend([0; MODE]);
            bytes.extend(mode.to_be_bytes());
            bytes.extend([0; BEFORE - MODE - 4]);
            bytes.extend(blob(path.as_bytes(), self.width));
            bytes.extend([0, u8::try_from(path.len()).unwrap()]);
            match self.version {
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
        for (name, body) in extensions {
            bytes.extend(*name);
            bytes.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
            bytes.extend(*body);
        }
        // git does not check the hash if `index.skipHash` is on; agentbox never does.
        bytes.extend(vec![0; self.width]);
        bytes
    }
}

/// Reads an index, and its shared part if it has one.
fn read(
    own: &[u8],
    wanted: NameTest<'_>,
    shared: &dyn Fn(&str) -> Option<Vec<u8>>,
) -> Result<Index, &'static str> {
    let open = |name: &str| {
        let bytes = match name {
            "index" => Some(own.to_vec()),
            name => shared(name),
        };
        let bytes = bytes?;
        let size = bytes.len() as u64;
        Some((Box::new(std::io::Cursor::new(bytes)) as Box<dyn Read>, size))
    };
    let mut cost = Cost::new(SearchBudget::of(SearchRule::Complete));
    Index::parse(&open, wanted, &mut cost)
}

fn alone(bytes: &[u8]) -> Result<Index, &'static str> {
    read(bytes, &|_| true, &|_| None)
}

fn name_of(path: &str, width: usize) -> Vec<u8> {
    blob(path.as_bytes(), width)
}

const PATHS: [&str; 4] = [".aws/config", ".npmrc", "a/.npmrc", "a/b/.npmrc"];

#[test]
fn an_index_of_every_version_and_hash_is_read() {
    for (version, width) in [(2, 20), (3, 20), (4, 20), (2, 32), (4, 32)] {
        let made = TestIndex {
            version,
            width,
            paths: &PATHS,
        };
        let index = alone(&made.bytes(&[(b"TREE", b"abc")])).unwrap();
        for path in PATHS {
            let hash = &index.get(path.as_bytes()).unwrap().hash;
            assert_eq!(*hash, name_of(path, width), "{version} {width}");
        }
        assert_eq!(index.get(b".npmrc/x"), None);
        assert!(index.has_below(b".aws") && index.has_below(b"a/b"));
        assert!(!index.has_below(b".aw") && !index.has_below(b"a/c"));
    }
}

#[test]
fn a_truncated_or_invalid_index_is_refused() {
    for version in 2..=4 {
        let made = TestIndex::sha1(version, &[".npmrc", "a/.npmrc"]);
        let (short, whole) = (made.bytes(&[]), made.bytes(&[(b"TREE", b"x")]));
        for end in (0..whole.len()).filter(|end| *end != short.len()) {
            assert!(alone(&whole[..end]).is_err(), "{version} {end}");
        }
    }
    assert!(alone(&TestIndex::sha1(5, &["a"]).bytes(&[])).is_err());
    // A mandatory extension.
    assert!(alone(&TestIndex::sha1(2, &["a"]).bytes(&[(b"abcd", b"")])).is_err());
    assert!(alone(&TestIndex::sha1(2, &["a"]).bytes(&[(b"ABCD", b"")])).is_ok());
    let mut many = TestIndex::sha1(2, &["a"]).bytes(&[]);
    many[8] = 0xff;
    assert!(alone(&many).is_err());
    // A name that cuts off too much of the previous one, and a name longer than any file's.
    let mut cut = TestIndex::sha1(4, &["a"]).bytes(&[]);
    cut[12 + BEFORE + 20 + 2] = 9;
    assert!(alone(&cut).is_err());
    let mut long = TestIndex::sha1(2, &["a"]).bytes(&[]);
    let name = 12 + BEFORE + 20 + 2;
    long.splice(name..=name, vec![b'a'; LONGEST + 1]);
    assert!(alone(&long).is_err());
}

#[test]
fn only_wanted_names_are_kept() {
    let bytes = TestIndex::sha1(4, &PATHS).bytes(&[]);
    let index = read(&bytes, &|name| name.ends_with(b".npmrc"), &|_| None).unwrap();
    assert_eq!(index.entries.len(), 3);
    assert!(index.get(b"a/b/.npmrc").is_some());
}

#[test]
fn the_directories_of_a_sparse_index_are_known() {
    let bytes = TestIndex::sha1(3, &["a/", "b/.npmrc"]).bytes(&[(b"sdir", b"")]);
    let index = read(&bytes, &|_| false, &|_| None).unwrap();
    assert!(index.is_below_sparse(b"a/.npmrc") && index.is_below_sparse(b"a/b/.npmrc"));
    assert!(!index.is_below_sparse(b"b/.npmrc") && !index.is_below_sparse(b"a"));
}

/// A bitmap as git writes one: a run, then literal words.
fn bits(size: u32, run: (bool, u64), literal: &[u64]) -> Vec<u8> {
    let marker = u64::from(run.0) | run.1 << 1 | (literal.len() as u64) << 33;
    let mut bytes = size.to_be_bytes().to_vec();
    bytes.extend((1 + u32::try_from(literal.len()).unwrap()).to_be_bytes());
    bytes.extend(marker.to_be_bytes());
    bytes.extend(literal.iter().flat_map(|word| word.to_be_bytes()));
    bytes.extend([0; 4]);
    bytes
}

#[test]
fn a_bitmap_is_read_and_has_no_more_bits_than_allowed() {
    let whole = bits(70, (true, 1), &[0b10_0100]);
    let (found, rest) = bitmap(&whole, 70).unwrap();
    let expect: Vec<usize> = (0..64).chain([66, 69]).collect();
    assert_eq!((found, rest), (expect, &[][..]));
    assert_eq!(bitmap(&whole, 69), None);
    for end in 0..whole.len() {
        assert_eq!(bitmap(&whole[..end], 70), None, "{end}");
    }
    assert_eq!(bitmap(&bits(70, (true, 1 << 31), &[]), 70), None);
    assert_eq!(bitmap(&bits(64, (false, 1), &[1]), 64), None);
    assert_eq!(bitmap(&bits(0, (false, 0), &[]), 0).unwrap().0, [0; 0]);
}

/// Of four files, one is deleted, one has new content and one is new.
#[test]
fn a_split_index_is_put_together() {
    let base = TestIndex::sha1(2, &PATHS).bytes(&[]);
    let link = |deleted: &[u8], replaced: &[u8]| [&[7; 20][..], deleted, replaced].concat();
    let whole = link(&bits(1, (false, 0), &[1]), &bits(3, (false, 0), &[4]));
    let read = |own: &[u8]| {
        read(own, &|_| true, &|name| {
            assert_eq!(name, format!("sharedindex.{}", "07".repeat(20)));
            Some(base.clone())
        })
    };
    for version in [2, 4] {
        let index = read(&TestIndex::sha1(version, &["", "b/.netrc"]).bytes(&[(b"link", &whole)]));
        let index = index.unwrap();
        let names: Vec<_> = index.entries.keys().map(Vec::as_slice).collect();
        assert_eq!(
            names,
            [&b".npmrc"[..], b"a/.npmrc", b"a/b/.npmrc", b"b/.netrc"]
        );
        assert_eq!(index.get(b".npmrc").unwrap().hash, name_of(".npmrc", 20));
        assert_eq!(index.get(b"a/.npmrc").unwrap().hash, name_of("", 20));
    }
    // A replacement for no entry, and a missing replacement.
    let own = TestIndex::sha1(2, &["", "", "b"]).bytes(&[(b"link", &whole)]);
    assert!(read(&own).is_err());
    let own = TestIndex::sha1(2, &["b"]).bytes(&[(b"link", &whole)]);
    assert!(read(&own).is_err());
    let own = TestIndex::sha1(2, &[".npmrc"]).bytes(&[(b"link", &whole)]);
    assert!(alone(&own).unwrap_err().contains("missing"));
    // Without a shared part it is a whole index.
    let none = TestIndex::sha1(2, &[".npmrc"]).bytes(&[(b"link", &[0; 20])]);
    assert!(alone(&none).unwrap().get(b".npmrc").is_some());
    assert!(alone(&TestIndex::sha1(2, &["a"]).bytes(&[(b"link", b"short")])).is_err());
}

/// Any content that an agent writes there ends in files or in an error.
#[test]
fn a_changed_byte_does_no_harm() {
    let link = [
        &[7; 20][..],
        &bits(70, (true, 1), &[4]),
        &bits(3, (false, 0), &[4]),
    ]
    .concat();
    let base = TestIndex::sha1(2, &PATHS).bytes(&[]);
    for version in [2, 4] {
        let whole = TestIndex::sha1(version, &["", "b/.netrc"]).bytes(&[(b"link", &link)]);
        for at in 0..whole.len() {
            for byte in [0, 1, 0x40, 0x7f, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                read(&changed, &|_| true, &|_| Some(base.clone())).ok();
            }
        }
    }
}

/// H1: names that take one byte in the file and 4 KB each in memory, entries without names, and a name that no file can
/// have.
#[test]
fn an_index_stays_within_its_memory_budget() {
    let run = |bytes: &[u8], wanted: NameTest<'_>| {
        let open = |_: &str| {
            let from = Box::new(std::io::Cursor::new(bytes.to_vec())) as Box<dyn Read>;
            Some((from, bytes.len() as u64))
        };
        let mut cost = Cost::new(SearchBudget::of(SearchRule::Complete));
        let found = Index::parse(&open, wanted, &mut cost).is_ok();
        (found, cost.check().err(), cost.kept_count())
    };
    let first = "d/".repeat(100) + ".netrc";
    let mut long = TestIndex::sha1(4, &[&first]).bytes(&[]);
    long.truncate(long.len() - 20);
    let name = long.len() - first.len() - 1;
    long.splice(name..name, "d/".repeat(1900).into_bytes());
    let length = u16::try_from(first.len() + 3800).unwrap().to_be_bytes();
    long.splice(name - 3..name - 1, length);
    let entry = [&[0; BEFORE + 20][..], &length, &[0, 0]].concat();
    let count: u32 = 20_000;
    for _ in 0..count {
        long.extend(&entry);
    }
    long.extend([0; 20]);
    long[8..12].copy_from_slice(&(count + 1).to_be_bytes());
    let (found, why, _) = run(&long, &|name| name.ends_with(b".netrc"));
    assert!(!found && why.unwrap().contains("64 MiB of memory"));
    // Unwanted names are skipped, which also takes work.
    let offsets = OFFSET * (count as usize + 1);
    assert_eq!(run(&long, &|_| false), (true, None, offsets));
    // A hole: a million entries without names.
    let mut hole = TestIndex::sha1(2, &[]).bytes(&[]);
    hole.resize(64 << 20, 0);
    hole[8..12].copy_from_slice(&1_000_000_u32.to_be_bytes());
    let (found, why, kept) = run(&hole, &|_| false);
    assert!(!found && why.is_some() && kept < 65 << 20, "{why:?} {kept}");
    // The reviewer's example: a name of a million bytes.
    let mut name = TestIndex::sha1(4, &["a"]).bytes(&[]);
    let at = 12 + BEFORE + 20 + 3;
    name.splice(at..=at, vec![b'a'; 1_000_000]);
    assert_eq!(run(&name, &|_| true), (false, None, 0));
}
