//! An index from namespaces to containers: a `create` that joins a namespace by path reads only the records of the
//! containers in it, and not those of the whole node.
//!
//! ```text
//! /run/agentbox/namespaces/
//!   net-4-4026532281/<root>-<id>    a container that was in this network namespace when it was created
//!   listed/<root>-<id>              all entries of this container are made
//! /run/agentbox/index/<root>-<id>/namespaces    what `delete` takes out again, one a line
//! ```
//! An entry only says where to look: the record and the kernel decide whether a container is in a namespace. A
//! container that is not `listed` (one in creation) is always read. Verbs remove entries of deleted containers when
//! they meet them. The index misses processes that change their namespaces later, which is possible only without a
//! policy: namespaces made by them belong to no container.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::runtime::RuntimeError;
use crate::runtime::state::record::Record;
use crate::runtime::state::store::{self, ContainerPaths};
use crate::sys::procfs;

/// The file in a container's directory that names its entries.
const FILE: &str = "namespaces";
const LISTED: &str = "listed";

/// The namespaces in which another container may join one: by their names in /proc/PID/ns.
pub const SHAREABLE: [&str; 4] = ["net", "pid", "ipc", "uts"];

/// A namespace, identified by its inode in nsfs. The kernel reuses the inode later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Namespace {
    name: &'static str,
    device: u64,
    inode: u64,
}

impl Namespace {
    /// The namespace of this file; `None` for a kind that containers do not share.
    pub fn of(name: &str, file: &fs::Metadata) -> Option<Self> {
        let name = SHAREABLE.into_iter().find(|kind| *kind == name)?;
        Some(Self {
            name,
            device: file.dev(),
            inode: file.ino(),
        })
    }

    /// The namespaces of a process.
    pub fn of_process(pid: i32) -> Result<BTreeSet<Self>, RuntimeError> {
        let mut found = BTreeSet::new();
        for name in SHAREABLE {
            let path = format!("/proc/{pid}/ns/{name}");
            let file =
                fs::metadata(&path).map_err(RuntimeError::io(format!("look at {path:?}")))?;
            found.extend(Self::of(name, &file));
        }
        Ok(found)
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            device,
            inode,
        } = self;
        write!(f, "{name}-{device}-{inode}")
    }
}

/// The index of a run directory.
pub struct Census {
    run: PathBuf,
    /// Records that were read, by key; `None` if unreadable.
    read: BTreeMap<String, Option<Record>>,
    /// Keys of containers that are not in the index, once they were needed.
    unlisted: Option<Vec<String>>,
}

impl Census {
    /// The node's index.
    pub fn of_node() -> Self {
        Self::at(store::run_dir())
    }

    fn at(run: &Path) -> Self {
        Self {
            run: run.to_owned(),
            read: BTreeMap::new(),
            unlisted: None,
        }
    }

    /// Enters a container, whose directory exists already, in its namespaces.
    pub fn enter(
        &self,
        place: &ContainerPaths,
        inside: &BTreeSet<Namespace>,
    ) -> Result<(), RuntimeError> {
        self.enter_key(place.key(), inside)
    }

    fn enter_key(&self, key: &str, inside: &BTreeSet<Namespace>) -> Result<(), RuntimeError> {
        let list = self.dir(key).join(FILE);
        let names: Vec<String> = inside.iter().map(ToString::to_string).collect();
        fs::write(&list, names.join("\n")).map_err(RuntimeError::io(format!("write {list:?}")))?;
        for name in &names {
            self.add(name, key)?;
        }
        // Last: from now on the index must find it.
        self.add(LISTED, key)
    }

    /// Removes a container, while its directory still exists.
    pub fn leave(&self, place: &ContainerPaths) -> Result<(), RuntimeError> {
        self.leave_key(place.key())
    }

