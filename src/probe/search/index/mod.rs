//! Reads git's index (gitformat-index(5)): versions 2 to 4, SHA-1 or SHA-256, split and sparse.
//!
//! The index is a file of the workspace, and an agent may have written it. An index that is not understood to its last
//! byte counts as none. It is never in memory as a whole, and neither are its names: each overwrites the one before,
//! and only the wanted ones are kept. Libraries (gix-index) keep everything in memory, and an agent decides how much
//! that is: a name of 4 KB may take one byte in the file.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read};

use data_encoding::HEXLOWER;

use self::extensions::{bitmap, has_these, number};
use super::cost::Cost;

mod extensions;
mod names;

pub use names::{IndexNames, ObjectFormat, names};

/// Bytes of an entry before its content's hash, and the offset of its mode in them.
const BEFORE: usize = 40;
const MODE: usize = 24;

/// Bytes of a hash: SHA-1 and SHA-256. The repository's settings say which. An index can be understood with only one of
/// them.
const WIDTHS: [usize; 2] = [20, 32];

/// The longest name of a file that Linux opens (PATH_MAX).
const LONGEST: usize = 4096;

/// Most bytes of memory for a file besides its name and its hash.
const KEPT: usize = 160;

/// The largest extension of a split index, bytes: two bits for each of four million files.
const LINK: u64 = 1 << 20;

/// The largest table of offsets, bytes: eight for each of git's threads, which are few.
const OFFSETS: u64 = 1 << 16;

/// The flags of an entry: the length of its name, or this if it is longer.
const LENGTH: usize = 0xfff;

/// Bytes of memory for an entry's offset.
const OFFSET: usize = 4;

/// A file that git has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// git's hash of its content.
    pub(super) hash: Vec<u8>,
    /// git ignores the file in the work tree (skip-worktree).
    pub(super) skipped: bool,
}

/// The wanted files of an index. A directory that stands for all of its files (a sparse index) ends with a slash.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    entries: BTreeMap<Vec<u8>, Entry>,
}

/// Opens a file of the repository and returns its size: the index, or the rest of a split index.
pub(super) type OpenFile<'a> = &'a dyn Fn(&str) -> Option<(Box<dyn Read>, u64)>;

/// Whether the caller needs this name.
pub(super) type NameTest<'a> = &'a dyn Fn(&[u8]) -> bool;

impl Index {
    /// Reads the wanted files of an index. The error is a clause that says why it is not understood.
    pub(super) fn parse(
        open: OpenFile<'_>,
        wanted: NameTest<'_>,
        cost: &mut Cost,
    ) -> Result<Self, &'static str> {
        const NOT: &str = "git's index is not understood";
        let before = cost.kept_count();
        let mut part = |name: &str, width| {
            let found = Part::parse(open(name)?, width, wanted, cost);
            if found.is_none() && !cost.is_spent() {
                cost.forget(before);
            }
            found
        };
        let mut found = WIDTHS
            .iter()
            .filter_map(|width| Some((*width, part("index", *width)?)));
        let (width, own) = found.next().ok_or(NOT)?;
        let Some(link) = own.link.as_deref() else {
            return Ok(Self::of(own.entries.into_values()));
        };
        let (name, bitmaps) = link.split_at_checked(width).ok_or(NOT)?;
        if name.iter().all(|byte| *byte == 0) {
            return Ok(Self::of(own.entries.into_values()));
        }
        let shared = format!("sharedindex.{}", HEXLOWER.encode(name));
        if open(&shared).is_none() {
            return Err("the shared part of git's split index is missing");
        }
        let rest = part(&shared, width).ok_or(NOT)?;
        let bitmaps = bitmaps.to_vec();
        own.over(rest, &bitmaps).ok_or(NOT)
    }

    fn of(entries: impl Iterator<Item = (Vec<u8>, Entry)>) -> Self {
        Self {
            entries: entries.collect(),
        }
    }

    /// The file with this name.
    pub(super) fn get(&self, name: &[u8]) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// Whether the index has a file below a directory.
    pub(super) fn has_below(&self, directory: &[u8]) -> bool {
        let prefix = [directory, b"/"].concat();
        let mut after = self.entries.range(prefix.clone()..);
        after
            .next()
            .is_some_and(|(name, _)| name.starts_with(&prefix))
    }

    /// Whether a directory above stands for all of its files, which are then unknown.
    pub(super) fn is_below_sparse(&self, name: &[u8]) -> bool {
        let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut above = slashes.map(|(at, _)| &name[..=at]);
        above.any(|directory| self.entries.contains_key(directory))
    }
}

