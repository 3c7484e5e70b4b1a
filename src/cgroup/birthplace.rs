//! The container's own cgroup, made and limited before its init process is born there; exec processes are born there too.
//!
//! On cgroup v2 the kernel puts a new process there (CLONE_INTO_CGROUP). On v1 the new process moves there itself,
//! before anything else: a thread that writes "0" into `tasks` moves itself, for which the kernel takes no lock that
//! waits for a grace period of RCU (cgroup_procs_write_start, kernel/cgroup/cgroup.c). With libcontainer each hierarchy
//! costs such a lock, and forty calls to find it.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libcgroups::common::{CgroupConfig, CgroupManager, ControllerOpt, create_cgroup_manager};
use oci_spec::runtime::LinuxResources;
use rustix::fs::{Mode, OFlags};

use super::error::CgroupError;
use crate::cgroup::controllers::Controllers;
use crate::cgroup::hierarchies::ROOT;
use crate::cgroup::limits;
use crate::cgroup::systemd_v1::open_tasks;

const CPUSET: &str = "cpuset";

/// A cgroup that waits for its init process.
pub struct Birthplace {
    /// The directories. The process that moves there opens their files, because its limit of descriptors may be small.
    made: Controllers,
    /// The v2 directory, on a node with only v2.
    unified: Option<OwnedFd>,
}

impl Birthplace {
    /// Makes the cgroup of this path (linux.cgroupsPath) and sets its limits. Device rules come later: the process
    /// makes its devices first ([`super::devices`]).
    pub fn make(path: &Path, resources: Option<&LinuxResources>) -> Result<Self, CgroupError> {
        let made = Controllers::at(path)?;
        match made.unified().map(Path::to_owned) {
            Some(dir) => Self::make_unified(made, &dir, path, resources),
            None => Self::make_v1(made, resources),
        }
    }

    /// The caller's own cgroup, if the caller cannot make one: the process is where its parent is.
    pub fn callers() -> Self {
        Self {
            made: Controllers::default(),
            unified: None,
        }
    }

    /// The cgroup of a container that runs, for another process: `below` it, on a node with only v2. It is not made
    /// again if it is gone.
    pub fn existing(mut of: Controllers, below: Option<&str>) -> Result<Self, CgroupError> {
        let unified = match of.unified() {
            Some(dir) => Some(open_dir(&dir.join(below.unwrap_or_default()))?),
            None => None,
        };
        if unified.is_none() {
            // Its limits are v1's. What systemd made in v2 beside them takes no single thread.
            of.v2 = None;
        }
        Ok(Self { made: of, unified })
    }

    fn make_unified(
        made: Controllers,
        dir: &Path,
        path: &Path,
        resources: Option<&LinuxResources>,
    ) -> Result<Self, CgroupError> {
        if !dir.exists() {
            make_below(Path::new(ROOT), dir)?;
        }
        if let Some(resources) = resources {
            let limited = |e: &dyn std::error::Error| CgroupError::NotSet(crate::log::chain(e));
            let manager = create_cgroup_manager(CgroupConfig {
                cgroup_path: path.to_owned(),
                systemd_cgroup: false,
                container_name: String::new(),
            });
            let manager = manager.map_err(|e| limited(&e))?;
            let options = ControllerOpt {
                resources,
                disable_oom_killer: false,
                oom_score_adj: None,
                freezer_state: None,
            };
            manager.apply(&options).map_err(|e| limited(&e))?;
        }
        Ok(Self {
            made,
            unified: Some(open_dir(dir)?),
        })
    }

    fn make_v1(made: Controllers, resources: Option<&LinuxResources>) -> Result<Self, CgroupError> {
        for dir in made.all() {
            fs::create_dir_all(dir).map_err(CgroupError::io(format!("make the cgroup {dir:?}")))?;
        }
        if let Some(dir) = made.v1(CPUSET) {
            // A new cpuset is empty, and accepts no process.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                inherit(dir, file)?;
            }
        }
        if let Some(resources) = resources {
            limits::apply(&made, resources).map_err(|error| match error {
                CgroupError::Limit(why) => CgroupError::NotSet(why.to_string()),
                other => other,
            })?;
        }
        Ok(Self {
            made,
            unified: None,
        })
    }

    /// Where the kernel puts the process; `None` if it moves by [`Self::enter`].
    pub fn born_in(&self) -> Option<BorrowedFd<'_>> {
        self.unified.as_ref().map(AsFd::as_fd)
    }

    /// For the new process, which must have one thread: moves it to the v1 cgroups.
    pub fn enter(&self) -> Result<(), CgroupError> {
        if self.unified.is_some() {
            return Ok(());
        }
        for dir in self.made.all() {
            rustix::io::write(open_tasks(dir)?, b"0")
                .map_err(CgroupError::io("move to a cgroup"))?;
        }
        Ok(())
    }

    /// Whether the kernel reports a process in this cgroup.
    pub fn holds(&self, found: &Controllers) -> bool {
        let Controllers { v1, v2 } = &self.made;
        let is_in = |dir: &PathBuf, found: Option<&PathBuf>| found.is_some_and(|f| is_same(dir, f));
        v1.iter().all(|(name, dir)| is_in(dir, found.v1.get(name)))
            && v2.iter().all(|dir| is_in(dir, found.v2.as_ref()))
    }
}