    fn leave_key(&self, key: &str) -> Result<(), RuntimeError> {
        self.remove(LISTED, key)?;
        let list = self.dir(key).join(FILE);
        let names = match procfs::text(&list) {
            Ok(names) => names,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(RuntimeError::io(format!("read {list:?}"))(e)),
        };
        // Only names that we make; a path would lead elsewhere.
        for name in names.lines().filter(|name| !name.contains(['/', '.'])) {
            self.remove(name, key)?;
        }
        Ok(())
    }

    /// Records of containers that may be in this namespace: all of those, and some others.
    pub fn candidates(&mut self, of: &Namespace) -> Result<Vec<&Record>, RuntimeError> {
        let name = of.to_string();
        // First: a container that is listed in between has its entries when they are read.
        let unlisted = self.unlisted()?;
        let mut keys = names(&self.entries(&name))?;
        for key in &keys {
            self.read_once(key);
            if self.read[key].is_none() && !self.dir(key).exists() {
                self.forget(&name, key)?;
            }
        }
        for key in unlisted {
            self.read_once(&key);
            keys.insert(key);
        }
        let records = keys.iter().filter_map(|key| self.read.get(key)?.as_ref());
        Ok(records.collect())
    }

    fn read_once(&mut self, key: &str) {
        if !self.read.contains_key(key) {
            let record = Record::read(&self.dir(key)).ok();
            self.read.insert(key.to_owned(), record);
        }
    }

    /// The containers that are not listed, from two lists of names. Forgets listed ones that are gone.
    fn unlisted(&mut self) -> Result<Vec<String>, RuntimeError> {
        if let Some(found) = &self.unlisted {
            return Ok(found.clone());
        }
        // In this order: a container has its directory before and after it is listed.
        let listed = names(&self.entries(LISTED))?;
        let there = names(&self.run.join("index"))?;
        for key in listed.difference(&there) {
            self.forget(LISTED, key)?;
        }
        let found: Vec<String> = there.difference(&listed).cloned().collect();
        self.unlisted = Some(found.clone());
        Ok(found)
    }

    /// Removes an entry whose container is gone, unless one of the same name was created meanwhile.
    fn forget(&self, name: &str, key: &str) -> Result<(), RuntimeError> {
        self.remove(name, key)?;
        match self.dir(key).join(FILE).exists() {
            true => self.add(name, key),
            false => Ok(()),
        }
    }

