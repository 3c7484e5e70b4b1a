//! Removes the oldest runs: the node's file limits their number and their bytes.
//!
//! This happens when a container is deleted, not when one is created. `run` and `wrap` remove the one run
//! over the limit while the program runs: a disk that discards blocks at once takes 0.1 to 4 ms for each file, and they
//! wait for nothing else then. The directory's link count shows whether there are too many: it counts subdirectories. Each deletion
//! removes a bounded number, more than a creation adds. Bytes are counted at random, so that they are counted sooner or later
//! whatever the number of runs.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::name::id_of;
use super::{LINK, RunDir, RunLifetime, base};
use crate::policy::NodeLog;
use crate::runtime::input::node_files;
use crate::runtime::state::record::Record;
use crate::runtime::state::store;
use crate::runtime::state::user_dirs::{self, DirUse};

/// The most runs that one deletion removes.
const MOST_REMOVED: usize = 64;
/// The most runs that are removed while a program runs: its input, output and signals wait meanwhile. One more than it adds.
const MOST_REMOVED_BESIDE: usize = 2;
/// The most files of such a run: an ordinary one has six. What a sandbox may have planted beside is left to the deletion.
const MOST_FILES_BESIDE: usize = 16;
/// One in this many deletions counts the bytes.
const COUNTED_EVERY: u32 = 16;
/// The most runs whose bytes are counted, newest first.
const MOST_COUNTED: usize = 4096;

/// Removes runs beyond the node's limits, after this container was deleted. A failure is a warning: nothing depends on
/// it.
pub fn prune(record: &Record) {
    let nanoseconds = chrono::Utc::now().timestamp_subsec_nanos();
    let sizes = match nanoseconds.is_multiple_of(COUNTED_EVERY) {
        true => Sizes::Count,
        false => Sizes::Ignore,
    };
    if let Err(error) = remove_old(record, Bounds::of_deletion(sizes)) {
        log::warn!("{error}");
    }
}

impl RunDir {
    /// Removes a few runs beyond the limit of their number while this container's program runs. Its deletion removes the
    /// rest, and also these where the container may see the directory: then this run's logs are not there.
    pub fn prune_beside(&self, record: &Record) {
        if self.kept == RunLifetime::Stays {
            // The deletion meets the same fault, and warns of it.
            if let Err(error) = remove_old(record, Bounds::BESIDE) {
                log::debug!("{error}");
            }
        }
    }
}

fn remove_old(record: &Record, bounds: Bounds) -> io::Result<()> {
    let Some(base) = base() else { return Ok(()) };
    let settings = node_files::log(&record.call.config).unwrap_or_default();
    // Another user could lead the removal to directories of the caller's. Most deletions remove no run, and do not ask.
    let check = || user_dirs::check(&base, DirUse::Logs).map_err(io::Error::other);
    prune_in(&base, settings, bounds, check)
        .map_err(|error| io::Error::other(format!("remove old runs from {base:?}: {error}")))
}

/// How much one removal does.
#[derive(Clone, Copy)]
struct Bounds {
    sizes: Sizes,
    /// The most runs that are removed.
    most: usize,
    /// The most that are looked at.
    tried: usize,
    /// The most files of a run that is removed.
    files: usize,
}

impl Bounds {
    const BESIDE: Self = Self {
        sizes: Sizes::Ignore,
        most: MOST_REMOVED_BESIDE,
        tried: MOST_REMOVED_BESIDE,
        files: MOST_FILES_BESIDE,
    };

    const fn of_deletion(sizes: Sizes) -> Self {
        Self {
            sizes,
            most: MOST_REMOVED,
            tried: usize::MAX,
            files: usize::MAX,
        }
    }
}

/// Whether the sizes of runs are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sizes {
    Count,
    Ignore,
}

