//! The sidecar's own cgroup, beside the container's: it limits the sidecar's work, and accounts for it separately.
//!
//! cgroup v1, hybrid and v2 all occur. [`plan`] is pure. [`CgroupPlan::prepare_v2`] and [`CgroupPlan::prepare_v1`] run
//! in the runtime and make the directories (the sidecar is born in the v2 one). [`CgroupPlan::enter`] runs in the
//! sidecar: a thread can move itself at once; moving another process is slow.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::error::CgroupError;
use crate::cgroup::hierarchies::Hierarchies;
use crate::cgroup::quota;
use crate::sys::procfs;

pub(super) const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// The path and limits of the sidecar's cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupConfig {
    /// The parent of the container's cgroup, below the hierarchy's root, such as `/docker`.
    pub parent: PathBuf,
    /// The name of the sidecar's cgroup, one path component.
    pub name: String,
    /// Its limits.
    pub limits: CgroupLimits,
}

/// What a sidecar may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CgroupLimits {
    /// Memory, swap included.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
    /// CPU time per period. A limit of a v1 parent replaces it.
    pub cpu_quota_us: u64,
    /// The period.
    pub cpu_period_us: u64,
}

/// The directories to make, and the values to write into them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CgroupPlan {
    directories: Vec<Directory>,
    /// Limits that this node cannot set, for the caller to judge.
    missing: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Directory {
    version: Version,
    mount: PathBuf,
    path: PathBuf,
    settings: Vec<Setting>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Version {
    V1,
    V2,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
    controller: String,
    file: String,
    value: String,
    presence: Presence,
}

/// Why a setting may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Presence {
    /// It may not.
    Required,
    /// A kernel may lack the file: swap accounting can be compiled out or switched off.
    Optional,
    /// A parent may leave less than this: then the kernel refuses the value (EINVAL), and the parent's holds.
    UnlessLess,
}

/// Plans the cgroup for this node.
pub(crate) fn plan(config: &CgroupConfig) -> Result<CgroupPlan, CgroupError> {
    let hierarchies = Hierarchies::of_node()?;
    let unified = match hierarchies.v2() {
        Some(mount) => controllers_of(mount)?,
        None => BTreeSet::new(),
    };
    plan_on(hierarchies, &unified, config)
}

fn plan_on(
    hierarchies: &Hierarchies,
    unified: &BTreeSet<String>,
    config: &CgroupConfig,
) -> Result<CgroupPlan, CgroupError> {
    let CgroupConfig {
        parent,
        name,
        limits,
    } = config;
    let below = relative(parent, name)?;
    let mut plan = CgroupPlan::default();
    if CONTROLLERS.iter().all(|one| hierarchies.v1(one).is_none()) {
        // Also without controllers: on a pure v2 node it is the sidecar's own cgroup.
        let mount = hierarchies.v2().ok_or(CgroupError::NoHierarchy)?;
        plan.directory(Version::V2, mount, &below);
    }
    for controller in CONTROLLERS {
        let (version, mount) = match (hierarchies.v1(controller), hierarchies.v2()) {
            (Some(mount), _) => (Version::V1, mount),
            (None, Some(mount)) if unified.contains(controller) => (Version::V2, mount),
            _ => {
                let gap = format!("{controller}: no cgroup hierarchy here has this controller");
                plan.missing.push(gap);
                continue;
            }
        };
        let settings = settings(version, controller, limits);
        plan.directory(version, mount, &below)
            .settings
            .extend(settings);
    }
    Ok(plan)
}