    fn add(&self, name: &str, key: &str) -> Result<(), RuntimeError> {
        let dir = self.entries(name);
        let failed = || RuntimeError::io(format!("enter the container in {dir:?}"));
        // The directory is removed with its last entry.
        for last in [false, false, false, true] {
            let mut builder = fs::DirBuilder::new();
            let made = builder.mode(0o700).recursive(true).create(&dir);
            made.map_err(failed())?;
            let target = Path::new("../../index").join(key);
            match std::os::unix::fs::symlink(target, dir.join(key)) {
                Err(e) if e.kind() == ErrorKind::NotFound && !last => {}
                Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(failed()(e)),
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    fn remove(&self, name: &str, key: &str) -> Result<(), RuntimeError> {
        let entry = self.entries(name).join(key);
        match fs::remove_file(&entry) {
            Err(e) if !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Err(RuntimeError::io(format!("remove {entry:?}"))(e));
            }
            _ => {}
        }
        // It stays if it has other entries.
        let _kept = fs::remove_dir(self.entries(name));
        Ok(())
    }

    fn entries(&self, name: &str) -> PathBuf {
        self.run.join("namespaces").join(name)
    }

    fn dir(&self, key: &str) -> PathBuf {
        self.run.join("index").join(key)
    }
}

/// The names in a directory; empty if it does not exist.
fn names(dir: &Path) -> Result<BTreeSet<String>, RuntimeError> {
    match fs::read_dir(dir) {
        Ok(entries) => Ok(entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(e) => Err(RuntimeError::io(format!("read {dir:?}"))(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run directory for a test, removed with the value.
    struct Run(PathBuf);

    impl Run {
        fn new(name: &str) -> Self {
            let name = format!("agentbox-census-{}-{name}", std::process::id());
            let run = std::env::temp_dir().join(name);
            fs::create_dir_all(run.join("index")).unwrap();
            Self(run)
        }

        /// A container with a readable record; all records are alike except for the id.
        fn container(&self, key: &str) {
            let dir = self.0.join("index").join(key);
            fs::create_dir_all(&dir).unwrap();
            Record::bare(key).save(&dir).unwrap();
        }

        fn found(&self, of: &Namespace) -> Vec<String> {
            let mut census = Census::at(&self.0);
            let found = census.candidates(of).unwrap();
            found.into_iter().map(|record| record.id.clone()).collect()
        }

        fn entries(&self) -> Vec<String> {
            let mut found: Vec<String> = Vec::new();
            for dir in names(&self.0.join("namespaces")).unwrap() {
                let keys = names(&self.0.join("namespaces").join(&dir)).unwrap();
                found.extend(keys.iter().map(|key| format!("{dir}/{key}")));
            }
            found
        }
    }

    impl Drop for Run {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn namespace(inode: u64) -> Namespace {
        Namespace {
            name: "net",
            device: 4,
            inode,
        }
    }

    #[test]
    fn only_records_of_the_namespace_and_unlisted_ones_are_read() {
        let run = Run::new("read");
        for (key, inode) in [("a", 1), ("b", 1), ("c", 2)] {
            run.container(key);
            let entered = Census::at(&run.0).enter_key(key, &[namespace(inode)].into());
            entered.unwrap();
        }
        assert_eq!(run.found(&namespace(1)), ["a", "b"]);
        assert_eq!(run.found(&namespace(2)), ["c"]);
        assert!(run.found(&namespace(3)).is_empty());
        // One in creation, which is not in the index.
        run.container("old");
        assert_eq!(run.found(&namespace(1)), ["a", "b", "old"]);
        assert_eq!(run.found(&namespace(3)), ["old"]);
        // Other records are not even opened.
        let mut census = Census::at(&run.0);
        census.candidates(&namespace(2)).unwrap();
        assert_eq!(census.read.keys().collect::<Vec<_>>(), ["c", "old"]);
    }

    #[test]
    fn leaving_empties_the_index_and_stale_entries_are_removed_when_met() {
        let run = Run::new("stale");
        let census = Census::at(&run.0);
        for key in ["a", "b"] {
            run.container(key);
            census
                .enter_key(key, &[namespace(1), namespace(2)].into())
                .unwrap();
        }
        census.leave_key("a").unwrap();
        assert_eq!(run.entries(), ["listed/b", "net-4-1/b", "net-4-2/b"]);
        // Leaving twice is harmless, and so is leaving without having entered.
        census.leave_key("a").unwrap();
        census.leave_key("never").unwrap();
        // Until its directory is gone it is unlisted, and always read.
        assert_eq!(run.found(&namespace(3)), ["a"]);
        fs::remove_dir_all(run.0.join("index/a")).unwrap();
        // A container's directory was removed, and with it the list of its entries.
        fs::remove_dir_all(run.0.join("index/b")).unwrap();
        assert!(run.found(&namespace(1)).is_empty());
        assert_eq!(run.entries(), ["net-4-2/b"]);
        assert!(run.found(&namespace(2)).is_empty());
        assert!(run.entries().is_empty());
    }

    #[test]
    fn a_list_that_names_paths_leads_nowhere() {
        let run = Run::new("paths");
        run.container("a");
        let census = Census::at(&run.0);
        census.enter_key("a", &[namespace(1)].into()).unwrap();
        fs::write(run.0.join("index/a").join(FILE), "../index\n/tmp\n..").unwrap();
        census.leave_key("a").unwrap();
        assert!(run.0.join("index/a/record.json").exists());
    }

    #[test]
    fn a_kind_that_is_not_shared_is_not_entered() {
        let own = fs::metadata("/proc/self/ns/mnt").unwrap();
        assert!(Namespace::of("mnt", &own).is_none());
        let pid = i32::try_from(std::process::id()).unwrap();
        assert_eq!(Namespace::of_process(pid).unwrap().len(), SHAREABLE.len());
    }
}