fn open_dir(dir: &Path) -> Result<OwnedFd, CgroupError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty())
        .map_err(CgroupError::io(format!("open the cgroup {dir:?}")))
}

/// Whether two paths are the same cgroup: a hierarchy may have a second mount.
fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path| fs::metadata(path).map(|m| (m.dev(), m.ino()));
    one == other || matches!((identity(one), identity(other)), (Ok(a), Ok(b)) if a == b)
}

/// Makes a v2 cgroup, and enables its controllers. A controller that a parent does not enable limits nothing below;
/// setting its limit then is the error.
fn make_below(root: &Path, dir: &Path) -> Result<(), CgroupError> {
    let all = words(root, "cgroup.controllers")?;
    let mut above = PathBuf::from(root);
    let below = dir.strip_prefix(root).unwrap_or(dir);
    for component in below.components() {
        let handed = words(&above, "cgroup.subtree_control")?;
        let file = above.join("cgroup.subtree_control");
        for controller in all.difference(&handed) {
            if let Err(error) = fs::write(&file, format!("+{controller}")) {
                log::debug!("{controller} is not handed down at {file:?}: {error}");
            }
        }
        above.push(component);
        match fs::create_dir(&above) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(CgroupError::io(format!("make the cgroup {above:?}"))(e));
            }
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn words(dir: &Path, file: &str) -> Result<BTreeSet<String>, CgroupError> {
    let path = dir.join(file);
    let text = fs::read_to_string(&path).map_err(CgroupError::io(format!("read {path:?}")))?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// Copies an empty cpuset file from its parent, whose own may be empty too. Returns the value.
fn inherit(dir: &Path, file: &str) -> Result<String, CgroupError> {
    let path = dir.join(file);
    let read = fs::read_to_string(&path);
    let own = read.map_err(CgroupError::io(format!("read {path:?}")))?;
    if !own.trim().is_empty() {
        return Ok(own);
    }
    let above = dir.parent().map(|above| inherit(above, file));
    let above = above.unwrap_or_else(|| Ok(String::new()))?;
    fs::write(&path, &above).map_err(CgroupError::io(format!("write {path:?}")))?;
    Ok(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("agentbox-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn an_empty_cpuset_is_copied_from_its_parent() {
        let root = scratch("cpuset");
        let dir = root.join("a/b");
        fs::create_dir_all(&dir).unwrap();
        fs::write(root.join("cpuset.cpus"), "0-3\n").unwrap();
        for empty in ["a", "a/b"] {
            fs::write(root.join(empty).join("cpuset.cpus"), "\n").unwrap();
        }
        assert_eq!(inherit(&dir, "cpuset.cpus").unwrap(), "0-3\n");
        for filled in ["a", "a/b"] {
            let text = fs::read_to_string(root.join(filled).join("cpuset.cpus")).unwrap();
            assert_eq!(text, "0-3\n");
        }
        // An own value stays.
        fs::write(dir.join("cpuset.cpus"), "1\n").unwrap();
        assert_eq!(inherit(&dir, "cpuset.cpus").unwrap(), "1\n");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_process_must_be_in_every_directory_that_was_made() {
        let controllers = |names: &[(&str, &str)], v2: Option<&str>| Controllers {
            v1: names
                .iter()
                .map(|(name, dir)| ((*name).to_owned(), PathBuf::from(dir)))
                .collect(),
            v2: v2.map(PathBuf::from),
        };
        let place = |made| Birthplace {
            made,
            unified: None,
        };
        let two = controllers(&[("cpu", "/c/a"), ("pids", "/p/a")], None);
        let more = controllers(&[("cpu", "/c/a"), ("pids", "/p/a")], Some("/u/x"));
        assert!(place(two.clone()).holds(&more));
        assert!(!place(two).holds(&controllers(&[("cpu", "/c/a")], None)));
        let unified = controllers(&[], Some("/u/a"));
        assert!(place(unified.clone()).holds(&unified));
        assert!(!place(unified).holds(&controllers(&[], None)));
    }
}