fn prune_in(
    base: &Path,
    settings: NodeLog,
    bounds: Bounds,
    check: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let links = match fs::metadata(base) {
        Ok(metadata) => metadata.nlink(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    // Some file systems do not count links: 1.
    let count = links.checked_sub(2);
    let is_over = count.is_none_or(|count| count > u64::from(settings.runs));
    if !is_over && bounds.sizes == Sizes::Ignore {
        return Ok(());
    }
    let mut names: Vec<String> = fs::read_dir(base)?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        // Other directories do not count, and stay.
        .filter(|name| id_of(name).is_some())
        .collect();
    names.sort_unstable_by(|a, b| b.cmp(a));
    let size = |name: &str| match bounds.sizes {
        Sizes::Count => size(&base.join(name)),
        Sizes::Ignore => 0,
    };
    let old = old(&names, settings, size);
    if old.is_empty() {
        return Ok(());
    }
    check()?;
    let there = there(&store::index(), old)?;
    let mut removed = 0;
    let mut first = Ok(());
    // Oldest first.
    for name in old.iter().rev().take(bounds.tried) {
        let dir = base.join(name);
        if removed >= bounds.most {
            break;
        }
        if there.contains(&dir) || has_more_than(&dir, bounds.files) {
            continue;
        }
        match fs::remove_dir_all(&dir) {
            // Go on with the next ones: a single run that stays must not keep all others.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let named = io::Error::new(error.kind(), format!("{dir:?}: {error}"));
                first = first.and(Err(named));
            }
            // Another deletion may have been faster.
            _ => removed += 1,
        }
    }
    first
}

/// The runs beyond the limits, newest first.
fn old(names: &[String], settings: NodeLog, size: impl Fn(&str) -> u64) -> &[String] {
    let most = usize::try_from(settings.runs).unwrap_or(usize::MAX);
    let mut bytes = 0_u64;
    let within = names.iter().take(MOST_COUNTED).position(|name| {
        bytes = bytes.saturating_add(size(name));
        bytes > settings.size.bytes()
    });
    let stay = within.map_or(most, |within| within.min(most));
    names.get(stay..).unwrap_or_default()
}

fn size(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| entry.metadata().ok());
    sizes.map(|metadata| metadata.len()).sum()
}

fn has_more_than(dir: &Path, files: usize) -> bool {
    files < usize::MAX
        && fs::read_dir(dir).is_ok_and(|entries| entries.take(files + 1).count() > files)
}