/// One index file: a whole index, or a part of a split one.
struct Part {
    /// The wanted entries, by position. A name is empty if the other part has it.
    entries: BTreeMap<usize, (Vec<u8>, Entry)>,
    /// The number of entries.
    count: usize,
    /// The extension that makes it a part.
    link: Option<Vec<u8>>,
    /// Where the extension is that says where the others begin.
    end_offset: Option<u64>,
}

impl Part {
    fn parse(
        (from, size): (Box<dyn Read>, u64),
        width: usize,
        wanted: NameTest<'_>,
        cost: &mut Cost,
    ) -> Option<Self> {
        let mut input = Input {
            from: BufReader::with_capacity(64 << 10, from),
            size,
            left: size,
            cost,
        };
        let mut head = [0; 12];
        input.fill(&mut head)?;
        let version = number(&head, 4)?;
        if !head.starts_with(b"DIRC") || !(2..=4).contains(&version) {
            return None;
        }
        let count = usize::try_from(number(&head, 8)?).ok()?;
        let (mut entries, mut name) = (BTreeMap::new(), Vec::new());
        let mut starts = Vec::new();
        for position in 0..count {
            let start = input.at();
            let RawEntry {
                hash,
                is_directory,
                skipped,
                begins_anew,
            } = input.entry(version, width, &mut name)?;
            input.cost.read(name.len()).ok()?;
            input.cost.keep(OFFSET).ok()?;
            starts.push(start.filter(|_| begins_anew).unwrap_or(0));
            if is_directory || name.is_empty() || wanted(&name) {
                input.cost.keep(name.len() + width + KEPT).ok()?;
                let hash = hash.get(..width)?.to_vec();
                entries.insert(position, (name.clone(), Entry { hash, skipped }));
            }
        }
        let ReadExtensions { link, end_offset } = input.extensions(width, &starts)?;
        Some(Self {
            entries,
            count,
            link,
            end_offset,
        })
    }

    /// Lays this part over the shared one. `bitmaps` say which shared entries are deleted, and which are replaced here.
    fn over(self, shared: Part, bitmaps: &[u8]) -> Option<Index> {
        let (deleted, replaced) = match bitmaps {
            [] => (Vec::new(), Vec::new()),
            _ => {
                let (deleted, rest) = bitmap(bitmaps, shared.count)?;
                (deleted, bitmap(rest, shared.count)?.0)
            }
        };
        let mut entries = shared.entries;
        let mut own: HashMap<usize, (Vec<u8>, Entry)> = self.entries.into_iter().collect();
        // The first entries are the replacements, and have no names.
        for (index, position) in replaced.iter().enumerate() {
            let (_, new) = own.remove(&index).filter(|(name, _)| name.is_empty())?;
            if let Some((_, entry)) = entries.get_mut(position) {
                *entry = new;
            }
        }
        for position in deleted {
            entries.remove(&position);
        }
        if own.values().any(|(name, _)| name.is_empty()) {
            return None;
        }
        Some(Index::of(entries.into_values().chain(own.into_values())))
    }
}

/// What is kept of the extensions.
#[derive(Default)]
struct ReadExtensions {
    link: Option<Vec<u8>>,
    end_offset: Option<u64>,
}

/// The fixed part of an entry.
struct RawEntry {
    /// The hash of its content.
    hash: [u8; 32],
    /// Whether it is a whole directory of a sparse index.
    is_directory: bool,
    /// Whether git ignores it in the work tree.
    skipped: bool,
    /// Whether its name has nothing of the one before.
    begins_anew: bool,
}

/// An index, read from start to end.
struct Input<'w> {
    from: BufReader<Box<dyn Read>>,
    size: u64,
    /// Unread bytes.
    left: u64,
    cost: &'w mut Cost,
}

