//! `exec --cgroup`: the cgroups below the container's that the process joins.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags};

use super::error::{ExecError, SubCgroupError};
use crate::cgroup::controllers::Controllers;
use crate::cgroup::systemd_v1;
use crate::runtime::error::RuntimeError;
use crate::runtime::state::record::ProcessId;

fn refused(why: SubCgroupError) -> RuntimeError {
    ExecError::from(why).into()
}

/// Where the process goes.
#[derive(Default)]
pub struct SubCgroup {
    /// cgroup.procs and tasks files to which the helper of the process writes itself.
    pub descriptors: Vec<OwnedFd>,
    /// A cgroup below the container's in which the process begins. Under cgroup v2 the container's own cgroup cannot
    /// take a process when it enables controllers for its children (cgroups(7), "no internal processes").
    pub below: Option<String>,
}

/// Opens the cgroups of each `--cgroup`: `PATH`, or `CONTROLLER[,CONTROLLER...]:PATH` under cgroup v1. `PATH` is
/// relative to the container's cgroup, also if it begins with `/`. Without the option, cgroup v2 may need the init
/// process's own cgroup. The words are runc's.
pub fn open(
    given: &[String],
    controllers: &Controllers,
    init: ProcessId,
) -> Result<SubCgroup, RuntimeError> {
    if let Some(dir) = controllers.unified() {
        let below = match given {
            [] => moved(dir, init)?,
            [one] => unified(dir, one)?,
            _ => return Err(refused(SubCgroupError::Twice)),
        };
        return Ok(SubCgroup {
            descriptors: Vec::new(),
            below,
        });
    }
    // The given cgroups come after those of the controllers, and count.
    let systemd = controllers.v1(systemd_v1::NAME).map(systemd_v1::open_tasks);
    let mut descriptors = Vec::from_iter(systemd.transpose()?);
    for text in given {
        let (names, path) = split(text)?;
        let dirs = match names {
            None => controllers.v1.values().map(|d| d.as_path()).collect(),
            Some(names) => names
                .split(',')
                .map(|n| {
                    let unknown = || {
                        refused(SubCgroupError::Controller {
                            name: n.to_owned(),
                            given: text.clone(),
                        })
                    };
                    controllers.v1(n).ok_or_else(unknown)
                })
                .collect::<Result<Vec<_>, _>>()?,
        };
        for dir in dirs {
            descriptors.push(open_procs(&dir.join(path))?);
        }
    }
    Ok(SubCgroup {
        descriptors,
        below: None,
    })
}

/// Splits controllers, if any, from a path that stays below the container's cgroup.
fn split(text: &str) -> Result<(Option<&str>, &Path), RuntimeError> {
    let (names, path) = text
        .split_once(':')
        .map_or((None, text), |(n, p)| (Some(n), p));
    let path = Path::new(path.trim_start_matches('/'));
    let plain = |c| matches!(c, Component::Normal(_) | Component::CurDir);
    if path.components().all(plain) {
        Ok((names, path))
    } else {
        Err(refused(SubCgroupError::Path(text.to_owned())))
    }
}

fn unified(dir: &Path, text: &str) -> Result<Option<String>, RuntimeError> {
    let (names, path) = split(text)?;
    if names.is_some() {
        return Err(refused(SubCgroupError::OneHierarchy));
    }
    drop(open_procs(&dir.join(path))?);
    Ok(Some(path.display().to_string()).filter(|p| !p.is_empty()))
}

fn open_procs(dir: &Path) -> Result<OwnedFd, RuntimeError> {
    let file = dir.join("cgroup.procs");
    rustix::fs::open(&file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map_err(|e| match e {
        rustix::io::Errno::NOENT => refused(SubCgroupError::Absent(file.clone())),
        e => RuntimeError::io(format!("error adding pid to cgroups: open {file:?}"))(e),
    })
}

/// The init process's current cgroup, if the container's cgroup cannot take processes any more.
fn moved(dir: &Path, init: ProcessId) -> Result<Option<String>, RuntimeError> {
    let handed_on = fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
    if handed_on.trim().is_empty() {
        return Ok(None);
    }
    let now = Controllers::of(init.pid)?;
    let below = now.v2.as_deref().and_then(|d| d.strip_prefix(dir).ok());
    Ok(below
        .map(|b| b.display().to_string())
        .filter(|b| !b.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: ProcessId = ProcessId {
        pid: i32::MAX,
        start_time: 0,
    };

    fn node(name: &str) -> (std::path::PathBuf, Controllers) {
        let dir =
            std::env::temp_dir().join(format!("agentbox-sub-cgroup-{name}-{}", std::process::id()));
        for controller in ["cpu", "memory"] {
            fs::create_dir_all(dir.join(controller).join("sub")).unwrap();
            fs::write(dir.join(controller).join("cgroup.procs"), "").unwrap();
        }
        fs::write(dir.join("cpu/sub/cgroup.procs"), "").unwrap();
        let v1 = ["cpu", "memory"].map(|c| (c.to_owned(), dir.join(c)));
        (
            dir,
            Controllers {
                v1: v1.into(),
                v2: None,
            },
        )
    }

    #[test]
    fn a_path_is_below_the_containers_cgroup_and_exists() {
        let (dir, controllers) = node("v1");
        let count = |text: &str| {
            open(&[text.to_owned()], &controllers, NOBODY).map(|m| m.descriptors.len())
        };
        assert_eq!(count("/").unwrap(), 2);
        assert_eq!(count("cpu:sub").unwrap(), 1);
        assert_eq!(count("cpu,memory:/").unwrap(), 2);
        for bad in [
            "..",
            "sub/../..",
            "nonexistent",
            "sub",
            "pids:/",
            "cpu:nonexistent",
        ] {
            assert!(count(bad).is_err(), "{bad}");
        }
        assert!(
            open(&[], &controllers, NOBODY)
                .unwrap()
                .descriptors
                .is_empty()
        );
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn under_cgroup_v2_the_process_begins_in_the_sub_cgroup() {
        let (dir, _) = node("v2");

        let controllers = Controllers {
            v1: [].into(),
            v2: Some(dir.join("cpu")),
        };
        let found = open(&["/sub".to_owned()], &controllers, NOBODY).unwrap();
        assert_eq!(found.below.as_deref(), Some("sub"));
        assert!(open(&["cpu:/sub".to_owned()], &controllers, NOBODY).is_err());
        fs::remove_dir_all(dir).unwrap();
    }
}