/// Those of these runs whose containers exist: of the others on the node no link is read. What cannot be read is an error, so
/// that no run of a living container counts as old.
fn there(index: &Path, runs: &[String]) -> io::Result<BTreeSet<PathBuf>> {
    let ids: BTreeSet<&str> = runs.iter().filter_map(|name| id_of(name)).collect();
    let is_asked = |key: &str| store::id_of_key(key).is_some_and(|id| ids.contains(id));
    let dirs = match fs::read_dir(index) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        dirs => dirs?,
    };
    let mut found = BTreeSet::new();
    for dir in dirs {
        let dir = dir?;
        if !dir.file_name().to_str().is_some_and(is_asked) {
            continue;
        }
        match fs::read_link(dir.path().join(LINK)) {
            Ok(run) => drop(found.insert(run)),
            // A container that is deleted meanwhile, or without logs of its own.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::TestDir;

    fn settings(runs: u32) -> NodeLog {
        NodeLog {
            runs,
            size: "1MiB".parse().unwrap(),
            required: false,
        }
    }

    #[test]
    fn the_oldest_runs_exceed_the_number_or_the_size() {
        let names: Vec<String> = (0..10).rev().map(|n| format!("run{n}")).collect();
        assert_eq!(old(&names, settings(8), |_| 0), ["run1", "run0"]);
        assert_eq!(old(&names, settings(10), |_| 0).len(), 0);
        assert_eq!(old(&names, settings(0), |_| 0).len(), 10);
        // 300 KiB each: three fit in a mebibyte.
        assert_eq!(old(&names, settings(10), |_| 300 << 10).len(), 7);
    }

    #[test]
    fn one_deletion_removes_some_and_the_next_ones_the_rest() {
        let base = TestDir::new("prune");
        let run = |n: u32| base.0.join(format!("20260102T030405.{n:03}Z-c{n}"));
        for n in 0..200 {
            fs::create_dir(run(n)).unwrap();
            fs::write(run(n).join("node.jsonl"), "x").unwrap();
        }
        let left = || fs::read_dir(&base.0).unwrap().count();
        // Beside a program, two.
        let few = Bounds::BESIDE;
        prune_in(&base.0, settings(20), few, || Ok(())).unwrap();
        assert_eq!(left(), 198);
        // One with many files waits for a deletion, and is counted.
        for file in 0..20 {
            fs::write(run(2).join(file.to_string()), "x").unwrap();
        }
        prune_in(&base.0, settings(20), few, || Ok(())).unwrap();
        assert!(run(2).exists() && !run(3).exists());
        fs::create_dir(run(3)).unwrap();
        for expected in [134, 70, 20, 20] {
            prune_in(
                &base.0,
                settings(20),
                Bounds::of_deletion(Sizes::Ignore),
                || Ok(()),
            )
            .unwrap();
            assert_eq!(left(), expected);
        }
        assert!(run(199).exists() && run(180).exists() && !run(179).exists());
        assert!(
            prune_in(
                &base.0.join("absent"),
                settings(20),
                Bounds::of_deletion(Sizes::Count),
                || Ok(())
            )
            .is_ok()
        );
    }

    #[test]
    fn a_run_of_an_existing_container_is_known_by_its_link() {
        let index = TestDir::new("prune-there");
        let runs = ["20260102T030405.001Z-a-b", "20260102T030405.002Z-b"].map(str::to_owned);
        for (key, run) in [("0123-a-b", 0), ("4567-b", 0), ("89ab-c", 1)] {
            fs::create_dir(index.0.join(key)).unwrap();
            let to = PathBuf::from("/runs").join(&runs[run]);
            std::os::unix::fs::symlink(to, index.0.join(key).join(LINK)).unwrap();
        }
        fs::create_dir(index.0.join("cdef-b")).unwrap();
        let all = |runs: &[String]| {
            let found = there(&index.0, runs).unwrap();
            found.into_iter().collect::<Vec<_>>()
        };
        let first = PathBuf::from("/runs").join(&runs[0]);
        assert_eq!(all(&runs), [first]);
        assert!(there(&index.0.join("absent"), &runs).unwrap().is_empty());
        // What is no directory cannot be read.
        fs::write(index.0.join("file"), "").unwrap();
        assert!(there(&index.0.join("file"), &runs).is_err());
        // The link of a container with another id leads to no run of this one.
        assert_eq!(
            all(&["20260102T030405.009Z-z".to_owned()]),
            [""; 0].map(PathBuf::from)
        );
    }

    #[test]
    fn the_size_counts_even_if_the_number_of_runs_stays_the_same() {
        let base = TestDir::new("prune-size");
        let run = |n: u32| base.0.join(format!("20260102T030405.{n:03}Z-c{n}"));
        // One more than the limit, as with each deletion; 20 KiB each, of which 51 fit in a mebibyte.
        for n in 0..201 {
            fs::create_dir(run(n)).unwrap();
            fs::write(run(n).join("node.jsonl"), [b'x'; 20 << 10]).unwrap();
        }
        let left = || fs::read_dir(&base.0).unwrap().count();
        prune_in(
            &base.0,
            settings(200),
            Bounds::of_deletion(Sizes::Ignore),
            || Ok(()),
        )
        .unwrap();
        assert_eq!(left(), 200);
        for expected in [136, 72, 51, 51] {
            prune_in(
                &base.0,
                settings(200),
                Bounds::of_deletion(Sizes::Count),
                || Ok(()),
            )
            .unwrap();
            assert_eq!(left(), expected);
        }
    }

    #[test]
    fn other_directories_stay_and_an_unremovable_run_hinders_nothing() {
        let base = TestDir::new("prune-stray");
        let run = |n: u32| base.0.join(format!("20260102T030405.{n:03}Z-c{n}"));
        for n in 1..10 {
            fs::create_dir(run(n)).unwrap();
        }
        // A plain file with the name of a run cannot be removed as a directory.
        fs::write(run(0), "").unwrap();
        for stray in ["zzz", "0", "notes.txt"] {
            fs::write(base.0.join(stray), "").unwrap();
        }
        let error = prune_in(
            &base.0,
            settings(5),
            Bounds::of_deletion(Sizes::Ignore),
            || Ok(()),
        )
        .unwrap_err();
        assert!(error.to_string().contains("-c0"), "{error}");
        let there: Vec<bool> = (0..10).map(|n| run(n).exists()).collect();
        assert_eq!(
            there,
            [
                true, false, false, false, false, true, true, true, true, true
            ]
        );
        assert!(
            ["zzz", "0", "notes.txt"]
                .iter()
                .all(|stray| base.0.join(stray).exists())
        );
    }
}
