//! The directories of a search, known and still to be searched.
//!
//! Each node has its own name and its parent, so that deep directories take no more memory than others. Directories
//! near the root come first, breadth first: a search that stops has seen the top. Deeper ones come depth first, each
//! opened by its parent's descriptor.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::fs::Statx;

/// No directory.
const NONE: u32 = u32::MAX;

/// Levels that are opened by path. That many names of 255 bytes are Linux's longest path (PATH_MAX).
const NEAR: u32 = 16;

/// The longest path inside a mount that is masked, bytes. The mount point takes the rest of PATH_MAX.
pub(super) const LONGEST: u32 = 3000;

/// Bytes of a directory besides its name: the node, its numbers in the orders, and the allocator's overhead.
const FIXED: usize = size_of::<DirNode>() + 3 * size_of::<u32>() + 16;

/// One directory of the search.
struct DirNode {
    /// The parent.
    above: u32,
    /// The hidden directory around it, as a number.
    within: u32,
    level: u32,
    /// Length of its path, bytes.
    length: u32,
    name: Box<[u8]>,
    /// Its inode, once it is listed.
    ino: u64,
    /// A value that changes with it ([`Mark`]); 0 if it must be listed again.
    change: u64,
    /// Its parent was listed again without it.
    gone: bool,
}

/// The state of a directory when it was listed. A rename changes the mark of both directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) ino: u64,
    change: u64,
    /// How long a further change could still leave the same times.
    pub(super) fresh: Duration,
}

/// The hash key of marks. Each search has its own, so that no other process can choose a mark.
pub(super) type Key = RandomState;

impl Mark {
    pub(super) fn of(stat: &Statx, key: &Key) -> Self {
        let times = [stat.stx_ctime, stat.stx_mtime].map(|t| (t.tv_sec, t.tv_nsec));
        let device = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_mnt_id);
        let change = key.hash_one((times, device, stat.stx_ino, stat.stx_nlink));
        Self {
            ino: stat.stx_ino,
            change: change.max(1),
            fresh: fresh(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        }
    }
}

/// The kernel's clock for these times ticks at least 100 times a second. File systems without fractions of seconds
/// round it down, FAT to even seconds.
fn fresh(seconds: i64, nanoseconds: u32) -> Duration {
    let tick = match nanoseconds {
        0 => Duration::from_secs(2),
        _ => Duration::from_millis(20),
    };
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    match changed.elapsed() {
        Ok(age) => tick.saturating_sub(age),
        // In the future: the next change gets another time, unless it comes right then.
        Err(ahead) if ahead.duration() <= tick => tick,
        Err(_) => Duration::ZERO,
    }
}

/// All directories of the search; the root is first.
pub(super) struct DirTree {
    all: Vec<DirNode>,
    next: usize,
    deep: Vec<u32>,
    /// The directories in the order of the search.
    visited: Vec<u32>,
}

impl DirTree {
    pub(super) fn new() -> Self {
        let mut places = Self {
            all: Vec::new(),
            next: 0,
            deep: Vec::new(),
            visited: Vec::new(),
        };
        places.push(NONE, b"", None);
        places
    }

    /// The memory that one more directory takes, bytes.
    pub(super) fn cost(name: &[u8]) -> usize {
        FIXED + name.len()
    }

    /// Adds a directory to be searched later, and returns its number.
    pub(super) fn push(&mut self, above: u32, name: &[u8], within: Option<u32>) -> u32 {
        let number = u32::try_from(self.all.len()).unwrap_or(NONE);
        let (level, length) = match self.all.get(above as usize) {
            Some(parent) => (parent.level + 1, self.length_of(above, name)),
            None => (0, 0),
        };
        self.all.push(DirNode {
            above,
            within: within.unwrap_or(NONE),
            level,
            length,
            name: name.into(),
            ino: 0,
            change: 0,
            gone: false,
        });
        if level > NEAR {
            self.deep.push(number);
        }
        number
    }

    /// The next directory to search.
    pub(super) fn next(&mut self) -> Option<u32> {
        let number = self.next_near().or_else(|| self.deep.pop())?;
        self.visited.push(number);
        Some(number)
    }

    fn next_near(&mut self) -> Option<u32> {
        while let Some(place) = self.all.get(self.next) {
            self.next += 1;
            if place.level <= NEAR {
                return u32::try_from(self.next - 1).ok();
            }
        }
        None
    }

    /// The searched directories that are not known to be gone, each after its parent.
    pub(super) fn listed(&mut self) -> Vec<u32> {
        for number in &self.visited {
            let above = self.all.get(*number as usize).map(|p| p.above);
            let gone = above
                .and_then(|a| self.all.get(a as usize))
                .is_some_and(|p| p.gone);
            if gone && let Some(place) = self.all.get_mut(*number as usize) {
                place.gone = true;
            }
        }
        let here = self.visited.iter().filter(|n| !self.is_gone(**n));
        here.copied().collect()
    }

    /// Its path relative to the root.
    pub(super) fn path(&self, number: u32) -> PathBuf {
        self.tail(number, usize::MAX)
    }

    /// The last `most` components of its path.
    pub(super) fn tail(&self, number: u32, most: usize) -> PathBuf {
        let mut names = Vec::new();
        let mut at = number;
        while let Some(above) = self.above(at)
            && names.len() < most
        {
            names.push(OsStr::from_bytes(self.name(at)));
            at = above;
        }
        names.iter().rev().collect()
    }

    /// Its path for a message, or the end of a long path.
    pub(super) fn path_for_message(&self, number: u32) -> String {
        match self.all.get(number as usize).map_or(0, |p| p.length) {
            0..=500 => format!("{:?}", self.path(number)),
            length => format!("{:?} at the end of {length} bytes", self.tail(number, 4)),
        }
    }

