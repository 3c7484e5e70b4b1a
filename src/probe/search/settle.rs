//! Checks that at one moment all directories were as the search has seen them.
//!
//! Another process may move a directory from an unlisted directory into a listed one, and the search misses it. A
//! rename changes both parents. So after the search each directory is compared with its state before its listing, and
//! the changed ones are listed again. This ends when every listing was true at one moment.
//!
//! Builds change the same few directories all the time. These are listed and compared in quick succession. One of them
//! may change even then: the others hold still during its listing, so nothing can come out of them or hide in them.

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use super::places::Mark;
use super::{Listing, Search};

/// How often a round lists one directory that always changes, until it has no new directories.
const AGAIN: usize = 8;

/// Directories that changed after they were listed, each with its children.
#[derive(Default)]
pub(super) struct BusyDirs {
    children: BTreeMap<u32, Vec<u32>>,
    /// The directory that changed last, if only one did.
    restless: Option<u32>,
}

impl BusyDirs {
    pub(super) fn below(&self, number: u32) -> &[u32] {
        self.children.get(&number).map_or(&[], Vec::as_slice)
    }

    /// Whether a directory is listed again.
    pub(super) fn has(&self, number: u32) -> bool {
        self.children.contains_key(&number)
    }

    /// Records that a directory was found in a busy one.
    pub(super) fn met(&mut self, above: u32, number: u32) {
        if let Some(children) = self.children.get_mut(&above) {
            children.push(number);
        }
    }
}

impl Search<'_> {
    /// Searches everything, and again the directories that changed meanwhile.
    pub(super) fn until_still(&mut self) -> Result<(), String> {
        self.all()?;
        let begun = Instant::now();
        let mut round = 0;
        loop {
            if round > 0 {
                self.cost.rest(std::mem::take(&mut self.rest));
            }
            let settled = self.settle()?;
            let changed = self.changed()?;
            if settled && changed.is_empty() {
                return Ok(());
            }
            let mut busy = changed.into_iter().map(|n| (n, Vec::new())).collect();
            self.places.below(&mut busy);
            self.busy.children.append(&mut busy);
            if !self.cost.goes_on(round, begun) {
                break;
            }
            round += 1;
        }
        let moving = self.busy.children.keys();
        let names: Vec<_> = moving
            .take(3)
            .map(|n| self.places.path_for_message(*n))
            .collect();
        Err(format!(
            "its directories change while they are searched ({}{}): another process moves or makes files in them; start it again when nothing does",
            names.join(", "),
            if self.busy.children.len() > 3 {
                " ..."
            } else {
                ""
            }
        ))
    }

    /// Lists the busy directories again. Returns whether all listings were true at one moment.
    fn settle(&mut self) -> Result<bool, String> {
        let restless = self.busy.restless;
        let mut busy: Vec<u32> = self.busy.children.keys().copied().collect();
        busy.retain(|number| Some(*number) != restless);
        for number in &busy {
            self.again(*number)?;
        }
        self.all()?;
        let mut last = Listing::default();
        if let Some(number) = restless {
            for _ in 0..AGAIN {
                last = self.again(number)?;
                if last.new == 0 {
                    break;
                }
                self.all()?;
            }
        }
        let mut moving = Vec::new();
        for number in busy.into_iter().chain(restless) {
            if !self.places.is_gone(number) && !self.is_still(number)? {
                moving.push(number);
            }
        }
        self.busy.restless = match *moving {
            [one] => Some(one),
            _ => None,
        };
        // It was listed after all others and by one call of the kernel's, which no rename interrupts.
        let harmless = restless.is_some() && self.busy.restless == restless;
        Ok(moving.is_empty() || harmless && last.new == 0 && last.calls <= 2)
    }

    fn again(&mut self, number: u32) -> Result<Listing, String> {
        match self.places.is_gone(number) {
            true => Ok(Listing::default()),
            false => self.directory(number),
        }
    }

    /// The directories that changed since they were listed, without the busy ones.
    fn changed(&mut self) -> Result<Vec<u32>, String> {
        let mut changed = Vec::new();
        let listed = self.places.listed();
        self.cost.begin_pass(listed.len());
        for number in listed {
            if !self.busy.has(number) && !self.is_still(number)? {
                changed.push(number);
            }
        }
        Ok(changed)
    }

    fn is_still(&mut self, number: u32) -> Result<bool, String> {
        self.cost.step();
        self.cost.check()?;
        // With any error: an unreadable directory may have changed.
        let found = self.walk.look(&self.places, number);
        let mark = found.map(|stat| Mark::of(&stat, &self.key));
        Ok(mark.is_ok_and(|mark| self.places.is_still(number, mark)))
    }

    /// Drops results in directories that are gone: they were found again elsewhere, or are gone too. The others get the
    /// inode of their directory, with which the masks are compared.
    pub(super) fn finish(&mut self) {
        for (inside, directory) in self.inside.iter_mut().zip(&self.found_in) {
            let ino = self.places.ino(*directory);
            inside.directory = Some(ino).filter(|ino| *ino != 0);
        }
        let listed: HashSet<u32> = self.places.listed().into_iter().collect();
        let mut directories = std::mem::take(&mut self.found_in).into_iter();
        let is_there = |_: &_| directories.next().is_none_or(|d| listed.contains(&d));
        self.inside.retain(is_there);
        let buried: Vec<_> = self.buried.iter().map(|n| self.places.path(*n)).collect();
        self.inside.retain(|inside| {
            let mut above = inside.path.ancestors().skip(1);
            inside.covered || !above.any(|a| buried.iter().any(|b| b == a))
        });
    }
}
