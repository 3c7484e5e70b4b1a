//! The directories of a search, and those still to be searched.
//!
//! Each has its own name and its parent, so that deep directories take no more memory than others.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::sys::handle::Handle;

/// What stands for none.
const NONE: u32 = u32::MAX;

/// Bytes that one takes beside its name and its handle: itself, and what the allocator adds.
const FIXED: usize = size_of::<Place>() + 16;

struct Place {
    /// The one that it lies in.
    above: u32,
    /// Which of the things that are hidden as a whole it lies in.
    within: u32,
    /// The handle's type, and the handle in `bytes` after so many of the name.
    kind: i32,
    name: u8,
    bytes: Box<[u8]>,
}

/// All of them; the root is the first.
pub(super) struct Places {
    all: Vec<Place>,
    next: usize,
}

impl Places {
    pub(super) fn new() -> Self {
        let root = Place {
            above: NONE,
            within: NONE,
            kind: 0,
            name: 0,
            bytes: Box::new([]),
        };
        Self {
            all: vec![root],
            next: 0,
        }
    }

    /// How much memory one more takes, bytes.
    pub(super) fn cost(name: &[u8], handle: Option<&Handle>) -> usize {
        FIXED + name.len() + handle.map_or(0, |h| h.data().len())
    }

    /// Adds one, to be looked at after all others. A name is at most 255 bytes long.
    pub(super) fn push(
        &mut self,
        above: u32,
        name: &[u8],
        handle: Option<&Handle>,
        within: Option<u32>,
    ) {
        let data = handle.map_or(&[][..], Handle::data);
        self.all.push(Place {
            above,
            within: within.unwrap_or(NONE),
            kind: handle.map_or(0, Handle::kind),
            name: u8::try_from(name.len()).unwrap_or(u8::MAX),
            bytes: [name, data].concat().into(),
        });
    }

    /// The next one to look at. Breadth first: where a search stops, the top has been seen.
    pub(super) fn next(&mut self) -> Option<u32> {
        let number = self.next;
        self.all.get(number)?;
        self.next += 1;
        u32::try_from(number).ok()
    }

    /// Relative to the root.
    pub(super) fn path(&self, number: u32) -> PathBuf {
        let mut names = Vec::new();
        let mut at = number;
        while let Some(above) = self.above(at) {
            names.push(OsStr::from_bytes(self.name(at)));
            at = above;
        }
        names.iter().rev().collect()
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

    /// What it is, wherever it is moved; not where the file system does not tell.
    pub(super) fn handle(&self, number: u32) -> Option<Handle> {
        let place = self.all.get(number as usize)?;
        let (_, data) = place.bytes.split_at_checked(place.name.into())?;
        Handle::new(place.kind, data)
    }

    fn name(&self, number: u32) -> &[u8] {
        let place = self.all.get(number as usize);
        place.map_or(&[], |p| p.bytes.get(..p.name.into()).unwrap_or(&[]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_by_their_names_in_the_order_in_which_they_were_met() {
        let mut places = Places::new();
        places.push(0, b"a", None, None);
        places.push(0, b"b", None, Some(7));
        places.push(1, b"\xff", None, None);
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
        assert!(places.handle(1).is_none());
    }
}