fn settings(version: Version, controller: &str, limits: &CgroupLimits) -> Vec<Setting> {
    use Presence::{Optional, Required, UnlessLess};
    let CgroupLimits {
        memory_bytes,
        pids,
        cpu_quota_us,
        cpu_period_us,
    } = limits;
    let table = match (version, controller) {
        (Version::V1, "cpu") => vec![
            ("cpu.cfs_period_us", cpu_period_us.to_string(), Required),
            // Inside a container, cgroups above the mount point cannot be seen.
            ("cpu.cfs_quota_us", cpu_quota_us.to_string(), UnlessLess),
        ],
        (Version::V2, "cpu") => {
            vec![(
                "cpu.max",
                format!("{cpu_quota_us} {cpu_period_us}"),
                Required,
            )]
        }
        // In this order: the limit with swap may never be below the one without.
        (Version::V1, "memory") => vec![
            ("memory.limit_in_bytes", memory_bytes.to_string(), Required),
            (
                "memory.memsw.limit_in_bytes",
                memory_bytes.to_string(),
                Optional,
            ),
        ],
        (Version::V2, "memory") => vec![
            ("memory.max", memory_bytes.to_string(), Required),
            ("memory.swap.max", "0".to_owned(), Optional),
        ],
        (_, "pids") => vec![("pids.max", pids.to_string(), Required)],
        _ => Vec::new(),
    };
    let setting = |(file, value, presence): (&str, String, Presence)| Setting {
        controller: controller.to_owned(),
        file: file.to_owned(),
        value,
        presence,
    };
    table.into_iter().map(setting).collect()
}

impl CgroupPlan {
    fn directory(&mut self, version: Version, mount: &Path, below: &Path) -> &mut Directory {
        let path = mount.join(below);
        // Two controllers may share a hierarchy (`cpu,cpuacct`, or all of v2).
        let at = self.directories.iter().position(|known| known.path == path);
        let at = at.unwrap_or_else(|| {
            self.directories.push(Directory {
                version,
                mount: mount.to_owned(),
                path,
                settings: Vec::new(),
            });
            self.directories.len() - 1
        });
        &mut self.directories[at]
    }

    /// Every directory that may be made, for the record that `delete` uses.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.directories
            .iter()
            .map(|one| one.path.clone())
            .collect()
    }

    /// Limits that this node cannot set.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// The runtime's part before the sidecar starts: makes the v2 cgroup, in which it is born. The sidecar makes none:
    /// if it outlived a killed `create` for a moment, it would remake what `delete` has removed.
    pub fn prepare_v2(&mut self) -> Result<Option<OwnedFd>, CgroupError> {
        let missing = &mut self.missing;
        let v2 = |d: &&mut Directory| d.version == Version::V2;
        let mut found = self.directories.iter_mut().filter(v2);
        found.next().map(|d| prepare_v2(d, missing)).transpose()
    }

    /// The runtime's part before the sidecar gets the paths: makes the v1 cgroups.
    pub fn prepare_v1(&mut self) -> Result<(), CgroupError> {
        let v1 = |d: &&mut Directory| d.version == Version::V1;
        let mut all = self.directories.iter_mut().filter(v1);
        all.try_for_each(|directory| {
            make_parents(directory)?;
            let limits_time = directory.settings.iter().any(|s| s.controller == "cpu");
            if limits_time && quota::is_set_above(&directory.path, &directory.mount) {
                directory.settings.retain(|s| s.controller != "cpu");
            }
            make_fresh(&directory.path)
        })
    }

    /// The sidecar's part: limits the v1 cgroups and moves the calling process there.
    pub fn enter(&self) -> Result<(), CgroupError> {
        for directory in &self.directories {
            match directory.version {
                Version::V1 => enter_v1(directory)?,
                Version::V2 => {}
            }
        }
        Ok(())
    }
}

fn enter_v1(directory: &Directory) -> Result<(), CgroupError> {
    for setting in &directory.settings {
        apply(&directory.path, setting)?;
    }
    // Last, so that it is never there without its limits. "0" is the writing thread, and this process has one thread.
    // For that the kernel takes no lock that waits for a grace period of RCU (cgroup_procs_write_start, kernel/cgroup).
    write(&directory.path.join("tasks"), "0")
}

