//! What a search may cost, and has cost.
//!
//! It is root's, outside of every container's limits, and what it reads was written by agents. So all of it is
//! counted: entries, bytes read, and memory.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::policy::SearchRule;

/// The most that is masked inside one mount's source: each is a mount, of which the kernel gives 100,000.
const MASKS: usize = 10_000;

/// The most that their paths take, bytes: a plan holds each several times.
const NAMES: usize = 4 << 20;

/// The most that is kept in memory of directories and of git's indexes, MiB.
const ROOM: usize = 64;

/// The longest time for directories that change while they are searched.
const SETTLE: Duration = Duration::from_secs(10);

/// How many entries are seen between two looks at the clock.
const ENTRIES: usize = 64;

/// As a power of two, how many bytes are read between two looks at the clock.
const BYTES: u32 = 16;

/// The limits of the search.
#[derive(Clone, Copy)]
pub(in crate::probe) struct SearchBudget {
    pub(super) entries: usize,
    /// Of files: git's indexes and the names in them, contents that are compared.
    pub(super) bytes: u64,
    pub(super) time: Duration,
    /// How often directories that change meanwhile are listed again.
    pub(super) rounds: usize,
}

impl SearchBudget {
    /// In the directories of the node that `wrap` shows under `permissive`, of which a search never sees the end. What is in
    /// the person's own home is masked by its name.
    pub(in crate::probe) const SYSTEM: Self = Self {
        entries: 16_384,
        bytes: 64 << 20,
        time: Duration::from_millis(500),
        rounds: 1,
    };

    /// When a container has ended, and its engine waits.
    pub(super) const AGAIN: Self = Self {
        entries: 2_000_000,
        bytes: 0,
        time: Duration::from_secs(20),
        rounds: 0,
    };

    /// Where all must be seen: more than any project has, and as long as a person waits. Where the rest may go unseen:
    /// what hardly delays a start.
    pub(in crate::probe) fn of(rule: SearchRule) -> Self {
        match rule {
            SearchRule::Complete => Self {
                entries: 1_000_000,
                bytes: 1 << 30,
                time: Duration::from_secs(60),
                // Beside a build that makes and removes directories without a pause one round of fifty finds a moment in which none
                // changes.
                rounds: 2_000,
            },
            SearchRule::Partial => Self {
                entries: 100_000,
                bytes: 256 << 20,
                time: Duration::from_secs(1),
                rounds: 4,
            },
        }
    }
}

/// The search has used up its budget; [`Cost::check`] says which part.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SearchExhausted;

/// What has been done.
pub(super) struct Cost {
    budget: SearchBudget,
    start: Instant,
    entries: usize,
    steps: usize,
    bytes: u64,
    masks: usize,
    names: usize,
    kept: usize,
    over: Option<String>,
}

impl Cost {
    pub(super) fn new(budget: SearchBudget) -> Self {
        Self {
            budget,
            start: Instant::now(),
            entries: 0,
            steps: 0,
            bytes: 0,
            masks: 0,
            names: 0,
            kept: 0,
            over: None,
        }
    }

    /// Whether directories that change are listed once more: a workload may change them without end.
    pub(super) fn goes_on(&self, round: usize, begun: Instant) -> bool {
        const FEW: usize = 40;
        round < FEW.min(self.budget.rounds)
            || (round < self.budget.rounds && begun.elapsed() < SETTLE)
    }

    /// Waits until a directory's times tell of a further change.
    pub(super) fn rest(&mut self, time: Duration) {
        std::thread::sleep(time.min(self.budget.time / 4));
        self.look();
    }

    /// Something that was seen before is looked at again: that takes time, and nothing else.
    pub(super) fn step(&mut self) {
        self.steps += 1;
        if self.steps % ENTRIES == 1 {
            self.look();
        }
    }

    /// Why it must stop, where it must.
    pub(super) fn check(&self) -> Result<(), String> {
        self.over.clone().map_or(Ok(()), Err)
    }

    pub(super) fn is_spent(&self) -> bool {
        self.over.is_some()
    }

    /// One more entry of a directory.
    pub(super) fn entry(&mut self) {
        self.entries += 1;
        let most = self.budget.entries;
        if self.entries > most {
            self.end(format!(
                "it has more than {most} entries (du --inodes tells where)"
            ));
        }
        if self.entries % ENTRIES == 1 {
            self.look();
        }
    }

    /// So many bytes are to be looked at.
    pub(super) fn read(&mut self, bytes: usize) -> Result<(), SearchExhausted> {
        let before = self.bytes;
        self.bytes += bytes as u64;
        if self.bytes > self.budget.bytes {
            let most = self.budget.bytes >> 20;
            self.end(format!(
                "git's indexes in it and the files that may be credentials take more than {most} MiB to read"
            ));
        }
        if before >> BYTES != self.bytes >> BYTES {
            self.look();
        }
        match self.over {
            Some(_) => Err(SearchExhausted),
            None => Ok(()),
        }
    }

    /// So many bytes are to be kept in memory.
    pub(super) fn keep(&mut self, bytes: usize) -> Result<(), SearchExhausted> {
        self.kept += bytes;
        if self.kept > ROOM << 20 {
            self.end(format!(
                "its directories and git's indexes take more than {ROOM} MiB of memory to look at"
            ));
            return Err(SearchExhausted);
        }
        Ok(())
    }

    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// What was kept since there was so much is no longer.
    pub(super) fn forget(&mut self, before: usize) {
        self.kept = before;
    }

    /// One more place is masked, or seen in one that is.
    pub(super) fn mask(&mut self, path: &Path) {
        self.masks += 1;
        self.names += path.as_os_str().len();
        if self.masks > MASKS {
            self.end(format!("it has more than {MASKS} sockets and credentials: remove them (find . -type s -delete)"));
        }
        if self.names > NAMES {
            let most = NAMES >> 20;
            self.end(format!(
                "the paths of the sockets and credentials in it take more than {most} MiB: remove them (find . -type s -delete)"
            ));
        }
    }

    fn look(&mut self) {
        if self.start.elapsed() > self.budget.time {
            let (seen, seconds) = (self.entries, self.budget.time.as_secs());
            self.end(format!("after {seconds} s only {seen} entries were seen"));
        }
    }

    fn end(&mut self, why: String) {
        self.over.get_or_insert(why);
    }
}
