//! Reading git's index (gitformat-index(5)): versions 2 to 4, contents named by SHA-1 or SHA-256, split and sparse.
//!
//! It is a file of the workspace, which an agent may have written: what is not understood to its last byte is nothing.

use std::collections::{BTreeMap, HashMap};

/// Bytes of an entry before the name of its content, and its mode among them.
const BEFORE: usize = 40;
const MODE: usize = 24;

/// Bytes of the names of contents: SHA-1 and SHA-256. The repository's settings say which; all of an index is understood by
/// one of them alone.
const WIDTHS: [usize; 2] = [20, 32];

/// The longest name of a file that Linux opens (PATH_MAX).
const LONGEST: usize = 4096;

/// The most that is kept of one, bytes of names: those that may be credentials are few.
const ROOM: usize = 16 << 20;

/// A file that git has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// What git calls its content.
    pub(super) hash: Vec<u8>,
    /// Git does not look at what is in the work tree (skip-worktree).
    pub(super) skipped: bool,
}

/// The files of an index, as far as they were asked for. A directory that stands for all of its files (a sparse index)
/// ends with a slash.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    entries: BTreeMap<Vec<u8>, Entry>,
}

/// Where the rest of a split index is: by the name of its file beside the index.
pub(super) type Shared<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

/// Which names are asked for.
pub(super) type Wanted<'a> = &'a dyn Fn(&[u8]) -> bool;

impl Index {
    /// The wanted files of an index, or why it is not understood, as a clause.
    pub(super) fn parse(
        bytes: &[u8],
        wanted: Wanted<'_>,
        shared: Shared<'_>,
    ) -> Result<Self, &'static str> {
        const NOT: &str = "git's index is not understood";
        let mut found = WIDTHS
            .iter()
            .filter_map(|width| Some((*width, Part::parse(bytes, *width, wanted)?)));
        let (width, own) = found.next().ok_or(NOT)?;
        let link = own.link.filter(|link| !link.is_empty());
        let Some((name, bitmaps)) = link.and_then(|link| link.split_at_checked(width)) else {
            return match link {
                None => Ok(Self::of(own.entries.into_values())),
                Some(_) => Err(NOT),
            };
        };
        if name.iter().all(|byte| *byte == 0) {
            return Ok(Self::of(own.entries.into_values()));
        }
        let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        let rest = shared(&format!("sharedindex.{hex}"))
            .ok_or("the shared part of git's split index is missing")?;
        let rest = Part::parse(&rest, width, wanted).ok_or(NOT)?;
        own.over(rest, bitmaps).ok_or(NOT)
    }

    fn of(entries: impl Iterator<Item = (Vec<u8>, Entry)>) -> Self {
        Self {
            entries: entries.collect(),
        }
    }

    /// The file of this name.
    pub(super) fn get(&self, name: &[u8]) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// Whether there is a file below a directory.
    pub(super) fn has_below(&self, directory: &[u8]) -> bool {
        let prefix = [directory, b"/"].concat();
        let mut after = self.entries.range(prefix.clone()..);
        after
            .next()
            .is_some_and(|(name, _)| name.starts_with(&prefix))
    }

    /// Whether a directory above stands for all of its files: what is in it is not told.
    pub(super) fn is_below_sparse(&self, name: &[u8]) -> bool {
        let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut above = slashes.map(|(at, _)| &name[..=at]);
        above.any(|directory| self.entries.contains_key(directory))
    }
}

/// One file of an index: all of it, or a part of a split one.
struct Part<'a> {
    /// Those that are wanted, by their position. A name is empty where the other part has it.
    entries: BTreeMap<usize, (Vec<u8>, Entry)>,
    /// How many it has.
    count: usize,
    /// What makes it a part.
    link: Option<&'a [u8]>,
}