    /// The length of an entry's path.
    pub(super) fn length_of(&self, directory: u32, name: &[u8]) -> u32 {
        let before = self.all.get(directory as usize).map_or(0, |p| p.length);
        before.saturating_add(u32::try_from(name.len() + 1).unwrap_or(u32::MAX))
    }

    /// The directory to hide if an entry's own path is too long for a mask; else `None`.
    pub(super) fn too_deep(&self, directory: u32, name: &[u8]) -> Option<u32> {
        if self.length_of(directory, name) <= LONGEST {
            return None;
        }
        let mut at = directory;
        while self.all.get(at as usize)?.length > LONGEST {
            at = self.above(at)?;
        }
        Some(at)
    }

    /// The parent; `None` for the root.
    pub(super) fn above(&self, number: u32) -> Option<u32> {
        let above = self.all.get(number as usize)?.above;
        (above != NONE).then_some(above)
    }

    pub(super) fn within(&self, number: u32) -> Option<u32> {
        let within = self.all.get(number as usize)?.within;
        (within != NONE).then_some(within)
    }

    /// The number of directories above it.
    pub(super) fn level(&self, number: u32) -> u32 {
        self.all.get(number as usize).map_or(0, |p| p.level)
    }

    /// Whether it is opened by its path.
    pub(super) fn is_near(&self, number: u32) -> bool {
        self.level(number) <= NEAR
    }

    pub(super) fn name(&self, number: u32) -> &[u8] {
        self.all.get(number as usize).map_or(&[], |p| &p.name)
    }

    /// Its inode at its listing; 0 before.
    pub(super) fn ino(&self, number: u32) -> u64 {
        self.all.get(number as usize).map_or(0, |p| p.ino)
    }

    /// Adds to each directory in `of` its child directories.
    pub(super) fn below(&self, of: &mut BTreeMap<u32, Vec<u32>>) {
        for (number, place) in (0_u32..).zip(&self.all) {
            if let Some(below) = of.get_mut(&place.above)
                && !place.gone
            {
                below.push(number);
            }
        }
    }

    /// Records that it is listed. `mark` is its state before that.
    pub(super) fn list(&mut self, number: u32, mark: Mark) {
        if let Some(place) = self.all.get_mut(number as usize) {
            place.ino = mark.ino;
            place.change = match mark.fresh.is_zero() {
                true => mark.change,
                false => 0,
            };
        }
    }

    /// Whether it is unchanged since it was listed.
    pub(super) fn is_still(&self, number: u32, mark: Mark) -> bool {
        let place = self.all.get(number as usize);
        place.is_some_and(|p| p.change == mark.change)
    }

    pub(super) fn remove(&mut self, number: u32) {
        if let Some(place) = self.all.get_mut(number as usize) {
            place.gone = true;
        }
    }

    /// Whether it is known to be gone itself. [`Self::listed`] also drops the directories below it.
    pub(super) fn is_gone(&self, number: u32) -> bool {
        self.all.get(number as usize).is_none_or(|p| p.gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_named_by_their_paths_in_the_order_of_the_search() {
        let mut places = DirTree::new();
        places.push(0, b"a", None);
        places.push(0, b"b", Some(7));
        places.push(1, b"\xff", None);
        let mut seen = Vec::new();
        while let Some(number) = places.next() {
            seen.push((places.path(number), places.within(number)));
        }
        let below = PathBuf::from("a").join(OsStr::from_bytes(b"\xff"));
        let expect = [
            (PathBuf::new(), None),
            ("a".into(), None),
            ("b".into(), Some(7)),
            (below, None),
        ];
        assert_eq!(seen, expect);
        assert_eq!((places.above(3), places.above(0)), (Some(1), None));
        // Directories below one that is gone are gone.
        places.remove(1);
        assert_eq!(places.listed(), [0, 2]);
    }

    #[test]
    fn deep_ones_come_last_and_depth_first() {
        let mut places = DirTree::new();
        let mut at = 0;
        for _ in 0..NEAR {
            at = places.push(at, b"d", None);
        }
        let [x, y] = [&b"x"[..], b"y"].map(|name| places.push(at, name, None));
        let near = places.push(0, b"near", None);
        let order: Vec<_> = std::iter::from_fn(|| places.next()).collect();
        assert_eq!(order[order.len() - 3..], [near, y, x]);
        assert_eq!(places.tail(x, 2), PathBuf::from("d/x"));
        let long = [b'l'; 255];
        let mut deep = x;
        for _ in 0..20 {
            deep = places.push(deep, &long, None);
        }
        let hidden = places.too_deep(deep, b".netrc").unwrap();
        assert!(places.path(hidden).as_os_str().len() <= LONGEST as usize);
        assert!(places.too_deep(hidden, &long).is_some());
        assert_eq!(places.too_deep(x, b".netrc"), None);
        assert!(
            places.path_for_message(x).starts_with("\"d/d/")
                && places.path_for_message(deep).len() < 1200
        );
    }

    #[test]
    fn a_time_is_settled_when_no_later_change_can_have_it() {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        let of = |at: Duration| {
            fresh(
                i64::try_from(at.as_secs()).unwrap(),
                at.subsec_nanos().max(1),
            )
        };
        assert!(!of(now).is_zero());
        assert!(of(now - Duration::from_secs(1)).is_zero());
        assert!(of(now + Duration::from_secs(60)).is_zero());
        let whole = i64::try_from(now.as_secs()).unwrap();
        assert!(!fresh(whole - 1, 0).is_zero() && fresh(whole - 3, 0).is_zero());
    }
}
