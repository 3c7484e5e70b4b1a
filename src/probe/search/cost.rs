//! The limits of a search, and what it has used of them.
//!
//! The search runs as root, outside of every container's limits, on files that agents wrote. So entries, bytes read and
//! memory are all counted.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::log::progress::Progress;
use crate::policy::SearchRule;

/// Most masks inside one mount's source. Each is a mount, of which the kernel allows 100,000.
const MASKS: usize = 10_000;

/// Most bytes in their paths: a plan holds each path several times.
const NAMES: usize = 4 << 20;

/// Most memory for directories and git's indexes, MiB.
const ROOM: usize = 64;

/// The same when a container has ended: what is not seen then is not moved aside.
const ROOM_AT_END: usize = 256;

/// Time limit for directories that change while they are searched.
const SETTLE: Duration = Duration::from_secs(10);

/// Entries between two checks of the clock.
const ENTRIES: usize = 64;

/// Bytes read between two checks of the clock, as a power of two.
const BYTES: u32 = 16;

/// The limits of the search.
#[derive(Clone, Copy)]
pub(in crate::probe) struct SearchBudget {
    pub(super) entries: usize,
    /// Bytes of files: git's indexes and the names in them, compared contents.
    pub(super) bytes: u64,
    pub(super) time: Duration,
    /// How often directories that change meanwhile are listed again.
    pub(super) rounds: usize,
    /// Memory for directories and git's indexes, MiB.
    pub(super) room: usize,
}

impl SearchBudget {
    /// For the node's directories that `wrap` shows under `permissive`, which no search finishes. Credentials in the
    /// user's own home are masked by name.
    pub(in crate::probe) const SYSTEM: Self = Self {
        entries: 16_384,
        bytes: 64 << 20,
        time: Duration::from_millis(500),
        rounds: 1,
        room: ROOM,
    };

    /// For the known places alone, when a search before the start has stopped.
    pub(super) const BY_NAME: Self = Self {
        entries: 0,
        bytes: 256 << 20,
        time: Duration::from_secs(1),
        rounds: 0,
        room: ROOM,
    };

    /// For one index when a container has ended.
    pub(super) const INDEX_AT_END: Self = Self {
        entries: 0,
        bytes: 1 << 30,
        time: Duration::from_secs(10),
        rounds: 0,
        room: ROOM_AT_END,
    };

    /// When a container has ended. All of its sources share the time.
    pub(super) const AGAIN: Self = Self {
        entries: 2_000_000,
        bytes: 0,
        time: Duration::ZERO,
        rounds: 0,
        room: ROOM_AT_END,
    };

    /// `Complete`: more than any project has, and as long as a user waits. `Partial`: hardly delays a start.
    pub(in crate::probe) fn of(rule: SearchRule) -> Self {
        match rule {
            SearchRule::Complete => Self {
                entries: 1_000_000,
                bytes: 1 << 30,
                time: Duration::from_secs(60),
                // Beside a build that makes and removes directories without a pause, one round of fifty finds a quiet
                // moment.
                rounds: 2_000,
                room: ROOM,
            },
            SearchRule::Partial => Self {
                entries: 100_000,
                bytes: 256 << 20,
                time: Duration::from_secs(1),
                rounds: 4,
                room: ROOM,
            },
        }
    }
}

/// The search has used up its budget; [`Cost::check`] says which part.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SearchExhausted;

/// What the search has used.
pub(super) struct Cost {
    budget: SearchBudget,
    start: Instant,
    entries: usize,
    directories: usize,
    steps: usize,
    /// What the present pass over known directories has looked at, and will look at.
    pass: (usize, usize),
    bytes: u64,
    masks: usize,
    names: usize,
    kept: usize,
    over: Option<String>,
    /// What a user at a terminal hears if it takes long.
    pub(super) progress: Progress,
}

impl Cost {
    pub(super) fn new(budget: SearchBudget) -> Self {
        Self {
            budget,
            start: Instant::now(),
            entries: 0,
            directories: 0,
            steps: 0,
            pass: (0, 0),
            bytes: 0,
            masks: 0,
            names: 0,
            kept: 0,
            over: None,
            progress: Progress::none(),
        }
    }

    /// Whether changing directories are listed once more: a workload may change them without end.
    pub(super) fn goes_on(&self, round: usize, begun: Instant) -> bool {
        const FEW: usize = 40;
        round < FEW.min(self.budget.rounds)
            || (round < self.budget.rounds && begun.elapsed() < SETTLE)
    }

    /// Waits until a further change would show in a directory's times.
    pub(super) fn rest(&mut self, time: Duration) {
        std::thread::sleep(time.min(self.budget.time / 4));
        self.look();
    }

    /// Counts a repeated check of a known directory, which takes only time.
    pub(super) fn step(&mut self) {
        self.steps += 1;
        self.pass.0 += 1;
        if self.steps % ENTRIES == 1 {
            self.look();
        }
    }

    /// Begins a pass over so many known directories.
    pub(super) fn begin_pass(&mut self, directories: usize) {
        self.pass = (0, directories);
    }

    /// Counts a directory that is opened. Those without entries take time too.
    pub(super) fn directory(&mut self) {
        self.directories += 1;
        if self.directories % ENTRIES == 1 {
            self.look();
        }
    }

    /// The reason why the search must stop, if it must.
    pub(super) fn check(&self) -> Result<(), String> {
        self.over.clone().map_or(Ok(()), Err)
    }

    pub(super) fn is_spent(&self) -> bool {
        self.over.is_some()
    }

    /// Counts one more entry of a directory.
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

    /// Counts bytes that will be read.
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

    /// Counts bytes that will be kept in memory.
    pub(super) fn keep(&mut self, bytes: usize) -> Result<(), SearchExhausted> {
        self.kept += bytes;
        let room = self.budget.room;
        if self.kept > room << 20 {
            self.end(format!(
                "its directories and git's indexes take more than {room} MiB of memory to look at"
            ));
            return Err(SearchExhausted);
        }
        Ok(())
    }

    pub(super) fn kept_count(&self) -> usize {
        self.kept
    }

    /// Frees the memory that was counted after `before`.
    pub(super) fn forget(&mut self, before: usize) {
        self.kept = before;
    }

    /// Counts one more mask, or one more visible file in a masked directory.
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

    /// Ends a search that found more of the user's tools' files than are looked at.
    pub(super) fn too_many(&mut self) {
        self.end("it has too many files that tools run".to_owned());
    }

    fn look(&mut self) {
        let (entries, directories) = (self.entries, self.directories);
        let (steps, (looked_at, all)) = (self.steps, self.pass);
        self.progress.tell(|| match (steps, looked_at <= all) {
            (0, _) => format!("{entries} entries, {directories} directories"),
            (_, true) => {
                format!("{entries} entries, looking again at {looked_at} of {all} directories")
            }
            (_, false) => format!("{entries} entries, looking again at {steps}"),
        });
        if self.start.elapsed() > self.budget.time {
            let (seen, seconds) = (self.entries, self.budget.time.as_secs());
            self.end(format!(
                "the search reached only {seen} entries in {seconds} s"
            ));
        }
    }

    fn end(&mut self, why: String) {
        self.over.get_or_insert(why);
    }
}