impl<'a> Part<'a> {
    fn parse(bytes: &'a [u8], width: usize, wanted: Wanted<'_>) -> Option<Self> {
        let version = number(bytes, 4)?;
        if bytes.get(..4)? != b"DIRC" || !(2..=4).contains(&version) {
            return None;
        }
        let count = usize::try_from(number(bytes, 8)?).ok()?;
        let mut entries = BTreeMap::new();
        let (mut at, mut room, mut name) = (12, ROOM, Vec::new());
        for position in 0..count {
            let flags = at + BEFORE + width;
            let hash = bytes.get(at + BEFORE..flags)?;
            let directory = number(bytes, at + MODE)? & 0o170_000 == 0o040_000;
            // Two bytes more where the extended bit is set.
            let extended = *bytes.get(flags)? & 0x40 != 0;
            let mut start = flags + if extended { 4 } else { 2 };
            let kept = match version {
                4 => {
                    let (cut, next) = varint(bytes, start)?;
                    start = next;
                    name.len().checked_sub(cut)?
                }
                _ => 0,
            };
            name.truncate(kept);
            let rest = bytes.get(start..)?;
            let length = rest.iter().position(|byte| *byte == 0)?;
            name.extend_from_slice(&rest[..length]);
            if name.len() > LONGEST {
                return None;
            }
            if directory || name.is_empty() || wanted(&name) {
                room = room.checked_sub(name.len() + hash.len())?;
                let skipped = extended && *bytes.get(flags + 2)? & 0x40 != 0;
                let hash = hash.to_vec();
                entries.insert(position, (name.clone(), Entry { hash, skipped }));
            }
            at = match version {
                4 => start + length + 1,
                // Padded with one to eight zeros.
                _ => at + (start + length - at + 8) / 8 * 8,
            };
        }
        let link = link(bytes.get(at..bytes.len().checked_sub(width)?)?)?;
        Some(Self {
            entries,
            count,
            link,
        })
    }

    /// This part over the shared one: `bitmaps` say which of that are deleted, and which have something new here.
    fn over(self, shared: Part<'_>, bitmaps: &[u8]) -> Option<Index> {
        let (deleted, replaced) = match bitmaps {
            [] => (Vec::new(), Vec::new()),
            _ => {
                let (deleted, rest) = bitmap(bitmaps, shared.count)?;
                (deleted, bitmap(rest, shared.count)?.0)
            }
        };
        let mut entries = shared.entries;
        let mut own: HashMap<usize, (Vec<u8>, Entry)> = self.entries.into_iter().collect();
        // The first ones are those, and have no names.
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

/// The extension of a split index among those that follow the entries; nothing where they do not end where they must, or
/// one of them has to be understood and is not.
fn link(mut bytes: &[u8]) -> Option<Option<&[u8]>> {
    let mut found = None;
    while !bytes.is_empty() {
        let size = usize::try_from(number(bytes, 4)?).ok()?;
        let (extension, rest) = bytes.split_at_checked(size.checked_add(8)?)?;
        match &extension[..4] {
            b"link" => found = Some(&extension[8..]),
            b"sdir" => {}
            // One that may be passed over has a capital letter.
            name if name[0].is_ascii_uppercase() => {}
            _ => return None,
        }
        bytes = rest;
    }
    Some(found)
}

/// The bits that are set in a compressed bitmap (EWAH, gitformat-bitmap(5)) of at most so many, and what follows it.
fn bitmap(bytes: &[u8], most: usize) -> Option<(Vec<usize>, &[u8])> {
    let bits = usize::try_from(number(bytes, 0)?).ok()?;
    let words = usize::try_from(number(bytes, 4)?).ok()?;
    let (body, rest) = bytes.get(8..)?.split_at_checked(words.checked_mul(8)?)?;
    let end = bits.next_multiple_of(64);
    let mut words = body
        .chunks_exact(8)
        .map(|word| u64::from_be_bytes(word.try_into().unwrap_or_default()));
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(marker) = words.next() {
        let run = usize::try_from(marker >> 1 & 0xffff_ffff).ok()?;
        let after = run.checked_mul(64)?.checked_add(at)?;
        if bits > most || after > end {
            return None;
        }
        if marker & 1 == 1 {
            found.extend(at..after.min(bits));
        }
        at = after;
        for _ in 0..marker >> 33 {
            let word = words.next().filter(|_| at < end)?;
            found.extend((0..64).filter(|bit| word >> bit & 1 == 1).map(|b| at + b));
            at += 64;
        }
    }
    // The number of the last marker, for whoever adds to it.
    Some((found, rest.get(4..)?))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
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
pub(super) mod tests;