fn prepare_v2(
    directory: &mut Directory,
    missing: &mut Vec<String>,
) -> Result<OwnedFd, CgroupError> {
    make_parents(directory)?;
    let wanted: BTreeSet<String> = directory
        .settings
        .iter()
        .map(|setting| setting.controller.clone())
        .collect();
    enable(directory, &wanted);
    make_fresh(&directory.path)?;
    let have = controllers_of(&directory.path)?;
    for controller in wanted.difference(&have) {
        missing.push(format!(
            "{controller}: not enabled for the children of {:?}",
            directory.path.parent().unwrap_or(&directory.mount)
        ));
    }
    directory
        .settings
        .retain(|setting| have.contains(&setting.controller));
    for setting in &directory.settings {
        apply(&directory.path, setting)?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(&directory.path, flags, Mode::empty())
        .map_err(|error| io_error("open", &directory.path)(error.into()))
}

/// Enables the controllers from the root to the parent. A refusal is not an error by itself (a cgroup with processes in
/// it may not enable any): the caller reads the result.
fn enable(directory: &Directory, wanted: &BTreeSet<String>) {
    let mut above: Vec<&Path> = directory
        .path
        .ancestors()
        .skip(1)
        .take_while(|path| path.starts_with(&directory.mount))
        .collect();
    above.reverse();
    for path in above {
        for controller in wanted {
            let file = path.join("cgroup.subtree_control");
            if let Err(error) = fs::write(&file, format!("+{controller}")) {
                log::debug!("{controller} is not handed down at {file:?}: {error}");
            }
        }
    }
}

fn apply(path: &Path, setting: &Setting) -> Result<(), CgroupError> {
    let file = path.join(&setting.file);
    match setting.presence {
        Presence::Optional if !file.exists() => Ok(()),
        Presence::UnlessLess => match fs::write(&file, &setting.value) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            written => written.map_err(io_error("write", &file)),
        },
        Presence::Optional | Presence::Required => write(&file, &setting.value),
    }
}

fn make_parents(directory: &Directory) -> Result<(), CgroupError> {
    let parent = directory.path.parent().unwrap_or(&directory.mount);
    fs::create_dir_all(parent).map_err(io_error("make", parent))
}

/// Makes the directory, or remakes an empty one of a dead sidecar. One that still has a process is refused.
fn make_fresh(path: &Path) -> Result<(), CgroupError> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map_err(io_error("make", path)),
    }
    fs::remove_dir(path).map_err(io_error("reuse", path))?;
    fs::create_dir(path).map_err(io_error("make", path))
}

/// Removes the directories, which must have no process; missing ones are fine.
pub(crate) fn remove(paths: &[PathBuf]) -> Result<(), CgroupError> {
    paths.iter().try_for_each(|path| super::remove::tree(path))
}

/// The path below a hierarchy's mount point, with plain components only.
fn relative(parent: &Path, name: &str) -> Result<PathBuf, CgroupError> {
    use std::path::Component;
    let refuse = |path: &Path, reason| CgroupError::BadPath {
        path: path.to_owned(),
        reason,
    };
    let mut below = PathBuf::new();
    for component in parent.components() {
        match component {
            Component::RootDir => {}
            Component::Normal(part) => below.push(part),
            Component::CurDir | Component::ParentDir | Component::Prefix(_) => {
                return Err(refuse(parent, "it has a relative component"));
            }
        }
    }
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0', '\n']) {
        return Err(refuse(Path::new(name), "it is not one path component"));
    }
    below.push(name);
    Ok(below)
}

fn controllers_of(cgroup: &Path) -> Result<BTreeSet<String>, CgroupError> {
    let text = read(&cgroup.join("cgroup.controllers"))?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

fn read(path: &Path) -> Result<String, CgroupError> {
    procfs::text(path).map_err(io_error("read", path))
}

fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    fs::write(path, value).map_err(io_error("write", path))
}

fn io_error(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CgroupError {
    move |source| CgroupError::File {
        step,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
