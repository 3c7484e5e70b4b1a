//! The directories of a search, and those still to be searched.
//!
//! Each has its own name and its parent, so that deep directories take no more memory than others. Those near the root
//! come first, breadth first: where a search stops, the top has been seen. Deeper ones come depth first, so that each is
//! opened by its parent's descriptor.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::fs::Statx;

/// Stands for no directory.
const NONE: u32 = u32::MAX;

/// How many levels are opened by their path. So many names of 255 bytes are the longest path that Linux takes (PATH_MAX).
const NEAR: u32 = 16;

/// The longest path inside a mount that is masked, bytes: the mount's own place takes the rest of PATH_MAX.
const LONGEST: u32 = 3000;

/// Bytes that one takes beside its name: itself, its numbers in the orders, and what the allocator adds.
const FIXED: usize = size_of::<DirNode>() + 3 * size_of::<u32>() + 16;

/// One directory of the search.
struct DirNode {
    /// The one that it lies in.
    above: u32,
    /// Which of the things that are hidden as a whole it lies in.
    within: u32,
    level: u32,
    /// Of its path, bytes.
    length: u32,
    name: Box<[u8]>,
    /// Its inode, once it was listed.
    ino: u64,
    /// What changes with it ([`Mark`]); 0 where it has to be listed again.
    change: u64,
    /// Its parent was listed again without it.
    gone: bool,
}

/// What a directory was when it was listed. A rename changes it in both directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) ino: u64,
    change: u64,
    /// How long a further change could still leave the same times.
    pub(super) fresh: Duration,
}

/// What marks are made with: a key of this search's own, so that no other process can choose a mark.
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

/// The kernel takes the time of a change from a clock that ticks 100 times a second or more. File systems without
/// fractions of seconds round it down, FAT to even seconds.
fn fresh(seconds: i64, nanoseconds: u32) -> Duration {
    let tick = match nanoseconds {
        0 => Duration::from_secs(2),
        _ => Duration::from_millis(20),
    };
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    match changed.elapsed() {
        Ok(age) => tick.saturating_sub(age),
        // In the future: the next change has another time, unless that comes just then.
        Err(ahead) if ahead.duration() <= tick => tick,
        Err(_) => Duration::ZERO,
    }
}

/// All directories of the search; the root is the first.
pub(super) struct DirTree {
    all: Vec<DirNode>,
    next: usize,
    deep: Vec<u32>,
    /// In the order in which they were looked at.
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

    /// How much memory one more takes, bytes.
    pub(super) fn cost(name: &[u8]) -> usize {
        FIXED + name.len()
    }

    /// Adds one, to be looked at later, and gives its number.
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

    /// The next one to look at.
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

    /// Those that were looked at and are not known to be gone, each after its parent.
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

    /// Relative to the root.
    pub(super) fn path(&self, number: u32) -> PathBuf {
        self.tail(number, usize::MAX)
    }

    /// The last so many components of its path.
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

    /// Its path for a message, or the end of a long one.
    pub(super) fn told(&self, number: u32) -> String {
        match self.all.get(number as usize).map_or(0, |p| p.length) {
            0..=500 => format!("{:?}", self.path(number)),
            length => format!("{:?} at the end of {length} bytes", self.tail(number, 4)),
        }
    }

    /// The length of an entry's path.
    fn length_of(&self, directory: u32, name: &[u8]) -> u32 {
        let before = self.all.get(directory as usize).map_or(0, |p| p.length);
        before.saturating_add(u32::try_from(name.len() + 1).unwrap_or(u32::MAX))
    }

    /// The directory to hide where an entry's own path is too long for a mask; none where it is not.
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

    /// The one that it lies in; none of the root.
    pub(super) fn above(&self, number: u32) -> Option<u32> {
        let above = self.all.get(number as usize)?.above;
        (above != NONE).then_some(above)
    }

    pub(super) fn within(&self, number: u32) -> Option<u32> {
        let within = self.all.get(number as usize)?.within;
        (within != NONE).then_some(within)
    }

    /// How many directories are above it.
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

    /// The inode that it had when it was listed; 0 before.
    pub(super) fn ino(&self, number: u32) -> u64 {
        self.all.get(number as usize).map_or(0, |p| p.ino)
    }

    /// Adds to each of some directories those that lie right in it.
    pub(super) fn below(&self, of: &mut BTreeMap<u32, Vec<u32>>) {
        for (number, place) in (0_u32..).zip(&self.all) {
            if let Some(below) = of.get_mut(&place.above)
                && !place.gone
            {
                below.push(number);
            }
        }
    }

    /// It has been listed, and was this before.
    pub(super) fn list(&mut self, number: u32, mark: Mark) {
        if let Some(place) = self.all.get_mut(number as usize) {
            place.ino = mark.ino;
            place.change = match mark.fresh.is_zero() {
                true => mark.change,
                false => 0,
            };
        }
    }

    /// Whether it is as it was when it was listed.
    pub(super) fn is_still(&self, number: u32, mark: Mark) -> bool {
        let place = self.all.get(number as usize);
        place.is_some_and(|p| p.change == mark.change)
    }

    pub(super) fn remove(&mut self, number: u32) {
        if let Some(place) = self.all.get_mut(number as usize) {
            place.gone = true;
        }
    }

    /// Whether it is known to be gone by itself; [`Self::listed`] tells those below it.
    pub(super) fn is_gone(&self, number: u32) -> bool {
        self.all.get(number as usize).is_none_or(|p| p.gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_by_their_names_in_the_order_in_which_they_were_met() {
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
        // What lies below what is gone is gone.
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
        assert!(places.told(x).starts_with("\"d/d/") && places.told(deep).len() < 1200);
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