impl Input<'_> {
    /// The offset of what comes next.
    fn at(&self) -> Option<u32> {
        u32::try_from(self.size - self.left).ok()
    }

    fn fill(&mut self, into: &mut [u8]) -> Option<()> {
        self.left = self.left.checked_sub(into.len() as u64)?;
        self.cost.read(into.len()).ok()?;
        self.from.read_exact(into).ok()
    }

    /// Reads the next entry. `name` has the previous name, and gets this one.
    fn entry(&mut self, version: u32, width: usize, name: &mut Vec<u8>) -> Option<RawEntry> {
        let start = self.left;
        let mut fixed = [0; BEFORE + 32 + 2];
        let fixed = fixed.get_mut(..BEFORE + width + 2)?;
        self.fill(fixed)?;
        let mut hash = [0; 32];
        hash.get_mut(..width)?
            .copy_from_slice(fixed.get(BEFORE..BEFORE + width)?);
        let is_directory = number(fixed, MODE)? & 0o170_000 == 0o040_000;
        let mut more = [0; 2];
        // The extended bit adds two bytes.
        if fixed.get(BEFORE + width)? & 0x40 != 0 {
            self.fill(&mut more)?;
        }
        let kept = match version {
            4 => name.len().checked_sub(self.varint()?)?,
            _ => 0,
        };
        name.truncate(kept);
        self.name(name)?;
        // Before version 4, git takes the length for the end of the entry.
        let told = number(fixed, BEFORE + width - 2)? as usize & LENGTH;
        if told != name.len().min(LENGTH) {
            return None;
        }
        if version < 4 {
            // One to eight zeros pad it, of which one has been read.
            let used = usize::try_from(start - self.left).ok()?;
            let padding = used.next_multiple_of(8) - used;
            self.fill([0; 8].get_mut(..padding)?)?;
        }
        Some(RawEntry {
            hash,
            is_directory,
            skipped: more[0] & 0x40 != 0,
            begins_anew: kept == 0,
        })
    }

    /// Reads the rest of a name, up to a zero.
    fn name(&mut self, name: &mut Vec<u8>) -> Option<()> {
        let room = (LONGEST + 1).checked_sub(name.len())? as u64;
        let before = name.len();
        let mut from = (&mut self.from).take(room.min(self.left));
        from.read_until(0, name).ok()?;
        let read = name.len() - before;
        self.left = self.left.checked_sub(read as u64)?;
        self.cost.read(read).ok()?;
        (read > 0 && name.pop() == Some(0)).then_some(())
    }

    /// How much of the previous name is cut off (gitformat-pack(5), the offset encoding).
    fn varint(&mut self) -> Option<usize> {
        let mut byte = [0];
        self.fill(&mut byte)?;
        let mut value = usize::from(byte[0] & 0x7f);
        while byte[0] & 0x80 != 0 {
            self.fill(&mut byte)?;
            value = value.checked_add(1)?.checked_mul(128)? + usize::from(byte[0] & 0x7f);
        }
        Some(value)
    }

    /// Reads the extensions after the entries. `None` if they end in the wrong place, if a mandatory one is unknown, or if git's
    /// threads would read other entries than these: they go by the offsets in two of them.
    fn extensions(mut self, width: usize, starts: &[u32]) -> Option<ReadExtensions> {
        let (begin, end) = (self.at(), width as u64);
        let mut read = ReadExtensions::default();
        while self.left > end {
            let (mut head, at) = ([0; 8], self.size - self.left);
            self.fill(&mut head)?;
            let size = u64::from(number(&head, 4)?);
            if size > self.left.checked_sub(end)? {
                return None;
            }
            match &head[..4] {
                b"link" if size > LINK => return None,
                b"link" => read.link = Some(self.bytes(size)?),
                b"IEOT" if size > OFFSETS => return None,
                b"IEOT" if !has_these(&self.bytes(size)?, starts) => return None,
                b"IEOT" => {}
                b"EOIE" => {
                    let offset = self.bytes(4)?;
                    self.skip(size.checked_sub(4)?)?;
                    (number(&offset, 0) == begin).then_some(())?;
                    read.end_offset = Some(at);
                }
                b"sdir" => self.skip(size)?,
                // A capital letter marks an optional one.
                name if name[0].is_ascii_uppercase() => self.skip(size)?,
                _ => return None,
            }
        }
        // git does not check the hash if `index.skipHash` is on; agentbox never does.
        self.bytes(end)?;
        (self.left == 0).then_some(read)
    }

    fn bytes(&mut self, size: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        self.fill(&mut bytes)?;
        Some(bytes)
    }

    fn skip(&mut self, size: u64) -> Option<()> {
        let mut left = size;
        let mut buffer = [0; 4096];
        while left > 0 {
            let most = buffer
                .len()
                .min(usize::try_from(left).unwrap_or(usize::MAX));
            self.fill(buffer.get_mut(..most)?)?;
            left -= most as u64;
        }
        Some(())
    }
}

#[cfg(test)]
pub(super) mod tests;
